"""C++ from loop IR: types, indices, scalars, expressions, statements, programs, in that order of dependence.

`many_sizes.py`: one C++ code for sources that differ in numbers alone.
"""
