"""Guards: what must still hold for a traced graph to be the right one, as one generated Python function.

In: conditions on the arguments and on the world (`Guards.require`), as Python expressions over `args`, `kwargs` and
bound objects. Out: `check(args, kwargs)`, which gives (the graph's input values, the tensors among the arguments) if
all hold, else the index of the first that does not; `describe(index)` says it in words.
Invariant: a condition is evaluated only after all before it hold, so later ones may rely on earlier ones (a length
before an index). Generated code, because a call of a compiled function must not cost more than a few microseconds.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

PLAIN = (bool, int, float, complex, str, bytes, slice, range)
Found: TypeAlias = tuple[list[Any], tuple[Any, ...]] | int  # (input values, argument tensors), or the guard that failed
Check: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Found]


@dataclass(frozen=True, slots=True)
class TensorCode:
    """Where a Tensor comes from: code, the variable of the check function that holds it, and what the user calls it."""

    code: str
    local: str
    text: str


class Guards:
    """Collects conditions and input expressions, in order."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.inputs: list[str] = []
        self.arguments: list[str] = []
        self.modules: list[Any] = []  # modules whose version is required
        self.covered: set[int] = set()  # ids of Tensors that are sure to be the same ones while the guards hold
        self.tensors: dict[int, TensorCode] = {}  # ids of Tensors that come with every call
        self._bound: dict[int, str] = {}

    def bind(self, thing: Any, stem: str) -> str:
        """A name by which generated code refers to `thing`; one name an object."""
        if id(thing) not in self._bound:
            name = f"{stem}_{len(self.namespace)}"
            self.namespace[name] = thing
            self._bound[id(thing)] = name
        return self._bound[id(thing)]

    def let(self, stem: str, code: str) -> str:
        """A local variable holding `code`, evaluated here. No bound object has its name: a local would hide it."""
        name = f"{stem}_at_{len(self.lines)}"
        self.lines.append(f"{name} = {code}")
        return name

    def require(self, code: str, text: str) -> None:
        """Go on only if `code` is true. text: the condition in the user's words."""
        self.lines.append(f"if not ({code}): return {len(self.texts)}")
        self.texts.append(text)

    def require_plain(self, code: str, value: Any, text: str) -> None:
        """`code` must equal `value` in type and content: NaN equals NaN, 0.0 is not -0.0, 1 is not True."""
        if value is None or isinstance(value, bool):
            condition = f"{code} is {value!r}"
        elif type(value) in (int, str, bytes):
            condition = f"type({code}) is {type(value).__name__} and {code} == {value!r}"
        else:
            kind = self.bind(type(value), "type")
            condition = f"type({code}) is {kind} and repr({code}) == {repr(value)!r}"
        self.require(condition, f"{text} == {value!r}")

    def require_same(self, code: str, thing: Any, text: str) -> None:
        """`code` must be the very object `thing`."""
        self.covered.add(id(thing))
        self.require(f"{code} is {self.bind(thing, 'object')}", f"{text} is the same {type(thing).__name__}")

    def build(self, name: str) -> Check:
        """The check function. Its source is kept for tracebacks and for `explain`."""
        arguments = "".join(f"{argument}, " for argument in self.arguments)
        body = [*self.lines, f"return [{', '.join(self.inputs)}], ({arguments})"]
        self.source = "\n    ".join(["def check(args, kwargs):", *body]) + "\n"
        filename = f"<frozen distcompile guards of {name}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
        exec(compile(self.source, filename, "exec"), self.namespace)
        check: Check = self.namespace["check"]
        return check

    def describe(self, index: int) -> str:
        """The condition that failed."""
        return self.texts[index]


def is_plain(value: Any) -> bool:
    """Whether `value` is immutable data that its `repr` spells in full."""
    if type(value) in (tuple, frozenset):
        return all(map(is_plain, value))
    return value is None or type(value) in PLAIN or isinstance(value, np.generic)
