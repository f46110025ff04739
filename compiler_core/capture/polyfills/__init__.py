"""Python for what is written in C and calls the program's own functions.

- `builtins.py`: Python for what is C in CPython and calls the program's own functions: entered like the program's
  code.
- `of_autograd.py`: What a backward in the graph does to `.grad`, entered like the program's code: what is read there
  is guarded, what is written is an effect.
- `of_itertools.py`: Python for what is C in `itertools`.
- `of_overrides.py`: The protocol of `__torch_function__` for the machine: overrides/calls.py, entered like the
  program's code.
"""
