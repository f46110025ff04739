"""What statements ask for beside: functions, classes, imports, `with`, `raise`, `match`.

In: a statement's operands. Out: what it makes or finds, or `Enter`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.tracing.attributes import Attributes
from compiler_core.capture.tracing.items import Items
from compiler_core.capture.tracing.lookup import ABSENT, lookup
from compiler_core.capture.tracing.native import Call
from compiler_core.capture.tracing.part import Part
from compiler_core.location import is_ours
from compiler_core.ops.registry import use_trace
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sym

_NATIVE = NativeSemantics()


@dataclass(eq=False, repr=False)
class Statements(Part):
    """See the head of this file."""

    attributes: Attributes
    items: Items
    call: Call

    def make_function(self, frame: Frame, code: Any, parts: dict[str, Any]) -> Any:
        return _NATIVE.make_function(frame, code, parts)

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
        return _NATIVE.import_name(frame, name, fromlist, level)

    def _guard_module(self, name: str) -> None:
        """What `import` gives must be the same; of what is not the program's that is for granted."""
        if not is_ours(getattr(sys.modules[name], "__file__", None) or "") and name not in sys.stdlib_module_names:
            modules, module = (self.code.guards.bind(thing, "module") for thing in (sys.modules, sys.modules[name]))
            self.code.require_once(f"{modules}[{name!r}] is {module}", f"the module {name} is the same")

    def import_from(self, module: Any, name: str) -> Any:
        if name in vars(module):
            return self.attributes.load_attr(module, name)
        return _NATIVE.import_from(module, name)

    def enter_with(self, manager: Any) -> Any:
        enter, leave = lookup(type(manager), "__enter__")[0], lookup(type(manager), "__exit__")[0]
        if enter is ABSENT or leave is ABSENT:
            return _NATIVE.enter_with(manager)  # raises what Python says
        exit_ = self.attributes.load_attr(manager, "__exit__")
        entered = self.call(self.attributes.load_attr(manager, "__enter__"), (), {})
        if isinstance(entered, Enter):
            return Enter(entered.frame, "ENTERED", (exit_,))
        return exit_, entered

    def chain(self, error: Any, cause: Any) -> None:
        """An exception from outside gets a cause, at later calls too."""
        if isinstance(error, BaseException) and self.outside.has(error):
            if isinstance(cause, type):
                raise Break("an exception from outside is raised from a class")
            self.outside.change_attribute(error, "__cause__", cause, setattr, "__cause__", cause)

    def match_exception(self, error: Any, kinds: Any) -> bool:
        return bool(_NATIVE.match_exception(error, kinds))

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
            if self.outside.has(value):
                self.contents.read_key(value, key, present)
            if not present:
                return None
            found.append(self.items.get_item(value, key))
        return tuple(found)

    def match_class(self, value: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
        fits = self.call(isinstance, (value, cls), {})
        if isinstance(fits, Enter):
            raise Break("code of the program's says whether a class matches")
        if not fits:
            return None
        if type(value) is Sym and cls is int and count <= 1 and not names:
            return (value,) * count
        value = self.numbers.specialise(value) if is_symbol(value) else value
        found = _NATIVE.match_class(value, cls, count, names)  # with Python's own errors
        if not self.outside.has(value):
            return found
        itself = not hasattr(cls, "__match_args__") and count
        places = () if itself or not count else self.attributes.load_attr(cls, "__match_args__")
        if self.outside.has(places):
            self.contents.read_whole(places)
        read: list[Any] = [value] if itself else []
        for name in (*places[:count], *names):
            try:
                read.append(self.attributes.load_attr(value, name))
            except AttributeError:
                return None
        if any(isinstance(item, Enter) for item in read):
            raise Break("a property of the program's is matched")
        return tuple(read)
