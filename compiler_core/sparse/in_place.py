"""Writing to sparse tensors in place, and to dense ones from sparse ones.

In: a tensor and what is to take its place. Out: the tensor. Where torch writes the values in their memory, so that who
has `_values()` or a detached handle sees it (div_, neg_, functions of each element; all of compressed tensors), so it
is here, unless it is recorded; else (mul_, add_, copy_) the tensor gets other parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.errors import DTypeError, LayoutError, ShapeError, SparseError
from compiler_core.sparse import arithmetic, copies, movement, pointwise, products
from compiler_core.sparse.construct import empty_like
from compiler_core.sparse.convert import to_dense
from compiler_core.sparse.nodes import is_recorded
from compiler_core.sparse.places import reshaped
from compiler_core.sparse.rows import add_rows
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import SparseValue
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import sizes
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.tensor import Tensor

_Functions = Sequence[tuple[str, Callable[..., Any]]]
_SUMS = (arithmetic.add, arithmetic.sub)
_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _snapshot(self: SparseTensor) -> SparseTensor:
    """What the tensor is now, under a handle of its own."""
    now = wrap(self.pattern, self.sparse.values)
    now._node = self._node
    return now


def _store(self: SparseTensor, result: SparseTensor, *, moves: bool = False, through: bool = False) -> SparseTensor:
    """Put `result` in the tensor's place. moves: its shape may be another. through: in the memory of its values."""
    if not moves and tuple(result.shape) != tuple(self.shape):
        raise ShapeError("an in-place operation cannot change the shape", expected=str(tuple(self.shape)),
                         got=str(tuple(result.shape)))  # fmt: skip
    if _RANKS[result.dtype.kind] > _RANKS[self.dtype.kind]:
        raise DTypeError(f"dtype of values ({result.dtype.name}) must match dtype of sparse tensor ({self.dtype.name})")
    if result.dtype is not self.dtype:
        result = result.to(self.dtype)
    node = result._node
    is_through = through or not self.pattern.is_coo
    if is_through and node is None and self._node is None and result.pattern is self.pattern:
        with no_grad():
            self.sparse.values._assign(result.sparse.values)
        return self
    self._cell.write(SparseValue(result.pattern, result.sparse.values))
    self._node = node
    rebound(self)
    return self


def in_place(function: Callable[..., Any], *, moves: bool = False, through: bool = False) -> Callable[..., Tensor]:
    """The method that puts what `function` gives in the place of its first operand."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self._check_in_place()
        if isinstance(self, SparseTensor):
            result = function(_snapshot(self), *args, **kwargs)
            if not isinstance(result, SparseTensor):
                raise LayoutError("the result of an in-place operation on a sparse tensor would be dense")
            return _store(self, result, moves=moves, through=through)
        if function in _SUMS and not is_recorded(self, *args) and tuple(args[0].shape) == tuple(self.shape):
            alpha = args[1] if len(args) > 1 else kwargs.get("alpha", 1)
            if args[0].dtype is self.dtype and self.dtype.is_inexact:
                add_rows(self, args[0], -alpha if function is arithmetic.sub else alpha)
                return self
        result = function(self._snapshot(), *args, **kwargs)
        self._assign(to_dense(result) if isinstance(result, SparseTensor) else result)
        return self

    return method


_PUT: _Functions = (
    ("add_", arithmetic.add),
    ("sub_ subtract_", arithmetic.sub),
    ("mul_ multiply_", arithmetic.mul),
    ("addmm_", products.addmm),
)
_WRITTEN: _Functions = (
    ("div_ divide_ true_divide_", arithmetic.div),
    ("floor_divide_", arithmetic.floor_divide),
    ("neg_ negative_", pointwise.neg),
    ("conj_physical_", pointwise.conj),
)
_MOVED: _Functions = (("t_", movement.t), ("transpose_ swapaxes_ swapdims_", movement.transpose))
for _table, _options in ((_PUT, {}), (_WRITTEN, {"through": True}), (_MOVED, {"moves": True})):
    for _names, _function in _table:
        rule(*_names.split())(in_place(_function, **_options))


def _pointwise_in_place(name: str) -> Callable[..., Tensor]:
    method = in_place(pointwise.POINTWISE[name], through=True)

    def checked(self: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
        if not self.pattern.coalesced:
            raise SparseError(f"{name}_ requires coalesced input")
        return method(self, *args, **kwargs)

    return checked


for _name in pointwise.POINTWISE:
    if "." not in _name and not _name.startswith("is"):
        rule(f"{_name}_")(_pointwise_in_place(_name))


@rule("copy_")
def copy_(self: Any, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Take over src's elements. Raises SparseError between sparse and dense tensors."""
    if self.layout is not src.layout:
        raise SparseError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{self.layout} and src type = {src.layout}", remedy="to_dense() or to_sparse() first",
        )  # fmt: skip
    if tuple(self.shape) != tuple(src.shape):
        raise ShapeError(f"copy_: sizes differ, {list(self.shape)} and {list(src.shape)}")
    self._check_in_place()
    moved: Any = src.to(self.device, self.dtype)
    copied = copies.clone(moved)
    is_alike = not self.pattern.is_coo and arithmetic.are_equal(self.pattern, copied.pattern)
    return _store(self, copied if not is_alike else wrap(self.pattern, copied.sparse.values))


@rule("zero_")
def zero_(self: SparseTensor) -> SparseTensor:
    """Leave all elements out."""
    self._check_in_place()
    return _store(self, empty_like(self, tuple(self.shape)))


# ---- other sizes


@rule("sparse_resize_")
def sparse_resize_(self: SparseTensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Another size with the same elements, where they fit. Raises SparseError where they might not."""
    shape, pattern = sizes((size,)), self.pattern
    _check_dims(shape, sparse_dim, dense_dim)
    if not pattern.nnz:
        return sparse_resize_and_clear_(self, size, sparse_dim, dense_dim)
    for what, now, wanted in (
        ("sparse", pattern.sparse_dim, sparse_dim), ("dense", len(pattern.dense_shape), dense_dim),
    ):  # fmt: skip
        if now != wanted:
            raise SparseError(
                f"changing the number of {what} dimensions (from {now} to {wanted}) on a non-empty sparse tensor "
                "is not supported."
            )
    for what, before, after in (
        ("sparse", pattern.sparse_shape, shape[:sparse_dim]), ("dense", pattern.dense_shape, shape[sparse_dim:]),
    ):  # fmt: skip
        if any(b < a for a, b in zip(before, after)):
            raise SparseError(
                f"shrinking the size of {what} dimensions (from {list(before)} to {list(after)}) on a non-empty sparse "
                "tensor is not supported."
            )
    held = self.sparse.values
    if pattern.dense_shape != shape[sparse_dim:]:
        wider = held.new_zeros((held.shape[0], *shape[sparse_dim:]))
        wider[tuple(slice(0, n) for n in held.shape)] = held
        held = wider
    self._cell.write(SparseValue(reshaped(pattern, shape), held))
    rebound(self)
    return self


def _check_dims(shape: Any, sparse_dim: int, dense_dim: int) -> None:
    if sparse_dim + dense_dim != len(shape):
        raise SparseError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = "
            f"{sparse_dim}, dense_dim = {dense_dim}"
        )


@rule("sparse_resize_and_clear_")
def sparse_resize_and_clear_(self: SparseTensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Another size, without elements."""
    from compiler_core.sparse.construct import _empty_coo

    shape = sizes((size,))
    _check_dims(shape, sparse_dim, dense_dim)
    self._cell.write(_empty_coo(shape, self.dtype, self.device, dense_dim).sparse)
    rebound(self)
    return self


@rule("resize_as_sparse_")
def resize_as_sparse_(input: SparseTensor, the_template: SparseTensor) -> SparseTensor:
    """The size and dims of another one."""
    dims = the_template.pattern.sparse_dim, len(the_template.pattern.dense_shape)
    return sparse_resize_(input, tuple(the_template.shape), *dims)
