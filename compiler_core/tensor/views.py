"""Which ops alias their operand, how to write through them, and the strides their result has.

In: a view op, its attributes, shapes. Out: `is_view`, `scatter` (view_scatter: the base with the view's elements
replaced), `strides`. The view ops are torch's: reshape, permute, expand, slice, windows, diagonal, strided, detach, and
real, imag, conj, view_as_real, view_as_complex of complex values; flip, take copy. `scatter` is built from primitives,
so it runs on arrays, nodes and Tensors (where it is recorded, which is how gradients flow through writes to views).
Strides are logical: they only answer `is_contiguous`, `stride`, and whether `reshape` aliases. Limit: a fresh result
counts as contiguous, where torch keeps the layout of a permuted operand (`x.t() * 2`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from compiler_core.errors import ShapeError
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.movement import put_on_diagonal
from compiler_core.ops.registry import Attrs, Op, Value, meta_of
from compiler_core.ops.strided import overlaps, strided_places

if TYPE_CHECKING:
    from compiler_core.tensor.cell import Cell

Strides = tuple[int, ...]


def _scatter_reshape(base: Value, new: Value, attrs: Attrs) -> Value:
    return prims.reshape(new, meta_of(base).shape)


def _scatter_permute(base: Value, new: Value, attrs: Attrs) -> Value:
    dims = attrs["dims"]
    return prims.permute(new, [dims.index(k) for k in range(len(dims))])


def _scatter_slice(base: Value, new: Value, attrs: Attrs) -> Value:
    return prims.slice_scatter(base, new, attrs["starts"], attrs["stops"], attrs["steps"])


def _scatter_expand(base: Value, new: Value, attrs: Attrs) -> Value:
    shape = meta_of(base).shape
    if not meta_of(new).numel:
        return base
    if meta_of(new).numel != meta_of(base).numel:
        raise ShapeError(
            "cannot write in place to an expanded tensor: several of its elements are one memory location",
            expected=f"a tensor of the unexpanded shape {shape}",
            got=f"a view expanded to {meta_of(new).shape}",
            remedy="clone() it first",
        )
    return prims.reshape(new, shape)


def _scatter_windows(base: Value, new: Value, attrs: Attrs) -> Value:
    kernel, stride, dilation = attrs["kernel"], attrs["stride"], attrs["dilation"]
    if any(d * (k - 1) >= s for k, s, d in zip(kernel, stride, dilation) if k > 1):
        raise ShapeError(
            "cannot write in place to windows that overlap: several of their elements are one memory location",
            expected="windows at least as far apart as they are long",
            got=f"size {kernel}, step {stride}",
            remedy="clone() it first",
        )
    shape = meta_of(base).shape
    size = shape[len(shape) - len(kernel) :]
    written = prims.windows_add(prims.full_like(new, 1), size, kernel, stride, dilation)
    values = prims.windows_add(new, size, kernel, stride, dilation)
    return prims.where(prims.ne(written, prims.full_like(base, 0)), values, base)


def _scatter_diagonal(base: Value, new: Value, attrs: Attrs) -> Value:
    return put_on_diagonal(base, new, attrs["offset"])


def _scatter_strided(base: Value, new: Value, attrs: Attrs) -> Value:
    size, stride = attrs["size"], attrs["stride"]
    if overlaps(size, stride):
        raise ShapeError(
            "cannot write in place to what as_strided shows: several of its elements may be one memory location",
            expected="strides that step over what smaller ones reach",
            got=f"size {size}, stride {stride}",
            remedy="clone() it first",
        )
    return prims.index_copy(base, strided_places(size, stride, attrs["offset"]), new)


def _scatter_detach(base: Value, new: Value, attrs: Attrs) -> Value:
    return new


def _scatter_real(base: Value, new: Value, attrs: Attrs) -> Value:
    return prims.complex(new, prims.imag(base))


def _scatter_imag(base: Value, new: Value, attrs: Attrs) -> Value:
    return prims.complex(prims.real(base), new)


_SCATTER: dict[str, Callable[[Value, Value, Attrs], Value]] = {
    "reshape": _scatter_reshape,
    "permute": _scatter_permute,
    "slice": _scatter_slice,
    "expand": _scatter_expand,
    "windows": _scatter_windows,
    "detach": _scatter_detach,
    "diagonal": _scatter_diagonal,
    "strided": _scatter_strided,
    "real": _scatter_real,
    "imag": _scatter_imag,
    "conj": lambda base, new, attrs: prims.conj(new),
    "view_as_real": lambda base, new, attrs: prims.view_as_complex(new),
    "view_as_complex": lambda base, new, attrs: prims.view_as_real(new),
}
VIEW_OPS = frozenset(_SCATTER)


def scatter(op: Op, base: Value, new: Value, attrs: Attrs) -> Value:
    """`base` with the elements that view `op(base, **attrs)` shows replaced by `new`.

    Raises ShapeError for a write to an expanded view.
    """
    return _SCATTER[op.name](base, new, attrs)


def aliases(op: Op, attrs: Attrs, base: Cell) -> bool:
    """Whether the result of `op` on a tensor with cell `base` shares its memory in torch."""
    if op.name != "reshape":
        return op.name in VIEW_OPS
    return base.is_dense or reshaped_strides(base.value.shape, base.strides(), attrs["shape"]) is not None


def contiguous_strides(shape: Shape) -> Strides:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def view_strides(op: str, attrs: Attrs, in_shape: Shape, in_strides: Strides) -> Strides:
    """The strides of a view of something with `in_strides`. Raises ShapeError for a reshape that cannot alias."""
    if op == "permute":
        return tuple(in_strides[d] for d in attrs["dims"])
    if op == "slice":
        return tuple(s * step for s, step in zip(in_strides, attrs["steps"]))
    if op == "expand":
        shape = attrs["shape"]
        lead = len(shape) - len(in_shape)
        return (0,) * lead + tuple(0 if n == 1 != m else s for n, m, s in zip(in_shape, shape[lead:], in_strides))
    if op == "windows":
        lead = len(in_shape) - len(attrs["kernel"])
        outer = tuple(s * step for s, step in zip(in_strides[lead:], attrs["stride"]))
        return (*in_strides[:lead], *outer, *(s * step for s, step in zip(in_strides[lead:], attrs["dilation"])))
    if op in ("detach", "conj"):
        return in_strides
    if op == "strided":
        return tuple(s * in_strides[0] for s in attrs["stride"])
    if op in ("real", "imag"):
        return tuple(2 * s for s in in_strides)
    if op == "view_as_real":
        return (*(2 * s for s in in_strides), 1)
    if op == "view_as_complex":
        return tuple(s // 2 for s in in_strides[:-1])
    if op == "diagonal":
        return (*in_strides[:-2], in_strides[-2] + in_strides[-1])
    strides = reshaped_strides(in_shape, in_strides, attrs["shape"])
    return contiguous_strides(attrs["shape"]) if strides is None else strides


def view_offset(op: str, attrs: Attrs, in_strides: Strides) -> int:
    """How many elements after the first of something with `in_strides` the first of a view of it lies."""
    if op == "slice":
        return sum(int(start) * s for start, s in zip(attrs["starts"], in_strides))
    if op == "strided":
        return int(attrs["offset"]) * in_strides[0]
    if op == "diagonal":
        above = int(attrs["offset"])
        return max(above, 0) * in_strides[-1] - min(above, 0) * in_strides[-2]
    return int(op == "imag")


def offset_in(op: str, offset: int) -> int:
    """An offset in a base's elements, counted in those of a view of it, which may be halves or pairs of them."""
    if op in ("real", "imag", "view_as_real"):
        return 2 * offset
    return offset // 2 if op == "view_as_complex" else offset


def reshaped_strides(shape: Shape, strides: Strides, new_shape: Shape) -> Strides | None:
    """The strides with which `new_shape` shows the same memory, or None if none do (torch's computeStride)."""
    if 0 in shape:
        return contiguous_strides(new_shape)
    groups = _dense_groups(shape, strides)
    result: list[int] = []
    for size in reversed(new_shape):
        while groups and groups[-1][0] == 1 and size != 1:
            groups.pop()
        if not groups:
            result.append(result[-1] if result else 1)
            continue
        left, step = groups[-1]
        if left % size:
            return None
        result.append(step)
        groups[-1] = (left // size, step * size)
    return tuple(reversed(result))


def _dense_groups(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """(elements, innermost stride) of each run of dimensions that lie densely in one another, outermost first."""
    groups: list[tuple[int, int]] = []
    for size, step in zip(shape, strides):
        if size == 1:
            continue
        if groups and groups[-1][1] == size * step:
            groups[-1] = (groups[-1][0] * size, step)
        else:
            groups.append((size, step))
    return groups


def is_contiguous(shape: Shape, strides: Strides) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(strides)):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True
