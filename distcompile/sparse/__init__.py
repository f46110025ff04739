"""torch.sparse: functions of sparse tensors, torch's old types of them, and gradcheck for them.

In: sparse Tensors. Out: Tensors. What computes is in compiler_core/sparse; docs/reference/sparse.md says what there is.
"""

from __future__ import annotations

from typing import Any, NoReturn

from compiler_core.errors import LayoutError
from compiler_core.overrides.functions import public_function
from compiler_core.sparse.rules import rules
from compiler_core.sparse.types import TYPES
from distcompile.sparse.checking import as_sparse_gradcheck, check_sparse_tensor_invariants

__all__ = [
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "solve",
    "spdiags",
    "spsolve",
    "sum",
]


def solve(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises LayoutError."""
    raise LayoutError("there are no solvers of sparse systems", remedy="linalg.solve(A.to_dense(), b)")


spsolve = solve
_FUNCTIONS = ("addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        found: Any = public_function(rules()[f"sparse.{name}"], "sparse", name)
    elif name in TYPES:
        found = TYPES[name]
    else:
        raise AttributeError(f"module 'distcompile.sparse' has no attribute {name!r}")
    globals()[name] = found
    return found
