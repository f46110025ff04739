"""Sums, products and quotients with sparse operands: add, sub, mul, div, floor_divide.

In: sparse tensors, dense ones, numbers. Out: sparse, where no element can come from nothing; else dense, or torch's
refusal. Promotion is that of dense tensors.
"""

from __future__ import annotations

import math
from typing import Any

from compiler_core.dtype import DType, promote
from compiler_core.errors import LayoutError, ShapeError, SparseError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import broadcast_shapes
from compiler_core.ops.refusals import check_factor
from compiler_core.sparse.construct import empty_like
from compiler_core.sparse.convert import as_layout_of, to_dense, to_layout
from compiler_core.sparse.kernels import summed
from compiler_core.sparse.movement import coo_of
from compiler_core.sparse.nodes import record
from compiler_core.sparse.parts import at_places, coalesced, index_of, layout_name
from compiler_core.sparse.places import (
    array_of,
    coo_pattern,
    coordinates,
    found_in,
    joined,
    keys_of,
    module_of,
    parted,
    runs_of,
)
from compiler_core.sparse.pointwise import conjugate
from compiler_core.sparse.rules import not_there, rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.tensor import Tensor

Number = bool | int | float | complex


def is_number(value: Any) -> bool:
    """Whether it is a number, or a dense tensor of one without dims."""
    return isinstance(value, Number) or (not isinstance(value, SparseTensor) and value.ndim == 0)


def cast(tensor: Tensor, dtype: DType) -> Tensor:
    """A tensor of any layout in a dtype."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def common(*operands: Any) -> DType:
    """The dtype of a result: tensors with dims outrank those without, and these numbers."""
    return promote(*[one.dtype if isinstance(one, Tensor) and one.ndim else one for one in operands])


# ---- sums


@rule("add")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other. Both sparse, or the second. Raises SparseError for a dense or a number beside a sparse."""
    return _sum(input, other, alpha, "Add")


@rule("sub", "subtract")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other."""
    return _sum(input, other, -alpha, "Sub")


@rule("__rsub__", "rsub")
def rsub(self: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * self."""
    return _sum(other, self, -alpha, "Rsub")


def _sum(a: Any, b: Any, alpha: Any, name: str) -> Tensor:
    sparse = [isinstance(one, SparseTensor) for one in (a, b)]
    if all(sparse):
        return _sum_of_sparse(a, b, alpha, name)
    if sparse[0] and not a.pattern.is_coo and isinstance(b, Tensor) and b.ndim:
        return _scaled(_sum(_scaled(b, alpha), a, 1, name), 1)
    if sparse[0]:
        raise SparseError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not isinstance(a, Tensor) or tuple(a.shape) != tuple(b.shape):
        raise ShapeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {_size(a)} while other has size "
            f"{_size(b)} (FYI: dense-sparse addition does not currently support broadcasting)"
        )
    dtype = common(a, b)
    check_factor("add", dtype, alpha)
    made: Tensor = F.add(cast(a.detach(), dtype), to_dense(cast(b.detach(), dtype)), alpha=alpha)
    pulls = (lambda g: cast(g, a.dtype), lambda g: cast(_scaled(g, alpha), b.dtype))
    return record(name, made, (a, b), pulls)


def _size(value: Any) -> list[int]:
    return list(value.shape) if isinstance(value, Tensor) else []


def _scaled(tensor: Tensor, alpha: Any) -> Tensor:
    return tensor if alpha == 1 else tensor * alpha


def _sum_of_sparse(a: SparseTensor, b: SparseTensor, alpha: Any, name: str) -> Tensor:
    if tuple(a.shape) != tuple(b.shape):
        raise ShapeError(f"add: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")
    if a.pattern.layout is not b.pattern.layout:
        raise LayoutError(f"the sum of a {layout_name(a)} and a {layout_name(b)} tensor", remedy="convert one of them")
    if a.pattern.sparse_dim != b.pattern.sparse_dim:
        raise SparseError(
            f"add: expected 'self' and 'other' to have same number of sparse dimensions, but {a.pattern.sparse_dim} != "
            f"{b.pattern.sparse_dim}"
        )
    dtype = common(a, b)
    check_factor("add", dtype, alpha)
    first, second = (cast(one.detach(), dtype) for one in (a, b))
    made = wrap(*_joined(first, second, alpha))  # type: ignore[arg-type]
    pulls = (lambda g: cast(g, a.dtype), lambda g: cast(_scaled(g, alpha), b.dtype))
    return record(name, made, (a, b), pulls)


def _joined(a: SparseTensor, b: SparseTensor, alpha: Any) -> tuple[Pattern, Tensor]:
    """Pattern and values of the sum: sorted, if both are, else one list after the other."""
    left, right = a.sparse.values, _times(b.sparse.values, alpha)
    if a.pattern is b.pattern or (a.pattern.coalesced and are_equal(a.pattern, b.pattern)):
        return a.pattern, F.logical_or(left, right) if left.dtype.kind == "b" else F.add(left, right)
    if not a.pattern.is_coo:
        kind = a.pattern.layout
        pattern, values = _joined(coalesced(coo_of(a)), coalesced(coo_of(wrap(b.pattern, right))), 1)
        made: Any = to_layout(wrap(pattern, values), kind)
        return made.pattern, made.sparse.values
    xp, shape = module_of(a.pattern), a.pattern.shape
    if not (a.pattern.coalesced and b.pattern.coalesced):
        where = xp.concatenate([array_of(one.pattern.indices[0]) for one in (a, b)], axis=1)
        return coo_pattern(where, shape, coalesced=False), F.cat([left, right], 0)
    keys = xp.concatenate([keys_of(a.pattern), keys_of(b.pattern)])
    order = xp.argsort(keys, kind="stable")
    first, kinds = runs_of(keys[order], xp)
    ordered = keys[order][first]
    total = summed(array_of(F.cat([left, right], 0)), kinds, len(ordered), order)
    return coo_pattern(parted(ordered, a.pattern.sparse_shape, xp), shape, coalesced=True), Tensor._wrap(total)


def are_equal(a: Pattern, b: Pattern) -> bool:
    """Whether two patterns have the same places in the same order."""
    if a.nnz != b.nnz or a.layout is not b.layout:
        return False
    return all(x._cell is y._cell or bool((array_of(x) == array_of(y)).all()) for x, y in zip(a.indices, b.indices))


def _times(values: Tensor, alpha: Any) -> Tensor:
    return values if alpha == 1 else prims.cast(F.mul(values, alpha), values.dtype)


# ---- products


@rule("mul", "multiply")
def mul(input: Any, other: Any) -> Tensor:
    """Element by element: the elements that both have."""
    if not isinstance(input, SparseTensor):
        return _product(other, input, (1, 0))
    return _product(input, other, (0, 1))


def _product(a: SparseTensor, b: Any, order: tuple[int, int]) -> Tensor:
    """order: which of the call's operands a and b are."""
    dtype = common(a, b)
    if is_number(b):
        made = wrap(a.pattern, prims.cast(F.mul(a.sparse.values, b if isinstance(b, Number) else b.detach()), dtype))
    elif isinstance(b, SparseTensor):
        made = _product_of_sparse(a.detach(), b.detach(), dtype)
    else:
        made = _product_by_dense(a, b, dtype)
    operands = (a, b)
    pulls = (lambda g: cast(as_layout_of(_by(g, b), a), a.dtype), lambda g: cast(_summed_to(_by(g, a), b), b.dtype))
    kept = [one for one in operands if isinstance(one, Tensor)]
    return record("Mul", made, [operands[k] for k in order], [pulls[k] for k in order], kept)


def _by(gradient: Tensor, factor: Any) -> Tensor:
    return gradient * conjugate(factor)  # type: ignore[no-any-return]


def _summed_to(gradient: Tensor, operand: Tensor) -> Tensor:
    """The gradient of an operand that may have been broadcast, or is a number."""
    if not isinstance(gradient, SparseTensor) or tuple(gradient.shape) == tuple(operand.shape):
        if isinstance(gradient, SparseTensor) and not gradient.pattern.is_coo and not isinstance(operand, SparseTensor):
            return coo_of(gradient)
        return gradient
    if operand.ndim == 0:
        return gradient.sum()
    return to_dense(gradient).sum_to_size(tuple(operand.shape))


def _product_by_dense(a: SparseTensor, b: Tensor, dtype: DType) -> SparseTensor:
    shape = tuple(a.shape)
    if broadcast_shapes(shape, tuple(b.shape)) != shape:
        raise ShapeError(
            f"mul(sparse, dense): the dense operand must broadcast to the sparse one's size {list(shape)}, but it has "
            f"size {list(b.shape)}"
        )
    pattern = a.pattern
    taken = _looked_up(b.detach(), pattern)
    return wrap(pattern, prims.cast(F.mul(cast(a.sparse.values, dtype), cast(taken, dtype)), dtype))


def _looked_up(dense: Tensor, pattern: Pattern) -> Tensor:
    """The elements, at a pattern's places, of what `dense` is when repeated to its shape, which it never is."""
    sizes = (1,) * (len(pattern.shape) - dense.ndim) + tuple(dense.shape)
    sparse = pattern.sparse_dim
    xp = module_of(pattern)
    indices = [index if size > 1 else xp.zeros_like(index) for index, size in zip(coordinates(pattern), sizes)]
    keys = joined(indices, sizes[:sparse], xp, pattern.nnz)
    flat = dense.reshape((math.prod(sizes[:sparse]), *sizes[sparse:]))
    return F.index_select(flat, 0, index_of(keys))  # type: ignore[no-any-return]


def _product_of_sparse(a: SparseTensor, b: SparseTensor, dtype: DType) -> SparseTensor:
    if tuple(a.shape) != tuple(b.shape):
        raise ShapeError(f"mul operands have incompatible sizes {list(a.shape)} and {list(b.shape)}")
    if a.pattern.sparse_dim != b.pattern.sparse_dim or a.pattern.layout is not b.pattern.layout:
        raise LayoutError(f"the product of a {layout_name(a)} and a {layout_name(b)} tensor", remedy="convert one")
    if not (a.pattern.nnz and b.pattern.nnz):
        return empty_like(a, tuple(a.shape), dtype)
    if a.pattern is b.pattern and a.pattern.coalesced:
        return wrap(a.pattern, prims.cast(F.mul(a.sparse.values, b.sparse.values), dtype))
    if not a.pattern.coalesced and not b.pattern.coalesced and b.pattern.nnz < a.pattern.nnz:
        a, b = b, a
    one = b if a.pattern.coalesced and not b.pattern.coalesced else a  # whose places are kept, as in torch
    other = coalesced(a if one is b else b)
    first, second = cast(one.sparse.values, dtype), cast(at_places(other, one.pattern), dtype)
    made = wrap(one.pattern, F.mul(first, second))
    return made if not one.pattern.coalesced else _only(made, other.pattern)


def _only(self: SparseTensor, other: Pattern) -> SparseTensor:
    """The elements at places that `other` has too."""
    xp, pattern = module_of(other), self.pattern
    others = xp.sort(keys_of(other))
    keys = keys_of(pattern)
    _, there = found_in(keys, others, xp)
    if bool(there.all()):
        return self
    element = xp.flatnonzero(there)
    values = F.index_select(self.sparse.values, 0, index_of(element))
    made = wrap(
        coo_pattern(parted(keys[element], pattern.sparse_shape, xp), pattern.shape, coalesced=pattern.is_coo), values
    )
    return made if pattern.is_coo else to_layout(made, pattern.layout)  # type: ignore[return-value]


# ---- quotients


@rule("div", "divide", "true_divide")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """By a number, or a tensor without dims. Raises SparseError for another divisor."""
    if not isinstance(input, SparseTensor):
        raise not_there("torch.div by a sparse tensor")
    if not is_number(other):
        raise SparseError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(other.shape)} for divisor)"
        )
    number = other if isinstance(other, Number) else other.detach()
    self = input if rounding_mode is None else coalesced(input)
    quotient = F.div(self.sparse.values, number, rounding_mode=rounding_mode)
    made = wrap(self.pattern, quotient)
    if rounding_mode is not None:
        return record("Div", made, (input, other), (lambda g: g * 0, lambda g: (g * 0).sum()))
    pulls = (
        lambda g: cast(as_layout_of(g / conjugate(other), input), input.dtype),
        lambda g: cast(-((g * conjugate(div(input, other))).sum() / conjugate(other)), other.dtype),
    )
    kept = [one for one in (input, other) if isinstance(one, Tensor)]
    return record("Div", made, (input, other), pulls, kept)


@rule("floor_divide", "__floordiv__")
def floor_divide(input: Any, other: Any) -> Tensor:
    """The quotient by a number, rounded down."""
    return div(input, other, rounding_mode="floor")


@rule("__rdiv__", "__rtruediv__", "__rfloordiv__")
def rdiv(self: SparseTensor, other: Any) -> Tensor:
    """Raises LayoutError: it would be dense."""
    raise not_there("torch.Tensor.__rdiv__ (a quotient by a sparse tensor)")
