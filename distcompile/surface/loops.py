"""torch.cond, torch.while_loop and associative_scan: control flow as functions. Python runs it.

In: predicates, functions of Tensors, and what they begin with. Out: what the last call gave. A compiled function that
calls them has a graph break where it needs the value of a predicate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distcompile as dc
from distcompile.errors import ArgumentError
from distcompile.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["associative_scan", "cond", "while_loop"]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """true_fn(*operands) if `pred`, else false_fn(*operands)."""
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> tuple[Any, ...]:
    """carried = body_fn(*carried) as long as cond_fn(*carried). Raises ArgumentError if their number changes."""
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        made = body_fn(*carried)
        made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if len(made) != len(carried):
            raise ArgumentError("while_loop: body_fn gives as many as it takes", got=f"{len(made)}, {len(carried)}")
        carried = made
    return carried


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Running combinations along `dim`: y[0] = x[0], y[i] = combine_fn(y[i - 1], x[i]); reverse: from the end.

    xs: a Tensor, or a tree of Tensors of one size along `dim`. Computed one after the other, so roundings are those of
    that order.
    """
    leaves, spec = tree_flatten(xs)
    sizes = {leaf.shape[dim] for leaf in leaves}
    if len(sizes) != 1:
        raise ArgumentError("associative_scan: tensors of one size along dim", got=str(sorted(sizes)))
    places = range(sizes.pop())
    order = list(reversed(places)) if reverse else list(places)
    rows = [tree_unflatten([leaf.select(dim, place) for leaf in leaves], spec) for place in order]
    for i in range(1, len(rows)):
        rows[i] = combine_fn(rows[i - 1], rows[i])
    if reverse:
        rows.reverse()
    return tree_map(lambda *parts: dc.stack(parts, dim), rows[0], *rows[1:]) if rows else xs
