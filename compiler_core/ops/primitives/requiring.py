"""require: a value passes unchanged, once it was seen that nothing about it fails.

In: x and `fails`, truth values of x's shape; `error` (a key of errors.CHECKED) and `message`. Out: x, bit for bit.
Raises that error, eager and in generated code, if any of `fails` is true. What depends on the value is computed after
the test. Whole numbers and floats; where the result is not used, nothing is tested.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.dtype import DType, bool_
from compiler_core.errors import check_message, failed_check
from compiler_core.meta import TensorMeta
from compiler_core.ops.checks import NUMERIC, check_dtype, check_shape
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.rules import ALIKE, Indexed, OwnCode


def _infer(x: TensorMeta, fails: TensorMeta, error: str, message: str) -> TensorMeta:
    check_dtype("require", x, NUMERIC)
    check_dtype("require", fails, (bool_,), "the test")
    check_shape("require", x.shape, fails, "the test")
    return x


def _eager(xp: Any, x: Array, fails: Array, error: str, message: str) -> Array:
    if fails.any():
        raise failed_check(check_message(error, message))
    return x


def _emit(e: Any, index: Any, read: Any, metas: Any, error: str, message: str) -> Any:
    """x - k, where k, checked to lie in [0, 2), is 0: twice the truth value. (-0.0 - 0.0 is -0.0.)"""
    dtype = metas[0].dtype
    place = e.check_bounds(2 * e.as_index(read[1](index)), 2, check_message(error, message))
    return e.call("sub", read[0](index), e.index_value(place, dtype))


def _passing(rng: np.random.Generator, dtype: DType) -> list[Array]:
    return [rng.integers(-9, 9, (3, 4)).astype(dtype.numpy), np.zeros((3, 4), np.bool_)]


def _vjp(g: Value, out: Value, x: Value, fails: Value, **attrs: Any) -> tuple[Value, None]:
    return g, None


REQUIRE = register(
    Op(
        "require",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=ALIKE,
        lower=Indexed(_emit),
        samples=(Sample(((3, 4), (3, 4)), {"error": "value", "message": "never"}, make=_passing),),
        dtypes=NUMERIC,
        shares=True,
        raises=True,
        engines=OwnCode("it raises for some values"),
    )
)
