"""Collectives as ops: what ranks of a group do together with an array each, as nodes of a graph.

- `runner.py`: who runs them: a protocol, which the layer above fills in; what one is, as data.
- `op.py`: the ops that all ranks take part in: shape rule, definition, gradient, rule for batches.
- `messages.py`: send and receive, of two ranks.
"""
