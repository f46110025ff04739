"""Clocks of Python's module `time`, read by captured code: later calls read them when the program would.

In: a clock, a segment's numbers. Out: the time, a symbol. Before the segment has recorded an op, the check function
reads it, right before the graph runs. After that it is read once the graph has run, and no op may follow in this
segment: the trace is over, and the next segment begins there (`Again`). So what lies between two readings is what ran
between them. A time is no constant: what needs it as one breaks the graph.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.sources import Argument, AtEnd
from compiler_core.capture.numbers.symbols import Input, make

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers

CLOCKS = frozenset(
    getattr(time, name + suffix)
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for suffix in ("", "_ns")
    if hasattr(time, name + suffix)
)


def read_clock(numbers: Numbers, clock: Any) -> Any:
    """The time now, which at a later call is the time then."""
    text = f"{clock.__name__}()"
    if numbers.trace.body:
        numbers.trace.ended = f"a tensor is computed after {text} was called"
        source: Any = AtEnd(len(numbers.clocks), text)
        numbers.clocks.append(clock)
    else:
        source = Argument(numbers.code.guards.let("clock", f"{numbers.code.guards.bind(clock, 'clock')}()"), text)
    made = numbers.symbols[source] = make(clock(), Input(source, 0, is_time=True))
    return made
