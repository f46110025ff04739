"""torch.linalg: factorisations, solvers, norms, of real and complex matrices.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/composite_solving.py and composite_matrix.py.
"""

from __future__ import annotations

from compiler_core.errors import LinAlgError
from distcompile.late import namespace

__all__, __getattr__ = namespace("linalg", {"matmul": "matmul"})
__all__ += ["LinAlgError"]
