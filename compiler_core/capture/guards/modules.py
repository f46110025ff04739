"""Guards on the modules that a segment has visited.

In: modules, as they are met (`Modules`); a segment that is over. Out: one guard for all of them: a watch over what was
read of each, or over all of a module that was read as a whole. A module that changes (the captured code, or somebody
between its calls, writes to it) is watched for its registries alone; its attributes have guards of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.arguments import module_tensors
from compiler_core.capture.guards.kinds import is_constant, is_registry
from compiler_core.capture.guards.module_protocol import ModuleProtocol, WatchedModule
from compiler_core.capture.guards.sources import InDict, Source
from compiler_core.capture.lessons import Memory
from compiler_core.capture.outside_memory import Known

if TYPE_CHECKING:
    from compiler_core.capture.segment import CaptureSegment


ABSENT = object()  # what is read where there is nothing


class Modules:
    """The modules that a segment has visited, by their ids.

    visited: each, and what the user calls it. reads: of attributes that are left to the watch: whose, which, where,
    what. unstable: those that this code changes. tensors: id of a module's tensor -> its role and the user's name.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.visited: dict[int, tuple[ModuleProtocol, str]] = {}
        self.reads: list[tuple[int, str, Source, Any]] = []
        self.unstable: set[int] = set()
        self.tensors: dict[int, Known] = {}
        self._listed: set[int] = set()  # whose tensors are in `tensors`

    def visit(self, module: ModuleProtocol, text: str) -> None:
        """A module whose attributes may be read from here on: the watch, or guards of its own, will cover them."""
        if id(module) in self.visited:
            return
        if id(module) not in self._listed:
            self._listed.update(id(part) for part in module.modules())
            for known in module_tensors(module, text):
                self.tensors.setdefault(id(known.handle), known)
        self.visited[id(module)] = module, text
        if module in self.memory.unstable:
            self.unstable.add(id(module))

    def is_left_to_the_watch(self, value: Any) -> bool:
        """Whether `value` is a registry of a module, as far as is known not changed by captured code."""
        return is_registry(value) and value not in self.memory.unstable

    def note_change(self, module: ModuleProtocol) -> None:
        """The captured code changes an attribute of it."""
        self.unstable.add(id(module))
        self.memory.unstable.add(module)


def guard_modules(segment: CaptureSegment) -> None:
    """Add the guards."""
    names: dict[int, set[str]] = {key: set() for key in segment.modules.visited}
    for owner, name, source, value in segment.modules.reads:
        if owner in segment.modules.unstable and not is_registry(value):
            _require_by_itself(segment, segment.modules.visited[owner][0], source, value)
        else:
            names[owner].add(name)
        if id(value) in segment.record.originals and segment.modules.is_left_to_the_watch(value):
            segment.memory.unstable.add(value)  # captured again, it has guards of its own
            segment.code.require("False", f"{source.text} is not changed by the compiled code")
    if segment.memory.skips_hooks:
        names = {key: {name for name in read if not name.endswith("_hooks")} for key, read in names.items()}
    segment.code.guards.watch_modules(
        WatchedModule(module, text, None if key in segment.contents.whole else frozenset(names[key]))
        for key, (module, text) in segment.modules.visited.items()
    )


def _require_by_itself(segment: CaptureSegment, module: ModuleProtocol, source: Source, value: Any) -> None:
    """One attribute of a module."""
    segment.outside.loaded.discard(source)
    if value is ABSENT:
        assert isinstance(source, InDict)
        segment.outside.require_absent(source, module)
    elif is_constant(value):
        segment.outside.constant(source, value, fixed=False)
    else:
        segment.code.guards.require_same(segment.code.local(source), value, source.text)
