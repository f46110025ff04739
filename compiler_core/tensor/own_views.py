"""View functions whose result is a handle of its own even where nothing changes: `p.view(p.shape)` is not p.

In: a function of compiler_core/ops, which gives back its operand where there is nothing to do. Out: the same, giving
a view of it there, as torch does: so that `requires_grad_(False)` or `detach_()` on the result leaves the operand be.
`flatten`, `contiguous` and conversions give back the tensor itself in torch too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.ops import prims

Function = TypeVar("Function", bound=Callable[..., Any])

VIEWS = frozenset(
    ("expand", "expand_as", "moveaxis", "movedim", "narrow", "permute", "reshape", "squeeze", "swapaxes", "swapdims")
    + ("t", "transpose", "unflatten", "view_as")
)


def own_view(function: Function) -> Function:
    """`function`, with a view of its first operand in place of that operand."""

    @functools.wraps(function)
    def view(input: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(input, *args, **kwargs)
        return prims.reshape(input, tuple(input.shape)) if result is input else result

    return view  # type: ignore[return-value]
