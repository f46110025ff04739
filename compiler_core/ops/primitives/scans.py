"""Running values along one dim: cumsum, linear_scan, cummax_places, cummin_places.

    cumsum(x)          out[i] = out[i - 1] + x[i]                   reverse: from the last to the first
    linear_scan(a, b)  out[i] = a[i] * out[i - 1] + b[i], out[0] = b[0]
    cummax_places(x)   the place, i64, of the last of the greatest of x[0..i]
    cummin_places(x)   of the least; in both, NaN wins

In: x, a, b: T[...], dim. Out: T[...]. Integers wrap. The 16-bit floats and f32 run in f64 and are rounded once an
element, as torch's are. Each is one pass, in loops (schedule/scan.py) as in NumPy; eager, a linear_scan that is no
running product goes along the dim in Python, whole slices at a time. The gradients are scans in the other direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.dtype import DType, int64, of
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import NUMERIC, ORDERED, check_alike, check_dim, check_dtype
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.rules import CORE, OVER_DIM, OwnCode, Scan


def _running(dtype: np.dtype[Any]) -> Any:
    """The dtype in which a running value of `dtype` is kept."""
    narrow = dtype.kind not in "biuc" and dtype.itemsize < 8
    return np.dtype(np.complex128) if dtype.kind == "c" else np.dtype(np.float64) if narrow else dtype


def _turned(xp: Any, x: Array, dim: int, reverse: bool) -> Array:
    return xp.flip(x, dim) if reverse else x


# ---- sums


def _infer_cumsum(x: TensorMeta, dim: int, reverse: bool) -> TensorMeta:
    check_dtype("cumsum", x, NUMERIC)
    check_dim("cumsum", dim, x.ndim)
    return x


def _eager_cumsum(xp: Any, x: Array, dim: int, reverse: bool) -> Array:
    with np.errstate(all="ignore"):
        total = xp.cumsum(_turned(xp, x.astype(_running(x.dtype), copy=False), dim, reverse), axis=dim)
        result: Array = _turned(xp, total, dim, reverse).astype(x.dtype, copy=False)
    return result


def _vjp_cumsum(g: Value, out: Value, x: Value, dim: int, reverse: bool) -> tuple[Value]:
    return (prims.cumsum(g, dim, not reverse),)


CUMSUM = register(
    Op(
        "cumsum",
        infer=_infer_cumsum,
        eager=_eager_cumsum,
        vjp=_vjp_cumsum,
        vmap=OVER_DIM,
        lower=Scan("sum"),
        samples=(
            Sample(((3, 4),), {"dim": 1, "reverse": False}),
            Sample(((9, 5),), {"dim": 1, "reverse": True}),
            Sample(((4, 3),), {"dim": 0, "reverse": False}),
            Sample(((2, 5, 33),), {"dim": 1, "reverse": True}),
            Sample(((1,),), {"dim": 0, "reverse": False}),
            Sample(((2, 0),), {"dim": 1, "reverse": False}),
        ),
        dtypes=NUMERIC,
        engines=CORE,
    )
)


# ---- linear recurrences


def _infer_linear_scan(a: TensorMeta, b: TensorMeta, dim: int, reverse: bool) -> TensorMeta:
    check_dtype("linear_scan", a, NUMERIC)
    check_alike("linear_scan", a, b)
    check_dim("linear_scan", dim, a.ndim)
    return b


def _eager_linear_scan(xp: Any, a: Array, b: Array, dim: int, reverse: bool) -> Array:
    wide = _running(b.dtype)
    factors, terms = (xp.moveaxis(_turned(xp, v, dim, reverse), dim, 0).astype(wide, copy=False) for v in (a, b))
    with np.errstate(all="ignore"):
        if terms[1:].any():
            result = xp.empty_like(terms)
            for i in range(len(terms)):
                result[i] = factors[i] * result[i - 1] + terms[i] if i else terms[i]
        else:
            result = xp.cumprod(xp.concatenate([terms[:1], factors[1:]]), axis=0, dtype=wide)
        turned: Array = _turned(xp, xp.moveaxis(result, 0, dim), dim, reverse).astype(b.dtype)
    return turned


def shifted(x: Value, dim: int, towards_end: bool) -> Value:
    """x moved by one along dim, and 0 where nothing came from."""
    return _behind_one(_all_but_one(x, dim, last=towards_end), dim, first=towards_end) if x.shape[dim] else x


def _all_but_one(x: Value, dim: int, *, last: bool) -> Value:
    """x without its last, or its first, place along dim."""
    start = tuple(int(d == dim and not last) for d in range(len(x.shape)))
    end = tuple(n - 1 if d == dim and last else n for d, n in enumerate(x.shape))
    return prims.slice(x, start, end, (1,) * len(start))


def _behind_one(x: Value, dim: int, *, first: bool) -> Value:
    """x with a 0 before it, or behind it, along dim."""
    one, none = tuple(int(d == dim) for d in range(len(x.shape))), (0,) * len(x.shape)
    return prims.pad(x, one if first else none, none if first else one, 0.0)


def _vjp_linear_scan(g: Value, out: Value, a: Value, b: Value, dim: int, reverse: bool) -> tuple[Value, Value]:
    """Of b: the recurrence backwards, each factor one place on; of a: that times the value before, if there is one."""
    factors = prims.conj(shifted(a, dim, towards_end=reverse))
    to_b = prims.linear_scan(factors, g, dim, not reverse)
    if not a.shape[dim]:
        return to_b, to_b
    before, here = _all_but_one(out, dim, last=not reverse), _all_but_one(to_b, dim, last=reverse)
    return _behind_one(prims.mul(here, prims.conj(before)), dim, first=not reverse), to_b


def products_before(x: Value, dim: int, reverse: bool) -> Value:
    """At each place the product of those before it along dim, of which there are none at the first; reverse: behind."""
    place = prims.iota(tuple(x.shape), dim, int64)
    is_first = prims.eq(place, prims.full_like(place, x.shape[dim] - 1 if reverse else 0))
    start = prims.where(is_first, prims.full_like(x, 1), prims.full_like(x, nothing(x)))
    return prims.linear_scan(shifted(x, dim, towards_end=not reverse), start, dim, reverse)


def nothing(x: Value) -> float:
    """What added to a product leaves its sign, if it is zero too."""
    return -0.0 if of(x.dtype).is_floating_point else 0


LINEAR_SCAN = register(
    Op(
        "linear_scan",
        infer=_infer_linear_scan,
        eager=_eager_linear_scan,
        vjp=_vjp_linear_scan,
        vmap=OVER_DIM,
        lower=Scan("linear"),
        samples=(
            Sample(((3, 4), (3, 4)), {"dim": 1, "reverse": False}),
            Sample(((5, 3), (5, 3)), {"dim": 0, "reverse": True}),
            Sample(((2, 4, 33), (2, 4, 33)), {"dim": 1, "reverse": False}),
            Sample(((3, 1), (3, 1)), {"dim": 1, "reverse": False}),
            Sample(((2, 0), (2, 0)), {"dim": 1, "reverse": False}),
        ),
        dtypes=NUMERIC,
        engines=OwnCode("each element is computed from the one before"),
    )
)


# ---- places of running extremes


def _infer_places(name: str) -> Any:
    def infer(x: TensorMeta, dim: int) -> TensorMeta:
        check_dtype(name, x, ORDERED)
        check_dim(name, dim, x.ndim)
        return x.with_dtype(int64)

    return infer


def _accumulated(xp: Any, function: str, x: Array) -> Array:
    """The running maximum or minimum along dim 0; where there is none in one go, over 2, 4, 8, ... elements."""
    if xp is np:
        return getattr(np, function).accumulate(x, axis=0)  # type: ignore[no-any-return]
    step = 1
    while step < len(x):
        x = xp.concatenate([x[:step], getattr(xp, function)(x[step:], x[:-step])], axis=0)
        step *= 2
    return x


def _eager_places(largest: bool) -> Any:
    def eager(xp: Any, x: Array, dim: int) -> Array:
        line = xp.moveaxis(x if x.dtype.kind in "biuf" else x.astype(np.float32), dim, 0)
        with np.errstate(invalid="ignore"):
            best = _accumulated(xp, "maximum" if largest else "minimum", line)
            here = (line == best) | (line != line)
        places = xp.arange(len(line)).reshape((-1,) + (1,) * (line.ndim - 1))
        result: Array = xp.moveaxis(_accumulated(xp, "maximum", xp.where(here, places, 0)), 0, dim)
        return result.astype(np.int64, copy=False)

    return eager


def _with_ties(rng: np.random.Generator, dtype: DType) -> list[Array]:
    values = rng.integers(0, 4, (3, 20)).astype(dtype.numpy)
    if dtype.is_floating_point:
        values[1, 4::3] = np.nan
        values[2, :3] = -np.inf
    return [values]


def _running_places(name: str, kind: str, *, largest: bool) -> Op:
    return register(
        Op(
            name,
            infer=_infer_places(name),
            eager=_eager_places(largest),
            vjp=NotDifferentiable("places do not change with small changes of the values"),
            lower=Scan(kind),
            vmap=OVER_DIM,
            samples=(
                Sample(((3, 4),), {"dim": 1}),
                Sample(((6, 20),), {"dim": 0}),
                Sample(((3, 20),), {"dim": 1}, make=_with_ties),
                Sample(((3, 20),), {"dim": 0}, make=_with_ties),
                Sample(((2, 0),), {"dim": 1}),
            ),
            dtypes=ORDERED,
            engines=OwnCode("each element is computed from the one before"),
        )
    )


CUMMAX_PLACES = _running_places("cummax_places", "argmax", largest=True)
CUMMIN_PLACES = _running_places("cummin_places", "argmin", largest=False)
