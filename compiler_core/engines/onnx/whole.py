"""ONNX's operators for ops that compute an element of several: reductions, products, convolutions, windows.

In: an Emitter and a call. Out: the name of the result. NaN wins in the ops' maxima and minima; ONNX leaves that open,
and engines differ, so the rules look for NaN apart.
"""

from __future__ import annotations

import math
from functools import partial

from compiler_core.dtype import bool_, float32, int64
from compiler_core.engines.onnx.emitter import Emitter, Rule, element_type
from compiler_core.graph.ir import Call, Node
from compiler_core.meta import Shape
from compiler_core.symbolic.size import symbols_in

_F32 = element_type(float32)


def _accumulated(op: str) -> Rule:
    def rule(e: Emitter, call: Call) -> str:
        (x,), dims = e.operands(call), call.attrs["dims"]
        return e.node(op, x, e.integers(dims), keepdims=0) if dims else e.node("Identity", x)

    return rule


def _is_nan(e: Emitter, x: str) -> str:
    """1.0 where x is NaN, else 0.0."""
    return e.node("Cast", e.node("IsNaN", x), to=_F32)


def _nan_where(e: Emitter, node: Node, found: str, value: str) -> str:
    """value, NaN where `found`, a number, is over 0."""
    return e.node("Where", e.node("Greater", found, e.number(0, float32)), e.number(math.nan, node.dtype), value)


def _extreme(op: str, of_truths: str) -> Rule:
    def rule(e: Emitter, call: Call) -> str:
        (x,), dims = e.operands(call), call.attrs["dims"]
        if not dims:
            return e.node("Identity", x)
        axes = e.integers(dims)
        if call.dtype is bool_:
            return e.node(
                "Cast", e.node(of_truths, e.node("Cast", x, to=_F32), axes, keepdims=0), to=element_type(bool_)
            )
        best = e.node(op, x, axes, keepdims=0)
        if not call.dtype.is_floating_point:
            return best
        return _nan_where(e, call, e.node("ReduceMax", _is_nan(e, x), axes, keepdims=0), best)

    return rule


def _infinite(name: str, op: str, worst: float) -> Rule:
    """As `_extreme`, and infinite where all are `worst`: for engines that begin with the last finite number."""

    def rule(e: Emitter, call: Call) -> str:
        (x,), dims, dtype = e.operands(call), call.attrs["dims"], call.dtype
        if not dims or not dtype.is_floating_point:
            return WHOLE[name](e, call)
        number, axes = partial(e.number, dtype=float32), e.integers(dims)
        kind = e.node("Where", e.node("Equal", x, e.number(worst, dtype)), number(0), number(1))
        kind = e.node("Where", e.node("IsNaN", x), number(2), kind)
        found = e.node("ReduceMax", kind, axes, keepdims=0)
        best = e.node(op, x, axes, keepdims=0)
        best = e.node("Where", e.node("Equal", found, number(0)), e.number(worst, dtype), best)
        return e.node("Where", e.node("Equal", found, number(2)), e.number(math.nan, dtype), best)

    return rule


def _place(op: str) -> Rule:
    def rule(e: Emitter, call: Call) -> str:
        (x,), (dim,) = e.operands(call), call.attrs["dims"]
        of = call.args[0].dtype
        if of is bool_:
            x = e.node("Cast", x, to=_F32)
        find = partial(e.node, axis=dim, keepdims=0, select_last_index=0)
        place = find(op, x)
        if not of.is_floating_point:
            return place
        nan = _is_nan(e, x)
        found = e.node("Greater", e.node("ReduceMax", nan, e.integers([dim]), keepdims=0), e.number(0, float32))
        return e.node("Where", found, find("ArgMax", nan), place)

    return rule


def _cumsum(e: Emitter, call: Call) -> str:
    dim = e.number(call.attrs["dim"], int64)
    return e.node("CumSum", *e.operands(call), dim, reverse=int(call.attrs["reverse"]))


def _matmul(e: Emitter, call: Call) -> str:
    return e.node("MatMul", *e.operands(call))


# ---- convolutions


def _spatial(call: Call) -> dict[str, object]:
    attrs = call.attrs
    return {
        "strides": list(attrs["stride"]), "dilations": list(attrs["dilation"]), "group": attrs["groups"],
        "pads": [*attrs["low"], *attrs["high"]],
    }  # fmt: skip


def _convolution(e: Emitter, call: Call) -> str:
    return e.node("Conv", *e.operands(call), kernel_shape=list(call.args[1].shape[2:]), **_spatial(call))


def _convolution_input(e: Emitter, call: Call) -> str:
    """A transposed convolution; `output_padding` is what the strides of the convolution have left over."""
    attrs, (g, weight) = call.attrs, call.args
    kernel = weight.shape[2:]
    rows = zip(attrs["size"], g.shape[2:], kernel, *(attrs[name] for name in ("stride", "low", "high", "dilation")))
    over = [n - ((o - 1) * s + d * (k - 1) + 1 - a - b) for n, o, k, s, a, b, d in rows]
    how = {"kernel_shape": list(kernel), "output_padding": over, **_spatial(call)}
    return e.node("ConvTranspose", *e.operands(call), **how)


# ---- windows over the last dims


def _pooled(e: Emitter, call: Call, x: str, op: str, **more: int) -> str:
    """A pooling operator over x[1, *lead in one, *n]; result: [1, lead, *o]."""
    attrs, shape = call.attrs, call.args[0].shape
    rank = len(attrs["kernel"])
    flat = e.node("Reshape", x, e.sizes([1, _numel(shape, rank), *shape[len(shape) - rank :]]), allowzero=1)
    how = {"kernel_shape": attrs["kernel"], "strides": attrs["stride"], "dilations": attrs["dilation"]}
    return e.node(op, flat, **{key: list(value) for key, value in how.items()}, **more)


def _numel(shape: Shape, rank: int) -> int:
    return math.prod(shape[: len(shape) - rank])


def _seeing_ends(e: Emitter, call: Call, x: str, best: str) -> str:
    """Maxima of windows, NaN where one holds NaN, -inf where one holds nothing else: engines begin with -3.4e38."""
    number = partial(e.number, dtype=float32)
    lowest = e.number(-math.inf, call.dtype)
    kind = e.node("Where", e.node("Equal", x, lowest), number(0), number(1))
    kind = _pooled(e, call, e.node("Where", e.node("IsNaN", x), number(2), kind), "MaxPool")
    best = e.node("Where", e.node("Equal", kind, number(0)), lowest, best)
    return e.node("Where", e.node("Equal", kind, number(2)), e.number(math.nan, call.dtype), best)


def _window_max(e: Emitter, call: Call) -> str:
    (x,) = e.operands(call)
    best = _pooled(e, call, x, "MaxPool")
    if call.dtype.is_floating_point:
        best = _seeing_ends(e, call, x, best)
    return e.node("Reshape", best, e.sizes(call.shape), allowzero=1)


def _window_sum(e: Emitter, call: Call) -> str:
    (x,) = e.operands(call)
    mean = _pooled(e, call, x, "AveragePool", count_include_pad=0)
    total = e.node("Mul", mean, e.number(math.prod(call.attrs["kernel"]), call.dtype))
    return e.node("Reshape", total, e.sizes(call.shape), allowzero=1)


def _of_nothing(call: Call) -> str:
    return "its operator is undefined of no elements" if 0 in call.args[0].shape else ""


def _not_averaged(call: Call) -> str:
    return _of_nothing(call) if call.dtype.is_floating_point else "its operator is of floats"


def _of_changing_sizes(call: Call) -> str:
    """The operator's attributes would have to be numbers that the call decides."""
    return "its operator takes no image whose size changes" if symbols_in(call.shape[2:]) else ""


def _of_several_runs(call: Call) -> str:
    return "sequences of different lengths" if len(call.attrs["runs"]) > 1 or 0 in call.shape else ""


def _of_other_than_f32(call: Call) -> str:
    """Engines seldom have it of others; what it decomposes to they do have."""
    return "" if call.dtype is float32 else "its operator is of float32 alone in most engines"


def _of_changing_kernels(call: Call) -> str:
    edges = (*call.attrs["low"], *call.attrs["high"])
    return "its kernel and what is padded are attributes" if symbols_in((*call.args[1].shape[2:], *edges)) else ""


_INVERSE = ("asin", "acos", "asinh", "acosh", "atanh")
REFUSALS = {  # why the operator does not take a call
    "recurrent": _of_several_runs,
    "convolution": _of_changing_kernels,
    "convolution_input": _of_changing_sizes,
    "window_max": _of_nothing,
    "window_sum": _not_averaged,
    **dict.fromkeys(_INVERSE, _of_other_than_f32),
}
WHOLE: dict[str, Rule] = {
    "sum": _accumulated("ReduceSum"),
    "prod": _accumulated("ReduceProd"),
    "max": _extreme("ReduceMax", "ReduceMax"),
    "min": _extreme("ReduceMin", "ReduceMin"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "cumsum": _cumsum,
    "matmul": _matmul,
    "convolution": _convolution,
    "convolution_input": _convolution_input,
    "window_max": _window_max,
    "window_sum": _window_sum,
}
INFINITE_EXTREMES: dict[str, Rule] = {
    "max": _infinite("max", "ReduceMax", -math.inf),
    "min": _infinite("min", "ReduceMin", math.inf),
}
