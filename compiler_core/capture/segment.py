"""One segment of captured code: from a start (a call, or the point after a graph break) to its end, and what it found.

In: values loaded through sources while the machine runs. Out: its parts, which know those before them: the graph under
construction, the guards and their code, the record of changes, the modules visited, the numbers, arrays and sizes that
are inputs, the objects that were there before, and what of their contents counts.
"""

from __future__ import annotations

import copy

from compiler_core.capture.arrays import Arrays
from compiler_core.capture.contents import Contents
from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.guards import Check, Guards
from compiler_core.capture.guards.modules import Modules
from compiler_core.capture.guards.names import Names
from compiler_core.capture.lessons import Memory
from compiler_core.capture.numbers.numbers import Numbers
from compiler_core.capture.numbers.sizes import OutsideSizes
from compiler_core.capture.outside_objects import OutsideObjects
from compiler_core.capture.record import Record
from compiler_core.capture.trace import CaptureTrace


class CaptureSegment:
    """See the head of this file. memory: what earlier captures of this place found out (see points.py)."""

    def __init__(self, name: str, memory: Memory) -> None:
        self.memory = memory
        self.trace = CaptureTrace(name, [])
        self.trace.knows_all = True
        self.code = Code(Guards())
        self.trace.ambient.guard(self.code.guards)
        self.names = Names(self.code.guards)
        self.record = Record()
        self.trace.changes = self.record.count
        self.modules = Modules(memory)
        self.numbers = Numbers(self.code, self.trace)
        self.arrays = Arrays(self.code, self.trace)
        self.sizes = self.numbers.sizes
        self.sizes.are_on = memory.makes_symbols and memory.all_sizes_change is True
        self.outside_sizes = OutsideSizes(memory, self.code, self.trace, self.sizes)
        parts = (self.names, self.modules, self.numbers, self.arrays, self.record, self.outside_sizes)
        self.outside = OutsideObjects(memory, self.code, self.trace, *parts)
        self.contents = Contents(self.code, self.modules, self.numbers, self.outside, self.record)

    def check_alone(self) -> Check:
        """A check of the guards alone."""
        self.names.settle()
        guards = copy.copy(self.code.guards)
        guards.lines, guards.inputs, guards.outside = list(guards.lines), [], []
        return guards.build(f"{self.trace.name} skipped")

    def forget(self) -> None:
        """What was found out names objects of the program's."""
        for name, part in vars(self).items():
            if name not in ("memory", "trace", "sizes"):
                vars(part).clear()
        self.sizes.close()
        vars(self).clear()
