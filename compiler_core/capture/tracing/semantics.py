"""`TracingSemantics`: which part answers what the machine asks for (`bytecode/semantics.py` has the list).

In: a segment. Out: the semantics for the machine to capture with.
"""

from __future__ import annotations

from typing import Any

from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.tracing.parts import Parts
from compiler_core.tensor.memory.cell import PickedCell


class TracingSemantics:
    """machine: set by the machine that uses these semantics. lost: see `driven`. undone: the call is as if it had not
    begun, and what it made must not run."""

    machine: Machine
    lost: Break | None = None
    undone = False

    def __init__(self, segment: CaptureSegment) -> None:
        self.segment = segment
        self.parts = parts = Parts(segment, lambda: self.machine.frames)
        self.call = parts.calls.call
        self._keep(parts)
        self._do(parts)

    def _keep(self, parts: Parts) -> None:
        """Variables, attributes, items."""
        self.load_fast = parts.variables.load_fast
        self.load_cell = parts.variables.load_cell
        self.store_cell = parts.variables.store_cell
        self.delete_cell = parts.variables.delete_cell
        self.load_global = parts.variables.load_global
        self.store_global = parts.variables.store_global
        self.delete_global = parts.variables.delete_global
        self.load_name = parts.variables.load_name
        self.store_name = parts.variables.store_name
        self.delete_name = parts.variables.delete_name
        self.load_attr = parts.attributes.load_attr
        self.load_super_attr = parts.attributes.load_super_attr
        self.store_attr = parts.changing.store_attr
        self.delete_attr = parts.changing.delete_attr
        self.get_item = parts.items.get_item
        self.store_item = parts.items.store_item
        self.delete_item = parts.items.delete_item

    def _do(self, parts: Parts) -> None:
        """What is done with values."""
        self.binary = parts.operators.binary
        self._in_place = parts.operators.in_place
        self.unary = parts.operators.unary
        self.compare = parts.operators.compare
        self.truth = parts.operators.truth
        self.is_same = parts.keys.is_same
        self.as_key = parts.keys.as_key
        self.iterate = parts.iteration.iterate
        self.advance = parts.iteration.advance
        self.unpack = parts.iteration.unpack
        self.contains = parts.iteration.contains
        self.collect = parts.iteration.collect
        self.as_tuple = parts.iteration.as_tuple
        self.extend = parts.iteration.extend
        self.merge = parts.iteration.merge
        self.format = parts.text.format
        self.join = parts.text.join
        self.make_function = parts.statements.make_function
        self.build_class = parts.statements.build_class
        self.import_name = parts.statements.import_name
        self.import_from = parts.statements.import_from
        self.enter_with = parts.statements.enter_with
        self.chain = parts.statements.chain
        self.match_exception = parts.statements.match_exception
        self.match_mapping = parts.statements.match_mapping
        self.match_sequence = parts.statements.match_sequence
        self.match_keys = parts.statements.match_keys
        self.match_class = parts.statements.match_class

    def put_off(self, frame: Frame, why: Break) -> None:
        """A dropped generator does, on its way to its end, what breaks graphs: it is done when this one has run."""
        self.segment.record.put_off.append((frame, why.reason))

    def driven(self, why: Break) -> None:
        """C code that advances a generator comes to a break in it: it cannot go on, and what it has is lost."""
        self.lost = self.lost or why

    def retire(self) -> None:
        """The segment has ended: generators that it left behind run natively from now on."""
        undone = self.undone
        vars(self.parts).clear()  # they know one another in a circle, and what was read
        self.__dict__.clear()
        self.__dict__.update(vars(NativeSemantics()), undone=undone)
        self.__class__ = NativeSemantics  # type: ignore[assignment]

    def in_place(self, op: str, left: Any, right: Any) -> Any:
        """`left op= right`. In `x[i] += 1` what `x[i]` gave is stored back where it was taken: it may be a copy. Not so
        in `y[0] += 1` of a `y` that is one, nor in an item of a list."""
        root = left._cell.root if hasattr(type(left), "_cell") else None  # objects may answer for any name
        if isinstance(root, PickedCell):
            taken_from = self.machine.augmented()
            if hasattr(type(taken_from), "_cell") and taken_from._cell.root is not root:
                root.free()
        return self._in_place(op, left, right)
