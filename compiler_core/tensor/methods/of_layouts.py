"""Tensor methods about layouts: to_sparse, to_dense, sparse_mask, and the parts that only sparse tensors have.

In: Tensors. Out: the table `LayoutMethods`, a base of Tensor. What they do says a later stage, compiler_core/sparse,
which is loaded at the first call of one. No graph holds sparse tensors: while one is recorded, a call that would make
one breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from compiler_core.late import Late
from compiler_core.memory_format import strided
from compiler_core.ops.registry import current_trace

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

# method -> what it does
METHODS: Late[Mapping[str, Callable[..., Any]]] = Late("sparse: methods")
REFUSE_TRACE: Late[Callable[[str], NoReturn]] = Late("sparse: refusal")  # while a graph is recorded
# (leaf, gradient): add to `.grad`, of which, or of what comes, one is sparse
ACCUMULATE: Late[Callable[[Tensor, Any], None]] = Late("sparse: gradients")


def _late(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            REFUSE_TRACE.get()(f"{name}() of a tensor")
        return METHODS.get()[name](self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See compiler_core/sparse/methods.py: {name}."
    return method


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
    to_sparse, to_sparse_coo = _late("to_sparse"), _late("to_sparse_coo")
    to_sparse_csr, to_sparse_csc = _late("to_sparse_csr"), _late("to_sparse_csc")
    to_sparse_bsr, to_sparse_bsc = _late("to_sparse_blocks"), _late("to_sparse_blocks")
    _to_sparse, _to_sparse_csr, _to_sparse_csc = to_sparse, to_sparse_csr, to_sparse_csc
    sparse_mask, _sparse_mask_projection = _late("sparse_mask"), _late("mask_projection")
    coalesce, is_coalesced, _coalesced_ = _late("coalesce"), _late("is_coalesced"), _late("set_coalesced")
    _nnz, indices, values = _late("nnz"), _late("indices"), _late("values")
    _indices, _values = _late("raw_indices"), _late("raw_values")
    crow_indices, col_indices = _late("crow_indices"), _late("col_indices")
    ccol_indices, row_indices = _late("ccol_indices"), _late("row_indices")
    smm, sspaddmm = _late("smm"), _late("sspaddmm")
    sparse_resize_, resize_as_sparse_ = _late("sparse_resize_"), _late("resize_as_sparse_")
    sparse_resize_and_clear_ = _late("sparse_resize_and_clear_")
