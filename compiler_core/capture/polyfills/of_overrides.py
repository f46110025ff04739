"""The protocol of `__torch_function__` for the machine: overrides/calls.py, entered like the program's code.

In: an entry, who is asked in turn (a thread's modes, as one, stand first), what they are handed. Out: the result.
"""

from __future__ import annotations

from typing import Any

from compiler_core.overrides.calls import nobody, without
from compiler_core.overrides.state import become


def overridden(entry: Any, handlers: Any, func: Any, types: Any, given: Any) -> Any:
    """The protocol of `__torch_function__`: see compiler_core/overrides/calls.py."""
    for handler in handlers:
        if type(handler) is tuple:
            result = overridden_by_mode(handler, func, types, given)
        else:
            result = handler.__torch_function__(func, types, *given)
        if result is not NotImplemented:
            return result
    raise nobody(entry, handlers)


def overridden_by_mode(modes: Any, func: Any, types: Any, given: Any) -> Any:
    now = without(modes[-1])
    try:
        return modes[-1].__torch_function__(func, types, *given)
    finally:
        become(now)


def overridden_operator(entry: Any, handlers: Any, func: Any, types: Any, given: Any) -> Any:
    try:
        return overridden(entry, handlers, func, types, given)
    except TypeError:
        return NotImplemented
