"""eig: eigenvalues and right eigenvectors of square matrices that need not be symmetric. LAPACK's geev, through NumPy.

In: a: [*batch, n, n], f32, f64 or complex. Out: complex, packed (packing.py): values [n], vectors [n, n] (columns),
each of length 1 and turned so that its component of greatest modulus is real.
Gradient: Boeddeker et al. 2019, "On the computation of complex-valued gradients", and the turning: with P = V^-1 dA V
over the differences of values, dV = V P + V diag(c), where Re c keeps the length and Im c the real component. It is
torch's for losses that do not depend on how vectors are turned; torch refuses others. Infinite where values are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.dtype import DType, of
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.linear_algebra.factor import check_matrix, columns_of, eye_like, gaps_of, linalg_op, rows_of
from compiler_core.ops.linear_algebra.matmul import adjoint
from compiler_core.ops.linear_algebra.packing import pack, packed_shape, unpack
from compiler_core.ops.registry import Array, Sample, Value


def _infer_eig(a: TensorMeta) -> TensorMeta:
    batch, n, _ = check_matrix("eig", a, square=True)
    return TensorMeta(packed_shape(batch, ((n,), (n, n))), a.dtype.complex)


def _eager_eig(xp: Any, a: Array) -> Array:
    dtype = of(a.dtype).complex.numpy
    values, vectors = xp.linalg.eig(a)
    return pack(xp, a.shape[:-2], [values.astype(dtype), vectors.astype(dtype)])


def _vjp_eig(g: Value, out: Value, a: Value) -> tuple[Value]:
    n = a.shape[-1]
    if 0 in a.shape:
        return (prims.full_like(a, 0.0),)
    values, v = unpack(out, ((n,), (n, n)))
    g_values, g_v = unpack(g, ((n,), (n, n)))
    eye = eye_like(v)
    turned = prims.mul(adjoint(v), prims.permute(g_v, _swapped(g_v)))
    dots = prims.sum(turned, (len(turned.shape) - 1,))  # v_j^H g_v_j
    g_v = prims.add(g_v, _fixed_component(v, dots))
    lengths = prims.cast(prims.real(dots), of(dots.dtype))
    inner = prims.matmul(adjoint(v), prims.sub(g_v, prims.mul(v, columns_of(lengths, n))))
    inner = prims.div(inner, prims.conj(gaps_of(values, eye)))
    inner = prims.where(prims.ne(eye, prims.full_like(eye, 0.0)), rows_of(g_values, n), inner)
    result = prims.solve(adjoint(v), prims.matmul(inner, adjoint(v)))
    return (result if of(a.dtype).is_complex else prims.real(result),)


def _swapped(x: Value) -> tuple[int, ...]:
    ndim = len(x.shape)
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def _fixed_component(v: Value, dots: Value) -> Value:
    """The cotangent of the imaginary part of each vector's real component, by which the vector is turned back."""
    n, rows = v.shape[-1], len(v.shape) - 2
    sizes = prims.abs(v)
    largest = prims.max(sizes, (rows,))
    dims = (*largest.shape[:-1], 1, n)
    is_fixed = prims.eq(sizes, prims.expand(prims.reshape(largest, dims), tuple(v.shape)))
    zeros = prims.full_like(sizes, 0.0)
    fixed = prims.where(is_fixed, prims.real(v), prims.full_like(sizes, 1.0))
    turning = prims.neg(prims.expand(prims.reshape(prims.imag(dots), dims), tuple(v.shape)))
    return prims.complex(zeros, prims.where(is_fixed, prims.div(turning, fixed), zeros))


def _apart(*shape: int) -> Any:
    def make(rng: np.random.Generator, dtype: DType) -> list[Array]:
        a = rng.uniform(-1, 1, shape) + 2 * np.arange(shape[-1]) * np.eye(shape[-1])
        return [(a + 1j * rng.uniform(-1, 1, shape) if dtype.is_complex else a).astype(dtype.numpy)]

    return make


EIG = linalg_op(
    "eig",
    _infer_eig,
    _eager_eig,
    _vjp_eig,
    tuple(Sample((), make=_apart(*shape)) for shape in ((3, 3), (2, 2, 2), (1, 1))),
)
