"""bitcast: the bytes of an array, read as another dtype. torch's `view(dtype)`.

In: x[..., n] of `source`. Out: [..., n * source.itemsize / dtype.itemsize] of `dtype`; where both have one size, any
shape. It is a view: a write through it goes to the base, as the bytes it stands for. No gradient passes, as in torch.
Method: NumPy's view of a row-major copy; in generated code a call back to it.
"""

from __future__ import annotations

from typing import Any

from compiler_core.dtype import DType, float16, float32, float64, int32, int64, uint8
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias, Strides
from compiler_core.ops.checks import EVERY
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import ALIKE, OwnCode


def _infer(x: TensorMeta, source: DType, dtype: DType) -> TensorMeta:
    if x.dtype is not source:
        raise DTypeError("bitcast: the operand is of another dtype", expected=source.name, got=str(x))
    if source.itemsize == dtype.itemsize:
        return x.with_dtype(dtype)
    if x.ndim == 0 or x.shape[-1] * source.itemsize % dtype.itemsize:
        raise ShapeError(
            f"view({dtype.name}): rows do not hold whole elements",
            expected=f"a last dimension that is a multiple of {dtype.itemsize} bytes", got=str(x),
        )  # fmt: skip
    return TensorMeta((*x.shape[:-1], x.shape[-1] * source.itemsize // dtype.itemsize), dtype)


def _eager(xp: Any, x: Array, source: DType, dtype: DType) -> Array:
    rows = xp.ascontiguousarray(x)  # of a 0-d array: one row of one element
    return rows.view(dtype.numpy).reshape(_infer(TensorMeta(x.shape, source), source, dtype).shape)  # type: ignore[no-any-return]


def _strides(in_shape: Shape, in_strides: Strides, source: DType, dtype: DType) -> Strides:
    if source.itemsize == dtype.itemsize:
        return in_strides
    return (*(step * source.itemsize // dtype.itemsize for step in in_strides[:-1]), 1)


BITCAST = register(
    Op(
        "bitcast",
        infer=_infer,
        eager=_eager,
        vjp=NotDifferentiable("bytes read as another dtype's have no gradient"),
        vmap=ALIKE,
        lower=call_back("bitcast", _eager, why="bytes are read as another dtype's"),
        samples=(
            Sample(((3, 4),), {"source": float32, "dtype": int32}, dtypes=(float32,)),
            Sample(((3, 4),), {"source": float32, "dtype": uint8}, dtypes=(float32,)),
            Sample(((3, 8),), {"source": uint8, "dtype": float64}, dtypes=(uint8,), low=0),
            Sample(((),), {"source": int64, "dtype": float64}, dtypes=(int64,)),
            Sample(((2, 0),), {"source": float16, "dtype": int64}, dtypes=(float16,)),
        ),
        dtypes=EVERY,
        alias=Alias(
            lambda base, new, source, dtype: prims.bitcast(new, source),
            _strides,
            keeps_order=True,
            parts=lambda source, dtype: (source.itemsize, dtype.itemsize),
        ),
        engines=OwnCode("bytes are read as another dtype's"),
    )
)
