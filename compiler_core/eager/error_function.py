"""erf of float32 on the CPU by the function that generated code calls: eager and compiled code make the same bits.

In: an array, lying as it may. Out: one in the order of its memory; None without a compiler, where NumPy computes it.
A kernel, of which one pass takes the place of forty of NumPy's.
"""

from __future__ import annotations

import numpy as np

from compiler_core.eager.native import kernels
from compiler_core.ops.primitives.erf import HERE
from compiler_core.ops.registry import Array


def erf(x: Array) -> Array | None:
    """erf(x), if it is computed here. x: f32[...]."""
    library = kernels()
    if library is None:
        return None
    out = np.empty_like(x)
    if x.strides != out.strides or not x.flags.aligned:
        lying = np.empty_like(out)
        lying[...] = x
        x = lying
    library.named("erf_of")((x.ravel("K"), out.ravel("K")))
    return out


HERE.fill(erf)
