"""Calls of NumPy's functions for the tests of traced arrays: (name, function of arrays, shapes, dtypes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOATS = ("float32", "float64")
REALS = (*FLOATS, "int32", "int64")
ALL = (*REALS, "bool")


@dataclass(frozen=True)
class Case:
    """One call. low: the least value drawn; unique: no value twice (where the order of equal ones is open)."""

    name: str
    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = ALL
    low: float = -3.0
    high: float = 3.0
    unique: bool = False

    def arrays(self, dtype: str, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(seed)
        return [self._array(rng, shape, np.dtype(dtype)) for shape in self.shapes]

    def _array(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        if self.unique:
            count = int(np.prod(shape, dtype=int))
            return rng.permutation(count).reshape(shape).astype(dtype) - dtype.type(0)
        values = rng.uniform(self.low, self.high, shape)
        if dtype.kind == "b":
            return np.asarray(values > 0)
        return np.asarray(values if dtype.kind == "f" else np.round(values)).astype(dtype)


A = (3, 4)


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """The function of that name, called by a Python function."""
    function = getattr(module, name)
    return lambda *arrays: function(*arrays)


def absolute(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda array: abs(function(array))


def _ufuncs() -> Iterator[Case]:
    everywhere = (
        "add multiply maximum minimum greater greater_equal less less_equal equal not_equal logical_and logical_or "
        "logical_xor true_divide arctan2 hypot fmax fmin copysign logaddexp logaddexp2 heaviside"
    )
    for name in everywhere.split():
        yield Case(name, function_of(np, name), (A, (4,)))
    for name in ["subtract", "floor_divide", "remainder", "fmod", "divmod", "float_power"]:
        low = 0.1 if name == "float_power" else -3.0
        dtypes = REALS if name == "subtract" else ALL
        yield Case(name, function_of(np, name), (A, A), dtypes, low)
    yield Case("floor_divide number", lambda a: (a // 2, a % 2, a // -1.5, 7 // (abs(a) + 1)), (A,), REALS)
    for name in ["gcd", "lcm", "left_shift", "right_shift"]:
        yield Case(name, function_of(np, name), (A, A), ("int32", "int64"), 0)
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
        yield Case(name, function_of(np, name), (A, A), ("int32", "int64", "bool"))
    yield Case("invert", np.invert, (A,), ("int32", "int64", "bool"))
    ones = (
        "absolute fabs sign rint floor ceil trunc square exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh cbrt "
        "degrees radians deg2rad rad2deg isnan isinf isfinite signbit conjugate positive negative logical_not"
    )
    for name in ones.split():
        dtypes = REALS if name in ("negative", "positive", "sign") else ALL
        yield Case(name, function_of(np, name), (A,), dtypes)
    for name in ["sqrt", "log", "log2", "log10", "log1p", "reciprocal"]:
        yield Case(name, function_of(np, name), (A,), FLOATS if name == "reciprocal" else ALL, 0.6, 4)
    for name in ["arcsin", "arccos", "arctanh"]:
        yield Case(name, function_of(np, name), (A,), FLOATS, -0.9, 0.9)
    yield Case("arccosh", np.arccosh, (A,), REALS, 1.1, 5)
    yield Case("modf", np.modf, (A,), FLOATS)
    yield Case("frexp", np.frexp, (A,), FLOATS)
    yield Case("power", lambda a: (a**2, a**3, a**1.5, 2.0**a), (A,), REALS, 0.6)
    yield Case("matmul", lambda a, b: a @ b, ((2, 3, 4), (4, 5)))
    yield Case("matmul 1-d", lambda a, b: (a @ b, a @ a), ((4,), (4, 5)))
    yield Case(
        "numbers", lambda a: (a + 1, a * 2.5, 1 - a * 1, a / 3, a > 1, a + np.float32(1), a + np.float64(2)), (A,)
    )
    yield Case(
        "beyond", lambda a: (a > -(10**12), a == 10**12, a > 10**12, a[0] != -(10**12)), (A,), ("int32", "uint8")
    )
    yield Case(
        "unsigned",
        lambda a: (a.sum(), a.cumsum(), a.prod(), np.clip(a, 1, 2), np.trace(a), np.where(a > 1, a, 7)),
        (A,),
        ("uint8", "uint16"),
        0,
    )
    yield Case("0-d", lambda a: (a + 1, a * 2.5, np.sqrt(abs(a * 1.0)), a * np.float32(3)), ((),), REALS)
    yield Case("out", lambda a, b: np.add(a, b, out=np.zeros_like(a)), (A, A))
    yield Case("out where", lambda a, b: np.divide(a, b, out=np.zeros_like(a), where=b > 0), (A, A), FLOATS)
    yield Case(
        "dtype", lambda a: (np.add(a, a, dtype=np.float64), np.multiply(a, 2, dtype="float32", casting="unsafe")), (A,)
    )
    yield Case(
        "reduce", lambda a: (np.add.reduce(a), np.multiply.reduce(a, axis=1), np.maximum.reduce(a, axis=None)), (A,)
    )
    yield Case("accumulate", lambda a: (np.add.accumulate(a, axis=1), np.multiply.accumulate(a)), (A,))
    yield Case("outer", lambda a, b: (np.multiply.outer(a, b), np.subtract.outer(a * 1.0, b)), ((3,), (2, 2)))
    yield Case("logical reduce", lambda a: (np.logical_or.reduce(a), np.logical_and.reduce(a, axis=1)), (A,))


def _reductions() -> Iterator[Case]:
    forms = ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}, {"axis": ()})
    for name in ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"]:
        f = getattr(np, name)
        yield Case(name, lambda a, f=f, forms=forms: [f(a, **form) for form in forms], ((2, 3, 4),))
        yield Case(name + " 0-d", lambda a, f=f: (f(a), f(a, keepdims=True)), ((),))
        yield Case(name + " method", lambda a, n=name: (getattr(a, n)(), getattr(a, n)(1), getattr(a, n)(axis=0)), (A,))
    for name in ["argmax", "argmin"]:
        f = getattr(np, name)
        yield Case(name, lambda a, f=f: (f(a), f(a, axis=0), f(a, axis=1, keepdims=True), f(a, keepdims=True)), (A,))
    yield Case("dtype=", lambda a: (a.sum(dtype=np.float32), a.mean(dtype="float64"), a.sum(0, np.int64)), (A,))
    yield Case("ddof", lambda a: (a.var(ddof=1), a.std(0, ddof=1), np.var(a, axis=1, ddof=2)), (A,))
    yield Case(
        "where=",
        lambda a, b: (
            np.sum(a, where=b != 0),
            np.mean(a, axis=0, where=b > -9),
            np.var(a, where=b == b),
            np.max(a, initial=0, where=b != 0),
            np.prod(a, 1, where=b != 0),
        ),
        (A, A),
    )
    yield Case(
        "initial", lambda a: (np.sum(a, initial=5), np.max(a, axis=1, initial=9), np.min(a, initial=-8)), (A,), REALS
    )
    yield Case("ptp", lambda a: (np.ptp(a), np.ptp(a, 0)), (A,), REALS)
    yield Case(
        "average",
        lambda a, w: (np.average(a), np.average(a, axis=0), np.average(a, axis=1, weights=abs(w * 1) + 1)),
        (A, (4,)),
    )
    yield Case("average returned", lambda a: np.average(a, axis=0, returned=True), (A,), FLOATS)
    yield Case(
        "count_nonzero", lambda a: (np.count_nonzero(a, axis=0), np.count_nonzero(a, axis=1, keepdims=True)), (A,)
    )
    yield Case(
        "cumsum", lambda a: (np.cumsum(a), np.cumsum(a, 0), a.cumsum(axis=1), np.cumsum(a, dtype=np.float64)), (A,)
    )
    yield Case("cumprod", lambda a: (np.cumprod(a), a.cumprod(1)), (A,))
    holes = lambda a: np.where(a > 1, np.nan, a)  # noqa: E731
    for name in [
        "nansum",
        "nanmean",
        "nanvar",
        "nanstd",
        "nanmax",
        "nanmin",
        "nanprod",
        "nanargmax",
        "nanargmin",
        "nancumsum",
        "nancumprod",
    ]:
        f = getattr(np, name)
        yield Case(
            name, lambda a, f=f: (f(holes(a)), f(holes(a), axis=0), f(a * 1.0, axis=1)), ((6, 2),), FLOATS, -3, 1.5
        )


CASES = [*_ufuncs(), *_reductions()]
