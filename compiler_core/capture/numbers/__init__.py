"""Numbers that change from call to call: inputs of a graph, not constants; and sizes that are symbols.

- `clocks.py`: clocks of Python's module `time`, read when the program would.
- `functions.py`: functions of such numbers: texts, `min`, `round`, `math`'s, conversions.
- `holding.py`: what a native function of the program's may reach: no size or number of the call's among it.
- `lifting.py`: numbers beside tensors: 0-d tensors, inputs of the graph.
- `making.py`: tensors that functions make of numbers that change.
- `numbers.py`: the numbers and texts of one segment, and what was made of them.
- `operands.py`: numbers and sizes as arguments of functions of tensors.
- `places.py`: `x[i]` with an `i` that changes.
- `reads.py`: numbers that the graph computes, known when it has run.
- `selections.py`: what a mask selects, whose size only the data tells.
- `sizes.py`: sizes of tensors from outside that are symbols, with guards.
- `sourced_sizes.py`: where each symbol is read from at later calls, and what was assumed of it.
- `symbols.py`: numbers and texts that carry the formula of what they were computed from.
"""
