"""View functions whose result is a handle of its own even where nothing changes: `p.view(p.shape)` is not p; and those
that give several views at once, none of which may be written in place where gradients are recorded; and `view`, which
refuses to copy.

In: a function of compiler_core/ops, which gives back its operand where there is nothing to do. Out: the same, giving
a view of it there, as torch does: so that `requires_grad_(False)` or `detach_()` on the result leaves the operand be.
`flatten`, `contiguous` and conversions give back the tensor itself in torch too. `strict_view`: what must be a view of
its operand is one, or is refused. Both are made at once where that can be (`straight.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.errors import ShapeError
from compiler_core.ops import prims
from compiler_core.tensor.straight import COPIES, SEVERAL, STRAIGHT, unbound

Function = TypeVar("Function", bound=Callable[..., Any])


def own_view(function: Function) -> Function:
    """`function`, with a view of its first operand in place of that operand."""

    @functools.wraps(function)
    def view(input: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(input, *args, **kwargs)
        return prims.reshape(input, tuple(input.shape)) if result is input else result

    return _at_once(function, view)  # type: ignore[no-any-return]


def _at_once(function: Function, view: Any) -> Any:
    """`view`, made at once where that can be (`straight.py`)."""
    straight, copies = STRAIGHT.get(function.__name__), COPIES.get(function.__name__)
    if straight is None:
        return view

    @functools.wraps(function)
    def at_once(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            made = straight(input, *args)
            if made is None and copies is not None:
                made = copies(input, *args)
            if made is not None:
                return made
        return view(input, *args, **kwargs)

    return at_once


def strict_view(function: Function) -> Function:
    """As `own_view`, of what reshapes its first operand: ShapeError is raised where the strides make that a copy."""

    @functools.wraps(function)
    def view(input: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(input, *args, **kwargs)
        if result is input:
            return prims.reshape(input, tuple(input.shape))
        if not input._cell.is_dense and result._cell.root is not input._cell.root:
            raise ShapeError(
                "view size is not compatible with input tensor's size and stride (at least one dimension spans across "
                "two contiguous subspaces)",
                got=f"{tuple(input.shape)} with strides {input.stride()} as {tuple(result.shape)}",
                remedy="use reshape(), which copies",
            )
        return result

    return _at_once(function, view)  # type: ignore[no-any-return]


def of_several(function: Function) -> Function:
    """`function`, which gives several views at once: each is a handle of its own, and knows it (`ViewLink.several`)."""

    straight = SEVERAL.get(function.__name__)
    needed = 1 if straight is unbound else 2

    @functools.wraps(function)
    def views(*args: Any, **kwargs: Any) -> Any:
        if straight is not None and len(args) >= needed and (not kwargs or [*kwargs] == ["dim"]):
            made = straight(*args, **kwargs) if len(args) + len(kwargs) < 4 else None
            if made is not None:
                for piece in made:
                    piece._view.several = function.__name__
                return made
        made, input = function(*args, **kwargs), args[0] if args else next(iter(kwargs.values()))
        pieces = [prims.reshape(input, tuple(input.shape)) if piece is input else piece for piece in made]
        for piece in pieces:
            link = getattr(piece, "_view", None)
            if link is not None:
                link.several = function.__name__
        return type(made)(pieces)

    return views  # type: ignore[return-value]
