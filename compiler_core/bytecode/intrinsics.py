"""What CALL_INTRINSIC_1 and CALL_INTRINSIC_2 (3.12 and later) do, by their names in `dis`.

In: the machine, the frame, one or two operands. Out: the result, as of any reader of requests.py.
Source: Python/intrinsics.c.
"""

from __future__ import annotations

import typing as _typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.frame import Frame

typing: Any = _typing  # what it has depends on the version

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine


def stop_iteration_error(machine: Machine, frame: Frame, error: BaseException) -> BaseException:
    """What a generator raises instead of a StopIteration of its body's."""
    return escaped_stop(error) if isinstance(error, StopIteration) else error


def escaped_stop(error: BaseException) -> RuntimeError:
    changed = RuntimeError("generator raised StopIteration")
    changed.__cause__ = changed.__context__ = error
    return changed


def positive(machine: Machine, frame: Frame, value: Any) -> Any:
    return machine.semantics.unary("+", value)


def as_tuple(machine: Machine, frame: Frame, value: Any) -> Any:
    return machine.semantics.as_tuple(value)


def type_variable(machine: Machine, frame: Frame, name: str) -> Any:
    return typing.TypeVar(name, infer_variance=True)


def parameter_specification(machine: Machine, frame: Frame, name: str) -> Any:
    return typing.ParamSpec(name, infer_variance=True)


def type_variable_tuple(machine: Machine, frame: Frame, name: str) -> Any:
    return typing.TypeVarTuple(name)


def subscript_generic(machine: Machine, frame: Frame, parameters: Any) -> Any:
    unpacked = (typing.Unpack[p] if isinstance(p, typing.TypeVarTuple) else p for p in parameters)
    return typing.Generic[tuple(unpacked)]


def set_type_parameters(machine: Machine, frame: Frame, function: Any, parameters: Any) -> Any:
    function.__type_params__ = parameters
    return function


INTRINSICS: dict[str, Callable[..., Any]] = {
    "INTRINSIC_STOPITERATION_ERROR": stop_iteration_error,
    "INTRINSIC_UNARY_POSITIVE": positive,
    "INTRINSIC_LIST_TO_TUPLE": as_tuple,
    "INTRINSIC_TYPEVAR": type_variable,
    "INTRINSIC_PARAMSPEC": parameter_specification,
    "INTRINSIC_TYPEVARTUPLE": type_variable_tuple,
    "INTRINSIC_SUBSCRIPT_GENERIC": subscript_generic,
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS": set_type_parameters,
}
