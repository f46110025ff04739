"""Guards on the modules that a segment has visited.

In: a segment that is over. Out: one guard for all of them: a watch over what was read of each, or over all of a module
that was read as a whole. A module that changes (the captured code, or somebody between its calls, writes to it) is
watched for its registries alone; its attributes have guards of their own.
"""

from __future__ import annotations

from typing import Any

from compiler_core.capture.guards.kinds import is_constant, is_registry
from compiler_core.capture.guards.module_protocol import ModuleProtocol, WatchedModule
from compiler_core.capture.guards.sources import InDict, Source
from compiler_core.capture.segment import ABSENT, CaptureSegment


def guard_modules(segment: CaptureSegment) -> None:
    """Add the guards."""
    names: dict[int, set[str]] = {key: set() for key in segment.modules}
    for owner, name, source, value in segment.module_reads:
        if owner in segment.unstable and not is_registry(value):
            _require_by_itself(segment, segment.modules[owner][0], source, value)
        else:
            names[owner].add(name)
        if id(value) in segment.record.originals and segment.is_left_to_the_watch(value):
            segment.memory.unstable.add(value)  # captured again, it has guards of its own
            segment.require("False", f"{source.text} is not changed by the compiled code")
    if segment.memory.skips_hooks:
        names = {key: {name for name in read if not name.endswith("_hooks")} for key, read in names.items()}
    segment.guards.watch_modules(
        WatchedModule(module, text, None if key in segment.whole else frozenset(names[key]))
        for key, (module, text) in segment.modules.items()
    )


def _require_by_itself(segment: CaptureSegment, module: ModuleProtocol, source: Source, value: Any) -> None:
    """One attribute of a module."""
    segment.loaded.discard(source)
    if value is ABSENT:
        assert isinstance(source, InDict)
        segment.require_absent(source, module)
    elif is_constant(value):
        segment.constant(source, value, fixed=False)
    else:
        segment.guards.require_same(segment.local(source), value, source.text)
