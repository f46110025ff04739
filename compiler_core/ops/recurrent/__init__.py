"""A recurrent layer as one op, and its backward as another, in all the forms that compute them.

- `batched.py`: Recurrent layers over a batch (vmap): the rows of all examples are rows of one layer.
- `by_numpy.py`: Recurrent layers in NumPy: the definition of `recurrent` and `recurrent_backward`, and what eager
  runs.
- `cpp.py`: C++ of the recurrent layers: the text that stands once in a source that calls them.
- `layer.py`: A recurrent layer in one direction as a composite, which eager code computes whole.
- `native.py`: The recurrent layer in C++: how generated code calls `recurrent` and `recurrent_backward`.
- `op.py`: A recurrent layer in one direction as one op, and its backward as another: `recurrent`,
  `recurrent_backward`.
- `sizes.py`: The sizes that all forms of a recurrent layer share: gates, what is saved, which rows a step has.
- `unrolled.py`: The backward of a recurrent layer, written with other ops, step by step: what its own derivative is
  made from.
"""
