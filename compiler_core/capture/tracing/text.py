"""Text: f-strings, `str`, `repr`. The program's own `__format__`, `__str__` and `__repr__` are entered.

In: values. Out: texts, or `Enter`. A tensor has no text while it is captured: a graph break.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from compiler_core.bytecode.native import CONVERT
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import CONTAINERS, is_constant
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.capture.numbers import functions
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.attributes import Attributes
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.lookup import lookup
from compiler_core.capture.tracing.native import Call
from compiler_core.capture.tracing.part import Part
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor


@dataclass(eq=False, repr=False)
class Text(Part):
    """See the head of this file."""

    classes: Classes
    attributes: Attributes
    call: Call

    def join(self, pieces: list[str]) -> str:
        """The pieces of an f-string."""
        return functions.joined(self.numbers, pieces) if any(map(is_symbol, pieces)) else "".join(pieces)

    def format(self, value: Any, conversion: str, spec: str) -> Any:
        if is_symbol(value):
            return functions.formatted(self.numbers, value, conversion, self.numbers.specialise(spec))
        name = {"": "__format__", "s": "__str__", "r": "__repr__", "a": "__repr__"}[conversion]
        if conversion == "":
            method = self.classes.program_method(value, "__format__")
            if method is not None:
                return self.call(method, (value, spec), {})
            if isinstance(value, Tensor | np.ndarray) or type(value) is TracedArray:
                raise Break("a tensor is formatted")
            name = "__str__" if lookup(type(value), "__format__")[0] is object.__format__ else "__format__"
        method = self.classes.program_method(value, name)
        if name == "__str__" and lookup(type(value), name)[0] is object.__str__:
            method = self.classes.program_method(value, "__repr__")
        if method is not None:
            return self.call(polyfills.format_text, (method, value, spec), {})
        self.classes.vouch(value, name)
        self.check_printable(value)
        value = self.numbers.specialise(value)
        shown = CONVERT[conversion](value)
        return format(shown, spec)

    def check_printable(self, value: Any, depth: int = 0) -> None:
        """Raises Break for what has no text of its own while it is captured, or whose text is the program's."""
        self.contents.read_deeply(value)
        self.numbers.settle(value)
        if isinstance(value, BaseException) and self.outside.has(value):
            args = self.attributes.load_attr(value, "args")
            self.check_printable(args, depth + 1)
        if isinstance(value, Tensor | np.ndarray) or type(value) is TracedArray:
            raise Break("a tensor is formatted")
        if depth > 8:
            raise Break("a deeply nested container is formatted")
        if isinstance(value, (*CONTAINERS, dict)):
            for item in [*value, *value.values()] if isinstance(value, dict) else iter(value):
                self.check_printable(item, depth + 1)
        elif is_module(value) or any(self.classes.program_method(value, name) for name in ("__repr__", "__str__")):
            if not isinstance(value, type) and (depth or is_module(value)):
                raise Break(f"a {type(value).__name__} is formatted")
        elif not is_constant(value) and self.outside.has(value) and has_no_text(value):
            raise Break(f"a {type(value).__name__} is formatted")
        else:
            self.classes.vouch(value, "__str__", "__repr__")


def has_no_text(value: Any) -> bool:
    """Whether the text of an object is only its address."""
    if isinstance(value, (type, FunctionType, BaseException)):
        return False
    return lookup(type(value), "__repr__")[0] is object.__dict__["__repr__"]
