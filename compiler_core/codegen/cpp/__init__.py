"""C++ from loop IR: types, indices, scalars, expressions, statements, programs, in that order of dependence."""
