"""When the collectives of compiled graphs moved, and what of it was waited for.

In: the flights of the calls within a block (`watch_collectives`). Out: `CollectivesSeen`: a row a launch, medians over
the calls, in milliseconds after the call began; text, and plain data.
Method: within the block events are served by Python, which notes when an operand was complete and how long the code
stood waiting for a result; the engine's own clock says when data moved. On a GPU all of these are events of the device:
the host waits for the end of each call to read them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from compiler_core.ops.collectives.runner import Launch

if TYPE_CHECKING:
    from collectives import Work
    from collectives.work import Mark
    from compiler_core.events import Events


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One launch. parts: how many collectives travel together. Times in ms after the call began; moving and wait are
    durations."""

    collective: str
    where: str
    parts: int
    nbytes: int
    ready_ms: float
    start_ms: float
    end_ms: float
    moving_ms: float
    wait_ms: float


@dataclass(slots=True)
class CollectivesSeen:
    """What `watch_collectives` has seen. calls: for each graph by its launches, a list of rows a call."""

    calls: dict[tuple[str, ...], list[list[CollectiveRow]]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[CollectiveRow, ...]:
        """A row for each launch of each graph: medians over its calls."""
        return tuple(_median(column) for calls in self.calls.values() for column in zip(*calls))

    @property
    def moving_ms(self) -> float:
        """In which data moved, of one call of each graph."""
        return sum(row.moving_ms for row in self.rows)

    @property
    def exposed_ms(self) -> float:
        """For which the code stood waiting."""
        return sum(row.wait_ms for row in self.rows)

    @property
    def hidden_share(self) -> float:
        """The share of the moving time that computation hid, 0..1; NaN without communication."""
        return math.nan if not self.moving_ms else min(1.0, max(0.0, 1.0 - self.exposed_ms / self.moving_ms))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        rows = [asdict(row) for row in self.rows]
        return {"rows": rows, "moving_ms": self.moving_ms, "exposed_ms": self.exposed_ms}

    def __str__(self) -> str:
        lines = [f"{'KiB':>9} {'ready':>8} {'start':>8} {'end':>8} {'moving':>8} {'wait':>8}  collective"]
        for row in self.rows:
            times = (row.ready_ms, row.start_ms, row.end_ms, row.moving_ms, row.wait_ms)
            cells = " ".join(f"{t:8.2f}" for t in times)
            together = f" x {row.parts}" if row.parts > 1 else ""
            lines.append(f"{row.nbytes / 1024:9.1f} {cells}  {row.collective}{together}  {row.where}".rstrip())
        hidden = "" if math.isnan(self.hidden_share) else f", {self.hidden_share:.0%} hidden"
        lines.append(f"communication {self.moving_ms:.2f} ms, exposed {self.exposed_ms:.2f} ms{hidden}")
        return "\n".join(lines)


def _median(column: Sequence[CollectiveRow]) -> CollectiveRow:
    first = column[0]
    times = [
        median(getattr(row, name) for row in column)
        for name in ("ready_ms", "start_ms", "end_ms", "moving_ms", "wait_ms")
    ]
    return CollectiveRow(first.collective, first.where, first.parts, first.nbytes, *times)


_watching: ContextVar[CollectivesSeen | None] = ContextVar("watched collectives", default=None)
watched = _watching.get


@contextmanager
def watch_collectives() -> Iterator[CollectivesSeen]:
    """Within the block, see when the collectives of compiled graphs move, in this thread's calls.

    Yields: `CollectivesSeen`; print it. Calls take a little longer than without.

    Example:
        >>> from collectives import run_ranks
        >>> def program(ranks):
        ...     with dist.use_communicator(ranks):
        ...         total = torch.compile(lambda x: dist._functional_collectives.all_reduce(x.sin(), "sum"))
        ...         with dist.watch_collectives() as seen:
        ...             total(torch.ones(256))
        ...         return [row.nbytes for row in seen.rows]
        >>> run_ranks(2, program)
        [[1024], [1024]]
    """
    seen = CollectivesSeen()
    token = _watching.set(seen)
    try:
        yield seen
    finally:
        _watching.reset(token)


class TimedEvents:
    """Events of a flight, timed. mark: where a GPU's stream is; it gives None on the host."""

    def __init__(self, events: Events, seen: CollectivesSeen, mark: Callable[[], Mark | None]) -> None:
        self.events, self.seen, self.mark = events, seen, mark
        self.began_s, self.began = time.perf_counter(), mark()
        self.ready_s: dict[int, float] = {}
        self.waits_s: dict[int, float] = {}
        self.reached: dict[int, Mark | None] = {}

    def signal(self, event: int) -> None:
        self.ready_s[event] = time.perf_counter()
        self.events.signal(event)

    def wait(self, event: int) -> None:
        before, self.reached[event] = time.perf_counter(), self.mark()
        self.events.wait(event)
        self.waits_s[event] = time.perf_counter() - before

    def note(self, launches: Sequence[Launch], works: Sequence[Work]) -> None:
        """The call is over."""
        if self.began is not None:
            for work in works:
                work.synchronize()
            self.began_s = self.began.time_s
        rows = [self._row(k, launch, work) for k, (launch, work) in enumerate(zip(launches, works))]
        self.seen.calls.setdefault(tuple(map(str, launches)), []).append(rows)

    def _row(self, event: int, launch: Launch, work: Work) -> CollectiveRow:
        times, reached = work.late_times(), self.reached[event]
        started, ended = times.started_s, times.ended_s
        ready_s, wait_ms = self.ready_s[event], 1e3 * self.waits_s[event]
        if reached is not None:
            ready_s, wait_ms = times.released_s, 1e3 * max(0.0, ended - reached.time_s)
        nbytes = sum(max(part.operand.nbytes, part.result.nbytes) for part in launch.parts)
        kind = f"{launch.what.kind} {launch.what.reduction}" if "reduce" in launch.what.kind else launch.what.kind
        ready, start, end = (1e3 * (t - self.began_s) for t in (ready_s, started, ended))
        return CollectiveRow(kind, launch.where, len(launch.parts), nbytes, ready, start, end, end - start, wait_ms)
