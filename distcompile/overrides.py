"""torch.overrides: functions that give way to a `__torch_function__` of their arguments, and what is overridable.

In: public functions, arguments. Out: torch's names. The protocol itself is compiler_core/overrides/; here is what
libraries need who make functions of their own overridable, or look the overridable ones up.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import chain
from types import FunctionType
from typing import Any

from compiler_core.overrides import calls
from compiler_core.overrides.modes import (
    BaseTorchFunctionMode,
    EnableTorchFunction,
    TorchFunctionMode,
    pop_mode,
    push_mode,
    skip_one,
)
from compiler_core.overrides.state import NOT_CONVERTED, disabled, thread_overrides
from compiler_core.overrides.switch import ENTRIES
from compiler_core.tensor.tensor import Tensor
from distcompile.surface.names import ROWS, SUBMODULES

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

handle_torch_function, redispatch_function = calls.handle_torch_function, skip_one
_disabled_torch_function_impl = disabled
_push_mode, _pop_mode = push_mode, pop_mode
_enable_torch_function = EnableTorchFunction

# ---- for functions of one's own


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a call with these arguments is for `handle_torch_function`: one overrides, or a mode is on."""
    state = thread_overrides.now
    if state.off:
        return False
    return bool(state.modes) or bool(not state.subclasses_off and calls.overriding(relevant_args, False))


def has_torch_function_unary(tensor: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of these arguments."""
    return has_torch_function(args)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a function overridable. dispatcher: its arguments -> those whose classes are asked."""

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant_args = dispatcher(*args, **kwargs)
            if has_torch_function(relevant_args):
                return handle_torch_function(wrapped, relevant_args, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def _get_overloaded_args(relevant_args: Iterable[Any], get_type_fn: Callable[[Any], type] | None = None) -> list[Any]:
    """One argument of each class that has a `__torch_function__`, in the order in which they are asked."""
    if thread_overrides.now.off:
        return []
    return calls.overriding(relevant_args, True)


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor, or has a `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def _get_current_function_mode() -> Any:
    """The innermost mode of this thread, None if there is none."""
    return thread_overrides.now.modes[-1] if thread_overrides.now.modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of this thread, the innermost last."""
    return list(thread_overrides.now.modes)


@contextmanager
def _pop_mode_temporarily() -> Generator[Any]:
    """Inside, the innermost mode is off."""
    mode = pop_mode()
    try:
        yield mode
    finally:
        push_mode(mode)


@contextmanager
def enable_reentrant_dispatch() -> Generator[None]:
    """Inside a `__torch_dispatch__`, calls are dispatched again: they always are here."""
    yield


# ---- what is overridable

_NAMESPACES = ("", "functional", "nn.functional", "nn.init", "Tensor", "linalg", "fft", "special")
# as those that make tensors, they have no tensor among their arguments, or make one: only modes are asked
_IGNORED = (
    "as_strided can_cast empty_strided fill normal promote_types rand_like randint_like randn_like result_type "
    "Tensor.new Tensor.new_empty Tensor.new_empty_strided Tensor.new_full Tensor.new_ones Tensor.new_tensor "
    "Tensor.new_zeros Tensor.stride Tensor.unflatten nn.functional.hardsigmoid nn.functional.hardswish"
)
_NEVER_ASK = (
    "from_numpy frombuffer from_dlpack manual_seed seed initial_seed get_rng_state set_rng_state set_printoptions "
    "get_default_dtype is_grad_enabled is_tensor save load compile vmap functional.broadcast_shapes no_grad "
    "enable_grad set_grad_enabled inference_mode device dtype layout memory_format finfo iinfo typename "
    "nn.functional.sigmoid nn.functional.tanh nn.functional.upsample nn.functional.upsample_bilinear "
    "nn.functional.upsample_nearest Tensor.as_subclass Tensor.__torch_function__ Tensor.__hash__ Tensor.__iter__ "
    "Tensor.__new__ Tensor._make_subclass"
)


def _at(path: str) -> Any:
    """What `path` names below torch."""
    found: Any = importlib.import_module("distcompile")
    for part in path.split(".") if path else ():
        found = getattr(found, part)
    return found


@functools.cache
def _index() -> tuple[dict[Any, list[Callable[..., Any]]], dict[Any, str]]:
    """(the overridable functions of each namespace, the name of each function that asks)."""
    found: dict[Any, list[Callable[..., Any]]] = {}
    names: dict[Any, str] = {}
    ignored = get_ignored_functions()
    for space in _NAMESPACES:
        owner, where = _at(space), f"torch.{space}" if space else "torch"
        for name in sorted(_names_in(space, owner)):
            for func, full, key in _functions_at(owner, name, f"{where}.{name}"):
                names[func] = full
                is_private = space != "Tensor" and (name.startswith("_") or name.endswith("_"))
                if func not in ignored and not is_private and not full.endswith(".__set__"):
                    found.setdefault(key, []).append(func)
    return found, names


def _names_in(space: str, owner: Any) -> set[str]:
    if space in ("Tensor", "nn.init"):
        return set(dir(owner))
    return set(owner.__all__) - (SUBMODULES if not space else frozenset())


def _functions_at(owner: Any, name: str, full: str) -> list[tuple[Any, str, Any]]:
    """(function, its name, whose it is) of what asks under `name`: a property's are two, and the property's own."""
    value = getattr(owner, name)
    if isinstance(value, property):
        if id(value.fget) not in ENTRIES:
            return []
        return [(value.__get__, f"{full}.__get__", value), (value.__set__, f"{full}.__set__", value)]
    return [(value, full, owner)] if isinstance(value, FunctionType) and id(value) in ENTRIES else []


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """By namespace (a module, Tensor, or one of its properties): the functions whose arguments' classes are asked."""
    return _index()[0]


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that classes of arguments cannot override."""
    makers = (row.names for row in ROWS if row.kinds & {"makes", "modes"} and "signal.windows" not in row.kinds)
    return {_at(name) for name in (*_IGNORED.split(), *_NEVER_ASK.split(), *chain.from_iterable(makers))}


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results stay plain Tensors for instances of subclasses."""
    return NOT_CONVERTED


def resolve_name(f: Any) -> str | None:
    """The full name of a function that `__torch_function__` was handed; None if it is not one."""
    return _index()[1].get(f)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether it is one of Tensor's methods, or the `__get__` of one of its properties."""
    name = resolve_name(func) or ""
    return name.startswith("torch.Tensor.") or func.__name__ == "__get__"
