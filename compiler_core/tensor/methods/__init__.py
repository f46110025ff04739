"""The methods and operators of Tensor.

- `about_handles.py`: Tensor methods about the handle (sizes, dtype conversion, copies), and those unlike the
  function of their name.
- `by_places.py`: `x[index]` and `x[index] = value` by index tensors, at once: NumPy's own indexing, where nothing is
  recorded.
- `derived.py`: More of torch's functions and methods, each composed of others in a line or two.
- `indexing.py`: Reading and writing by index: `x[index]`, `x[index] = value`, for every index NumPy and torch
  share.
- `inplace.py`: In-place methods: a function of the present value, assigned back; and those of them that are no
  function's twin.
- `interop.py`: Python and NumPy see a Tensor's data: item, tolist, bool, float, numpy, `__array__`.
- `of_functions.py`: Tensor methods that are functions, and their twins in place: made of
  compiler_core/names/torch_table.py.
- `of_layouts.py`: Tensor methods about layouts: to_sparse, to_dense, sparse_mask, and the parts that only sparse
  tensors have.
- `operators.py`: Python's operators on Tensors.
- `rare.py`: Tensor methods that few programs use: further draws, questions with one answer here.
"""
