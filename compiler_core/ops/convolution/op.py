"""Convolution and its two gradients: convolution, convolution_input, convolution_weight.

In: x: f[N, C, *n], weight: f[O, C/groups, *k], `stride`, `low` and `high` (zeros put around x), `dilation`, one a
spatial dim, any number of them. Out: f[N, O, *o], out[n, o, i] = sum over c, k of x[n, c, i*stride + k*dilation - low]
* weight[o, c, k] (a cross-correlation, as everywhere in deep learning). convolution_input(g, weight) is its adjoint in
x (a transposed convolution), convolution_weight(x, g) that in weight; so the three are each other's gradients.
Method: im2col and one matrix product a group (Chellapilla, Puri, Simard 2006), with the batch beside the positions:
columns [groups, C/groups * prod(k), N * prod(o)]. Eager runs `_expand_*` on arrays, the lowering on nodes; in between
the op is whole, so that the columns are never saved for a backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.batching.rules import convolved, convolved_weight
from compiler_core.ops.checks import INEXACT, check_dtype, check_shape
from compiler_core.ops.convolution import as_convolution
from compiler_core.ops.pooling.geometry import window_counts
from compiler_core.ops.registry import Array, Op, PerOperand, Sample, Value, register, use_trace
from compiler_core.ops.rules import CORE, Decomposed, Expansion

Dims = tuple[int, ...]


def _swap01(x: Value) -> Value:
    """x with batch and channels exchanged."""
    return prims.permute(x, (1, 0, *range(2, len(x.shape))))


def _padded(x: Value, low: Dims, high: Dims) -> Value:
    return prims.pad(x, (0, 0, *low), (0, 0, *high)) if any(low) or any(high) else x


def _is_pointwise(kernel: Shape, stride: Dims) -> bool:
    """Whether each output position reads the one input position at its place."""
    return all(k == 1 for k in kernel) and all(s == 1 for s in stride)


def _columns(x: Value, kernel: Shape, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int) -> Value:
    """f[groups, C/groups * prod(kernel), N * prod(o)]: what each output position reads."""
    rank = len(kernel)
    x = _padded(x, low, high)
    if _is_pointwise(kernel, stride):
        view = _swap01(x)
    else:
        view = prims.windows(x, kernel, stride, dilation)  # (N, C, *o, *k)
        view = prims.permute(view, (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank)))  # (C, *k, N, *o)
    rows = x.shape[1] // groups * math.prod(kernel)
    return prims.reshape(view, (groups, rows, math.prod(view.shape) // max(groups * rows, 1)))


def _rows(g: Value, groups: int) -> Value:
    """f[N, O, *o] -> f[groups, O/groups, N * prod(o)]."""
    channels = g.shape[1]
    positions = g.shape[0] * math.prod(g.shape[2:])
    return prims.reshape(_swap01(g), (groups, channels // groups, positions))


def _transposed(x: Value) -> Value:
    return prims.permute(x, (0, 2, 1))


# ---- convolution


def _check(op: str, x: Shape, weight: Shape, low: Dims, high: Dims, groups: int) -> None:
    rank = len(weight) - 2
    fits = rank >= 1 and len(x) == rank + 2 and len(low) == len(high) == rank and min((*low, *high)) >= 0
    if not fits or groups < 1 or weight[0] % groups or x[1] != weight[1] * groups:
        raise ShapeError(
            f"{op}: weight of size {list(weight)} and groups={groups} do not fit an input of size {list(x)}",
            expected=f"input (N, {weight[1] * groups if rank >= 0 else '?'}, *n), as many spatial dims as the weight",
        )


def _infer(
    x: TensorMeta, weight: TensorMeta, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> TensorMeta:
    check_dtype("convolution", x, INEXACT)
    check_dtype("convolution", weight, (x.dtype,), "the weight")
    _check("convolution", x.shape, weight.shape, low, high, groups)
    sizes = tuple(a + n + b for a, n, b in zip(low, x.shape[2:], high))
    counts = window_counts("convolution", sizes, weight.shape[2:], stride, dilation)
    return x.with_shape((x.shape[0], weight.shape[0], *counts))


def _expand(x: Value, weight: Value, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int) -> Value:
    channels, kernel = weight.shape[0], tuple(weight.shape[2:])
    sizes = tuple(a + n + b for a, n, b in zip(low, x.shape[2:], high))
    counts = window_counts("convolution", sizes, kernel, stride, dilation)
    columns = _columns(x, kernel, stride, low, high, dilation, groups)
    product = prims.matmul(prims.reshape(weight, (groups, channels // groups, columns.shape[1])), columns)
    return _swap01(prims.reshape(product, (channels, x.shape[0], *counts)))


# ---- convolution_input


def _infer_input(
    g: TensorMeta, weight: TensorMeta, size: Shape, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> TensorMeta:
    check_dtype("convolution_input", g, INEXACT)
    x = g.with_shape((*g.shape[:1], weight.shape[1] * groups, *size))
    check_shape("convolution_input", _infer(x, weight, stride, low, high, dilation, groups).shape, g, "the operand")
    return x


def _expand_input(
    g: Value, weight: Value, size: Shape, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> Value:
    rank, batch = len(size), g.shape[0]
    channels, kernel = weight.shape[1] * groups, tuple(weight.shape[2:])
    matrix = prims.reshape(weight, (groups, weight.shape[0] // groups, math.prod(weight.shape[1:])))
    product = prims.matmul(_transposed(matrix), _rows(g, groups))  # (groups, C/groups * prod(k), N * prod(o))
    if _is_pointwise(kernel, stride):
        x = _swap01(prims.reshape(product, (channels, *g.shape[:1], *g.shape[2:])))
    else:
        columns = prims.reshape(product, (channels, *kernel, batch, *g.shape[2:]))
        order = (1 + rank, 0, *range(2 + rank, 2 + 2 * rank), *range(1, 1 + rank))
        padded = tuple(a + n + b for a, n, b in zip(low, size, high))
        x = prims.windows_add(prims.permute(columns, order), padded, kernel, stride, dilation)
    if not any(low) and not any(high):
        return x
    stops = (batch, channels, *(a + n for a, n in zip(low, size)))
    return prims.slice(x, (0, 0, *low), stops, (1,) * (rank + 2))


# ---- convolution_weight


def _infer_weight(
    x: TensorMeta, g: TensorMeta, kernel: Dims, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> TensorMeta:
    check_dtype("convolution_weight", x, INEXACT)
    if len(g.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError("convolution_weight: channels do not divide by groups", expected=str(groups), got=f"{x}, {g}")
    weight = x.with_shape((g.shape[1], x.shape[1] // groups, *kernel))
    check_shape("convolution_weight", _infer(x, weight, stride, low, high, dilation, groups).shape, g, "the cotangent")
    return weight


def _expand_weight(
    x: Value, g: Value, kernel: Dims, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> Value:
    columns = _columns(x, kernel, stride, low, high, dilation, groups)
    product = prims.matmul(_rows(g, groups), _transposed(columns))
    return prims.reshape(product, (g.shape[1], x.shape[1] // groups, *kernel))


# ---- the gradients


def _vjp_x(g: Value, out: Value, x: Value, weight: Value, **attrs: Any) -> Value:
    return prims.convolution_input(g, prims.conj(weight), tuple(x.shape[2:]), **attrs)


def _vjp_filters(g: Value, out: Value, x: Value, weight: Value, **attrs: Any) -> Value:
    return prims.convolution_weight(prims.conj(x), g, tuple(weight.shape[2:]), **attrs)


def _vjp_input(h: Value, out: Value, g: Value, weight: Value, size: Shape, **attrs: Any) -> tuple[Value, Value]:
    g_g = prims.convolution(h, prims.conj(weight), **attrs)
    return g_g, prims.convolution_weight(h, prims.conj(g), tuple(weight.shape[2:]), **attrs)


def _vjp_weight(h: Value, out: Value, x: Value, g: Value, kernel: Dims, **attrs: Any) -> tuple[Value, Value]:
    g_x = prims.convolution_input(prims.conj(g), h, tuple(x.shape[2:]), **attrs)
    return g_x, prims.convolution(prims.conj(x), h, **attrs)


# ---- costs


def flops(x: TensorMeta, weight: TensorMeta, **attrs: Any) -> int:
    """Of a convolution: two an element of the result and of a filter."""
    return 2 * _infer(x, weight, **attrs).numel * math.prod(weight.shape[1:])


def flops_input(g: TensorMeta, weight: TensorMeta, **attrs: Any) -> int:
    """Of its gradient in x."""
    return 2 * g.numel * math.prod(weight.shape[1:])


def flops_weight(x: TensorMeta, g: TensorMeta, **attrs: Any) -> int:
    """Of its gradient in the weight."""
    return 2 * g.numel * math.prod(_infer_weight(x, g, **attrs).shape[1:])


# ---- registration


def _eager(expand: Callable[..., Value]) -> Callable[..., Array]:
    def eager(xp: Any, a: Array, b: Array, **attrs: Any) -> Array:
        with use_trace(None):
            result: Array = expand(a, b, **attrs)
        return result

    return eager


_CASES: tuple[tuple[Shape, Shape, Dims, Dims, Dims, Dims, int], ...] = (
    # x, weight, stride, low, high, dilation, groups
    ((2, 3, 5, 6), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    ((2, 4, 6, 5), (6, 2, 2, 3), (2, 1), (0, 1), (1, 2), (2, 1), 2),
    ((1, 3, 7), (3, 1, 3), (2,), (1,), (0,), (1,), 3),
    ((2, 3, 4), (5, 3, 1), (1,), (0,), (0,), (1,), 1),
    ((1, 2, 3, 4, 3), (2, 2, 2, 1, 3), (1, 2, 1), (0, 0, 1), (1, 0, 1), (1, 1, 1), 1),
    ((0, 2, 4), (3, 2, 3), (1,), (1,), (1,), (1,), 1),
)


def _samples(kind: str) -> tuple[Sample, ...]:
    found = []
    for x, weight, stride, low, high, dilation, groups in _CASES:
        sizes = tuple(a + n + b for a, n, b in zip(low, x[2:], high))
        out = (x[0], weight[0], *window_counts("sample", sizes, weight[2:], stride, dilation))
        attrs = {"stride": stride, "low": low, "high": high, "dilation": dilation, "groups": groups}
        operands, own = {
            "convolution": ((x, weight), {}),
            "convolution_input": ((out, weight), {"size": x[2:]}),
            "convolution_weight": ((x, out), {"kernel": weight[2:]}),
        }[kind]
        found.append(Sample(operands, {**own, **attrs}, low=-1.0, high=1.0))
    return tuple(found)


def _register(
    name: str, infer: Any, expand: Callable[..., Value], vjp: Any, cost: Callable[..., int], **facts: Any
) -> Op:
    lower, facts = Expansion(expand, cost), {"vmap": convolved, **facts}
    return register(Op(name, infer, _eager(expand), vjp, lower, _samples(name), INEXACT, **facts))


CONVOLUTION = _register("convolution", _infer, _expand, PerOperand(_vjp_x, _vjp_filters), flops, engines=CORE)
CONVOLUTION_INPUT = _register(
    "convolution_input",
    _infer_input,
    _expand_input,
    _vjp_input,
    flops_input,
    engines=Decomposed(as_convolution.of_input),
)
CONVOLUTION_WEIGHT = _register(
    "convolution_weight",
    _infer_weight,
    _expand_weight,
    _vjp_weight,
    flops_weight,
    vmap=convolved_weight,
    engines=Decomposed(as_convolution.of_weight),
)
