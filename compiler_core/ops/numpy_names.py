"""NumPy's argument names, which torch takes beside its own: `axis` for `dim`, `keepdims` for `keepdim`, `out=None`.

In: a function with torch's names. Out: the same function, taking both. So `x.sum(axis=0)` and `numpy.mean(x)` work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def numpy_names(function: F) -> F:
    """`function`, taking NumPy's names too."""

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {_NAMES.get(name, name): v for name, v in kwargs.items() if name != "out" or v is not None}
        return function(*args, **kwargs)

    return renamed  # type: ignore[return-value]
