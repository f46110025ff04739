"""torch.fft: Fourier transforms, sample frequencies, shifts.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/composite_transforms.py and composite_fourier.py.
"""

from __future__ import annotations

from distcompile.late import namespace

__all__, __getattr__ = namespace("fft")
