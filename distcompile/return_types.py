"""torch.return_types: the classes of named results.

In: nothing. Out: a class for each of torch's names; `isinstance(torch.topk(x, 2), torch.return_types.topk)`.
"""

from __future__ import annotations

import importlib
from typing import Any

from compiler_core.ops.composites.reduction import named

_OF: dict[str, str] = {
    "compiler_core.ops.composites.trigonometry:Frexp": "frexp",
    "compiler_core.tensor.methods.derived:MinMax": "aminmax",
    "compiler_core.ops.linear_algebra.eigenvalues:Eigh": "linalg_eigh",
    "compiler_core.ops.linear_algebra.eigenvalues:Eig": "linalg_eig",
    "compiler_core.ops.linear_algebra.factorisations:Svd": "linalg_svd",
    "compiler_core.ops.linear_algebra.factorisations:OldSvd": "svd",
    "compiler_core.ops.linear_algebra.factorisations:Qr": "linalg_qr",
    "compiler_core.ops.linear_algebra.factorisations:OldQr": "qr",
    "compiler_core.ops.linear_algebra.factorisations:Lu": "linalg_lu",
    "compiler_core.ops.linear_algebra.factorisations:Unpacked": "lu_unpack",
    "compiler_core.ops.linear_algebra.factorisations:CholeskyEx": "linalg_cholesky_ex",
    "compiler_core.ops.linear_algebra.factorisations:LuFactor": "linalg_lu_factor",
    "compiler_core.ops.linear_algebra.factorisations:LuFactorEx": "linalg_lu_factor_ex",
    "compiler_core.ops.linear_algebra.solvers:SolveEx": "linalg_solve_ex",
    "compiler_core.ops.linear_algebra.solvers:InvEx": "linalg_inv_ex",
    "compiler_core.ops.linear_algebra.solvers:Slogdet": "linalg_slogdet",
    "compiler_core.ops.linear_algebra.solvers:Triangular": "triangular_solve",
    "compiler_core.ops.linear_algebra.least_squares:Lstsq": "linalg_lstsq",
    "compiler_core.tensor.counting:Histogram": "histogram",
}
_PLACES = {name: place for place, names in _OF.items() for name in names.split()}
_PAIRS = frozenset(("cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk"))
__all__ = sorted((*_PLACES, *_PAIRS))


def __getattr__(name: str) -> Any:
    if name in _PAIRS:
        return named(name)
    if name not in _PLACES:
        raise AttributeError(f"module 'distcompile.return_types' has no attribute {name!r}")
    module, _, kind = _PLACES[name].partition(":")
    return getattr(importlib.import_module(module), kind)
