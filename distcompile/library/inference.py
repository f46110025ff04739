"""The schema of a function from its annotations: `infer_schema`, and so of what `custom_op` decorates.

In: a function whose parameters and result are annotated (also by texts: they are evaluated where the function is from),
and which of its arguments it changes. Out: the schema's text. What has no place in a schema is an ArgumentError, which
is torch's ValueError too.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

_Number = int | float | bool  # torch.types.Number
_LISTS: tuple[Any, ...] = (list, typing.List, collections.abc.Sequence, typing.Sequence)  # noqa: UP006


def _annotations() -> dict[Any, str]:
    """What an argument may be annotated as -> its type in a schema."""
    single: dict[Any, str] = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str",
                              _Number: "Scalar", DType: "ScalarType", Device: "Device"}  # fmt: skip
    written: dict[Any, str] = {}
    for kind, name in single.items():
        written |= {kind: name, kind | None: f"{name}?"}
        if kind in (str, DType, Device):
            continue
        for many in _LISTS:
            written[many[kind]] = f"{name}[]"
            if kind is Tensor:
                written[many[kind | None]] = f"{name}?[]"
            elif kind != _Number:
                written[many[kind] | None] = f"{name}[]?"
    return written


_WRITTEN = _annotations()
_RETURNED = {one: _WRITTEN[one] for one in (Tensor, list[Tensor], typing.List[Tensor], int, float, bool, _Number)}  # noqa: UP006


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of a function. mutates_args: names of what it changes; "unknown": all Tensors."""
    signature = inspect.signature(prototype_function)
    reading = _Reading(signature, getattr(prototype_function, "__globals__", {}))
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ArgumentError(f"mutates_args is {mutates_args!r}", expected="names of arguments, or 'unknown'")
    changed = None if isinstance(mutates_args, str) else set(mutates_args)
    missing = (changed or set()) - set(signature.parameters)
    if missing:
        reading.refuse(f"{missing} in mutates_args were not found in the signature")
    written: list[str] = []
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in written:
            written.append("*")
        written.append(reading.parameter(place, parameter, changed))
    return f"{op_name or ''}({', '.join(written)}) -> {reading.returned()}"


class _Reading:
    """Annotations of one function."""

    def __init__(self, signature: inspect.Signature, names: dict[str, Any]) -> None:
        self.signature, self.names = signature, names

    def refuse(self, what: str) -> NoReturn:
        raise ArgumentError(f"infer_schema(func): {what}", got=f"a function with the signature {self.signature}")

    def parameter(self, place: int, parameter: inspect.Parameter, changed: set[str] | None) -> str:
        """One argument as a schema writes it. changed: names; None: all Tensors are."""
        name, default = parameter.name, parameter.default
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            self.refuse(f"{parameter} is positional alone, or stands for several arguments")
        if parameter.annotation is parameter.empty:
            self.refuse(f"Parameter {name} must have a type annotation.")
        type_ = _WRITTEN.get(self._evaluated(parameter.annotation))
        if type_ is None:
            self.refuse(f"Parameter {name} has unsupported type {parameter.annotation}.")
        is_tensor = type_.startswith("Tensor")
        if changed is not None and name in changed and not is_tensor:
            self.refuse(f"Parameter {name} is in mutates_args but only Tensors or collections of them can be mutated")
        if is_tensor and (changed is None or name in changed):
            type_ = f"Tensor(a{place}!){type_.removeprefix('Tensor')}"
        return f"{type_} {name}" if default is parameter.empty else f"{type_} {name}={self._default(name, default)}"

    def _default(self, name: str, default: Any) -> str:
        if default is None or isinstance(default, int | float):
            return str(default)
        if isinstance(default, str | Device):
            return f'"{default}"'
        if isinstance(default, DType):
            return str(default).rpartition(".")[2]
        self.refuse(f"Parameter {name} has an unsupported default value type {type(default)}.")

    def returned(self) -> str:
        """What the function gives, as a schema writes it."""
        annotation = self._evaluated(self.signature.return_annotation)
        if annotation in (None, type(None)):
            return "()"
        several = typing.get_origin(annotation) is tuple
        each = [_RETURNED.get(one) for one in (typing.get_args(annotation) if several else (annotation,))]
        if None in each:
            self.refuse(f"Return has unsupported type {annotation}.")
        return f"({', '.join(map(str, each))})" if several else str(each[0])

    def _evaluated(self, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, self.names)
        except Exception as error:  # noqa: BLE001 - whatever the text does
            self.refuse(f"Unsupported type annotation {annotation}. It is not a type. ({error})")
