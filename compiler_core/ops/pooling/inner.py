"""The maximum over sliding windows, and its backward, with channels innermost: what a GPU's kernels compute.

In: x: f[N, *n, C], g: f[N, *o, C]; kernel, stride, dilation; low, high: how many elements in front of each spatial dim
and behind it are padding, which is lowest. Out: pool_max_inner f[N, *o, C], the maximum of each window, NaN if it holds
one; pool_max_put_inner f[N, *n, C], each window's cotangent at its maximum (of equals the first, of NaNs the last; the
first element that is no padding in front where all are lowest), added up.
These stand only in graphs that are differentiated already: graph/passes/channels_last.py puts them there for a CUDA
device. Their NumPy definition is that of `window_max` and `window_max_put`, axes moved, padding written out.
Limits of the kernels: one or two spatial dims, f32 and 16-bit floats, at most 127 elements a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from compiler_core.dtype import bfloat16, float16, float32, int8
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.checks import check_dtype, check_shape
from compiler_core.ops.convolution.last import to_first, to_last
from compiler_core.ops.pooling.geometry import window_counts
from compiler_core.ops.pooling.windows import WINDOW_MAX
from compiler_core.ops.pooling.windows_maximum import WINDOW_MAX_PUT
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.routine import (
    Attrs,
    KernelLaunch,
    KernelPlan,
    Routine,
    Strided,
    TritonKernels,
    is_contiguous,
    register_routine,
)
from compiler_core.ops.rules import OwnCode

Dims: TypeAlias = tuple[int, ...]

DTYPES = (float32, bfloat16, float16)
_WHY_NONE = "the compiler writes it into graphs that are differentiated already"
_WHY_BACK = "its kernels are a GPU's"
_BLOCK, _WARPS = 1024, 4
_MOST = 127  # elements of a window: places are i8


# ---- the rules


def _counts(shape: Shape, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims) -> Shape:
    sizes = tuple(a + n + b for a, n, b in zip(low, shape[1:-1], high, strict=True))
    return (shape[0], *window_counts("pool_max_inner", sizes, kernel, stride, dilation), shape[-1])


def _infer(x: TensorMeta, **where: Any) -> TensorMeta:
    check_dtype("pool_max_inner", x, DTYPES)
    return x.with_shape(_counts(x.shape, **where))


def _infer_put(g: TensorMeta, x: TensorMeta, **where: Any) -> TensorMeta:
    check_dtype("pool_max_put_inner", x, DTYPES)
    check_dtype("pool_max_put_inner", g, (x.dtype,), "the cotangent")
    check_shape("pool_max_put_inner", _counts(x.shape, **where), g, "the cotangent")
    return x


def _padded_first(xp: Any, x: Array, low: Dims, high: Dims) -> Array:
    """x with channels first, and its padding."""
    pads = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    return xp.pad(xp.transpose(x, to_first(x.ndim)), pads, constant_values=-np.inf)  # type: ignore[no-any-return]


def _eager(
    xp: Any, x: Array, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims
) -> Array:  # fmt: skip
    where = {"kernel": kernel, "stride": stride, "dilation": dilation, "low": low}
    found = WINDOW_MAX.eager(xp, _padded_first(xp, x, low, high), **where)
    return xp.transpose(found, to_last(x.ndim)).copy(order="C")  # type: ignore[no-any-return]


def _eager_put(
    xp: Any, g: Array, x: Array, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims
) -> Array:  # fmt: skip
    where = {"kernel": kernel, "stride": stride, "dilation": dilation, "low": low}
    moved = xp.ascontiguousarray(xp.transpose(g, to_first(g.ndim)))
    found = WINDOW_MAX_PUT.eager(xp, moved, _padded_first(xp, x, low, high), **where)
    inside = tuple(slice(a, a + n) for a, n in zip(low, x.shape[1:-1], strict=True))
    index: tuple[Any, ...] = (..., *inside)
    return xp.transpose(found[index], to_last(x.ndim)).copy(order="C")  # type: ignore[no-any-return]


# ---- kernels


def _two(dims: Dims, fill: int) -> Dims:
    return (fill,) * (2 - len(dims)) + tuple(dims)


def _launch(function: str, names: tuple[str, ...], total: int, x: Shape, o: Shape, attrs: Attrs) -> KernelLaunch:
    """x, o: channels last."""
    (h, w), (oh, ow) = _two(x[1:-1], 1), _two(o[1:-1], 1)
    constants = {"TOTAL": total, "H": h, "W": w, "C": x[-1], "OH": oh, "OW": ow}
    for name, key, fill in (("K", "kernel", 1), ("S", "stride", 1), ("D", "dilation", 1), ("P", "low", 0)):
        constants |= {name + axis: n for axis, n in zip("HW", _two(attrs[key], fill), strict=True)}
    return KernelLaunch(function, names, {**constants, "B": _BLOCK}, -(-total // _BLOCK), _WARPS, 1)


def _plan(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    (x,) = operands
    o = _counts(x.shape, **attrs)
    return KernelPlan((_launch("pool_max", ("o0", "out"), math.prod(o), x.shape, o, attrs),))


def _plan_put(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    g, x = operands
    places = _launch("pool_places", ("o1", "s0"), g.numel, x.shape, g.shape, attrs)
    put = _launch("pool_put", ("o0", "s0", "out"), x.numel, x.shape, g.shape, attrs)
    return KernelPlan((places, put), ((int8, g.numel),))


def _refuses(operands: tuple[Strided, ...], attrs: Attrs) -> str:
    if operands[0].dtype not in DTYPES:
        return f"kernels of pooling are for 16-bit floats and f32, not {operands[0].dtype.name}"
    if len(attrs["kernel"]) > 2:
        return "kernels of pooling are for one and two spatial dims"
    if math.prod(attrs["kernel"]) > _MOST:
        return f"kernels of pooling are for windows of at most {_MOST} elements"
    if not all(layout.numel for layout in operands):
        return "a pooling of nothing"
    if any(layout.numel >= 1 << 31 for layout in operands):
        return "kernels of pooling are for fewer than 2^31 elements"
    return ""


# ---- registration

# x, kernel, stride, dilation, low, high
_CASES: tuple[tuple[Shape, Dims, Dims, Dims, Dims, Dims], ...] = (
    ((2, 7, 6, 5), (3, 3), (2, 2), (1, 1), (1, 1), (1, 0)),
    ((3, 9, 12, 2), (2, 3), (1, 2), (2, 3), (0, 2), (0, 1)),
    ((2, 11, 3), (3,), (2,), (2,), (2,), (0,)),
)


def _samples(*, put: bool) -> tuple[Sample, ...]:
    found = []
    for x, kernel, stride, dilation, low, high in _CASES:
        attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, "low": low, "high": high}
        found.append(Sample(((_counts(x, **attrs), x) if put else (x,)), attrs, low=-1.0, high=1.0))
    return tuple(found)


_OURS = OwnCode("made by our own code generators, for their layouts")


def _register(
    name: str, infer: Any, eager: Callable[..., Array], plan: Callable[..., KernelPlan], *, put: bool
) -> Op:  # fmt: skip
    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        with np.errstate(all="ignore"):
            out[...] = eager(np, *operands, **attrs)

    routine = Routine(name, define, _WHY_BACK, accepts=is_contiguous, kernels=TritonKernels("pooling", _refuses, plan))
    none = NotDifferentiable(_WHY_NONE)
    return register(Op(name, infer, eager, none, register_routine(routine), _samples(put=put), DTYPES, engines=_OURS))


POOL_MAX_INNER = _register("pool_max_inner", _infer, _eager, _plan, put=False)
POOL_MAX_PUT_INNER = _register("pool_max_put_inner", _infer_put, _eager_put, _plan_put, put=True)
