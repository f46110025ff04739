"""torch.fft's transforms: fft, ifft, rfft, irfft, hfft, ihfft, of one dim (n, dim), of two and of more (s, dim).

In: real or complex values; sizes that cut or fill up with zeros; norm: "backward" (the inverse is scaled by 1/n),
"forward" (the other) or "ortho" (both by 1/sqrt n). Out: complex values; irfft and hfft: real ones.
A real operand counts as complex where one is wanted, an integer as the default dtype. Transforms of real signals keep
the first half of the last dim of `dim`: the other is its mirror image. hfft(x) is irfft(conj x), scaled the other way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, cast, dtype_of, floating, normalize_dim
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.composites.arithmetic import times
from compiler_core.ops.registry import Value

Sizes = Sequence[int] | None
Dim = int | Sequence[int] | None


def _scaled(x: Value, count: int, norm: str | None, inverse: bool) -> Value:
    """x, a transform over `count` points, as `norm` wants it."""
    if norm not in (None, "backward", "forward", "ortho"):
        raise ShapeError("fft: unknown norm", expected="'backward', 'forward' or 'ortho'", got=repr(norm))
    if norm == "ortho":
        return times(x, 1.0 / math.sqrt(count))
    is_scaled = norm == "forward" if not inverse else norm in (None, "backward")
    return times(x, 1.0 / count) if is_scaled else x


def _resized(x: Value, dims: Sequence[int], sizes: Sequence[int]) -> Value:
    """x cut, or filled up with zeros, to these sizes of these dims."""
    for d, n in zip(dims, sizes):
        if n < 1:
            raise ShapeError("fft: invalid number of data points", expected="at least 1", got=str(n))
        if n < x.shape[d]:
            x = F.narrow(x, d, 0, n)
        elif n > x.shape[d]:
            low = (0,) * len(x.shape)
            x = prims.pad(x, low, tuple(n - x.shape[d] if k == d else 0 for k in range(len(x.shape))))
    return x


def _places(x: Value, s: Sizes, dim: Dim) -> tuple[list[int], list[int | None]]:
    """(dims, the size asked for of each, None: its own)."""
    ndim = len(x.shape)
    if dim is None:
        count = ndim if s is None else len(s)
        if count > ndim:
            raise ShapeError("fft: more sizes than dims", expected=f"<= {ndim}", got=str(count))
        dims = list(range(ndim - count, ndim))
    else:
        dims = [normalize_dim(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(set(dims)) != len(dims):
        raise ShapeError("fft: a dim appears twice", got=str(dim))
    if s is not None and len(s) != len(dims):
        raise ShapeError("fft: one size for each dim", expected=str(len(dims)), got=str(len(s)))
    return dims, [None] * len(dims) if s is None else [None if n == -1 else n for n in s]


def _own_sizes(x: Value, dims: Sequence[int], sizes: Sequence[int | None]) -> list[int]:
    return [x.shape[d] if n is None else n for d, n in zip(dims, sizes)]


def _complex(x: Value) -> Value:
    x = floating(x)
    return x if dtype_of(x).is_complex else cast(x, dtype_of(x).complex)


def _real(name: str, x: Value) -> Value:
    x = as_value(x)
    if dtype_of(x).is_complex:
        raise DTypeError(f"{name} takes a real input", got=dtype_of(x).name)
    x = floating(x)
    if dtype_of(x) not in (dt.float32, dt.float64):
        raise DTypeError(f"{name}: there is no complex dtype of such parts", expected="float32 or float64")
    return x


# ---- complex to complex


def _c2c(input: Value, s: Sizes, dim: Dim, norm: str | None, inverse: bool) -> Value:
    x = _complex(as_value(input))
    dims, asked = _places(x, s, dim)
    sizes = _own_sizes(x, dims, asked)
    x = _resized(x, dims, sizes)
    return _scaled(prims.fft(x, tuple(sorted(dims)), inverse), math.prod(sizes), norm, inverse) if dims else x


def _one(n: int | None) -> Sizes:
    return None if n is None else (n,)


@in_float32_on_cpu
def fft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """The transform along `dim`."""
    return _c2c(input, _one(n), dim, norm, False)


@in_float32_on_cpu
def ifft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """The inverse transform along `dim`."""
    return _c2c(input, _one(n), dim, norm, True)


@in_float32_on_cpu
def fft2(input: Value, s: Sizes = None, dim: Dim = (-2, -1), norm: str | None = None) -> Value:
    """The transform along two dims."""
    return _c2c(input, s, dim, norm, False)


@in_float32_on_cpu
def ifft2(input: Value, s: Sizes = None, dim: Dim = (-2, -1), norm: str | None = None) -> Value:
    """The inverse transform along two dims."""
    return _c2c(input, s, dim, norm, True)


@in_float32_on_cpu
def fftn(input: Value, s: Sizes = None, dim: Dim = None, norm: str | None = None) -> Value:
    """The transform along all dims, or those given."""
    return _c2c(input, s, dim, norm, False)


@in_float32_on_cpu
def ifftn(input: Value, s: Sizes = None, dim: Dim = None, norm: str | None = None) -> Value:
    """The inverse transform along all dims, or those given."""
    return _c2c(input, s, dim, norm, True)


# ---- real to half of complex


def _r2c(name: str, input: Value, s: Sizes, dim: Dim, norm: str | None, inverse: bool) -> Value:
    """rfft and its like; inverse: ihfft and its like."""
    x = _real(name, input)
    dims, asked = _places(x, s, dim)
    if not dims:
        raise ShapeError(f"{name} must transform at least one dim")
    sizes = _own_sizes(x, dims, asked)
    half = prims.rfft(_resized(x, dims, sizes), dims[-1])
    half = prims.conj(half) if inverse else half
    rest = tuple(sorted(dims[:-1]))
    return _scaled(prims.fft(half, rest, inverse) if rest else half, math.prod(sizes), norm, inverse)


@in_float32_on_cpu
def rfft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """The first half, n // 2 + 1, of the transform of a real signal."""
    return _r2c("rfft", input, _one(n), dim, norm, False)


@in_float32_on_cpu
def rfft2(input: Value, s: Sizes = None, dim: Dim = (-2, -1), norm: str | None = None) -> Value:
    """rfft of two dims."""
    return _r2c("rfft2", input, s, dim, norm, False)


@in_float32_on_cpu
def rfftn(input: Value, s: Sizes = None, dim: Dim = None, norm: str | None = None) -> Value:
    """rfft of all dims, or those given."""
    return _r2c("rfftn", input, s, dim, norm, False)


@in_float32_on_cpu
def ihfft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """The first half of the inverse transform of a real signal."""
    return _r2c("ihfft", input, _one(n), dim, norm, True)


def ihfft2(input: Value, s: Sizes = None, dim: Dim = (-2, -1), norm: str | None = None) -> Value:
    """ihfft of two dims."""
    return _r2c("ihfft2", input, s, dim, norm, True)


def ihfftn(input: Value, s: Sizes = None, dim: Dim = None, norm: str | None = None) -> Value:
    """ihfft of all dims, or those given."""
    return _r2c("ihfftn", input, s, dim, norm, True)


# ---- half of complex to real


def _c2r(name: str, input: Value, s: Sizes, dim: Dim, norm: str | None, inverse: bool) -> Value:
    """irfft and its like (inverse); hfft and its like."""
    x = _complex(as_value(input))
    dims, asked = _places(x, s, dim)
    if not dims:
        raise ShapeError(f"{name} must transform at least one dim")
    last = dims[-1]
    size = asked[-1] if asked[-1] is not None else 2 * (x.shape[last] - 1)
    if size < 1:
        raise ShapeError(f"{name}: invalid number of data points", expected="at least 1", got=str(size))
    sizes = [*_own_sizes(x, dims[:-1], asked[:-1]), size]
    x = _resized(x, dims, [*sizes[:-1], size // 2 + 1])
    rest = tuple(sorted(dims[:-1]))
    x = prims.fft(x, rest, inverse) if rest else x
    result = prims.irfft(x if inverse else prims.conj(x), last, size)
    return _scaled(result, math.prod(sizes), norm, inverse)


@in_float32_on_cpu
def irfft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """The real signal of n points (2 (size - 1) by default) of which input is half the transform."""
    return _c2r("irfft", input, _one(n), dim, norm, True)


@in_float32_on_cpu
def irfft2(input: Value, s: Sizes = None, dim: Dim = (-2, -1), norm: str | None = None) -> Value:
    """irfft of two dims."""
    return _c2r("irfft2", input, s, dim, norm, True)


@in_float32_on_cpu
def irfftn(input: Value, s: Sizes = None, dim: Dim = None, norm: str | None = None) -> Value:
    """irfft of all dims, or those given."""
    return _c2r("irfftn", input, s, dim, norm, True)


@in_float32_on_cpu
def hfft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """The real transform of a signal of which input is the first half, the rest its mirrored conjugate."""
    return _c2r("hfft", input, _one(n), dim, norm, False)


def hfft2(input: Value, s: Sizes = None, dim: Dim = (-2, -1), norm: str | None = None) -> Value:
    """hfft of two dims."""
    return _c2r("hfft2", input, s, dim, norm, False)


def hfftn(input: Value, s: Sizes = None, dim: Dim = None, norm: str | None = None) -> Value:
    """hfft of all dims, or those given."""
    return _c2r("hfftn", input, s, dim, norm, False)
