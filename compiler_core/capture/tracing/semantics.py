"""`TracingSemantics`: all parts together, and what is left: functions, classes, imports, `with`, `match`.

In: a segment. Out: the semantics for the machine to capture with.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.tracing.builtin_rules import RULES
from compiler_core.capture.tracing.calls import Calls
from compiler_core.capture.tracing.changing import Changing
from compiler_core.capture.tracing.lookup import ABSENT, lookup
from compiler_core.location import is_ours
from compiler_core.ops.registry import use_trace


class TracingSemantics(Changing, Calls):
    """See the head of this file."""

    rules = {id(function): rule for function, rule in RULES.items()}  # noqa: RUF012  # a program's `__hash__` never runs
    _native = NativeSemantics()
    lost: Break | None = None
    undone = False

    def put_off(self, frame: Frame, why: Break) -> None:
        """A dropped generator does, on its way to its end, what breaks graphs: it is done when this one has run."""
        self.segment.put_off.append(frame)
        self.segment.put_off_because = why.reason

    def driven(self, why: Break) -> None:
        """C code that advances a generator comes to a break in it: it cannot go on, and what it has is lost."""
        self.lost = self.lost or why

    def retire(self) -> None:
        """The segment has ended: generators that it left behind run natively from now on."""
        undone = self.undone
        self.__dict__.clear()
        self.__dict__.update(vars(NativeSemantics()), undone=undone)
        self.__class__ = NativeSemantics  # type: ignore[assignment]

    def make_function(self, frame: Frame, code: Any, parts: dict[str, Any]) -> Any:
        return self._native.make_function(frame, code, parts)

    def build_class(self, frame: Frame, body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise Break("a class is defined")

    def import_name(self, frame: Frame, name: str, fromlist: Any, level: int) -> Any:
        package = frame.globals.get("__package__") or ""
        full = name if not level else ".".join(p for p in (package.rsplit(".", level - 1)[0], name) if p)
        for part in {full, full.partition(".")[0]} & set(sys.modules):
            self._guard_module(part)
        if full not in sys.modules:
            if not is_ours(getattr(sys.modules.get(full.partition(".")[0]), "__file__", None) or ""):
                raise Break(f"the module {full!r} is imported for the first time")
            with use_trace(None):  # one of ours: nothing that the program sees is changed by it
                importlib.import_module(full)
        return self._native.import_name(frame, name, fromlist, level)

    def _guard_module(self, name: str) -> None:
        """What `import` gives must be the same; of what is not the program's that is for granted."""
        if not is_ours(getattr(sys.modules[name], "__file__", None) or "") and name not in sys.stdlib_module_names:
            modules, module = (self.segment.guards.bind(thing, "module") for thing in (sys.modules, sys.modules[name]))
            self.segment.require_once(f"{modules}[{name!r}] is {module}", f"the module {name} is the same")

    def import_from(self, module: Any, name: str) -> Any:
        if name in vars(module):
            return self.load_attr(module, name)
        return self._native.import_from(module, name)

    def enter_with(self, manager: Any) -> Any:
        enter, leave = lookup(type(manager), "__enter__")[0], lookup(type(manager), "__exit__")[0]
        if enter is ABSENT or leave is ABSENT:
            return self._native.enter_with(manager)  # raises what Python says
        exit_ = self.load_attr(manager, "__exit__")
        entered = self.call(self.load_attr(manager, "__enter__"), (), {})
        if isinstance(entered, Enter):
            return Enter(entered.frame, "ENTERED", (exit_,))
        return exit_, entered

    def chain(self, error: Any, cause: Any) -> None:
        """An exception from outside gets a cause, at later calls too."""
        if isinstance(error, BaseException) and self.segment.is_outside(error):
            if isinstance(cause, type):
                raise Break("an exception from outside is raised from a class")
            self.segment.change_attribute(error, "__cause__", cause, setattr, "__cause__", cause)

    def match_exception(self, error: Any, kinds: Any) -> bool:
        return bool(self._native.match_exception(error, kinds))

    def match_mapping(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def match_sequence(self, value: Any) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))

    def match_keys(self, value: Any, keys: tuple[Any, ...]) -> Any:
        if not isinstance(value, dict):
            raise Break("a mapping that is no dict is matched")
        found = []
        for key in keys:
            present = key in value
            if self.segment.is_outside(value):
                self.segment.read_key(value, key, present)
            if not present:
                return None
            found.append(self.get_item(value, key))
        return tuple(found)

    def match_class(self, value: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
        fits = self.call(isinstance, (value, cls), {})
        if isinstance(fits, Enter):
            raise Break("code of the program's says whether a class matches")
        if not fits:
            return None
        found = self._native.match_class(value, cls, count, names)  # with Python's own errors
        if not self.segment.is_outside(value):
            return found
        itself = not hasattr(cls, "__match_args__") and count
        places = () if itself or not count else self.load_attr(cls, "__match_args__")
        if self.segment.is_outside(places):
            self.segment.read_whole(places)
        read: list[Any] = [value] if itself else []
        for name in (*places[:count], *names):
            try:
                read.append(self.load_attr(value, name))
            except AttributeError:
                return None
        if any(isinstance(item, Enter) for item in read):
            raise Break("a property of the program's is matched")
        return tuple(read)
