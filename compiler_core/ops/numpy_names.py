"""Names of arguments that torch takes beside those of its signatures: NumPy's, and sizes given by keyword.

In: a function with torch's names. Out: the same function, taking also `axis` for `dim`, `keepdims` for `keepdim`,
`out=None`; and, where it takes sizes one by one, `f(x, *shape)`, the same as one argument: `shape=`, `size=`, `dims=`,
`repeats=`. So `x.sum(axis=0)`, `numpy.mean(x)` and `x.reshape(shape=(2, 3))` work. `dtype=` may be a Python type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from compiler_core.dtype import as_dtype

F = TypeVar("F", bound=Callable[..., Any])
_NAMES = {
    "axis": "dim", "keepdims": "keepdim", "axis0": "dim0", "axis1": "dim1", "indices": "indices_or_sections",
    "split_size": "split_size_or_sections",
}  # fmt: skip
_AS_ONE = ("shape", "size", "dims", "repeats")


def numpy_names(function: F) -> F:
    """`function`, taking the other names too; `function` itself if it has no such argument."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType) or hasattr(function, "__takes_other_names__"):
        return function
    code = plain.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = {alias: name for alias, name in _NAMES.items() if name in own and alias not in own}
    as_one = [n for n in _AS_ONE if n not in own] if code.co_flags & inspect.CO_VARARGS else []
    if not names and not as_one and "dtype" not in own:
        return function

    others = frozenset((*names, *as_one, "out", "dtype"))

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not others.isdisjoint(kwargs):
            kwargs = {names.get(name, name): v for name, v in kwargs.items() if name != "out" or v is not None}
            if isinstance(kwargs.get("dtype"), (type, str)):
                kwargs["dtype"] = as_dtype(kwargs["dtype"])
            for name in as_one:
                if name in kwargs:
                    args = (*args, kwargs.pop(name))
        return function(*args, **kwargs)

    renamed.__takes_other_names__ = True  # type: ignore[attr-defined]
    return renamed  # type: ignore[return-value]
