"""Complex numbers and their parts, with torch's names: complex, polar, real, imag, conj, angle, view_as_real and kin.

In: values. Out: one value. Real values are their own conjugates; `real` of one is itself, `imag` is refused, as torch
does. conj, real, imag, view_as_real and view_as_complex of Tensors are views: a write through one goes to the base.
"""

from __future__ import annotations

import math

from compiler_core.dtype import bool_
from compiler_core.errors import DTypeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_new,
    as_value,
    broadcast_shapes,
    broadcast_to,
    dtype_of,
    floating,
    like,
    shape_of,
)
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value


def complex(real: Value, imag: Value) -> Value:
    """real + i imag. Both f32 or both f64: c64 or c128, broadcast. Raises DTypeError for others."""
    re, im = as_value(real), as_value(imag)
    if dtype_of(re) is not dtype_of(im):
        raise DTypeError("complex: both parts have one dtype", expected=dtype_of(re).name, got=dtype_of(im).name)
    shape = broadcast_shapes(shape_of(re), shape_of(im))
    return prims.complex(broadcast_to(re, shape), broadcast_to(im, shape))


@in_float32_on_cpu
def polar(abs: Value, angle: Value) -> Value:
    """abs (cos angle + i sin angle)."""
    need_kind("polar", "f", abs, angle)
    return complex(F.mul(abs, F.cos(angle)), F.mul(abs, F.sin(angle)))


def real(input: Value) -> Value:
    """The real part; of a real value itself."""
    x = as_value(input)
    return prims.real(x) if dtype_of(x).is_complex else input


def imag(input: Value) -> Value:
    """The imaginary part. Raises DTypeError for a real dtype."""
    x = as_value(input)
    if not dtype_of(x).is_complex:
        raise DTypeError("imag is not implemented for tensors with non-complex dtypes", got=dtype_of(x).name)
    return prims.imag(x)


def isreal(input: Value) -> Value:
    """Whether the imaginary part is 0."""
    x = as_value(input)
    return F.eq(prims.imag(x), 0.0) if dtype_of(x).is_complex else like(prims.full(shape_of(x), True, bool_), x)


def conj(input: Value) -> Value:
    """The conjugate; a real value itself."""
    return prims.conj(input)


def conj_physical(input: Value) -> Value:
    """A copy that is the conjugate."""
    x = as_value(input)
    return as_new(prims.conj(x))


def resolve_conj(input: Value) -> Value:
    """input; of a conjugate, which is a view of what it is the conjugate of, a value of its own."""
    is_conj = getattr(input, "is_conj", None)
    return as_new(input) if is_conj is not None and is_conj() else input


def angle(input: Value) -> Value:
    """The angle in (-pi, pi]. Of real values pi below 0, else 0, with gradient 0; NaN stays."""
    x = floating(input)
    if dtype_of(x).is_complex:
        return prims.atan2(prims.imag(x), prims.real(x))
    turned = prims.where(F.lt(x, 0.0), prims.full_like(x, math.pi), prims.full_like(x, 0.0))
    angle = prims.where(prims.isnan(x), prims.detach(x), turned)
    return prims.where(prims.full(shape_of(x), True, bool_), angle, x)  # of x, with gradient 0


def view_as_real(input: Value) -> Value:
    """f[*s, 2] of c[*s]. Raises DTypeError for a real dtype."""
    return prims.view_as_real(input)


@in_float32_on_cpu
def view_as_complex(input: Value) -> Value:
    """c[*s] of f[*s, 2]."""
    return prims.view_as_complex(input)
