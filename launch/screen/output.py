"""The ranks' output on one screen: whole lines, each with its rank, and progress bars that rewrite their line.

In: chunks of bytes from (rank, stream). Out: bytes on the launcher's stdout and stderr. Invariants: lines of different
ranks never mix; no finished line is lost; the text after a line's last carriage return counts, as on a terminal.
On a terminal an unfinished line (a progress bar, a prompt) is shown at the bottom and redrawn below other ranks' lines;
elsewhere it is written once it is finished. Limit: cursor movement over several lines is not followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
from collections.abc import Callable
from dataclasses import dataclass, field

_ERASES = re.compile(rb"\x1b\[[0-2]?K")
_ERASE_LINE = b"\r\x1b[2K"
_LONGEST_DRAWN = 4096  # an unfinished line longer than this is no progress bar
_LOOK_S = 0.1


def visible(line: bytes) -> bytes:
    """What a terminal would show of `line`, which has no newline: the last text after a carriage return.

    Requests to erase the line are dropped: they would erase the prefix, and the screen erases by itself.
    """
    parts = (_ERASES.sub(b"", part) for part in reversed(line.split(b"\r")))
    return next((part for part in parts if part), b"")


@dataclass
class LineBuffer:
    """Cuts one stream into finished lines; `unfinished` is the rest. Looks at each byte a constant number of times."""

    unfinished: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """Add a chunk; returns the lines it finished, as `visible` shows them."""
        before = len(self.unfinished)
        self.unfinished += data
        end = self.unfinished.rfind(b"\n", before)
        lines = []
        if end >= 0:
            lines = [visible(line) for line in bytes(self.unfinished[:end]).split(b"\n")]
            del self.unfinished[: end + 1]
            before = 0
        self._forget_overwritten(max(before - 1, 0))
        return lines

    def _forget_overwritten(self, start: int) -> None:
        """Drop what a later text behind a carriage return overwrites. start: from where there may be a new one."""
        end = len(self.unfinished)
        while (at := self.unfinished.rfind(b"\r", start, end)) >= 0:
            if visible(bytes(self.unfinished[at:])):
                del self.unfinished[: at + 1]
                return
            end = at

    def close(self) -> list[bytes]:
        """The last line, if it had no newline."""
        last = visible(bytes(self.unfinished))
        self.unfinished.clear()
        return [last] if last else []


@dataclass
class Screen:
    """Where everything goes.

    size: number of ranks, for the width of the prefix. write: takes (stream 1 or 2, bytes).
    terminal: redraw unfinished lines. plain: write what comes as it is.
    """

    size: int
    write: Callable[[int, bytes], None]
    terminal: bool = False
    plain: bool = False
    _buffers: dict[tuple[int, int], LineBuffer] = field(default_factory=dict)
    _drawn: tuple[int, int] | None = None  # whose unfinished line stands at the bottom

    def prefix(self, rank: int) -> bytes:
        return b"[%*d] " % (len(str(self.size - 1)), rank)

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """A chunk from a rank's stream; empty at its end."""
        if self.plain:
            self._feed_plain((rank, stream), data)
            return
        key = (rank, stream)
        buffer = self._buffers.setdefault(key, LineBuffer())
        lines = buffer.feed(data) if data else buffer.close()
        if lines:
            self._erase()
            self.write(stream, b"".join(self.prefix(rank) + line + b"\n" for line in lines))
        if self.terminal:
            self._draw(key)

    def _feed_plain(self, key: tuple[int, int], data: bytes) -> None:
        """What has come up to the last end of a line, or of a progress bar's turn, as it is; the rest waits."""
        buffer = self._buffers.setdefault(key, LineBuffer()).unfinished
        before = len(buffer)
        buffer += data
        end = (
            max(buffer.rfind(b"\n", before), buffer.rfind(b"\r", before)) + 1 if data and self.size > 1 else len(buffer)
        )
        self.write(key[1], bytes(buffer[:end]))
        del buffer[:end]

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
        shown = ((k, self._buffers[k].unfinished) for k in candidates)
        texts = ((k, visible(bytes(text))) for k, text in shown if len(text) < _LONGEST_DRAWN)
        chosen, text = next(((k, text) for k, text in texts if text), (None, b""))
        self._erase()
        if chosen is not None:
            self.write(chosen[1], self.prefix(chosen[0]) + text)
            self._drawn = chosen


class Writer:
    """Writes to our own stdout and stderr, whole, whether they block or not.

    idle: called while their reader holds us up, at least every `_LOOK_S`, so that signals and deadlines still count.
    """

    def __init__(self) -> None:
        self.idle: Callable[[], None] = lambda: None

    def __call__(self, stream: int, data: bytes) -> None:
        """Raises BrokenPipeError when the reader is gone."""
        view = memoryview(data)
        ready = select.poll()
        ready.register(stream, select.POLLOUT)
        while view:
            if not ready.poll(_LOOK_S * 1000):
                self.idle()
                continue
            with contextlib.suppress(BlockingIOError):  # ready for less than we had
                view = view[os.write(stream, view[: select.PIPE_BUF]) :]
