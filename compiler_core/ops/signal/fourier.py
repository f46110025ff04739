"""Discrete Fourier transforms without scaling: fft (complex), rfft (real to half), irfft (half to real).

In: fft: c[*s], rfft: f[*s], irfft: c[*s]. Out:
    fft(x, dims, inverse)   c[*s]: sum over the dims of x e^(-+ 2 pi i jk/n), + where inverse
    rfft(x, dim)            c[*s] with n // 2 + 1 at dim: the first half of a real signal's transform
    irfft(x, dim, size)     f[*s] with `size` at dim: the inverse sum over a half, size // 2 + 1 terms, and its mirror
NumPy's pocketfft, in the operand's precision; native code calls it back.
All are linear over the reals, so a cotangent goes through the adjoint. That of fft is its inverse; of rfft the real
part of the inverse over the half, the rest zero; of irfft rfft, with terms that have a mirror image counted twice.
"""

from __future__ import annotations

from typing import Any

from compiler_core.dtype import of
from compiler_core.errors import ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import COMPLEX, check_dim, check_dims, check_dtype
from compiler_core.ops.primitives.complex_parts import PARTS
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import OVER_DIM, OVER_DIMS, OwnCode

Dims = tuple[int, ...]
_WHY = "pocketfft, through NumPy"


def _check_sizes(name: str, x: TensorMeta, dims: Dims) -> None:
    if any(x.shape[d] == 0 for d in dims):
        raise ShapeError(f"{name}: no data points along a transformed dim", expected="at least one", got=str(x))


# ---- fft


def _infer_fft(x: TensorMeta, dims: Dims, inverse: bool) -> TensorMeta:
    check_dtype("fft", x, COMPLEX)
    check_dims("fft", dims, x.ndim)
    _check_sizes("fft", x, dims)
    return x


def _eager_fft(xp: Any, x: Array, dims: Dims, inverse: bool) -> Array:
    out = xp.fft.ifftn(x, axes=dims, norm="forward") if inverse else xp.fft.fftn(x, axes=dims)
    return out.astype(x.dtype, copy=False)  # type: ignore[no-any-return]


FFT = register(
    Op(
        "fft",
        infer=_infer_fft,
        eager=_eager_fft,
        vjp=lambda g, out, x, dims, inverse: (prims.fft(g, dims, not inverse),),
        vmap=OVER_DIMS,
        lower=call_back("fft", _eager_fft, why=_WHY),
        samples=tuple(
            Sample((shape,), {"dims": dims, "inverse": inverse})
            for shape, dims, inverse in (((5,), (0,), False), ((3, 4), (0, 1), True), ((2, 3, 2), (1,), False))
        ),
        dtypes=COMPLEX,
        engines=OwnCode("a Fourier transform, by a library"),
    )
)


# ---- rfft


def _at(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _infer_rfft(x: TensorMeta, dim: int) -> TensorMeta:
    check_dtype("rfft", x, PARTS)
    check_dim("rfft", dim, x.ndim)
    _check_sizes("rfft", x, (dim,))
    return TensorMeta(_at(x.shape, dim, x.shape[dim] // 2 + 1), x.dtype.complex)


def _eager_rfft(xp: Any, x: Array, dim: int) -> Array:
    return xp.fft.rfft(x, axis=dim).astype(of(x.dtype).complex.numpy, copy=False)  # type: ignore[no-any-return]


def _vjp_rfft(g: Value, out: Value, x: Value, dim: int) -> tuple[Value]:
    zeros, missing = (0,) * len(x.shape), (x.shape[dim] - 1) // 2
    whole = prims.pad(g, zeros, _at(zeros, dim, missing)) if missing else g
    return (prims.real(prims.fft(whole, (dim,), True)),)


RFFT = register(
    Op(
        "rfft",
        infer=_infer_rfft,
        eager=_eager_rfft,
        vjp=_vjp_rfft,
        vmap=OVER_DIM,
        lower=call_back("rfft", _eager_rfft, why=_WHY),
        samples=tuple(
            Sample((shape,), {"dim": dim}) for shape, dim in (((5,), 0), ((4, 3), 0), ((2, 3, 2), 1), ((1,), 0))
        ),
        dtypes=PARTS,
        engines=OwnCode("a Fourier transform, by a library"),
    )
)


# ---- irfft


def _infer_irfft(x: TensorMeta, dim: int, size: int) -> TensorMeta:
    check_dtype("irfft", x, COMPLEX)
    check_dim("irfft", dim, x.ndim)
    if size < 1 or x.shape[dim] != size // 2 + 1:
        raise ShapeError("irfft: the operand is not half of the size", expected=f"{size // 2 + 1}", got=str(x))
    return TensorMeta(_at(x.shape, dim, size), x.dtype.real)


def _eager_irfft(xp: Any, x: Array, dim: int, size: int) -> Array:
    out = xp.fft.irfft(x, size, axis=dim, norm="forward")
    return out.astype(of(x.dtype).real.numpy, copy=False)  # type: ignore[no-any-return]


def _vjp_irfft(g: Value, out: Value, x: Value, dim: int, size: int) -> tuple[Value]:
    half = prims.rfft(g, dim)
    places = prims.iota(tuple(half.shape), dim, of(g.dtype))
    alone = prims.eq(places, prims.full_like(places, 0))
    if size % 2 == 0:
        alone = prims.bitwise_or(alone, prims.eq(places, prims.full_like(places, size // 2)))
    count = prims.where(alone, prims.full_like(places, 1), prims.full_like(places, 2))
    return (prims.mul(half, prims.cast(count, of(half.dtype))),)


IRFFT = register(
    Op(
        "irfft",
        infer=_infer_irfft,
        eager=_eager_irfft,
        vjp=_vjp_irfft,
        vmap=OVER_DIM,
        lower=call_back("irfft", _eager_irfft, why=_WHY),
        samples=tuple(
            Sample((shape,), {"dim": dim, "size": size})
            for shape, dim, size in (((3,), 0, 5), ((3, 2), 0, 4), ((2, 2, 2), 1, 3), ((1,), 0, 1))
        ),
        dtypes=COMPLEX,
        engines=OwnCode("a Fourier transform, by a library"),
    )
)
