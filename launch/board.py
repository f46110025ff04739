"""The status board: what one rank is doing, in a small mapped file that others can read while it runs, stopped or dead.

In: writes by the rank (microseconds, no system call). Out: `Snapshot`, and `sentence`, which says it in words.
The file is SIZE bytes. Its int64 words, in the machine's byte order:
    0 magic   1 process   2 rank   3 beat   4 end of the texts, in bytes   5 compiled   6 hang   7 spare
    8 + 8 r   record r, a cache line: sequence, phase, since, step, bucket, segment, label, text
Records: 0 main thread, 1 communication, 2 last exception, 3 the user's line. -1: no such number. `since`, `beat` and
`compiled` (when the last compile step ended, 0: none did) are CLOCK_MONOTONIC nanoseconds, the same for all processes
of a host; a thread renews `beat`. `label`, `text` and `hang`
are places of texts (byte offset, 0: none), which are appended from TEXTS on: length as int64, UTF-8, padded to 8. When
one half of that room is full the other is written anew, and what records still show is written there first.
Invariants: a record has one writer, which makes `sequence` odd while it writes (a seqlock): a reader tries again, and
takes what is there of a writer that stopped half way. A text that a record shows is never overwritten.
It lies here because a launcher makes a rank's board before the program begins and reads it after the program died; of
launch it is what distcompile imports, and all that it imports.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass, replace
from enum import IntEnum

MAGIC = 0x3144_5242_4344
SIZE = 1 << 16
TEXTS = 1024
MIDDLE = TEXTS + (SIZE - TEXTS) // 2
LONGEST_TEXT = 400  # bytes
STALE_NS = 3_000_000_000
_RECORD = struct.Struct("=7q")
_READ_TRIES = 50
_SHOWN = (6, *(8 + 8 * record + word for record in range(4) for word in (6, 7)))  # words that are places of texts


class Phase(IntEnum):
    """What a record says is being done."""

    STARTING = 0
    IMPORTING = 1
    USER_CODE = 2
    COMPILING = 3
    FORWARD = 4
    BACKWARD = 5
    WAITING = 6
    OPTIMIZER = 7
    EXCEPTION = 8
    FINISHED = 9
    MOVING_DATA = 10
    CHECKPOINT = 11


class Where(IntEnum):
    """Which record."""

    MAIN = 0
    COMMUNICATION = 1
    EXCEPTION = 2
    LINE = 3


class BoardError(RuntimeError):
    """A file that is not a status board."""


def now_ns() -> int:
    """The board's clock."""
    return time.monotonic_ns()


class Board:
    """The writing end, over a mapped file of SIZE bytes. `process`, `rank`: written down if the board is new."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.words = memoryview(memory).cast("q")
        self.texts: dict[str, int] = {"": 0}
        self.lock = threading.Lock()

    def begin(self, rank: int) -> None:
        """A new board, of this process."""
        self.words[4] = TEXTS
        self.words[1], self.words[2], self.words[3] = os.getpid(), rank, now_ns()
        self.write(Where.MAIN, Phase.STARTING, now_ns())
        self.words[0] = MAGIC

    def write(
        self,
        record: int,
        phase: int,
        since_ns: int,
        step: int = -1,
        bucket: int = -1,
        segment: int = -1,
        label: int = 0,
        text: int = 0,
    ) -> None:
        """Replace a record. label, text: from `place`."""
        words, base = self.words, 8 + 8 * record
        sequence = words[base] | 1
        words[base] = sequence
        _RECORD.pack_into(self.memory, 8 * base + 8, phase, since_ns, step, bucket, segment, label, text)
        words[base] = sequence + 1

    def place(self, text: str) -> int:
        """Where `text` stands among the board's texts; appended if it does not."""
        found = self.texts.get(text)
        if found is not None:
            return found
        with self.lock:
            raw = text.encode()[:LONGEST_TEXT]
            if self.words[4] + 8 + len(raw) + 8 > (MIDDLE if self.words[4] < MIDDLE else SIZE):
                self._turn_over()
            return self._append(text, raw)

    def _append(self, text: str, raw: bytes) -> int:
        start: int = self.words[4]
        self.memory[start : start + 8 + len(raw)] = struct.pack("q", len(raw)) + raw
        self.words[4] = start + 8 + (len(raw) + 7) // 8 * 8
        self.texts[text] = start
        return start

    def _turn_over(self) -> None:
        """Go on in the other half. What is shown is taken along; old places hold until that half is full too."""
        shown = [(word, text_at(self.memory, self.words, self.words[word])) for word in _SHOWN]
        self.texts = {"": 0}
        self.words[4] = MIDDLE if self.words[4] < MIDDLE else TEXTS
        for word, text in shown:
            if text:
                self.words[word] = self.texts.get(text) or self._append(text, text.encode())

    def beat(self) -> None:
        """This process is alive and was given a core."""
        self.words[3] = now_ns()

    def compiled(self) -> None:
        """A compile step ended."""
        self.words[5] = now_ns()

    def exception(self, summary: str, where: str, step: int) -> None:
        """The rank is about to end, or left a step, by an exception. where: `train.py:88`, the user's innermost."""
        label, text = self.place(summary), self.place(where)
        self.write(Where.EXCEPTION, Phase.EXCEPTION, now_ns(), step, label=label, text=text)

    def hang(self, text: str) -> None:
        """This rank's watchdog says that the job hangs; "" takes that back."""
        self.words[6] = self.place(text)


def create(path: str, rank: int) -> Board:
    """A new board in a new file. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_TRUNC, 0o600)
    try:
        board = create_in(descriptor, rank)
    finally:
        os.close(descriptor)
    return board


def create_in(descriptor: int, rank: int) -> Board:
    """A new board in an open, empty file. Raises OSError."""
    os.ftruncate(descriptor, SIZE)
    board = Board(mmap.mmap(descriptor, SIZE))
    board.begin(rank)
    return board


def reopen(path: str) -> Board:
    """The writing end of a board that this process, or its launcher's part, made. Raises OSError, BoardError."""
    reader = Reader.open(path, writes=True)
    board = Board(reader.memory)
    board.texts.update({text: place for place, text in reader.all_texts()})
    return board


@dataclass(frozen=True, slots=True)
class Record:
    """One record. label: what is compiled, waited for, or raised. text: missing ranks, or a place in the source."""

    phase: Phase
    since_ns: int
    step: int
    bucket: int
    segment: int
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A board as it was at one moment. exception: None if there was none. hang: what its watchdog says, or ""."""

    process: int
    rank: int
    beat_ns: int
    compiled_ns: int
    hang: str
    main: Record
    communication: Record
    exception: Record | None
    line: str

    def is_stale(self, now: int) -> bool:
        """Whether no thread of the process has come to write its beat for some seconds."""
        return self.main.phase is not Phase.FINISHED and now - self.beat_ns > STALE_NS

    def sentence(self, now: int) -> str:
        """What the rank does, since when, and whether it is alive. now: `now_ns()` of the same host."""
        main, other = self.main, self.communication
        if main.phase is Phase.WAITING and not main.text and other.phase is Phase.WAITING:
            main = replace(main, text=other.text)  # the communication thread knows for whom
        text = f"rank {self.rank} {_doing(main, now)}"
        if self.line and main.phase not in (Phase.FINISHED, Phase.STARTING):
            text += f", at {self.line}"
        if self.exception is not None:
            text = f"{left(self.rank, self.exception)}; it {_doing(main, now)}"
        if self.is_stale(now):
            text += f"; no sign of life for {(now - self.beat_ns) / 1e9:.0f} s: stopped, starved of a core, or gone"
        return text


def left(rank: int, exception: Record) -> str:
    """How an exception is told."""
    step = f"left step {exception.step}" if exception.step >= 0 else "ended"
    at = f" at {exception.text}" if exception.text else ""
    return f"rank {rank} {step} after an exception{at}: {exception.label}"


_VERBS = {
    Phase.STARTING: "has been starting",
    Phase.IMPORTING: "has been importing",
    Phase.USER_CODE: "has been in the program's own code",
    Phase.COMPILING: "has been compiling",
    Phase.FORWARD: "has been in the forward",
    Phase.BACKWARD: "has been in the backward",
    Phase.WAITING: "has been waiting",
    Phase.OPTIMIZER: "has been in the optimizer's step",
    Phase.EXCEPTION: "has been ending after an exception",
    Phase.FINISHED: "has finished",
    Phase.MOVING_DATA: "has been moving data",
    Phase.CHECKPOINT: "has been at a checkpoint",
}


def _doing(record: Record, now: int) -> str:
    """`has been compiling segment 2 of GPT_backward for 41 s, step 57`."""
    text = _VERBS[record.phase]
    if record.phase is Phase.FINISHED:
        return text
    if record.phase is Phase.WAITING and record.text:
        text += f" for rank(s) {record.text}"
    compiles = record.phase is Phase.COMPILING
    if record.segment >= 0:
        text += f"{'' if compiles else ','} segment {record.segment}{' of' if compiles else ''}"
    if record.label:
        text += f" {record.label}" if compiles else f" in {record.label}"
    text += f" for {max(0, now - record.since_ns) / 1e9:.0f} s"
    when = "after step" if record.phase is Phase.USER_CODE else "step"
    return f"{text}, {when} {record.step}" if record.step >= 0 else text


class Reader:
    """The reading end; keeps working when the writer is stopped, dead, or its file is gone."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.words = memoryview(memory).cast("q")
        if self.words[0] != MAGIC:
            raise BoardError("not a status board, or one that is just being made")

    @staticmethod
    def open(path: str, *, writes: bool = False) -> Reader:
        """Map the board at `path`. Raises OSError, BoardError."""
        descriptor = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size != SIZE:
                raise BoardError(f"{path}: a status board has {SIZE} bytes")
            access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
            return Reader(mmap.mmap(descriptor, SIZE, access=access))
        finally:
            os.close(descriptor)

    def snapshot(self) -> Snapshot:
        """The board now."""
        words = self.words
        exception = self._record(Where.EXCEPTION)
        return Snapshot(
            process=words[1],
            rank=words[2],
            beat_ns=words[3],
            compiled_ns=words[5],
            hang=self._text(words[6]),
            main=self._record(Where.MAIN),
            communication=self._record(Where.COMMUNICATION),
            exception=exception if exception.phase is Phase.EXCEPTION else None,
            line=self._record(Where.LINE).text,
        )

    def all_texts(self) -> list[tuple[int, str]]:
        """Every text of the half in use, with its place."""
        found, place = [], TEXTS if self.words[4] < MIDDLE else MIDDLE
        while place < self.words[4]:
            text = self._text(place)
            found.append((place, text))
            place += 8 + (self.words[place // 8] + 7) // 8 * 8
        return found

    def _record(self, record: int) -> Record:
        base = 8 + 8 * record
        for _ in range(_READ_TRIES):
            row = self.words[base : base + 8].tolist()
            if row[0] % 2 == 0 and self.words[base] == row[0]:
                break
            time.sleep(0.001)
        _, phase, since_ns, step, bucket, segment, label, text = row
        known = Phase(phase) if phase in Phase.__members__.values() else Phase.USER_CODE
        return Record(known, since_ns, step, bucket, segment, self._text(label), self._text(text))

    def _text(self, place: int) -> str:
        return text_at(self.memory, self.words, place)


def text_at(memory: mmap.mmap, words: memoryview, place: int) -> str:
    """The text at `place`; "" if that is not the place of one."""
    if not TEXTS <= place < SIZE - 8 or place % 8:
        return ""
    length = min(max(words[place // 8], 0), SIZE - 8 - place)
    return bytes(memory[place + 8 : place + 8 + length]).decode(errors="replace")


def read(path: str) -> Snapshot:
    """The board at `path`, now. Raises OSError, BoardError."""
    return Reader.open(path).snapshot()
