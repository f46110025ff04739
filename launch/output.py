"""The ranks' output on one screen: whole lines, each with its rank, and progress bars that rewrite their line.

In: chunks of bytes from (rank, stream). Out: bytes on the launcher's stdout and stderr. Invariants: lines of different
ranks never mix; no finished line is lost; the text after a line's last carriage return counts, as on a terminal.
On a terminal an unfinished line (a progress bar, a prompt) is shown at the bottom and redrawn below other ranks' lines;
elsewhere it is written once it is finished. Limit: cursor movement over several lines is not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_ERASES = re.compile(rb"\x1b\[[0-2]?K")
_ERASE_LINE = b"\r\x1b[2K"


def visible(line: bytes) -> bytes:
    """What a terminal would show of `line`, which has no newline: the last text after a carriage return.

    Requests to erase the line are dropped: they would erase the prefix, and the screen erases by itself.
    """
    parts = (_ERASES.sub(b"", part) for part in reversed(line.split(b"\r")))
    return next((part for part in parts if part), b"")


@dataclass
class LineBuffer:
    """Cuts one stream into finished lines; `unfinished` is the rest."""

    unfinished: bytes = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add a chunk; returns the lines it finished, as `visible` shows them."""
        *lines, self.unfinished = (self.unfinished + data).split(b"\n")
        _, separator, tail = self.unfinished.rpartition(b"\r")
        if separator and tail:  # what the tail overwrites need not be kept
            self.unfinished = tail
        return [visible(line) for line in lines]

    def close(self) -> list[bytes]:
        """The last line, if it had no newline."""
        last, self.unfinished = visible(self.unfinished), b""
        return [last] if last else []


@dataclass
class Screen:
    """Where everything goes.

    size: number of ranks, for the width of the prefix. write: takes (stream 1 or 2, bytes).
    terminal: redraw unfinished lines.
    """

    size: int
    write: Callable[[int, bytes], None]
    terminal: bool = False
    _buffers: dict[tuple[int, int], LineBuffer] = field(default_factory=dict)
    _drawn: tuple[int, int] | None = None  # whose unfinished line stands at the bottom

    def prefix(self, rank: int) -> bytes:
        return b"[%*d] " % (len(str(self.size - 1)), rank)

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """A chunk from a rank's stream; empty at its end."""
        key = (rank, stream)
        buffer = self._buffers.setdefault(key, LineBuffer())
        lines = buffer.feed(data) if data else buffer.close()
        if lines:
            self._erase()
            self.write(stream, b"".join(self.prefix(rank) + line + b"\n" for line in lines))
        if self.terminal:
            self._draw(key)

    def message(self, text: str) -> None:
        """The launcher's own words, on stderr."""
        self._erase()
        self.write(2, text.encode(errors="replace"))

    def close(self) -> None:
        """Write what is unfinished on every stream."""
        for rank, stream in sorted(self._buffers):
            self.feed(rank, stream, b"")
        self._erase()

    def _erase(self) -> None:
        if self._drawn is not None:
            self.write(self._drawn[1], _ERASE_LINE)
            self._drawn = None

    def _draw(self, key: tuple[int, int]) -> None:
        """Show the unfinished line of `key`, or of whoever was writing one before."""
        candidates = [key, *(other for other in self._buffers if other != key)]
        chosen = next((k for k in candidates if visible(self._buffers[k].unfinished)), None)
        self._erase()
        if chosen is not None:
            self.write(chosen[1], self.prefix(chosen[0]) + visible(self._buffers[chosen].unfinished))
            self._drawn = chosen


def write_all(stream: int, data: bytes) -> None:
    """Write to a file descriptor, whole. Raises BrokenPipeError when its reader is gone."""
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view) :]
