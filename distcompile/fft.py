"""torch.fft, as far as it stays within the real numbers; the transforms need complex numbers, which are not there yet.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/composite_fourier.py.
"""

from __future__ import annotations

from distcompile.late import namespace

__all__, __getattr__ = namespace("fft")
