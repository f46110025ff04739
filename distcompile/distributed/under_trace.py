"""Collectives under a trace: what code of ours, or a backward that is traced, calls natively is recorded too.

In: a function of tensors.py or messages.py. Out: the same, which, while a graph is recorded, does what traced.py has in
its place. Captured code is given that at once (`traced.replace_in_captured_code`), and its group is guarded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.ops.registry import current_trace

F = TypeVar("F", bound=Callable[..., Any])
INSTEAD: dict[str, Callable[..., Any]] = {}  # by name; traced.py fills it


def recorded_under_a_trace(function: F) -> F:
    """See the head of this file."""

    @functools.wraps(function)
    def talks(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return INSTEAD[function.__name__](*args, **kwargs)
        return function(*args, **kwargs)

    return talks  # type: ignore[return-value]
