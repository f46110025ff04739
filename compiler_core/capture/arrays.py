"""NumPy arrays in captured code: those from outside become inputs of the graph, traced ones real arrays at the end.

In: a segment, arrays that its code loads. Out: TracedArrays in their place, with guards on dtype, shape, strides and
whether they may be written to: content is data. At the end, what a program holds of traced arrays: real ones.
Where something is written, arrays from outside must not overlap: of two that do, one is not traced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import CellType
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.capture.guards.sources import Source
from compiler_core.capture.trace import Known
from compiler_core.config import config
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.numpy_trace.lifting import callers, lift, lift_number, regain, to_result, why_not

if TYPE_CHECKING:
    from compiler_core.capture.record import Change
    from compiler_core.capture.segment import CaptureSegment


@dataclass(frozen=True, slots=True)
class Lifted:
    """An array from outside: what stands for it, the variable of the check function that holds the Tensor, its name."""

    array: Any
    traced: TracedArray
    code: str
    text: str


def is_opaque(value: Any) -> bool:
    """Whether an array that is not traced: what is computed of it cannot be part of a graph."""
    return issubclass(type(value), np.ndarray)  # of a traced one `isinstance` would say so too


def is_numpy_number(value: Any) -> bool:
    """Whether a number of NumPy's that a graph can take."""
    return issubclass(type(value), np.number | np.bool_) and not why_not(np.asarray(value))


class Arrays:
    """The arrays of one segment."""

    def __init__(self, segment: CaptureSegment) -> None:
        self.segment = segment
        self.by_id: dict[int, Lifted] = {}
        self.before = TracedArray.made
        self.reals: dict[int, tuple[TracedArray, Any]] = {}

    def load(self, source: Source, array: Any, fixed: bool) -> Any:
        """What stands for `array`, which is at `source`; None for what is none.

        None also for one that no graph can take, or that overlaps another: that is an object that captured code hands
        on, and that nothing else can be done with (`is_opaque`).
        """
        if type(array) is not np.ndarray or not config.trace_numpy:
            return None
        known = self.by_id.get(id(array))
        if known is None:
            from compiler_core.capture.outside import Outside

            if why_not(array) or any(np.may_share_memory(array, other.array) for other in self.by_id.values()):
                return None
            known = self.by_id[id(array)] = self._lift(source, array)
            for thing in (array, known.traced):
                self.segment.outside[id(thing)] = Outside(thing, source, fixed)
        else:
            self.segment.same_object(array, source, fixed)
        return known.traced

    def _lift(self, source: Source, array: Any) -> Lifted:
        segment, guards, text = self.segment, self.segment.guards, source.text
        local = segment.local(source)
        segment.require(f"type({local}) is {guards.bind(np.ndarray, 'ndarray')}", f"{text} is an ndarray")
        segment.require(f"{local}.dtype == {guards.bind(array.dtype, 'dtype')}", f"{text}.dtype == {array.dtype}")
        segment.require(f"{local}.shape == {array.shape}", f"{text}.shape == {array.shape}")
        segment.require(f"{local}.strides == {array.strides}", f"{text}.strides == {array.strides}")
        writeable = array.flags.writeable
        segment.require(f"{local}.flags.writeable is {writeable}", f"{text}.flags.writeable is {writeable}")
        handle = lift(array)
        name = guards.let("array", f"{guards.bind(lift, 'lift')}({local})")
        guards.outside.append(name)
        segment.values.append(handle)
        segment.trace.know(Known(handle, "input", text, name, len(guards.outside) - 1))
        return Lifted(array, TracedArray(handle), name, text)

    def number(self, source: Source, value: Any) -> TracedArray:
        """One of NumPy's numbers that changes from call to call: an input of the graph."""
        segment, guards = self.segment, self.segment.guards
        local = segment.local(source)
        kind = guards.bind(type(value), "type")
        segment.require(f"type({local}) is {kind}", f"{source.text} is a {type(value).__name__}")
        handle = lift_number(value)
        name = guards.let("number", f"{guards.bind(lift_number, 'lift')}({local})")
        guards.outside.append(name)
        segment.values.append(handle)
        segment.trace.know(Known(handle, "input", source.text, name, len(guards.outside) - 1))
        return TracedArray(handle, is_scalar=True)

    def guard_overlaps(self) -> None:
        """If anything is written: arrays must not overlap at later calls either."""
        lifted = list(self.by_id.values())
        if not self.segment.trace.written:
            return
        for place, a in enumerate(lifted):
            for b in lifted[:place]:
                shares = self.segment.guards.bind(np.may_share_memory, "may_share_memory")
                of = self.segment.guards.bind(callers, "callers")
                self.segment.require(
                    f"not {shares}({of}({a.code}), {of}({b.code}))",
                    f"{a.text} and {b.text} do not share memory",
                )

    def any_made(self) -> bool:
        """Whether a traced array may be among what the program holds."""
        return TracedArray.made != self.before

    def itself(self, value: Any) -> Any:
        """The array that `value` stands for, if it is one from outside; any other value as it is."""
        if type(value) is not TracedArray:
            return value
        return next((known.array for known in self.by_id.values() if known.traced is value), value)

    def put_back(self, changes: Iterable[Change]) -> None:
        """After the graph has run: what was there before holds real arrays in place of traced ones."""
        kept = (change.target for change in changes if any(type(arg) is TracedArray for arg in change.args))
        for target in kept:
            if isinstance(target, CellType):
                target.cell_contents = self._put(target.cell_contents)
            elif isinstance(target, list | deque):
                for place, item in enumerate(target):
                    if type(item) is TracedArray:
                        target[place] = self.real(item)
            table = target if isinstance(target, dict) else getattr(target, "__dict__", None)
            if isinstance(table, dict):
                for key, held in list(table.items()):
                    if type(held) is TracedArray:
                        dict.__setitem__(table, key, self.real(held))

    def _put(self, held: Any) -> Any:
        return self.real(held) if type(held) is TracedArray else held

    def real(self, traced: TracedArray) -> Any:
        """The real array, after the graph has run: one for each traced one."""
        if id(traced) not in self.reals:
            self.reals[id(traced)] = traced, self._made_real(traced)
        return self.reals[id(traced)][1]

    def _made_real(self, traced: TracedArray) -> Any:
        itself = self.itself(traced)
        if itself is not traced:
            return itself
        view = traced.stands_for
        if view is not None:
            return regain(view.function, self._reals(view.args), self._reals(view.kwargs), view.place)
        return to_result(traced._held, traced.is_scalar, traced.is_outside)

    def _reals(self, tree: Any) -> Any:
        """Arguments with real arrays in place of traced ones."""
        if type(tree) is TracedArray:
            return self.real(tree)
        if type(tree) in (tuple, list):
            return type(tree)(map(self._reals, tree))
        return {key: self._reals(value) for key, value in tree.items()} if type(tree) is dict else tree
