"""torch.masked: reductions under a mask. The functions are in compiler_core/ops/composites/masked.py.

There is no MaskedTensor: inputs are Tensors, masks are given by `mask=`.
"""

from __future__ import annotations

from distcompile.surface.found import namespace

__all__, __getattr__ = namespace("masked")
