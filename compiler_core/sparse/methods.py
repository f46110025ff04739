"""The methods of any tensor that sparse code computes, as the slot of `tensor/methods/of_layouts.py` wants them.

In: the functions of the other files. Out: a table, method -> function of the Tensor, with NumPy's names of arguments.
"""

from __future__ import annotations

from compiler_core.ops.numpy_names import numpy_names
from compiler_core.sparse import convert, in_place, parts, products
from compiler_core.tensor.methods.of_layouts import METHODS

_FUNCTIONS = (
    *(convert.to_sparse, convert.to_sparse_coo, convert.to_sparse_csr, convert.to_sparse_csc, convert.to_sparse_blocks),
    *(convert.sparse_mask, convert.mask_projection),
    *(parts.coalesce, parts.is_coalesced, parts.set_coalesced, parts.nnz, parts.indices, parts.values),
    *(parts.raw_indices, parts.raw_values),
    *(parts.crow_indices, parts.col_indices, parts.ccol_indices, parts.row_indices),
    *(products.smm, products.sspaddmm),
    *(in_place.sparse_resize_, in_place.sparse_resize_and_clear_, in_place.resize_as_sparse_),
)

METHODS.fill({function.__name__: numpy_names(function) for function in _FUNCTIONS})
