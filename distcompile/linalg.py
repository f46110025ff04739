"""torch.linalg: factorisations, solvers, norms, of real and complex matrices.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/linear_algebra: factorisations.py, solvers.py,
least_squares.py, eigenvalues.py and norms.py.
"""

from __future__ import annotations

from compiler_core.errors import LinAlgError
from distcompile.surface.found import namespace

__all__, __getattr__ = namespace("linalg")
__all__ += ["LinAlgError"]
