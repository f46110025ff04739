"""Padding over any Value, with torch's names and arguments: constant, reflect, replicate, circular.

In: T[*], and (low, high) pairs from the last dim backwards. Out: T[*], larger; negative numbers crop. The modes other
than constant take T[N, C, *n] or T[C, *n] and pad the spatial dims: reflect mirrors without the edge, replicate repeats
the edge, circular wraps around. They are cuts of the input put together again, so their gradients and their lowering
are those of `slice`, `flip` and `cat`. Source: torch.nn.functional.pad.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence

from compiler_core.errors import ShapeError
from compiler_core.meta import as_size
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import Scalar, as_new, as_value, broadcast_to, dtype_of
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.composites.movement import cat, flip, narrow
from compiler_core.ops.lying import as_told
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.symbolic.expression import is_symbol


@remembered
def pad(input: Value, pad: Sequence[int], mode: str = "constant", value: Scalar | None = None) -> Value:
    """input with something around it. pad: (low, high) pairs from the last dim backwards; negative ones crop."""
    x = as_value(input)
    ndim = len(x.shape)
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise ShapeError("pad: needs a (low, high) pair per dim, last dim first", got=str(tuple(pad)))
    low, high = [0] * ndim, [0] * ndim
    for k in range(len(pad) // 2):
        low[ndim - 1 - k], high[ndim - 1 - k] = as_size(pad[2 * k]), as_size(pad[2 * k + 1])
    return as_told("rows" if mode == "circular" else "images", _padded(x, pad, low, high, mode, value), (x,))


def _padded(x: Value, pad: Sequence[int], low: list[int], high: list[int], mode: str, value: Scalar | None) -> Value:
    if mode == "constant":
        return _pad_constant(x, low, high, value)
    if mode not in _EDGES:
        raise ShapeError(f"Unrecognised padding mode {mode}", expected="constant, reflect, replicate or circular")
    if value is not None and value != 0:
        raise ShapeError(f'Padding mode "{mode}" doesn\'t take in value argument', got=str(value))
    if len(pad) // 2 not in (len(low) - 1, len(low) - 2):
        raise ShapeError(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported: {len(pad) // 2} dims of {len(low)}"
        )
    if mode != "circular":
        need_kind(f"{mode}_pad", "iufc", x)
    if mode == "replicate" or (mode == "reflect" and len(pad) < 6):
        return _pad_in_float32(x, low, high, mode)
    return _pad_dims(x, low, high, mode)


def _pad_dims(input: Value, low: list[int], high: list[int], mode: str) -> Value:
    x = input
    for d, sizes in enumerate(zip(low, high)):
        x = _pad_dim(x, d, *sizes, mode)
    return as_new(x) if x is input else x


_pad_in_float32 = in_float32_on_cpu(_pad_dims)


def _cropped(x: Value, d: int, low: int, high: int) -> Value:
    """x without what negative paddings cut off dim d. Raises ShapeError if they cut off more than there is."""
    if low >= 0 and high >= 0:
        return x
    cut = builtins.max(0, -low), builtins.max(0, -high)
    return narrow(x, d, cut[0], x.shape[d] - sum(cut))


def _pad_constant(input: Value, low: list[int], high: list[int], value: Scalar | None) -> Value:
    x = input
    for d, (a, b) in enumerate(zip(low, high)):
        x = _cropped(x, d, a, b)
    low, high = [n if n >= 0 else 0 for n in low], [n if n >= 0 else 0 for n in high]
    kind = {"f": float, "b": bool, "c": complex}.get(dtype_of(x).kind, int)
    if any(is_symbol(n) or n for n in (*low, *high)):
        return prims.pad(x, low, high, kind(0 if value is None else value))
    return as_new(x) if x is input else x


def _pad_dim(x: Value, d: int, low: int, high: int, mode: str) -> Value:
    """Dim d of x extended by what is positive, then cropped by what is negative."""
    if low == high == 0:
        return x
    n, front, back = x.shape[d], builtins.max(0, low), builtins.max(0, high)
    limit = {"reflect": n - 1, "circular": n + min(low, 0) + min(high, 0)}.get(
        mode, builtins.max(front, back) if n else 0
    )
    if builtins.max(front, back) > limit:
        raise ShapeError(
            f"Padding size should be less than the corresponding input dimension ({mode})",
            expected=f"at most {limit} at dimension {d}",
            got=f"({low}, {high}) for {tuple(x.shape)}",
        )
    if mode == "circular":  # what is cut off is not wrapped around
        x, low, high = _cropped(x, d, low, high), front, back
    edge = _EDGES[mode]
    parts = [edge(x, d, front, True)] if front else []
    parts += [x, edge(x, d, back, False)] if back else [x]
    return _cropped(cat(parts, d) if len(parts) > 1 else x, d, low, high)


def _reflected(x: Value, d: int, count: int, in_front: bool) -> Value:
    return flip(narrow(x, d, 1 if in_front else x.shape[d] - 1 - count, count), d)


def _replicated(x: Value, d: int, count: int, in_front: bool) -> Value:
    edge = narrow(x, d, 0 if in_front else x.shape[d] - 1, 1)
    return broadcast_to(edge, (*x.shape[:d], count, *x.shape[d + 1 :]))


def _wrapped(x: Value, d: int, count: int, in_front: bool) -> Value:
    return narrow(x, d, x.shape[d] - count if in_front else 0, count)


_EDGES: dict[str, Callable[[Value, int, int, bool], Value]] = {
    "reflect": _reflected,
    "replicate": _replicated,
    "circular": _wrapped,
}
