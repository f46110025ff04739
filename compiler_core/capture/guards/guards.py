"""Guards: what must still hold for a traced graph to be the right one, as one generated Python function.

In: conditions on the arguments and on the world (`Guards.require`), as Python expressions over `args`, `kwargs`, bound
objects and locals (`let`). Out: `check(args, kwargs)`, which gives (the graph's input values, what is asked for beside
them: `outside`) if all hold, else the index of the first that does not; `describe(index)` says it in words.
Invariant: a condition is evaluated only after all before it hold, so later ones may rely on earlier ones (a length
before an index). One that cannot be evaluated (an attribute is gone) does not hold. Generated code, because a call of a
compiled function must not cost more than a few microseconds.
Modules and tensors that are the same at every call are watched (`compiler_core/watch.py`): however many they are, one
comparison tells that none has changed, and only after a change are they compared one by one.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection, Hashable, Iterable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from compiler_core.capture.guards.deaths import Deaths, is_mortal
from compiler_core.capture.guards.module_protocol import WatchedModule, watch_modules
from compiler_core.tensor.memory.cell import Cell, ViewCell
from compiler_core.tensor.memory.rebinding import TensorWatch, lags
from compiler_core.tensor.tensor import Tensor
from compiler_core.watch import Watch

if TYPE_CHECKING:
    from compiler_core.capture.guards.same_items import SameTensors
    from compiler_core.capture.guards.sources import Source

PLAIN = (bool, int, float, complex, str, bytes, slice, range)
Handed: TypeAlias = tuple[list[Any], tuple[Any, ...]]  # (inputs, outside)
Found: TypeAlias = Handed | int  # or the guard that failed
LOST = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)  # what a source that is gone raises
Check: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Found]


class Explains(Protocol):
    """Knows which of many things that are compared at once is not as it was."""

    @property
    def difference(self) -> str: ...
    def culprits(self) -> list[Any]: ...


class Guards:
    """Collects conditions and input expressions, in order."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.inputs: list[str] = []
        self.outside: list[str] = []
        self.deaths = Deaths()
        self.modules: list[Watch] = []  # on them, which know what has changed, and keep nothing alive
        self.lasting: set[int] = set()  # ids of things that whoever uses these guards keeps alive
        self._bound: dict[int, str] = {}
        self._locals: dict[Hashable, str] = {}
        self._failures: dict[int, int] = {}  # line -> what the check gives if it raises there
        self._absent: list[str] = []  # what the locals hold
        self._explained: dict[int, Explains] = {}  # number of a guard -> who knows what exactly fails
        self._tensors: list[TensorWatch] = []
        self.kept: list[SameTensors] = []
        self._codes: list[CodeType] = []  # of functions that are the same at every call
        self._coded: dict[str, str] = {}  # code for each of them -> what the user calls the function
        self._line_of_codes = 0

    def bind(self, thing: Any, stem: str) -> str:
        """A name by which generated code refers to `thing`; one name an object."""
        if id(thing) not in self._bound:
            name = f"{stem}_{len(self.namespace)}"
            self.namespace[name] = thing
            self._bound[id(thing)] = name
        return self._bound[id(thing)]

    def refer(self, thing: Any, stem: str) -> str:
        """Code for `thing`, a program's. It is not kept alive: None once it is gone, and whoever uses the guards drops
        them then."""
        if id(thing) in self.lasting or not is_mortal(thing):
            return self.bind(thing, stem)
        return f"{self.bind(self.deaths.refer(thing), stem)}()"

    def same(self, code: str, thing: Any) -> str:
        """The condition that `code` is the very object `thing`."""
        spelled = self.refer(thing, "object")
        return f"{code} is {spelled}" if spelled.isidentifier() else f"{code} is {spelled} is not None"

    def let(self, stem: str, code: str, key: Hashable = None, text: str = "") -> str:
        """A local variable holding `code`, evaluated here. No bound object has its name: a local would hide it.

        key: what it stands for; asked for again, the same variable is given, and nothing is evaluated. text: what the
        user calls it.
        """
        name = self._locals.get(key) if key is not None else None
        if name is None:
            name = f"{stem}_at_{len(self.lines)}"
            self._absent.append(f"there is {text or code}")
            self._failures[len(self.lines)] = -len(self._absent)
            self.lines.append(f"{name} = {code}")
            if key is not None:
                self._locals[key] = name
        return name

    def require(self, code: str, text: str) -> None:
        """Go on only if `code` is true. text: the condition in the user's words."""
        self._failures[len(self.lines)] = len(self.texts)
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

    def keep_code(self, function: FunctionType, text: str) -> None:
        """A function that is the same at every call has the code that it has now. One guard for all of these."""
        current = f"{self.refer(function, 'function')}.__code__"
        if current in self._coded:
            return
        if not self._codes:
            self._line_of_codes = len(self.lines)
            self.require("", "")
        self._codes.append(function.__code__)
        self._coded[current] = text
        condition = f"[{', '.join(self._coded)}] == {self.bind(self._codes, 'codes')}"
        self.replace(self._line_of_codes, condition, f"{', '.join(self._coded.values())}: the same code")

    def require_same(self, code: str, thing: Any, text: str) -> None:
        """`code` must be the very object `thing`."""
        self.require(self.same(code, thing), f"{text} is the same {type(thing).__name__}")

    def watch_modules(self, modules: Iterable[WatchedModule]) -> None:
        """These modules (not what is below them) must be as they are, and so must the hooks on all modules."""
        given = list(modules)
        if given:
            what = "(parameters, buffers, children, attributes, hooks, training flag)"
            text = f"{', '.join(one.text for one in given)}: unchanged {what}"
            watch = watch_modules(given)
            self.modules.append(watch)
            self._require_unchanged(watch, "modules", text)
        for one in given:
            self.deaths.refer(one.module)

    def fix_tensors(self, tensors: Iterable[tuple[Tensor, str]]) -> None:
        """These handles, each with what the user calls it, must stand for the cells they stand for, and require a
        gradient as they do."""
        given = list(tensors)
        if given:
            text = f"{', '.join(text for _, text in given)}: stored where they were, requires_grad as it was"
            watch = TensorWatch(given)
            self._tensors.append(watch)
            self._require_unchanged(watch, "tensors", text)
        for tensor, text in given:
            self.deaths.refer(tensor)
            if lags(tensor):
                condition = f"{self.refer(tensor, 'tensor')}.requires_grad is {tensor.requires_grad}"
                self.require(condition, f"{text}.requires_grad is {tensor.requires_grad}")

    def value_of(self, cell: Cell) -> str:
        """Code for the value of a cell that is the same at every call; what it waits for, the entry settles."""
        return f"{self.bind(cell, 'cell')}.{'current()' if isinstance(cell, ViewCell) else 'raw'}"

    def _require_unchanged(self, watch: Watch, stem: str, text: str) -> None:
        name = self.bind(watch, stem)
        self.require_explained(f"{name}.told is {name}.seen or {name}.still_same()", text, watch)

    def require_explained(self, code: str, text: str, why: Explains) -> int:
        """`require`, of much at once: `why` knows what exactly does not hold. The line, for `replace`."""
        self._explained[len(self.texts)] = why
        self.require(code, text)
        return len(self.lines) - 1

    def replace(self, line: int, code: str, text: str) -> None:
        """Another condition in place of the one that stands at that line."""
        number = self._failures[line]
        self.lines[line] = f"if not ({code}): return {number}"
        self.texts[number] = text

    def build(self, name: str) -> Check:
        """The check function. Its source is kept for tracebacks and for `explain`."""
        outside = "".join(f"{code}, " for code in self.outside)
        first = ["def check(args, kwargs):", "    try:"]
        self.namespace["LOST"] = LOST
        failures = self.bind(self._failures_from(len(first) + 1), "failures")
        last = [
            "    except LOST as error:",
            f"        return {failures}[error.__traceback__.tb_lineno]",
            f"    return [{', '.join(self.inputs)}], ({outside})",
        ]
        body = [f"        {line}" for line in self.lines or ["pass"]]
        self.source = "\n".join([*first, *body, *last]) + "\n"
        filename = f"<frozen distcompile guards of {name}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
        exec(compile(self.source, filename, "exec"), self.namespace)
        check: Check = self.namespace.pop("check")  # which would keep itself alive
        return check

    def changed(self, among: Collection[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
        """Which of the conditions `among` do not hold, up to the first other one that does not, or an error."""
        body = []
        for place, line in enumerate(self.lines):
            number = self._failures.get(place, -1)
            gives = f"changed.append({number})" if number in among else "return changed"
            body.append(f"        {line.removesuffix(f'return {number}')}{gives}" if number >= 0 else f"        {line}")
        first = ["def check_numbers(args, kwargs):", "    changed = []", "    try:"]
        last = ["        pass", "    except LOST:", "        pass", "    return changed"]
        exec("\n".join([*first, *body, *last]), self.namespace)
        found: list[int] = self.namespace.pop("check_numbers")(args, kwargs)
        return found

    def values(
        self, codes: Iterable[str], before: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[int, ...]]:
        """The shapes at `codes` where condition `before` is checked; it is known that the check gets there."""
        last = next(place for place, number in self._failures.items() if number == before)
        body = [f"    {line}" for place, line in enumerate(self.lines[:last]) if self._failures[place] < 0]
        shapes = "".join(f"tuple({code}), " for code in codes)
        exec("\n".join(["def values(args, kwargs):", *body, f"    return [{shapes}]"]), self.namespace)
        found: list[tuple[int, ...]] = self.namespace.pop("values")(args, kwargs)
        return found

    def _failures_from(self, first: int) -> dict[int, int]:
        """What the check gives if it raises, by line of a source in which the conditions begin at line `first`."""
        return {line + first: failure for line, failure in self._failures.items()}

    def moved(self) -> list[Tensor]:
        """The tensors that have been bound to other memory than they had."""
        return [tensor for watch in self._tensors for tensor in watch.culprits()]

    def refilled(self, index: int | None = None) -> list[Source]:
        """The containers that hold other tensors, since guard `index` failed; None: since something died."""
        why = None if index is None else self._explained.get(index)
        return [same.source for same in self.kept if same is why or (index is None and same.has_lost())]

    def culprits(self, index: int) -> list[Any]:
        """The modules and tensors because of which condition `index` failed, and which may do so at every call.

        Captured again, they are better guarded one by one.
        """
        why = self._explained.get(index)
        return [] if why is None else why.culprits()

    def describe(self, index: int) -> str:
        """The condition that failed in the last check. Of what is watched, the very one."""
        if index < 0:
            return self._absent[-index - 1]
        why = self._explained.get(index)
        return (why.difference if why is not None else "") or self.texts[index]


def is_plain(value: Any) -> bool:
    """Whether `value` is immutable data that its `repr` spells in full."""
    if type(value) in (tuple, frozenset):
        return all(map(is_plain, value))
    return value is None or type(value) in PLAIN or issubclass(type(value), np.generic)
