"""Calls that a class's or a mode's `__torch_function__` takes, while they are captured: the program's code is entered.

In: an overridable function and a call's arguments. Out: `take`: `Enter` of who is asked. Where nobody of the program's
is (`is_for_program`), the call runs natively: Tensor's own `__torch_function__` needs no entering.
What is asked natively all the same (by a builtin, in a call of ours) breaks the graph: `overrides.calls.ask`.
"""

from __future__ import annotations

from types import MethodWrapperType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.polyfills import of_overrides as polyfills_overrides
from compiler_core.overrides import calls, switch
from compiler_core.overrides.state import other_layouts, plain, thread_overrides
from compiler_core.overrides.subclasses import torch_function
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts


def route_of(entry: calls.Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> calls.Route | None:
    """Who is asked, and what it is told; None: nobody is."""
    return None if not kwargs and plain.issuperset(map(type, args)) else calls.route_of(entry, args, kwargs)


def is_for_program(route: calls.Route | None) -> bool:
    """Whether code of the program's is asked."""
    return route is not None and any(map(calls.is_programs, route[0]))


def is_of_other_layout(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a tensor among the arguments is not strided: then who computes with it says whether it can be traced."""
    if not other_layouts:
        return False
    return any(type(one) in other_layouts for one in calls.each_argument(args, kwargs))


def take(parts: Parts, entry: calls.Entry, route: calls.Route | None) -> Any:
    """`Enter` of who is asked."""
    assert route is not None
    return _entered(parts, entry, *route)


def part_of_property(function: Any) -> Any:
    """The function behind `Tensor.shape.__get__` and its like, which `__torch_function__` is handed; else None."""
    if not isinstance(function, MethodWrapperType) or not isinstance(function.__self__, property):
        return None
    return getattr(function.__self__, {"__get__": "fget", "__set__": "fset"}.get(function.__name__, "fdel"))


def asks(value: Any) -> bool:
    """Whether it is a Tensor, and code of the program's is asked what is done with it."""
    if not isinstance(value, Tensor) or type(value) in plain:
        return False
    return bool(thread_overrides.now.modes) or calls.is_programs(value)


def _entered(
    parts: Parts, entry: calls.Entry, handlers: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    given = (args, kwargs) if kwargs or entry.in_python else (args,)
    function = polyfills_overrides.overridden_operator if entry.is_operator else polyfills_overrides.overridden
    return parts.call(function, (entry, handlers, entry.func, types, given), {})


def handle(parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`handle_torch_function`: who is asked is entered."""
    function, relevant, *given = args
    parts.contents.read_deeply(relevant)
    return _entered(parts, *calls.of_own_function(function, relevant), tuple(given), kwargs)


def by_default(parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Tensor's own `__torch_function__`: it runs as it is, if the function is torch's."""
    func = args[1] if len(args) > 1 else kwargs.get("func")
    parts.contents.read_deeply((args[3:], kwargs))
    if isinstance(func, MethodWrapperType):  # of a property
        return parts.native.run(torch_function, *args, **kwargs)
    if id(func) not in switch.ENTRIES:
        raise Break("Tensor.__torch_function__ of a function that is not torch's")
    return parts.native.run(torch_function, *map(parts.numbers.specialise, args), **parts.numbers.named(kwargs))


RULES = {calls.handle_torch_function: handle, torch_function: by_default}
