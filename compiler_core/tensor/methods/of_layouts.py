"""Tensor methods about layouts: to_sparse, to_dense, sparse_mask, and the parts that only sparse tensors have.

In: Tensors. Out: the table `LayoutMethods`, a base of Tensor. What they do is in compiler_core/sparse, which is loaded
at the first call of one. No graph holds sparse tensors: while one is recorded, a call that would make one breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.memory_format import strided
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.torch_names import load

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_TABLE = """
convert:to_sparse convert:to_sparse_coo convert:to_sparse_csr convert:to_sparse_csc convert:to_sparse_blocks
convert:sparse_mask convert:mask_projection parts:coalesce parts:is_coalesced parts:set_coalesced parts:nnz
parts:indices parts:values parts:raw_indices parts:raw_values parts:crow_indices parts:col_indices parts:ccol_indices
parts:row_indices products:smm products:sspaddmm in_place:sparse_resize_ in_place:sparse_resize_and_clear_
in_place:resize_as_sparse_
"""


def _late(entry: str) -> Callable[..., Any]:
    file, _, name = entry.partition(":")
    place = f"compiler_core.sparse.{file}", name

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            load(("compiler_core.sparse.value", "refuse_trace"))(f"{name}() of a tensor")
        return load(place)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See compiler_core/sparse/{file}.py:{name}."
    return method


_METHODS = {entry.partition(":")[2]: _late(entry) for entry in _TABLE.split()}


def _to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """This tensor, which is dense, in `dtype` if one is given."""
    return self if dtype is None else self.to(dtype)


class LayoutMethods:
    """The table."""

    __slots__ = ()
    layout = property(lambda self: strided)
    is_sparse, is_sparse_csr = property(lambda self: False), property(lambda self: False)
    to_dense = _to_dense
    dense_dim, sparse_dim = (lambda self: self.ndim), (lambda self: 0)
    to_sparse, to_sparse_coo = _METHODS["to_sparse"], _METHODS["to_sparse_coo"]
    to_sparse_csr, to_sparse_csc = _METHODS["to_sparse_csr"], _METHODS["to_sparse_csc"]
    to_sparse_bsr, to_sparse_bsc = _late("convert:to_sparse_blocks"), _late("convert:to_sparse_blocks")
    _to_sparse, _to_sparse_csr, _to_sparse_csc = to_sparse, to_sparse_csr, to_sparse_csc
    sparse_mask, _sparse_mask_projection = _METHODS["sparse_mask"], _METHODS["mask_projection"]
    coalesce, is_coalesced, _coalesced_ = _METHODS["coalesce"], _METHODS["is_coalesced"], _METHODS["set_coalesced"]
    _nnz, indices, values = _METHODS["nnz"], _METHODS["indices"], _METHODS["values"]
    _indices, _values = _METHODS["raw_indices"], _METHODS["raw_values"]
    crow_indices, col_indices = _METHODS["crow_indices"], _METHODS["col_indices"]
    ccol_indices, row_indices = _METHODS["ccol_indices"], _METHODS["row_indices"]
    smm, sspaddmm = _METHODS["smm"], _METHODS["sspaddmm"]
    sparse_resize_, resize_as_sparse_ = _METHODS["sparse_resize_"], _METHODS["resize_as_sparse_"]
    sparse_resize_and_clear_ = _METHODS["sparse_resize_and_clear_"]
