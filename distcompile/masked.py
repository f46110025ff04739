"""torch.masked: reductions under a mask. The functions are in compiler_core/ops/composite_masked.py.

There is no MaskedTensor: inputs are Tensors, masks are given by `mask=`.
"""

from __future__ import annotations

from distcompile.late import namespace

__all__, __getattr__ = namespace("masked")
