"""NumPy arrays in captured code: those from outside become inputs of the graph, traced ones real arrays at the end.

In: arrays that its code loads. Out: TracedArrays in their place, with guards on dtype, shape, strides and
whether they may be written to: content is data. At the end, what a program holds of traced arrays: real ones.
Where something is written, arrays from outside must not overlap: of two that do, one is not traced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import CellType
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.sources import Source
from compiler_core.capture.numbers.symbols import plain_parts
from compiler_core.capture.trace import CaptureTrace, Known
from compiler_core.config import config
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.numpy_trace.lifting import callers, lift, lift_number, regain, to_result, why_not
from compiler_core.records import dataclass

if TYPE_CHECKING:
    from compiler_core.capture.record import Change


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

    def __init__(self, code: Code, trace: CaptureTrace) -> None:
        self.code, self.trace = code, trace
        self.by_id: dict[int, Lifted] = {}
        self.before = TracedArray.made
        self.reals: dict[int, tuple[TracedArray, Any]] = {}

    def lift(self, source: Source, array: Any) -> Lifted | None:
        """What stands for an ndarray, at `source`; None for one that no graph can take, or that overlaps another.

        That is an object that captured code hands on, and that nothing else can be done with (`is_opaque`).
        """
        if not config.trace_numpy:
            return None
        if why_not(array) or any(np.may_share_memory(array, other.array) for other in self.by_id.values()):
            return None
        known = self.by_id[id(array)] = self._lifted(source, array)
        return known

    def _lifted(self, source: Source, array: Any) -> Lifted:
        code, guards, text = self.code, self.code.guards, source.text
        local = code.local(source)
        code.require(f"type({local}) is {guards.bind(np.ndarray, 'ndarray')}", f"{text} is an ndarray")
        code.require(f"{local}.dtype == {guards.bind(array.dtype, 'dtype')}", f"{text}.dtype == {array.dtype}")
        code.require(f"{local}.shape == {array.shape}", f"{text}.shape == {array.shape}")
        code.require(f"{local}.strides == {array.strides}", f"{text}.strides == {array.strides}")
        writeable = array.flags.writeable
        code.require(f"{local}.flags.writeable is {writeable}", f"{text}.flags.writeable is {writeable}")
        handle = lift(array)
        name = guards.let("array", f"{guards.bind(lift, 'lift')}({local})")
        self.trace.know(Known(handle, "input", text, name, code.hand_over(name, handle)))
        return Lifted(array, TracedArray(handle), name, text)

    def number(self, source: Source, value: Any) -> TracedArray:
        """One of NumPy's numbers that changes from call to call: an input of the graph."""
        code, guards = self.code, self.code.guards
        local = code.local(source)
        kind = guards.bind(type(value), "type")
        code.require(f"type({local}) is {kind}", f"{source.text} is a {type(value).__name__}")
        handle = lift_number(value)
        name = guards.let("number", f"{guards.bind(lift_number, 'lift')}({local})")
        self.trace.know(Known(handle, "input", source.text, name, code.hand_over(name, handle)))
        return TracedArray(handle, is_scalar=True)

    def guard_overlaps(self) -> None:
        """If anything is written: arrays must not overlap at later calls either."""
        lifted = list(self.by_id.values())
        if not self.trace.written:
            return
        for place, a in enumerate(lifted):
            for b in lifted[:place]:
                shares = self.code.guards.bind(np.may_share_memory, "may_share_memory")
                of = self.code.guards.bind(callers, "callers")
                self.code.require(
                    f"not {shares}({of}({a.code}), {of}({b.code}))",
                    f"{a.text} and {b.text} do not share memory",
                )

    def any_made(self) -> bool:
        """Whether a traced array may be among what the program holds."""
        return TracedArray.made != self.before

    def plain(self, value: Any) -> Any:
        """`value` without what only capture knows: what an object from outside may hold."""
        return self.itself(plain_parts(value))

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
