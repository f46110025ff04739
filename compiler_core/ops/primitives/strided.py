"""strided: elements of a vector at places that strides count out, as a view; what torch's as_strided is made of.

In: x: T[n], sizes, a stride for each and an offset, none negative. Out: T[size], element i = x[offset + sum i_d s_d].
A view in NumPy, an index in loops. Its adjoint adds: places may be shown several times.
"""

from __future__ import annotations

import math
from typing import Any

from compiler_core.dtype import int64, of
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias
from compiler_core.ops.batching.rules import strode
from compiler_core.ops.checks import EVERY
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.rules import Decomposed, Movement

Index = tuple[Any, ...]


def check_strided(name: str, count: int, size: Shape, stride: Shape, offset: int) -> None:
    """Raises ShapeError where sizes and strides do not fit each other, or leave `count` elements."""
    if len(size) != len(stride):
        raise ShapeError(f"{name}: one stride for each size", expected=str(size), got=str(stride))
    if any(s < 0 for s in stride) or any(n < 0 for n in size) or offset < 0:
        raise ShapeError(f"{name}: negative sizes, strides or offset", got=f"{size}, {stride}, {offset}")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if math.prod(size) and last >= count:
        raise ShapeError(f"{name} leaves the storage", expected=f"within {count} elements", got=f"element {last}")


def strided_places(size: Shape, stride: Shape, offset: int) -> Value:
    """i64[size]: offset + sum of index_d * stride_d."""
    places = prims.full(size, offset, int64)
    for d, step in enumerate(stride):
        places = prims.add(places, prims.mul(prims.iota(size, d, int64), prims.full(size, step, int64)))
    return places


def by_places(x: Value, size: Shape, stride: Shape, offset: int) -> Value:
    """What the op shows of x, taken from it."""
    return prims.take(x, strided_places(size, stride, offset)) if x.shape[0] else prims.full(size, 0, of(x.dtype))


def flat_by_places(x: Value, size: Shape, stride: Shape, offset: int = 0) -> Value:
    """The same of all elements of x in order."""
    return by_places(prims.reshape(x, (math.prod(x.shape),)), size, stride, offset)


def overlaps(size: Shape, stride: Shape) -> bool:
    """Whether two indices may show one place: unless each stride steps over all that smaller ones reach."""
    reach = 0
    for step, n in sorted((s, n) for s, n in zip(stride, size) if n > 1):
        if step <= reach:
            return True
        reach += (n - 1) * step
    return False


def _infer_strided(x: TensorMeta, size: Shape, stride: Shape, offset: int) -> TensorMeta:
    if x.ndim != 1:
        raise ShapeError("strided: the operand is no vector", expected="one dim", got=str(x))
    check_strided("strided", x.numel, size, stride, offset)
    return x.with_shape(size)


def _eager_strided(xp: Any, x: Array, size: Shape, stride: Shape, offset: int) -> Array:
    if 0 in size:
        return xp.empty(size, x.dtype)  # type: ignore[no-any-return]
    steps = [s * x.strides[0] for s in stride]
    return xp.lib.stride_tricks.as_strided(x[offset:], size, steps)  # type: ignore[no-any-return]


def _vjp_strided(g: Value, out: Value, x: Value, size: Shape, stride: Shape, offset: int) -> tuple[Value]:
    places = prims.reshape(strided_places(size, stride, offset), (math.prod(size),))
    zeros = prims.full(tuple(x.shape), 0.0, of(g.dtype))
    return (prims.scatter_add(zeros, places, prims.reshape(g, (math.prod(size),)), 0),)


def _source_strided(index: Index, in_shape: Shape, size: Shape, stride: Shape, offset: int) -> Index:
    place: Any = offset
    for i, step in zip(index, stride):
        place = place + i * step
    return (place,)


def _scatter_strided(base: Value, new: Value, size: Shape, stride: Shape, offset: int) -> Value:
    if overlaps(size, stride):
        raise ShapeError(
            "cannot write in place to what as_strided shows: several of its elements may be one memory location",
            expected="strides that step over what smaller ones reach",
            got=f"size {size}, stride {stride}",
            remedy="clone() it first",
        )
    return prims.index_copy(base, strided_places(size, stride, offset), new)


_CASES: tuple[tuple[int, Shape, Shape, int], ...] = (
    (12, (3, 2), (4, 1), 1),
    (10, (4, 3), (2, 1), 0),  # shows places twice
    (6, (2, 3), (0, 2), 1),
    (5, (), (), 3),
    (4, (0, 2), (1, 1), 0),
)

STRIDED = register(
    Op(
        "strided",
        infer=_infer_strided,
        eager=_eager_strided,
        vjp=_vjp_strided,
        vmap=strode,
        lower=Movement(_source_strided),
        samples=tuple(Sample(((n,),), {"size": m, "stride": s, "offset": o}) for n, m, s, o in _CASES),
        dtypes=EVERY,
        alias=Alias(
            _scatter_strided,
            lambda in_shape, in_strides, size, stride, offset: tuple(s * in_strides[0] for s in stride),
            lambda in_strides, size, stride, offset: offset * in_strides[0],
            reorders=True,
        ),
        engines=Decomposed(by_places),
    )
)
