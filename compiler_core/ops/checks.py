"""The shape and dtype checks that `infer` rules share, and the dtype families that ops take.

In: metas and attributes. Out: nothing, or ShapeError / DTypeError with both sides of the mismatch.
Primitives are strict, so most rules are "all operands alike"; what differs is written in the op's own `infer`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError, NoKernelError, ShapeError
from compiler_core.meta import Shape, TensorMeta

FLOATING = dt.FLOATING
INTEGRAL = tuple(d for d in dt.ALL if d.kind in "iu")
COMPLEX = dt.COMPLEX
INEXACT = FLOATING + COMPLEX
SIGNED = tuple(d for d in dt.ALL if d.kind in "if")
ORDERED_NUMBERS = FLOATING + INTEGRAL
NUMERIC = ORDERED_NUMBERS + COMPLEX
BOOLEAN = (dt.bool_,)
ORDERED = ORDERED_NUMBERS + BOOLEAN
EVERY = dt.ALL
INDEX = (dt.int64, dt.int32)

Infer = Callable[..., TensorMeta]


def check_dtype(op: str, meta: TensorMeta, allowed: tuple[DType, ...], role: str = "operand") -> None:
    """Raise NoKernelError unless `meta`'s dtype is among `allowed`."""
    if meta.dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise NoKernelError(f"{op}: {role} has dtype {meta.dtype.name}", expected=names, got=str(meta))


def check_alike(op: str, *metas: TensorMeta) -> None:
    """Raise ShapeError or DTypeError unless all metas are equal: primitives neither broadcast nor promote."""
    first = metas[0]
    for other in metas[1:]:
        check_same_shape(op, first, other)
        if other.dtype is not first.dtype:
            remedy = "primitives do not promote; the functions in compiler_core.ops.functional do"
            raise DTypeError(f"{op}: operand dtypes differ", expected=str(first), got=str(other), remedy=remedy)


def check_same_shape(op: str, first: TensorMeta, other: TensorMeta) -> None:
    """Raise ShapeError unless both metas have one shape."""
    if other.shape != first.shape:
        remedy = "primitives do not broadcast; the functions in compiler_core.ops.functional do"
        raise ShapeError(f"{op}: operand shapes differ", expected=str(first), got=str(other), remedy=remedy)


def check_shape(op: str, expected: Shape, meta: TensorMeta, role: str) -> None:
    """Raise ShapeError unless `meta` has shape `expected`."""
    if meta.shape != expected:
        raise ShapeError(f"{op}: {role} has the wrong shape", expected=str(expected), got=str(meta))


def check_dims(op: str, dims: tuple[int, ...], ndim: int) -> None:
    """Raise ShapeError unless `dims` are distinct, ascending and within 0..ndim-1."""
    if any(not 0 <= d < ndim for d in dims) or any(a >= b for a, b in pairwise(dims)):
        raise ShapeError(f"{op}: bad dims {dims}", expected=f"distinct ascending dims of a {ndim}-d operand")


def check_dim(op: str, dim: int, ndim: int) -> None:
    """Raise ShapeError unless `dim` is within 0..ndim-1."""
    if not 0 <= dim < ndim:
        raise ShapeError(f"{op}: bad dim {dim}", expected=f"0 <= dim < {ndim}")


def infer_alike(op: str, dtypes: tuple[DType, ...], out: DType | None = None) -> Infer:
    """The rule "operands alike, of one of `dtypes`; the result has their shape and dtype `out` (None: theirs)"."""

    def infer(*metas: TensorMeta) -> TensorMeta:
        check_dtype(op, metas[0], dtypes)
        check_alike(op, *metas)
        return metas[0] if out is None else metas[0].with_dtype(out)

    return infer
