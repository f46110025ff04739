"""The primitives of complex numbers as functions; prims.py, of which this is a part, has the others.

In: values of the shapes and dtypes that the ops take (complex_parts.py, fourier.py). Out: one value.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.dtype import of
from compiler_core.ops.registry import OPS, Value, bind, of_one, of_two

complex = of_two("complex")
real = of_one("real")
imag = of_one("imag")


def conj(x: Value) -> Value:
    """The conjugate; a real value is its own, and no node is made."""
    return bind(OPS["conj"], x) if of(x.dtype).is_complex else x


view_as_real = of_one("view_as_real")
view_as_complex = of_one("view_as_complex")


# ---- Fourier transforms, without scaling


def fft(x: Value, dims: Sequence[int], inverse: bool) -> Value:
    return bind(OPS["fft"], x, dims=tuple(dims), inverse=inverse)


def rfft(x: Value, dim: int) -> Value:
    return bind(OPS["rfft"], x, dim=dim)


def irfft(x: Value, dim: int, size: int) -> Value:
    return bind(OPS["irfft"], x, dim=dim, size=size)
