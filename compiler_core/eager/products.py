"""Products of bf16 on a CPU that multiplies them: the code that compiled graphs run, ops/linear_algebra/gemm_bf16.py.

In: a (*batch, m, k), b (*batch, k, n). Out: their product; None where NumPy is to compute it, from f32 copies: on
other CPUs, without a compiler. So the bits of eager code are those of compiled code.
"""

from __future__ import annotations

import math

import numpy as np

from compiler_core.eager.native import RowKernels, kernels
from compiler_core.eager.operands import for_blas
from compiler_core.ops.linear_algebra.gemm_bf16 import scratch_nbytes
from compiler_core.ops.linear_algebra.matmul import HERE
from compiler_core.ops.registry import Array
from compiler_core.runtime.lasting_memory import arena_address
from compiler_core.runtime.toolchain import multiplies_bf16


def product(a: Array, b: Array) -> Array | None:
    """a @ b, if it is computed here."""
    library = kernels() if multiplies_bf16() else None
    return None if library is None else _product(library, a, b)


def _product(library: RowKernels, a: Array, b: Array) -> Array:
    (*batch, m, k), n = a.shape, b.shape[-1]
    out = np.empty((*batch, m, n), a.dtype)
    if not k:
        out[...] = 0
    if out.size and k:
        a, b = _lying_well(a), _lying_well(b)
        nbytes = scratch_nbytes(math.prod(batch), m, n, k, turned=a.strides[-1] != a.itemsize and k > 1)
        library.named("product_of_bf16")((a, b, out), arena_address(nbytes))
    return out


def _lying_well(x: Array) -> Array:
    """x, or a copy where neither its rows nor its columns are dense, or elements lie across addresses of them."""
    return for_blas(x) if x.flags.aligned else x.copy()


HERE.fill(product)
