"""torch.special: special functions. Those that torch also has at its top level are the same functions.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/special: elementary.py, gamma.py, bessel.py.
"""

from __future__ import annotations

from distcompile.surface.found import namespace

__all__, __getattr__ = namespace("special")
