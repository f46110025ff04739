"""Primitives that are special functions, as functions; prims.py, of which this is a part, has the others.

In: values alike, floating (corners.py, incomplete_gamma.py, pointwise.py). Out: one value.
"""

from __future__ import annotations

from compiler_core.ops.registry import OPS, Value, bind, of_one, of_two

xlogy = of_two("xlogy")
xlog1py = of_two("xlog1py")
entr = of_one("entr")


def logit(x: Value, eps: float = -1.0) -> Value:
    return bind(OPS["logit"], x, eps=float(eps))


def elu(x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Value:
    return bind(OPS["elu"], x, alpha=float(alpha), scale=float(scale), inner=float(inner))


def leaky(x: Value, slope: float) -> Value:
    return bind(OPS["leaky"], x, slope=float(slope))


exp2 = of_one("exp2")
log2 = of_one("log2")
log10 = of_one("log10")
igamma = of_two("igamma")
igammac = of_two("igammac")
