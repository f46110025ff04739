"""Schemas of operators: "ns::name.overload(Tensor(a!) x, *, int[2] size=1) -> (Tensor, Tensor[])", read and bound.

In: a schema's text; a call's arguments. Out: a `Schema`, which prints as it was written; the arguments in order, with
defaults, numbers as numbers of their type. What does not fit is an ArgumentError, which is torch's RuntimeError too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.symbolic.expression import Sym
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

REQUIRED: Any = object()
_TEXT = re.compile(r"(?:(?P<ns>\w+)::)?(?P<name>\w*)(?:\.(?P<overload>\w*))?\s*\((?P<inside>.*)\)", re.DOTALL)
_TYPE = re.compile(r"(?P<base>\w+)(?:\((?P<alias>[^)]*)\))?(?P<rest>(?:\?|\[\d*\])*)")
_PYTHON: dict[str, tuple[type, ...]] = {
    "Tensor": (Tensor,),
    "int": (int, Sym),
    "SymInt": (int, Sym),
    "float": (int, float, Sym),
    "bool": (bool,),
    "str": (str,),
    "Scalar": (int, float, complex, Sym),
    "ScalarType": (DType, int),
    "Device": (Device, str),
}
_NUMBERS = ("int", "SymInt", "float", "Scalar")


@dataclass(frozen=True, slots=True)
class Type:
    """base: Tensor, int, ...; alias: "a!" of Tensor(a!); rest: "?", "[]", "?[]", "[3]?"."""

    base: str
    alias: str = ""
    rest: str = ""

    @property
    def is_mutated(self) -> bool:
        return "!" in self.alias

    @property
    def is_optional(self) -> bool:
        return self.rest.endswith("?")

    @property
    def is_list(self) -> bool:
        return "[" in self.rest

    def __str__(self) -> str:
        return f"{self.base}({self.alias}){self.rest}" if self.alias else f"{self.base}{self.rest}"

    def takes(self, value: Any) -> bool:
        """Whether a value may be given for an argument of this type. Types that are not known here take anything."""
        kinds = _PYTHON.get(self.base)
        if kinds is None or (value is None and self.is_optional):
            return True
        if self.is_list and isinstance(value, list | tuple):
            return all(isinstance(one, kinds) or (one is None and "?[" in self.rest) for one in value)
        if self.is_list:  # one number for int[2]
            return isinstance(value, kinds) and re.search(r"\[\d", self.rest) is not None
        return isinstance(value, kinds) or self._is_number_in(value)

    def _is_number_in(self, value: Any) -> bool:
        return self.base in _NUMBERS and isinstance(value, Tensor) and value.numel() == 1 and not value.requires_grad

    def converted(self, value: Any) -> Any:
        """A value that it takes, as a kernel is given it."""
        several = re.search(r"\[(\d+)", self.rest)
        if several is not None and isinstance(value, int | float | Sym):
            return [value] * int(several[1])
        if self.is_list or self.base not in _NUMBERS:
            return value
        value = value.item() if isinstance(value, Tensor) else value
        if isinstance(value, Sym) and self.base != "SymInt":
            value = int(value)
        return float(value) if self.base == "float" and value is not None else value


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. text: its default, as written."""

    name: str
    type: Type
    default_value: Any = REQUIRED
    text: str = ""
    kwarg_only: bool = False

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self.default_value is not REQUIRED

    def __str__(self) -> str:
        if not self.has_default_value():
            return f"{self.type} {self.name}".strip()
        text = self.text.removesuffix("0") if isinstance(self.default_value, float) else self.text  # as torch: "2."
        return f"{self.type} {self.name}={text}"


@dataclass(frozen=True, slots=True)
class Schema:
    """name: "ns::name"; overload_name: "" for the default. single: what it returns is written without parentheses."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    single: bool

    @property
    def is_mutable(self) -> bool:
        return any(one.type.is_mutated for one in self.arguments)

    def __str__(self) -> str:
        keyword = [str(one) for one in self.arguments if one.kwarg_only]
        given = [str(one) for one in self.arguments if not one.kwarg_only]
        inside = ", ".join([*given, *(["*"] if keyword else []), *keyword])
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        returns = ", ".join(map(str, self.returns))
        return f"{name}({inside}) -> {returns if self.single else f'({returns})'}"

    def takes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether a call with these arguments fits."""
        try:
            self.bind(args, kwargs)
        except ArgumentError:
            return False
        return True

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """(positional arguments in order, those by keyword alone), with defaults. Raises ArgumentError."""
        places = [one.name for one in self.arguments if not one.kwarg_only]
        given = dict(zip(places, args, strict=False))
        known = {one.name: one for one in self.arguments}
        strange = [name for name in kwargs if name in given or name not in known]
        given |= kwargs
        missing = [name for name, one in known.items() if name not in given and not one.has_default_value()]
        wrong = [f"{name}={given[name]!r}" for name, one in known.items()
                 if name in given and not one.type.takes(given[name])]  # fmt: skip
        if len(args) > len(places) or strange or missing or wrong:
            reason = (f"missing value for argument {missing}" if missing else
                      f"unknown keyword argument, or one given twice: {strange}" if strange else
                      f"Expected a value of another type: {wrong}" if wrong else
                      f"takes {len(places)} positional argument(s) but {len(args)} was/were given")  # fmt: skip
            raise ArgumentError(f"{self.name}() {reason}", expected=str(self))
        values = {
            name: one.type.converted(given[name]) if name in given else one.default_value for name, one in known.items()
        }
        return [values.pop(name) for name in places], values


# ---- reading


def parse(text: str, namespace: str = "") -> Schema:
    """The schema that `text` writes; its namespace, where it says none, is `namespace`. Raises ArgumentError."""
    before, _, after = text.rpartition("->")
    head = _TEXT.fullmatch(before.strip())
    if head is None:
        raise ArgumentError(f"{text!r} is no operator's schema", expected="name(Tensor x, int n=1) -> Tensor")
    parts = _parts(head["inside"])
    star = parts.index("*") if "*" in parts else len(parts)
    arguments = [_argument(part, place > star) for place, part in enumerate(parts) if part != "*"]
    returned = after.strip()
    single = not returned.startswith("(")
    returns = [_argument(part, False) for part in ([returned] if single else _parts(returned[1:-1]))]
    space = head["ns"] or namespace
    name = f"{space}::{head['name']}" if space else head["name"]
    return Schema(name, head["overload"] or "", tuple(arguments), tuple(returns), single)


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text) if part.strip()]


def _argument(text: str, keyword: bool) -> Argument:
    """ "type name=default", or what is returned: "type", "type name"."""
    written, given, default = (part.strip() for part in text.partition("="))
    found = _TYPE.match(written)
    if found is None:
        raise ArgumentError(f"{text!r} is no argument of a schema", expected="Tensor x, int[] sizes, float p=0.5")
    type_ = Type(found["base"], found["alias"] or "", found["rest"])
    value = type_.converted(_literal(default, type_.base)) if given else REQUIRED
    return Argument(written[found.end() :].strip(), type_, value, default, keyword)


def _literal(text: str, base: str) -> Any:
    """The value of a default: a literal, a dtype, or a name that torch has: Mean, contiguous_format."""
    import distcompile as dc

    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return getattr(dc, text, text) if base == "ScalarType" else float(text) if base == "float" else text
    return Device(value) if base == "Device" and value is not None else Type(base).converted(value)
