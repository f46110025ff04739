"""Rules of linear algebra: dot, matmul, einsum, np.linalg, and of np.fft.

In: NumPy's arguments. Out: Tensors. np.linalg takes whole numbers as float64; np.fft keeps single precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import not_traced
from compiler_core.numpy_trace.dispatch import answers
from compiler_core.numpy_trace.operands import (
    all_floats,
    axes_of,
    cast,
    dtype_of,
    flat,
    floats,
    shape_of,
    tensor_of,
    together,
    torch_function,
)
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.tensor.tensor import Tensor


def product(x: Tensor, y: Tensor) -> Tensor:
    """matmul of any dtype: of bools, whether any pair is True."""
    if x.dtype.kind == "b":
        return F.ne(F.matmul(cast(x, np.int64), cast(y, np.int64)), 0)  # type: ignore[no-any-return]
    return F.matmul(x, y)  # type: ignore[no-any-return]


@answers(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = together(a, b)
    if not x.ndim or not y.ndim:
        return F.mul(x, y)
    if y.ndim <= 2:
        return product(x, y)
    return tensordot(x, y, ((-1,), (-2,)))


@answers(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    x, y = together(a, b)
    return product(flat(prims.conj(x) if x.dtype.is_complex else x), flat(y))


@answers(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    x, y = together(a, b)
    return F.mul(x, y) if not x.ndim or not y.ndim else tensordot(x, y, ((-1,), (-1,)))


@answers(np.outer, np.linalg.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    x, y = together(a, b)
    return F.mul(flat(x)[:, None], flat(y))


@answers(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = together(a, b)
    if isinstance(axes, int):
        axes = (range(x.ndim - axes, x.ndim), range(axes))
    left, right = ((one,) if isinstance(one, int) else tuple(one) for one in axes)
    left, right = axes_of(left, x.ndim), axes_of(right, y.ndim)
    if [shape_of(x)[d] for d in left] != [shape_of(y)[d] for d in right]:
        raise ValueError("shape-mismatch for sum")
    rows, columns = ([d for d in range(t.ndim) if d not in used] for t, used in ((x, left), (y, right)))
    inner_size = math.prod(shape_of(x)[d] for d in left)
    first = F.reshape(F.permute(x, (*rows, *left)), (math.prod(shape_of(x)[d] for d in rows), inner_size))
    second = F.reshape(F.permute(y, (*right, *columns)), (inner_size, math.prod(shape_of(y)[d] for d in columns)))
    return F.reshape(product(first, second), [*(shape_of(x)[d] for d in rows), *(shape_of(y)[d] for d in columns)])


@answers(np.kron)
def kron(a: Any, b: Any) -> Any:
    return torch_function("kron")(*together(a, b))


@answers(np.cross, np.linalg.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    x, y = together(a, b)
    d = -1 if axis is None else axis
    if (axisa, axisb, axisc) != (-1, -1, -1) or shape_of(x)[d] != 3 or shape_of(y)[d] != 3:
        raise not_traced("np.cross of vectors that do not have 3 elements, or along several axes")
    x, y = x.transpose(d, -1), y.transpose(d, -1)
    (a0, a1, a2), (b0, b1, b2) = x.unbind(-1), y.unbind(-1)
    parts = [F.sub(F.mul(p, q), F.mul(r, s)) for p, q, r, s in ((a1, b2, a2, b1), (a2, b0, a0, b2), (a0, b1, a1, b0))]
    return F.stack(parts, -1).transpose(d, -1)


@answers(np.trace, np.linalg.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    from compiler_core.numpy_trace.reductions import sum_dtype

    tensor = cast(tensor_of(a), np.dtype(dtype) if dtype is not None else sum_dtype(dtype_of(a)))
    return cast(F.sum(tensor.diagonal(offset, axis1, axis2), -1), tensor.dtype.numpy)


@answers(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    if kwargs or not isinstance(operands[0], str):
        raise not_traced("np.einsum with lists of axes, or with dtype=")
    tensors = together(*operands[1:])
    if tensors[0].dtype.kind == "b":
        raise not_traced("np.einsum of bools")
    return cast(F.einsum(operands[0], *tensors), tensors[0].dtype.numpy)


@answers(np.linalg.matmul)
def matmul(x1: Any, x2: Any, /) -> Any:
    return np.matmul(x1, x2).tensor


@answers(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    return torch_function("linalg.multi_dot")(together(*arrays))


@answers(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    tensor = tensor_of(a)
    if n < 0:
        tensor, n = inv(a), -n
    if n == 0:
        eye = cast(tensor_of(np.eye(shape_of(tensor)[-1])), tensor.dtype.numpy)
        return F.expand(eye, shape_of(tensor))
    result: Any = None
    while n:
        result = (tensor if result is None else F.matmul(result, tensor)) if n & 1 else result
        n >>= 1
        tensor = F.matmul(tensor, tensor) if n else tensor
    return result


@answers(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    tensor = floats(x)
    if axis is None:
        if ord is None:
            found = torch_function("linalg.vector_norm")(flat(tensor))
            return F.reshape(found, (1,) * tensor.ndim) if keepdims else found
        if tensor.ndim > 2:
            raise ValueError("Improper number of dimensions to norm.")
        axis = tuple(range(tensor.ndim))
    axes = axes_of(axis, tensor.ndim)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return torch_function("linalg.vector_norm")(tensor, 2 if ord is None else ord, axes, keepdims)
    return torch_function("linalg.matrix_norm")(tensor, "fro" if ord is None else ord, axes, keepdims)


@answers(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    return torch_function("linalg.vector_norm")(floats(x), ord, axis, keepdims)


def _square(a: Any) -> Tensor:
    tensor = floats(a)
    if tensor.ndim < 2 or shape_of(tensor)[-1] != shape_of(tensor)[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return tensor


@answers(np.linalg.inv)
def inv(a: Any) -> Any:
    return torch_function("linalg.inv")(_square(a))


@answers(np.linalg.det)
def det(a: Any) -> Any:
    return torch_function("linalg.det")(_square(a))


@answers(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    found = torch_function("linalg.slogdet")(_square(a))
    return _named("SlogdetResult")(*found)


def _named(name: str) -> Any:
    """The class of NumPy's results."""
    return getattr(np.linalg._linalg, name)


@answers(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    x, y = all_floats(a, b)
    if y.ndim == 1:
        return torch_function("linalg.solve")(x, y[:, None])[..., 0]
    return torch_function("linalg.solve")(x, y)


@answers(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    return torch_function("linalg.cholesky")(_square(a), upper=upper)


@answers(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    return _named("EighResult")(*torch_function("linalg.eigh")(_square(a), UPLO))


@answers(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return torch_function("linalg.eigvalsh")(_square(a), UPLO)


@answers(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    if hermitian:
        raise not_traced("np.linalg.svd(hermitian=True)")
    if not compute_uv:
        return svdvals(a)
    return _named("SVDResult")(*torch_function("linalg.svd")(floats(a), full_matrices))


@answers(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    return torch_function("linalg.svdvals")(floats(x))


@answers(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise not_traced(f"np.linalg.qr(mode={mode!r})")
    found = torch_function("linalg.qr")(floats(a), mode)
    return found[1] if mode == "r" else _named("QRResult")(*found)


@answers(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    if rcond is not None or rtol is not None or hermitian:
        raise not_traced("np.linalg.pinv with such arguments")
    u, s, vh = torch_function("linalg.svd")(floats(a), False)
    small = F.le(s, F.mul(F.amax(s, -1, True), 1e-15))
    s = F.masked_fill(F.reciprocal(F.masked_fill(s, small, 1.0)), small, 0.0)
    return F.matmul(vh.mH, F.mul(s[..., None], u.mH))


@answers(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    if p is not None:
        raise not_traced("np.linalg.cond of another norm")
    s = svdvals(x)
    return F.true_divide(s[..., 0], s[..., -1])


# ---- np.fft


def _fourier(name: str, many: bool) -> Any:
    def one_axis(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        return torch_function(f"fft.{name}")(_single_or_double(a), n, axis, norm)

    last = (-2, -1) if name.endswith("2") else None

    def axes_of_all(a: Any, s: Any = None, axes: Any = last, norm: Any = None, out: Any = None) -> Any:
        return torch_function(f"fft.{name}")(_single_or_double(a), s, axes, norm)

    return axes_of_all if many else one_axis


def _single_or_double(a: Any) -> Tensor:
    tensor = floats(a)
    return cast(tensor, np.float32) if tensor.dtype.numpy == np.float16 else tensor


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    answers(getattr(np.fft, _name))(_fourier(_name, many=False))
for _name in ("fft2", "ifft2", "fftn", "ifftn", "rfft2", "irfft2", "rfftn", "irfftn"):
    answers(getattr(np.fft, _name))(_fourier(_name, many=True))


@answers(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    tensor = tensor_of(x)
    for axis in axes_of(axes, tensor.ndim):
        tensor = F.roll(tensor, shape_of(tensor)[axis] // 2, axis)
    return tensor


@answers(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Any:
    tensor = tensor_of(x)
    for axis in axes_of(axes, tensor.ndim):
        tensor = F.roll(tensor, -(shape_of(tensor)[axis] // 2), axis)
    return tensor
