"""Primitives of whole numbers that NumPy does by iteration to convergence: gcd.

In: two integer arrays alike. Out: an array of their shape and dtype. A call back: the number of Euclid's steps depends
on the data, which loops over elements cannot express.
"""

from __future__ import annotations

from typing import Any

from compiler_core.ops.checks import INTEGRAL, infer_alike
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import ALIKE, OwnCode

_SAMPLES = tuple(Sample((shape, shape), low=0, high=30) for shape in ((3, 4), (), (2, 1, 5)))


def _eager_gcd(xp: Any, a: Array, b: Array) -> Array:
    return xp.asarray(xp.gcd(a, b))  # type: ignore[no-any-return]


GCD = register(
    Op(
        "gcd",
        infer=infer_alike("gcd", INTEGRAL),
        eager=_eager_gcd,
        vjp=NotDifferentiable("integers have no gradient"),
        vmap=ALIKE,
        lower=call_back("gcd", _eager_gcd, why="its number of steps depends on the data"),
        samples=_SAMPLES,
        dtypes=INTEGRAL,
        engines=OwnCode("its number of steps depends on the data"),
    )
)
