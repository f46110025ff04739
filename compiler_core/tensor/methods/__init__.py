"""The methods and operators of Tensor.

- `about_handles.py`: Tensor methods about the handle (sizes, dtype conversion, copies), and those unlike the
  function of their name.
- `derived.py`: More of torch's functions and methods, each composed of others in a line or two.
- `indexing.py`: Reading and writing by index: `x[index]`, `x[index] = value`, for every index NumPy and torch
  share.
- `inplace.py`: In-place methods: a function of the present value, assigned back.
- `interop.py`: Python and NumPy see a Tensor's data: item, tolist, bool, float, numpy, `__array__`.
- `late.py`: The Tensor methods that compiler_core/torch_table.py lists, and their in-place forms, as a base class
  of Tensor.
- `of_functions.py`: The table of Tensor methods that are functions of compiler_core/ops as they are, under torch's
  names.
- `of_layouts.py`: Tensor methods about layouts: to_sparse, to_dense, sparse_mask, and the parts that only sparse
  tensors have.
- `operators.py`: Python's operators on Tensors.
- `rare.py`: Tensor methods that few programs use: other names of in-place ones, further draws, questions with one
  answer here.
"""
