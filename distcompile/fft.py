"""torch.fft: Fourier transforms, sample frequencies, shifts.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/signal/transforms.py and signal/frequencies.py.
"""

from __future__ import annotations

from distcompile.surface.found import namespace

__all__, __getattr__ = namespace("fft")
