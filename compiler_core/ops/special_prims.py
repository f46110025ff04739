"""Primitives that are special functions, as functions; prims.py, of which this is a part, has the others.

In: values alike, floating (corners.py, incomplete_gamma.py, pointwise.py). Out: one value.
"""

from __future__ import annotations

from compiler_core.ops.registry import OPS, Value, bind


def xlogy(x: Value, y: Value) -> Value:
    return bind(OPS["xlogy"], x, y)


def xlog1py(x: Value, y: Value) -> Value:
    return bind(OPS["xlog1py"], x, y)


def entr(x: Value) -> Value:
    return bind(OPS["entr"], x)


def logit(x: Value, eps: float = -1.0) -> Value:
    return bind(OPS["logit"], x, eps=float(eps))


def elu(x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Value:
    return bind(OPS["elu"], x, alpha=float(alpha), scale=float(scale), inner=float(inner))


def leaky(x: Value, slope: float) -> Value:
    return bind(OPS["leaky"], x, slope=float(slope))


def exp2(x: Value) -> Value:
    return bind(OPS["exp2"], x)


def log2(x: Value) -> Value:
    return bind(OPS["log2"], x)


def log10(x: Value) -> Value:
    return bind(OPS["log10"], x)


def igamma(a: Value, x: Value) -> Value:
    return bind(OPS["igamma"], a, x)


def igammac(a: Value, x: Value) -> Value:
    return bind(OPS["igammac"], a, x)
