"""NumPy's floating point warnings, switched off around one computation at a tenth of what `np.errstate` costs.

    before = silence()
    try: ...
    finally: restore(before)

In: nothing. Out: infinities and NaN without a warning, as in torch. What the user asked of NumPy holds again after it,
and never ceases to in other threads. Method: np.errstate sets a context variable to an object that it makes each time;
here that object is made once. The variable is NumPy's own: where it is not found, `np.seterr` does the same, slower.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
silence: Callable[[], Any]
restore: Callable[[Any], object]


def _by_seterr() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return lambda: np.seterr(all="ignore"), lambda before: np.seterr(**before)


def _by_variable() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """Raises ImportError, AttributeError or TypeError where NumPy has it otherwise."""
    from numpy._core import umath

    variable, ignoring = umath._extobj_contextvar, umath._make_extobj(all="ignore")
    put = variable.set
    before = put(ignoring)
    is_silent = set(np.geterr().values()) == {"ignore"}
    variable.reset(before)
    if not is_silent:
        raise AttributeError("NumPy's settings lie elsewhere")
    return functools.partial(put, ignoring), variable.reset


try:
    silence, restore = _by_variable()
except (ImportError, AttributeError, TypeError):
    silence, restore = _by_seterr()


def quietly(function: F) -> F:
    """`function`, with warnings off while it runs."""

    @functools.wraps(function)
    def silent(*args: Any, **kwargs: Any) -> Any:
        before = silence()
        try:
            return function(*args, **kwargs)
        finally:
            restore(before)

    return silent  # type: ignore[return-value]
