"""Products of bf16 on a CPU that multiplies them: the code that compiled graphs run, ops/linear_algebra/gemm_bf16.py.

In: a (*batch, m, k), b (*batch, k, n). Out: their product; None where NumPy is to compute it, from f32 copies: on
other CPUs, without a compiler. So the bits of eager code are those of compiled code.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np

from compiler_core.eager.native import SIGNATURE, Kernel, kernels
from compiler_core.eager.operands import for_blas
from compiler_core.ops.linear_algebra.gemm_bf16 import scratch_nbytes
from compiler_core.ops.linear_algebra.matmul import HERE
from compiler_core.ops.registry import Array
from compiler_core.runtime.lasting_memory import ALIGNMENT, arena_address
from compiler_core.runtime.toolchain import multiplies_bf16

_LARGE = 1 << 20  # multiplications from which on a call releases the GIL
_LASTING_NBYTES = 1 << 20  # of memory to lay operands out in; more is not kept


@cache
def _forms() -> tuple[Kernel, Kernel] | None:
    """The kernel for small calls, and for large ones."""
    library = kernels() if multiplies_bf16() else None
    return None if library is None else library.forms("product_of_bf16", *SIGNATURE, ctypes.c_int64)


def product(a: Array, b: Array) -> Array | None:
    """a @ b, if it is computed here."""
    forms = _forms()
    fits = a.ndim > 1 and a.dtype == b.dtype and a.shape[:-2] == b.shape[:-2] and a.shape[-1:] == b.shape[-2:-1]
    if forms is None or not fits:
        return None
    (*batch, m, k), n = a.shape, b.shape[-1]
    count, out = math.prod(batch), np.empty((*batch, m, n), a.dtype)
    if not k:
        out[...] = 0
    if out.size and k:
        a, b = _lying_well(a), _lying_well(b)
        nbytes = scratch_nbytes(count, m, n, k, turned=a.strides[-1] != a.itemsize and k > 1)
        own = np.empty(nbytes + ALIGNMENT, np.uint8) if nbytes > _LASTING_NBYTES else None
        scratch = arena_address(nbytes) if own is None else -(-own.ctypes.data // ALIGNMENT) * ALIGNMENT
        forms[count * m * n * k > _LARGE]((a, b, out), scratch)
    return out


def _lying_well(x: Array) -> Array:
    """x, or a copy where neither its rows nor its columns are dense, or elements lie across addresses of them."""
    return for_blas(x) if x.flags.aligned else x.copy()


HERE.fill(product)
