"""Arrays from nothing: full and iota.

In: attributes only. Out: a new array. With no operand to ask, `bind` asks the current trace.
`full` gives a zero-stride view of one element in eager mode, as `expand` does: values are immutable, so that is safe,
and `x * 2` then reads x once and writes once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.checks import EVERY, ORDERED_NUMBERS, check_dim, check_dtype
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.rules import CORE, Indexed

Metas = tuple[TensorMeta, ...]
_NO_OPERAND = NotDifferentiable("no operand")


def check_sizes(op: str, shape: Shape) -> None:
    """Raise ShapeError for a negative size."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"{op}: negative size", expected="sizes >= 0", got=str(shape))


def _infer_full(*, shape: Shape, value: float, dtype: DType) -> TensorMeta:
    check_sizes("full", shape)
    return TensorMeta(shape, dtype)


def _eager_full(xp: Any, *, shape: Shape, value: float, dtype: DType) -> Array:
    element: Array = xp.asarray(value).astype(dtype.numpy, copy=False)
    if shape == ():
        return element
    if xp is not np:
        return xp.broadcast_to(element, shape)  # type: ignore[no-any-return]
    repeated: Array = np.ndarray(shape, element.dtype, element, 0, (0,) * len(shape))  # broadcast_to takes 5 us more
    repeated.flags.writeable = False
    return repeated


def _emit_full(e: Any, index: Any, read: Any, metas: Metas, shape: Shape, value: float, dtype: DType) -> Any:
    return e.const(value, dtype)


FULL = register(
    Op(
        "full",
        infer=_infer_full,
        eager=_eager_full,
        vjp=_NO_OPERAND,
        lower=Indexed(_emit_full),
        samples=tuple(
            Sample((), {"shape": shape, "value": value, "dtype": dtype})
            for shape, value, dtype in (
                ((2, 3), 1.5, dt.float32),
                ((), 7, dt.int64),
                ((0,), True, dt.bool_),
                ((4,), float("-inf"), dt.float64),
                ((4,), 0.1, dt.bfloat16),
                ((4,), 1.5 - 2j, dt.complex64),
            )
        ),
        dtypes=EVERY,
        engines=CORE,
    )
)


def _infer_iota(*, shape: Shape, dim: int, dtype: DType) -> TensorMeta:
    check_sizes("iota", shape)
    check_dim("iota", dim, len(shape))
    check_dtype("iota", TensorMeta(shape, dtype), ORDERED_NUMBERS, "the result")
    return TensorMeta(shape, dtype)


def _eager_iota(xp: Any, *, shape: Shape, dim: int, dtype: DType) -> Array:
    ramp: Array = xp.arange(shape[dim]).astype(dtype.numpy)
    column = ramp.reshape([n if d == dim else 1 for d, n in enumerate(shape)])
    return column if len(shape) == 1 else xp.broadcast_to(column, shape)


def _emit_iota(e: Any, index: Any, read: Any, metas: Metas, shape: Shape, dim: int, dtype: DType) -> Any:
    return e.index_value(index[dim], dtype)


IOTA = register(
    Op(
        "iota",
        infer=_infer_iota,
        eager=_eager_iota,
        vjp=_NO_OPERAND,
        lower=Indexed(_emit_iota),
        samples=(
            Sample((), {"shape": (5,), "dim": 0, "dtype": dt.int64}),
            Sample((), {"shape": (2, 3), "dim": 1, "dtype": dt.float32}),
            Sample((), {"shape": (2, 3), "dim": 0, "dtype": dt.int32}),
        ),
        dtypes=ORDERED_NUMBERS,
        engines=CORE,
    )
)
