"""Functions of which calls are remembered on a CUDA device alone: a number that changes is learned anew each time.

In: a function over values, as ops/remembered.py wants it. Out: the same, whose calls `recall` (recalling.py) looks up
where the first argument is a Tensor of the lone device and nothing is traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.cuda import lone
from compiler_core.ops.registry import current_trace
from compiler_core.ops.remembered import Plans
from compiler_core.tensor.recalling import recall

F = TypeVar("F", bound=Callable[..., Any])


def there(function: F) -> F:
    """`function`, remembering what its calls came to on the lone device."""
    known: Plans = {}

    @functools.wraps(function)
    def recalled(*args: Any, **kwargs: Any) -> Any:
        cell = getattr(args[0], "_cell", None) if args else None
        is_there = cell is not None and type(cell.raw) is lone.array and current_trace() is None
        return recall(known, function, args, kwargs) if is_there else function(*args, **kwargs)

    return recalled  # type: ignore[return-value]
