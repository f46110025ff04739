"""Compilations as a timeline: a page of text, and the trace that ui.perfetto.dev and chrome://tracing read.

In: `Mark`s (timeline.py), or a trace that was written. Out: `Timeline`: `str()` has a line a step, with a bar where it
ran and the steps inside it indented, then how often the cache had what was asked for; `trace()` is the JSON object of
the Trace Event Format (Google, 2016): complete events "X" and instants "i", in microseconds since the first.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from compiler_core.errors import ConfigError
from compiler_core.records import dataclass

Kind: TypeAlias = Literal["step", "unit", "cache"]
_WIDTH = 40  # columns of a bar
_LEAST = 0.002  # seconds below which a step has no line
_TRACKS = {"step": "steps", "unit": "C++ compiler", "cache": "cache"}


@dataclass(frozen=True, slots=True)
class Mark:
    """kind: a step of the compiler; a unit of C++ that is compiled, or linked; a look into the cache, which is an
    instant. what: the step, the unit, "hit" or "miss". of: the graph, or the key. thread: its number."""

    kind: Kind
    what: str
    of: str
    began_s: float
    seconds: float
    thread: int

    @property
    def ended_s(self) -> float:
        return self.began_s + self.seconds


@dataclass(frozen=True, slots=True)
class Timeline:
    """What ran when."""

    marks: tuple[Mark, ...]

    def __str__(self) -> str:
        spans = sorted((m for m in self.marks if m.kind != "cache"), key=lambda m: (m.began_s, -m.seconds))
        looks = Counter(m.what for m in self.marks if m.kind == "cache")
        told = f"cache: {looks['hit']} hits, {looks['miss']} misses"
        if not spans:
            return f"nothing was compiled\n{told}"
        first, last = spans[0].began_s, max(span.ended_s for span in spans)
        shown = [(depth, span) for depth, span in _nested(spans) if span.seconds >= _LEAST]
        names = [f"{'  ' * depth}{_name(span)}" for depth, span in shown]
        width = max(map(len, names), default=0)
        scale = _WIDTH / max(last - first, 1e-9)
        lines = [f"{'':{width}}  0 s{f'{last - first:.2f} s':>{_WIDTH - 3}}"]
        for name, (_, span) in zip(names, shown, strict=True):
            begin = min(int((span.began_s - first) * scale), _WIDTH - 1)
            length = max(round(span.seconds * scale), 1)
            bar = " " * begin + "#" * min(length, _WIDTH - begin)
            lines.append(f"{name:{width}} |{bar:{_WIDTH}}| {1e3 * span.seconds:8.1f} ms")
        return "\n".join([*lines, told])

    def trace(self) -> dict[str, Any]:
        """The object of the Trace Event Format."""
        return {"traceEvents": [*_events(self.marks)], "displayTimeUnit": "ms"}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace. Raises OSError."""
        Path(path).write_text(json.dumps(self.trace()))


def read_timeline(path: Path) -> Timeline:
    """A trace that was written. Raises OSError, or ConfigError for a file that is none."""
    kinds = {title: kind for kind, title in _TRACKS.items()}
    try:
        events = json.loads(path.read_text())["traceEvents"]
        return Timeline(tuple(_mark(event, kinds) for event in events if event["ph"] in "Xi"))
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path} is no timeline of compilations", got=f"{type(error).__name__}: {error}") from error


def write_trace(path: str, marks: Sequence[Mark]) -> None:
    """Write a trace as the process ends; of ranks, and of processes that one started, each its own file.

    What goes wrong is said, and no more.
    """
    from multiprocessing import parent_process

    place = Path(path)
    if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
        place = place.with_name(f"{place.stem}.rank{os.environ.get('RANK', '0')}{place.suffix}")
    if parent_process() is not None:
        place = place.with_name(f"{place.stem}.{os.getpid()}{place.suffix}")
    try:
        Timeline(tuple(marks)).save(place)
    except OSError as error:
        print(f"distcompile: the timeline cannot be written: {error}", file=sys.stderr)


def _name(span: Mark) -> str:
    return f"{span.of}: {span.what}" if span.kind == "step" else f"{span.what} (C++)"


def _nested(spans: Sequence[Mark]) -> Iterator[tuple[int, Mark]]:
    """Each span with how many it lies in: steps in those of their thread, units of C++ in all that run."""
    under_way: list[Mark] = []
    for span in spans:
        under_way = [other for other in under_way if other.ended_s > span.began_s]
        around = [o for o in under_way if o.kind == "step" and (span.kind == "unit" or o.thread == span.thread)]
        yield len(around), span
        under_way.append(span)


def _events(marks: Sequence[Mark]) -> Iterator[dict[str, Any]]:
    first = min((mark.began_s for mark in marks), default=0.0)
    tracks: dict[tuple[str, int], int] = {}
    for mark in sorted(marks, key=lambda mark: mark.began_s):
        lane = (mark.kind, mark.thread if mark.kind != "cache" else 0)
        if lane not in tracks:
            tracks[lane] = len(tracks)
            title = {"name": "thread_name", "args": {"name": _TRACKS[mark.kind]}}
            yield {"ph": "M", "pid": os.getpid(), "tid": tracks[lane], **title}
        where = {"pid": os.getpid(), "tid": tracks[lane], "cat": _TRACKS[mark.kind], "args": {"of": mark.of}}
        times: dict[str, Any] = {"ts": 1e6 * (mark.began_s - first)}
        times |= {"s": "t"} if mark.kind == "cache" else {"dur": 1e6 * mark.seconds}
        yield {"ph": "i" if mark.kind == "cache" else "X", "name": mark.what, **times, **where}


def _mark(event: dict[str, Any], kinds: dict[str, Any]) -> Mark:
    seconds = event.get("dur", 0.0) / 1e6
    return Mark(kinds[event["cat"]], event["name"], event["args"]["of"], event["ts"] / 1e6, seconds, event["tid"])
