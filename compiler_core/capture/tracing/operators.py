"""Operators, truth and comparison. The program's own methods (`__add__`, `__bool__` ...) are entered.

In: operands. Out: results, or Enter. Operators on tensors record themselves; a tensor's truth is a graph break.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.bytecode import native as python
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import CONTAINERS, is_constant, plain_copy
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.capture.numbers import lifting, symbols
from compiler_core.capture.numbers.selections import elements
from compiler_core.capture.numbers.symbols import is_symbol, plain_of
from compiler_core.capture.outside import contents_of
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.containers import Containers, kind_of
from compiler_core.capture.tracing.keys import Keys
from compiler_core.capture.tracing.lookup import lookup
from compiler_core.capture.tracing.native import Call, Native
from compiler_core.capture.tracing.part import Part
from compiler_core.capture.tracing.rules.overriding import asks
from compiler_core.capture.tracing.text import Text
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.records import dataclass
from compiler_core.tensor.methods.operators import over
from compiler_core.tensor.tensor import Tensor

BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {  # what its method is called, between `__`
    op: (function.__name__.strip("_"), function) for op, function in python.BINARY.items()
}
IN_PLACE = python.IN_PLACE
UNARY = {op: (f"__{function.__name__}__", function) for op, function in python.UNARY.items()}
SWAPPED = {"__lt__": "__gt__", "__le__": "__ge__", "__eq__": "__eq__", "__ne__": "__ne__"}
SWAPPED |= {"__gt__": "__lt__", "__ge__": "__le__"}
COMPARE: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    op: (name := f"__{function.__name__}__", SWAPPED[name], function) for op, function in python.COMPARE.items()
}
SEQUENCES = (list, tuple, str, bytes, bytearray, deque)
NUMBERS = frozenset({bool, int, float, str, *symbols.PLAIN})


@dataclass(eq=False, repr=False)
class Operators(Part):
    """See the head of this file."""

    native: Native
    classes: Classes
    keys: Keys
    containers: Containers
    text: Text
    call: Call

    def binary(self, op: str, left: Any, right: Any) -> Any:
        name, function = BINARY[op]
        return self._binary(op, f"__{name}__", f"__r{name}__", function, left, right)

    def in_place(self, op: str, left: Any, right: Any) -> Any:
        name = BINARY[op][0]
        own = self.classes.program_method(left, f"__i{name}__")
        if own is not None:
            fallback = self._attempts(f"__{name}__", f"__r{name}__", left, right)
            return self.call(polyfills.binary, (left, right, (own, left, right), *fallback[:1], op), {})
        if (kind_of(left), f"__i{name}__") in polyfills.CHANGES and self.containers.runs_python(right):
            return self.call(polyfills.CHANGES[kind_of(left), f"__i{name}__"], (left, right), {})
        if self.outside.has(left) and isinstance(left, (list, set, dict)):
            return self._change_in_place(f"__i{name}__", left, right)
        return self._binary(op, f"__{name}__", f"__r{name}__", IN_PLACE[op], left, right)

    def _change_in_place(self, name: str, left: Any, right: Any) -> Any:
        """`a += b` of a container from outside: a change, and the same object again."""
        if name == "__iadd__" and isinstance(left, list):
            self.containers.change(left, "extend", (right,), {})
        elif hasattr(type(left), name):
            self.containers.change(left, name, (right,), {})
        else:
            return self._binary("*", "__mul__", "__rmul__", operator.imul, left, right)
        return left

    def _attempts(self, name: str, reflected: str, left: Any, right: Any) -> list[Any]:
        """What Python would try, in order: (method, owner, other), or None."""
        first, second = self.classes.looked_up(type(left), name), self.classes.looked_up(type(right), reflected)
        attempts = [(first, left, right) if callable(first) else None]
        if type(left) is not type(right) and callable(second):
            attempt = (second, right, left)
            if issubclass(type(right), type(left)) and second is not lookup(type(left), reflected)[0]:
                return [attempt, *attempts]
            return [*attempts, attempt]
        return [*attempts, None]

    def _comparisons(self, name: str, reflected: str, left: Any, right: Any) -> list[Any]:
        """As `_attempts`: a comparison is tried the other way round, too, if both are of one class."""
        attempts = [
            (found, owner, other) if callable(found := self.classes.looked_up(type(owner), method)) else None
            for method, owner, other in ((name, left, right), (reflected, right, left))
            if name == "__ne__" or lookup(type(owner), method)[0] is not object.__dict__[method]  # it never knows
        ]
        attempts += [None] * (2 - len(attempts))
        derived = type(left) is not type(right) and issubclass(type(right), type(left))
        return attempts[::-1] if derived else attempts

    def _binary(self, op: str, name: str, reflected: str, function: Any, left: Any, right: Any) -> Any:
        if (
            self.classes.program_method(left, name) is not None
            or self.classes.program_method(right, reflected) is not None
        ):
            return self.call(polyfills.binary, (left, right, *self._attempts(name, reflected, left, right), op), {})
        if is_symbol(left) or is_symbol(right):
            if any(isinstance(side, Tensor) or type(side) is TracedArray for side in (left, right)):
                function = over if op == "/" and is_symbol(left) and isinstance(right, Tensor) else function
                left, right = self.operand(op, left, right), self.operand(op, right, left)
            elif type(left) in NUMBERS and type(right) in NUMBERS:
                return symbols.arithmetic(self.numbers, op, BINARY[op][1], left, right)
            # what a list holds stays: repeating it asks for the number alone
            left, right = (self.numbers.specialise(side) if is_symbol(side) else side for side in (left, right))
        if op in ("*", "%"):
            self._no_number_by_code(op, left, right)
        if op == "|" and isinstance(left, dict) and isinstance(right, dict):
            self.numbers.settle(list(left), list(right))  # what they hold is only passed on
        elif op not in ("+", "*"):
            self.numbers.settle(left, right)
        self.keys.check_keys(left, right)
        self.classes.vouch(left, name)
        self.classes.vouch(right, reflected)
        for value in (left, right):
            self.contents.read_data(value)
            if isinstance(value, (*CONTAINERS, dict)):
                self.contents.read_deeply(value) if op == "%" else self.contents.read_whole(value)
        if op == "%" and isinstance(left, (str, bytes)):
            right = self.numbers.specialise(right)
        if op == "%" and isinstance(left, str) and not is_constant(right):
            self.text.check_printable(right, 0 if isinstance(right, (tuple, dict)) else 1)
        return self.native.run(function, left, right)

    def _no_number_by_code(self, op: str, left: Any, right: Any) -> None:
        """A sequence is repeated, or numbers are put into a text: as often, and which, is not told by the program's
        own `__index__` and its kin."""
        if op == "*":
            values: Any = (left, right) if isinstance(left, SEQUENCES) or isinstance(right, SEQUENCES) else ()
        else:
            values = right if isinstance(right, tuple) else (right,) if isinstance(left, (str, bytes)) else ()
        for value in values:
            if any(
                self.classes.program_method(value, name) is not None for name in ("__index__", "__int__", "__float__")
            ):
                raise Break(f"a number is told by code of the program's, of {type(value).__name__}")

    def operand(self, op: str, value: Any, other: Any) -> Any:
        """An operand as a tensor's operator shall see it."""
        if not is_symbol(value):
            return value
        if op in lifting.OF_FLOATS and isinstance(other, Tensor) and not elements(other).dtype.is_floating_point:
            return self.numbers.specialise(value)
        if op in lifting.LIFTED and isinstance(other, Tensor):
            return lifting.beside_tensor(self.numbers, value, elements(other), op)
        if op in lifting.LIFTED - {"//", "%"} and type(other) is TracedArray:
            return lifting.beside_array(self.numbers, value, other)
        return self.numbers.specialise(value)

    def unary(self, op: str, value: Any) -> Any:
        name, function = UNARY[op]
        if is_symbol(value) and op != "~":
            return symbols.unary(self.numbers, op, function, value)
        method = self.classes.program_method(value, name)
        self.classes.vouch(value, name)
        self.contents.read_data(value)
        return (
            self.native.run(function, self.numbers.specialise(value))
            if method is None
            else self.call(method, (value,), {})
        )

    def compare(self, op: str, left: Any, right: Any) -> Any:
        name, reflected, function = COMPARE[op]
        if is_symbol(left) or is_symbol(right):
            if isinstance(left, Tensor) or isinstance(right, Tensor):
                return self.native.run(function, self.operand(op, left, right), self.operand(op, right, left))
            if type(left) in NUMBERS and type(right) in NUMBERS:
                return symbols.comparison(self.numbers, op, function, left, right)
            if left is None or right is None:
                return function(plain_of(left), plain_of(right))
            left, right = self.numbers.specialise(left), self.numbers.specialise(right)
        first, second = self.classes.program_method(left, name), self.classes.program_method(right, reflected)
        if first is None and second is None and op == "!=":
            first = self.classes.program_method(left, "__eq__")
            if first is not None:
                return self.call(
                    polyfills.compare, (left, right, (polyfills.not_equal_by(first), left, right), None, op), {}
                )
        if first is not None or second is not None:
            attempts = self._comparisons(name, reflected, left, right)
            return self.call(polyfills.compare, (left, right, *attempts, op), {})
        self.numbers.settle(left, right, compared=True)
        for value in (left, right):
            self.classes.vouch(value, name)
            self.contents.read_data(value)
            if isinstance(value, (*CONTAINERS, dict)):
                self.keys.check_members((*value, *value.values()) if isinstance(value, dict) else value)
                self.contents.read_deeply(value)
        self._tell_pairs_apart(left, right)
        return self.native.run(function, left, right)

    def _tell_pairs_apart(self, left: Any, right: Any) -> None:
        """Objects that are compared by identity, or containers of such in the same places."""
        if isinstance(left, (list, tuple, deque)) and isinstance(right, (list, tuple, deque)):
            for pair in zip(left, right):
                self._tell_pairs_apart(*pair)
        elif isinstance(left, dict) and isinstance(right, dict):
            for key in dict.keys(left) & dict.keys(right):
                self._tell_pairs_apart(dict.__getitem__(left, key), dict.__getitem__(right, key))
        elif not isinstance(left, Tensor):
            self.keys.tell_apart(left, (right,))

    def truth(self, value: Any) -> Any:
        if isinstance(value, bool) or value is None:
            return bool(value)
        if asks(value):
            return self.call(Tensor.__bool__, (value,), {})
        if isinstance(value, Tensor | np.ndarray) or type(value) is TracedArray:
            return self.native.run(bool, value)
        if is_symbol(value):
            return symbols.truth(self.numbers, value)
        method = self.classes.program_method(value, "__bool__")
        if method is not None:
            return self.call(polyfills.truth, (value, method), {})
        method = self.classes.program_method(value, "__len__")
        if method is not None and self.classes.method_of(value, "__bool__") is None:
            return self.call(polyfills.truth_of_length, (value, method), {})
        if isinstance(value, (*CONTAINERS, dict)):
            return self._holds_anything(value)
        if is_module(value):
            return self.native.run(bool, value)
        self.classes.vouch(value, "__bool__", "__len__")
        self.contents.read_data(value)
        return bool(self.numbers.specialise(value))

    def _holds_anything(self, container: Any) -> bool:
        known = self.outside.find(container)
        if known is None or self.outside.covers(known):
            return bool(container)
        if id(container) not in self.contents.whole and not isinstance(container, tuple):
            if id(container) in self.record.originals:
                self.contents.read_whole(container)
            else:
                some = bool(plain_copy(container))
                local = self.code.local(contents_of(known))
                self.code.require(f"bool({local}) is {some}", f"{known.source.text} is {'not ' * some}empty")
        return bool(container)
