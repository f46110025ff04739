"""The parts of the tracing semantics, each handed what it needs, and the one circle between them.

In: a segment, and who knows the frames that run. Out: `Parts`.
A part knows those above it in `__init__`, and no other. The circle is `call`: to read an attribute, an item or an
operator's answer may be to call a property, a `__getitem__` or an `__add__` of the program's, and what is called reads
in its turn. So whoever may come to code of the program's is handed `call`. `Calls` and `CCalls`, with their rules, are
where all meets: `getattr(a, "b")` is a call that reads an attribute, `operator.add(a, b)` one that adds. They get all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.bytecode.frame import Frame
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.tracing.attributes import Attributes
from compiler_core.capture.tracing.c_calls import CCalls
from compiler_core.capture.tracing.calls import Calls
from compiler_core.capture.tracing.changing import Changing
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.containers import Containers
from compiler_core.capture.tracing.entering import Entering
from compiler_core.capture.tracing.items import Items
from compiler_core.capture.tracing.iteration import Iteration
from compiler_core.capture.tracing.keys import Keys
from compiler_core.capture.tracing.native import Native
from compiler_core.capture.tracing.operators import Operators
from compiler_core.capture.tracing.statements import Statements
from compiler_core.capture.tracing.text import Text
from compiler_core.capture.tracing.variables import Variables


class Parts:
    """See the head of this file."""

    def __init__(self, segment: CaptureSegment, running: Callable[[], list[Frame]]) -> None:
        self.segment, call = segment, self.call
        self.outside, self.contents, self.numbers = segment.outside, segment.contents, segment.numbers
        self.record, self.code = segment.record, segment.code
        self.native = native = Native(segment)
        self.classes = classes = Classes(segment)
        self.variables = variables = Variables(segment)
        self.attributes = attributes = Attributes(segment, native, classes, variables, call)
        self.changing = Changing(segment, native, classes, attributes, call)
        self.keys = keys = Keys(segment, classes, attributes)
        self.containers = containers = Containers(segment, native, classes, keys, call)
        self.items = items = Items(segment, native, classes, attributes, keys, containers, call)
        self.iteration = Iteration(segment, native, classes, attributes, keys, containers, items, call)
        self.text = text = Text(segment, classes, attributes, call)
        self.operators = Operators(segment, native, classes, keys, containers, text, call)
        self.statements = Statements(segment, attributes, items, call)
        self.entering = Entering(segment, variables, running)
        self.c_calls = CCalls(self)
        self.calls = Calls(self)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result, or `Enter`."""
        return self.calls.call(function, args, kwargs)
