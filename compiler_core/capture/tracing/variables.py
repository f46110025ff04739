"""Variables: reading them guards what they hold; changing those from outside is recorded.

In: frames, slots, names. Out: the values.
"""

from __future__ import annotations

from types import CellType, CodeType
from typing import Any

from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.sources import Bound, CellContents, Variable
from compiler_core.capture.outside import Lazy
from compiler_core.capture.tracing.part import Part
from compiler_core.location import is_ours
from compiler_core.records import dataclass


@dataclass(eq=False, repr=False)
class Variables(Part):
    """See the head of this file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.globals_seen: dict[tuple[int, str], Any] = {}

    def load_fast(self, frame: Frame, slot: int) -> Any:
        value = frame.locals[slot]
        if type(value) is Lazy:
            value = frame.locals[slot] = self.outside.load(value.source, value.value)
        return value

    def load_cell(self, frame: Frame, slot: int) -> Any:
        cell: CellType = frame.locals[slot]
        try:
            value = cell.cell_contents
        except ValueError:
            self._nothing_in(cell)
            raise  # as the machine expects
        if type(value) is Lazy:
            cell.cell_contents = value = self.outside.load(value.source, value.value)
            return value
        known = self.outside.find(cell)
        if known is None:
            return value
        if (id(cell), "contents") in self.record.written:
            return self.record.written[id(cell), "contents"]
        return self.outside.load(CellContents(known.source, _name_of_slot(frame.code, slot)), value)

    def _nothing_in(self, cell: CellType) -> None:
        """A cell of a function from outside is empty."""
        known = self.outside.find(cell)
        if known is not None:
            empty = self.code.guards.bind(CellType(), "empty")
            self.code.require_once(f"{self.code.local(known.source)} == {empty}", f"{known.source.text} is empty")

    def store_cell(self, frame: Frame, slot: int, value: Any) -> None:
        cell: CellType = frame.locals[slot]
        if self.outside.has(cell):
            self.record.before_variable(cell)
            cell.cell_contents = self.segment.arrays.plain(value)
            self.record.made(setattr, cell, "cell_contents", value)
            self.record.written[id(cell), "contents"] = value
        else:
            cell.cell_contents = value

    def delete_cell(self, frame: Frame, slot: int) -> None:
        cell: CellType = frame.locals[slot]
        if self.outside.has(cell):
            raise Break("a variable of an outer function is deleted")
        del cell.cell_contents

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = frame.globals
        key = (id(namespace), name)
        if key in self.globals_seen:
            return self.globals_seen[key]
        if name in namespace:
            value = namespace[name]
            if key not in self.record.written:
                root = Bound(namespace, "globals")
                fixed = is_ours(frame.code.co_filename)  # our own modules' names stay what they are
                value = self.outside.load(Variable(root, name), value, fixed=fixed)
            else:
                value = self.record.written[key]
        elif name in frame.builtins:
            value = frame.builtins[name]
            if not is_ours(frame.code.co_filename):
                local = self.code.local(Bound(namespace, "globals"))
                self.code.require(f"{name!r} not in {local}", f"no global {name!r} hides the builtin")
                value = self.outside.read_builtin(frame.builtins, name)
        else:
            for table in (Bound(namespace, "globals"), Bound(frame.builtins, "builtins")):
                local = self.code.local(table)
                self.code.require_once(f"{name!r} not in {local}", f"there is no name {name!r} in the {table.text}")
            raise NameError(f"name '{name}' is not defined", name=name)
        self.globals_seen[key] = value
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        namespace = frame.globals
        self.outside.identify(Bound(namespace, "globals"), namespace, fixed=True)
        self.record.before(namespace)
        namespace[name] = self.segment.arrays.plain(value)
        self.record.made(dict.__setitem__, namespace, name, value)
        self.record.written[id(namespace), name] = value
        self.record.note_numbers(namespace, (value,))
        self.globals_seen[id(namespace), name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        raise Break(f"the global {name!r} is deleted")

    def load_name(self, frame: Frame, name: str) -> Any:
        if frame.namespace is not None and name in frame.namespace:
            return frame.namespace[name]
        return self.load_global(frame, name)

    def store_name(self, frame: Frame, name: str, value: Any) -> None:
        if frame.namespace is None:
            self.store_global(frame, name, value)
        else:
            frame.namespace[name] = value

    def delete_name(self, frame: Frame, name: str) -> None:
        raise Break(f"the name {name!r} is deleted")


def _name_of_slot(code: CodeType, slot: int) -> str:
    """What a slot of `Frame.locals` is called."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)[slot]
