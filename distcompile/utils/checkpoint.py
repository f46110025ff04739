"""torch.utils.checkpoint's names. Under `compile` the partition itself decides what to save and what to recompute.

In: a function and its arguments. Out: its result, with the same gradients. Limit: eager, nothing is dropped: the
function is called, and its intermediate values stay until the backward, so memory is not saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distcompile.errors import ArgumentError

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs). preserve_rng_state=: nothing is drawn twice, so it holds either way."""
    kwargs.pop("preserve_rng_state", None)
    if use_reentrant and kwargs:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Each of `functions` (a Sequential, or a list) on the result of the one before."""
    kwargs.pop("preserve_rng_state", None)
    if kwargs:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    layers: Sequence[Callable[[Any], Any]] = list(functions.children() if hasattr(functions, "children") else functions)
    for layer in layers:
        input = layer(input)
    return input
