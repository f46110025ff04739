"""Attention: the op and its backward, in all the forms that compute them, and torch's function over them.

- `by_numpy.py`: Attention with NumPy (or CuPy): the definition that its C++ is held to.
- `composed.py`: Attention and its backward written with other ops: for backends without the routine, and second
  derivatives.
- `composite.py`: Scaled dot product attention over any Value, with torch's arguments.
- `cpp.py`: C++ of attention: the text that stands once in a source that calls it.
- `kernels.py`: Attention on a CUDA device: how `attention` and `attention_backward` are launched as Triton kernels.
- `mapped.py`: Attention under vmap: the batch of examples beside the batch that the op has itself.
- `native.py`: Attention in C++: how generated code calls `attention` and `attention_backward`.
- `op.py`: Attention of queries to keys as one op, and its backward as another: `attention`, `attention_backward`.
- `sizes.py`: The sizes that all forms of attention share.
"""
