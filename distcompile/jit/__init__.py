"""torch.jit's names for model files that are written to be scripted too: here nothing is ever scripted.

In: functions, classes, annotations. Out: the same, as torch gives them back under PYTORCH_JIT=0. `compile` compiles.
What `trace` was given, and modules that `script` was given, can be saved, and loaded as a Module (`traced.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from distcompile.errors import NotSupportedError
from distcompile.nn.module import Module

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
]

T = TypeVar("T")
_isinstance = isinstance


class ScriptModule(Module):
    """A module that was written to be scripted: a Module. What `script` and `trace` give is one only if `obj` was."""


class ScriptFunction:
    """A function that was scripted. None is: making one raises NotSupportedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError("jit.ScriptFunction: nothing is scripted", remedy="call the function itself")


class TracerWarning(Warning):
    """A warning of `trace`. There are none."""


class Error(RuntimeError):
    """An error inside a script. There are none."""


def is_scripting() -> bool:
    """Whether this runs as TorchScript: never."""
    return False


def is_tracing() -> bool:
    """Whether `jit.trace` is at work: never. (`compiler.is_compiling` tells of `compile`.)"""
    return False


def export(fn: T) -> T:
    """`fn`: there is no script that it could be missing from."""
    return fn


unused = interface = script_if_tracing = script_method = _script_if_tracing = _overload_method = _overload = export


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """`fn`, or with arguments a decorator that gives it back."""
    return drop if callable(drop) else export


def annotate(the_type: Any, the_value: T) -> T:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's isinstance."""
    return _isinstance(obj, target_type)


class Attribute:
    """A value with a type beside it."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> T:
    """`obj`, which Python runs. A module can be saved, as what `trace` makes, once it was called, or with
    example_inputs: the arguments of some calls, of which the first is taken.
    """
    if not example_inputs:
        from distcompile.jit.traced import ScriptedModule

        if _isinstance(obj, Module) and type(obj) is not ScriptedModule:
            return ScriptedModule(obj)  # type: ignore[return-value, arg-type]
        return obj
    first = next(iter(example_inputs.values())) if isinstance(example_inputs, dict) else example_inputs
    return trace(obj, tuple(first[0]))  # type: ignore[arg-type, no-any-return]


def trace(
    func: Callable[..., Any],
    example_inputs: Any = None,
    *args: Any,
    example_kwarg_inputs: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """`func`, which Python runs, with `save(f)`: it is exported with the example's arguments. The rest is torch's."""
    from distcompile.jit.traced import trace

    return trace(func, example_inputs, example_kwarg_inputs)


def trace_module(mod: T, inputs: Any, *args: Any, **kwargs: Any) -> T:
    """`mod` as it is: Python runs it."""
    return mod


def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A Module of a file of `save`. Raises NotSupportedError: files of TorchScript cannot be read."""
    from distcompile.jit.traced import load

    return load(f)


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """Write what `trace` made. Raises NotSupportedError for what was not traced, and what `export` raises."""
    from distcompile.jit.traced import save

    save(m, f)


globals()["annotations"] = importlib.import_module("distcompile.jit.annotations")  # not what __future__ left there
