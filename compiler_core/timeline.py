"""When what of the compilations of this process ran: steps, compiler processes, looks into the cache.

In: `mark(...)` by whoever does it. Out: `marks()`, in the order in which they ended, the last LONGEST of them; with
DISTCOMPILE_TRACE, a file when the process ends. How they are shown: `showing/timeline.py`.
Times are of `time.perf_counter`, in seconds.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque

from compiler_core.config import config
from compiler_core.showing.timeline import Kind, Mark, write_trace

LONGEST = 16384


_marks: deque[Mark] = deque(maxlen=LONGEST)
_is_to_be_written = False


def mark(kind: Kind, what: str, of: str, began_s: float | None = None, seconds: float = 0.0) -> None:
    """Note what has ended. began_s: None for an instant: now."""
    began_s = time.perf_counter() if began_s is None else began_s
    _marks.append(Mark(kind, what, of, began_s, seconds, threading.get_ident()))
    if config.trace and not _is_to_be_written:
        _write_at_the_end()


def marks() -> tuple[Mark, ...]:
    return tuple(_marks)


def forget() -> None:
    """Begin anew."""
    _marks.clear()


def _write_at_the_end() -> None:
    global _is_to_be_written
    _is_to_be_written = True
    atexit.register(lambda: write_trace(config.trace, marks()))
