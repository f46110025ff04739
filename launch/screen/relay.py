"""Where a rank's three streams go: to the screen, to files, or both; and where its input comes from.

In: a rank's number. Out: the descriptors that its warden takes as stdin, stdout and stderr. Rank 0 reads the
launcher's stdin, all others nothing, as under mpiexec. Without a prefix and without files the ranks write to the
launcher's own stdout and stderr, so that a terminal stays one; unless those do not block: a rank would take "full"
for an error. Files: LOG_DIR/RUN_ID/attempt_N/RANK/stdout.log and stderr.log, as torchrun lays them out; they hold
what a dead rank wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import LogFileError
from launch.screen.output import Screen

_NAMES = {1: "stdout.log", 2: "stderr.log"}
_LAST_WORDS = 2000
Watch = Callable[[int, Callable[[bytes], None]], None]


@dataclass(frozen=True, slots=True)
class Files:
    """Which streams go to files. Values: 0 none, 1 stdout, 2 stderr, 3 both. others: for ranks that are not named."""

    others: int = 0
    ranks: Mapping[int, int] = field(default_factory=dict)

    def holds(self, rank: int, stream: int) -> bool:
        return bool(self.ranks.get(rank, self.others) & stream)


@dataclass
class Relay:
    """folder: for the files; None: no files. tee: to file and screen; redirects: to file only."""

    screen: Screen
    prefix: bool
    takes_stdin: bool = True
    folder: Path | None = None
    tee: Files = Files()
    redirects: Files = Files()
    shown: frozenset[int] | None = None  # ranks on the screen; None: all
    last_words: dict[int, bytes] = field(default_factory=dict)  # of each rank's stderr, if it comes through us
    _files: dict[tuple[int, int], int] = field(default_factory=dict)

    def streams_of(self, rank: int, watch: Watch) -> tuple[tuple[int, int, int], Callable[[], None]]:
        """(stdin, stdout, stderr) for the rank, and what closes our copies. watch: to be told of output."""
        opened = [] if self._has_stdin(rank) else [os.open(os.devnull, os.O_RDONLY)]
        stdin = opened[0] if opened else 0
        ends = {}
        for stream in (1, 2):
            ends[stream] = self._end_of(rank, stream, watch)
            opened += [ends[stream]] if ends[stream] != stream else []

        def close() -> None:
            for descriptor in opened:
                os.close(descriptor)

        return (stdin, ends[1], ends[2]), close

    def close(self) -> None:
        """Write what is unfinished, close the files."""
        self.screen.close()
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _has_stdin(self, rank: int) -> bool:
        try:
            os.fstat(0)
        except OSError:  # we were started without one
            return False
        return rank == 0 and self.takes_stdin

    def _end_of(self, rank: int, stream: int, watch: Watch) -> int:
        """The descriptor that the rank writes to: a file, a pipe to us, or our own."""
        if self.redirects.holds(rank, stream):
            return os.dup(self._file(rank, stream))
        is_hidden = self.shown is not None and rank not in self.shown
        if not (self.prefix or is_hidden or self.tee.holds(rank, stream)) and os.get_blocking(stream):
            return stream
        ours, theirs = os.pipe()
        watch(ours, lambda data: self._feed(rank, stream, data, is_hidden))
        return theirs

    def _feed(self, rank: int, stream: int, data: bytes, is_hidden: bool) -> None:
        if data and self.tee.holds(rank, stream):
            self._log(rank, stream, data)
        if stream == 2:
            self.last_words[rank] = (self.last_words.get(rank, b"") + data)[-_LAST_WORDS:]
        if not is_hidden:
            self.screen.feed(rank, stream, data)

    def _log(self, rank: int, stream: int, data: bytes) -> None:
        file, view = self._file(rank, stream), memoryview(data)
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError as error:
            raise self._error(rank, error) from error

    def _error(self, rank: int, error: OSError) -> LogFileError:
        remedy = "free space or name another --log-dir; the job has been ended"
        return LogFileError(
            f"rank {rank}'s log cannot be written", where=str(self.folder), got=str(error), remedy=remedy
        )

    def _file(self, rank: int, stream: int) -> int:
        key = (rank, stream)
        if key not in self._files:
            assert self.folder is not None
            folder = self.folder / str(rank)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND
                self._files[key] = os.open(folder / _NAMES[stream], flags, 0o644)
            except OSError as error:
                raise self._error(rank, error) from error
        return self._files[key]
