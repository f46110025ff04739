"""Frames of functions that are entered: with sources for what a function brings along, its defaults and closure.

In: a function and the arguments of a call. Out: its frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.sources import Attribute, Item, Source
from compiler_core.capture.outside import Lazy
from compiler_core.capture.tracing.part import Part
from compiler_core.capture.tracing.variables import Variables
from compiler_core.records import dataclass

DEEPEST = 200  # frames


@dataclass(eq=False, repr=False)
class Entering(Part):
    """See the head of this file. running: gives the frames that run now, the innermost last."""

    variables: Variables
    running: Callable[[], list[Frame]]

    def enter(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        """A frame of `function`, with sources for what it brings along: defaults and closure."""
        if len(self.running()) > DEEPEST:
            raise Break(f"calls nest deeper than {DEEPEST}")
        frame: Frame = make_frame(function, args, kwargs)
        known = self.outside.find(function)
        if known is not None:
            self._lazy_defaults(function, known, frame, len(args), kwargs)
            if function.__code__.co_flags & inspect.CO_GENERATOR:  # its frame may outlive the segment
                for slot in range(len(frame.locals)):
                    self.variables.load_fast(frame, slot)
            for place, cell in enumerate(function.__closure__ or ()):
                self.outside.identify_cell(Item(Attribute(known.source, "__closure__"), place), cell, known.fixed)
        return frame

    def _lazy_defaults(
        self, function: FunctionType, known: Any, frame: Frame, given: int, kwargs: dict[str, Any]
    ) -> None:
        code = function.__code__
        cells = set(code.co_cellvars)
        defaults = function.__defaults__ or ()
        names = code.co_varnames
        for place, value in enumerate(defaults):
            slot = code.co_argcount - len(defaults) + place
            if slot >= given and names[slot] not in kwargs and names[slot] not in cells:
                frame.locals[slot] = self._later(code, Item(Attribute(known.source, "__defaults__"), place), value)
        for name, value in (function.__kwdefaults__ or {}).items():
            if name not in kwargs and name not in cells:
                source = Item(Attribute(known.source, "__kwdefaults__"), name)
                frame.locals[names.index(name)] = self._later(code, source, value)

    def _later(self, code: CodeType, source: Source, value: Any) -> Any:
        """A variable's value that is guarded when it is read; a generator may outlive the segment, so has it now."""
        return self.outside.load(source, value) if code.co_flags & inspect.CO_GENERATOR else Lazy(source, value)

    def current(self) -> Frame:
        """The innermost frame."""
        return self.running()[-1]
