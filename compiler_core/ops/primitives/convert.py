"""The two pointwise ops that change how a value is taken, not its numbers: cast (dtype) and detach (no gradient).

In: one array. Out: an array of its shape. Casting to bool means `!= 0`; float to integer truncates, and is undefined
out of range, as in C; complex to real takes the real part. A cast between floating or complex dtypes hands the
cotangent back in the operand's dtype; any other stops it.
"""

from __future__ import annotations

from typing import Any

from compiler_core import dtype as dt
from compiler_core.dtype import DType, of
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias
from compiler_core.ops.checks import EVERY
from compiler_core.ops.quiet import quietly
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.rules import ALIKE, CORE, Decomposed, Indexed, Movement


def _infer_cast(x: TensorMeta, dtype: DType) -> TensorMeta:
    return x.with_dtype(dtype)


@quietly
def _eager_cast(xp: Any, x: Array, dtype: DType) -> Array:
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    return x.astype(dtype.numpy)


def _vjp_cast(g: Value, out: Value, x: Value, dtype: DType) -> tuple[Value | None]:
    source = of(x.dtype)
    return (prims.cast(g, source) if source.is_inexact and dtype.is_inexact else None,)


def _emit_cast(e: Any, index: Any, read: Any, metas: tuple[TensorMeta, ...], dtype: DType) -> Any:
    return e.cast(read[0](index), dtype)


def _cast_samples() -> tuple[Sample, ...]:
    targets = (
        dt.float32,
        dt.float64,
        dt.float16,
        dt.bfloat16,
        dt.int64,
        dt.int32,
        dt.uint8,
        dt.bool_,
        dt.complex64,
        dt.complex128,
    )
    return tuple(Sample(((3, 4),), {"dtype": target}, low=0.0, high=9.0) for target in targets)


CAST = register(
    Op(
        "cast",
        infer=_infer_cast,
        eager=_eager_cast,
        vjp=_vjp_cast,
        vmap=ALIKE,
        lower=Indexed(_emit_cast),
        samples=_cast_samples(),
        dtypes=EVERY,
        follows=True,
        engines=CORE,
    )
)


def _source_detach(index: tuple[Any, ...], in_shape: Shape) -> tuple[Any, ...]:
    return index


DETACH = register(
    Op(
        "detach",
        infer=lambda x: x,
        eager=lambda xp, x: x,
        vjp=NotDifferentiable("detach cuts the gradient"),
        vmap=ALIKE,
        lower=Movement(_source_detach),
        samples=(Sample(((3, 4),)), Sample(((),))),
        dtypes=EVERY,
        alias=Alias(lambda base, new: new, lambda in_shape, in_strides: in_strides, keeps_order=True),
        only_for_autograd=True,
        engines=Decomposed(lambda x: x),
    )
)
