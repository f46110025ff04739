"""The semantics by which the machine captures: Python's own, with sources, guards and effects beside.

`semantics.py`: which part answers what the machine asks for; `parts.py`: all parts, each handed what
it needs; `part.py`: what each has.
What is read and changed: `variables.py`, `attributes.py`, `changing.py` (attributes), `items.py`, `containers.py`
(their changes), `iteration.py`. What is computed: `operators.py`, `text.py`, `statements.py`. Calls: `calls.py`,
`c_calls.py` (of what is written in C), `entering.py` (frames), `native.py` (what runs as it is, under the trace).
What they all ask: `classes.py` (what a class says, guarded), `lookup.py` (the same, as facts), `keys.py` (what is
hashed and compared). `rules/`: what answers calls of callables that are known.
"""
