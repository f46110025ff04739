"""Record what collectives gave a rank, and play it back to that rank alone, in one process, under a debugger.

In: a communicator and a path; later the file. Out: `RecordingCommunicator`, which does what the inner one does and
writes every result; `ReplayCommunicator`, which gives the same results back without any other rank.
The replay names what went another way: a collective that was not the recorded one is an error (`ReplayError`); data
that this rank contributed and that are not the recorded bits are listed in `differences`, with bucket and step.
Recording waits for every collective when it is launched (or released): it shows results, not overlap.
File: a header line, then records: a line of JSON, then as many bytes as it says; each record carries a digest. What
`all_gather_object` gave is pickled: replay only files of your own.
Limits: no messages between two ranks and no subgroups in a recording.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from collectives import Communicator, Gate, Work
from collectives.call import Array, Task
from collectives.work import LocalWork
from distcompile.errors import NotSupportedError
from distcompile.parity.errors import RecordingFileError, ReplayError

MAGIC = "distcompile collectives 1"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Record:
    """One collective as it was. call, label: its text. source: digest of what this rank gave. data: what came."""

    call: str
    label: str
    source: str
    skipped: bool
    rows: tuple[tuple[int, ...], ...]
    data: bytes


def digest(data: bytes) -> str:
    """Sixteen hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def contribution(task: Task, rank: int) -> bytes:
    """What `rank` gives to a collective; nothing to another rank's broadcast."""
    if task.words:
        return repr(task.words).encode()
    is_receiver = task.call.kind in ("broadcast", "scatter") and task.call.root != rank
    return b"" if is_receiver else task.source.tobytes()


class RecordingCommunicator(Communicator):
    """`inner`, and everything that it gave this rank, in the file `path` once closed (or `flush`ed)."""

    def __init__(self, inner: Communicator, path: str | Path) -> None:
        self.inner, self.path = inner, Path(path)
        self.rank, self.world_size, self.transport = inner.rank, inner.world_size, inner.transport
        self.timeout_s = inner.timeout_s
        self.records: list[Record] = []

    def launch(self, task: Task) -> Work:
        inner_task = task
        if task.gate is not None and isinstance(task.gate.work, _Observed):
            inner_task = replace(task, gate=Gate(task.gate.work.inner, task.gate.agree))
        given = "" if task.held else digest(contribution(task, self.rank))  # before anything is written there
        return _Observed(self, task, self.inner.launch(inner_task), given)

    def keep(self, record: Record) -> None:
        """Add a record."""
        self.records.append(record)

    def _objects(self, name: str, given: Any, received: Any) -> None:
        self.keep(Record(name, "", digest(pickle.dumps(given)), False, (), pickle.dumps(received)))

    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        received = self.inner.all_gather_object(value, timeout_s=timeout_s)
        self._objects("all_gather_object()", value, received)
        return received

    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        received = self.inner.broadcast_object(value, root=root, timeout_s=timeout_s)
        self._objects("broadcast_object()", value, received)
        return received

    def launch_send(self, array: Array, peer: int, tag: int) -> Work:
        raise NotSupportedError("a recording holds no messages between two ranks")

    def launch_receive(self, array: Array, peer: int | None, tag: int) -> Work:
        raise NotSupportedError("a recording holds no messages between two ranks")

    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        raise NotSupportedError("a recording holds no subgroups: record the subgroup's own communicator")

    def allocate(self, numel: int, dtype: np.dtype[Any]) -> Array:
        return self.inner.allocate(numel, dtype)

    def flush(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        header = {"rank": self.rank, "world_size": self.world_size, "records": len(self.records)}
        with temporary.open("wb") as file:
            file.write(f"{MAGIC} {json.dumps(header)}\n".encode())
            for record in self.records:
                facts = asdict(record) | {"data": len(record.data), "digest": digest(record.data)}
                file.write(json.dumps(facts).encode() + b"\n" + record.data + b"\n")
        temporary.replace(self.path)

    def close(self) -> None:
        self.flush()
        self.inner.close()

    def abort(self, exit_code: int = 1) -> None:
        self.flush()
        self.inner.abort(exit_code)


class _Observed(LocalWork):
    """A Work of the inner communicator, recorded when it has ended: at once, or when it is released."""

    def __init__(self, owner: RecordingCommunicator, task: Task, inner: Work, given: str) -> None:
        super().__init__(str(task), rank=owner.rank, nbytes=inner.nbytes, timeout_s=inner.timeout_s, held=task.held)
        self.owner, self.task, self.inner = owner, task, inner
        if not task.held:
            self._end(given)
        else:
            self.on_release = self._released_now

    def _released_now(self) -> None:
        given = digest(contribution(self.task, self.rank))
        if self.is_cancelled:
            self.inner.cancel()
        else:
            self.inner.release()
        self._end(given)

    def _end(self, given: str) -> None:
        self.inner.wait()
        received = b"" if self.inner.skipped else self.task.target.tobytes()
        self.skipped, self.rows = self.inner.skipped, self.inner.rows
        self.owner.keep(Record(str(self.task.call), self.task.label, given, self.skipped, self.rows, received))
        times = self.inner.times
        self._launched_s, self._started_s = times.launched_s, times.started_s
        self.finish(skipped=self.skipped)


class ReplayCommunicator(Communicator):
    """The rank of a recording, alone. differences: what this rank gave otherwise than when it was recorded."""

    transport = "replay"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        header, self.records = read_recording(self.path)
        self.rank, self.world_size = int(header["rank"]), int(header["world_size"])
        self.position = 0
        self.differences: list[str] = []

    def _next(self, call: str, label: str) -> Record:
        """The next record, which must be of this call."""
        number, self.position = self.position, self.position + 1
        if number >= len(self.records):
            raise ReplayError(f"{call} comes after the end of the recording", where=str(self.path))
        record = self.records[number]
        if (record.call, record.label) != (call, label):
            raise ReplayError(
                f"collective {number} is not the recorded one",
                where=str(self.path),
                expected=f"{record.label}: {record.call}",
                got=f"{label}: {call}",
                remedy="run the same program with the same arguments as when it was recorded",
            )
        return record

    def _notice(self, record: Record, given: bytes) -> None:
        if digest(given) != record.source:
            text = f"collective {self.position - 1} ({record.label or record.call}): this rank gave other data"
            self.differences.append(text)

    def launch(self, task: Task) -> Work:
        record = self._next(str(task.call), task.label)
        work = LocalWork(str(task), rank=self.rank, nbytes=task.target.nbytes, timeout_s=self.timeout_s, held=task.held)

        def end() -> None:
            self._notice(record, contribution(task, self.rank))
            if record.data:
                task.target[...] = np.frombuffer(record.data, task.target.dtype).reshape(task.target.shape)
            work.rows = record.rows
            work.finish(skipped=record.skipped)

        work.on_release = end
        if not task.held:
            end()
        return work

    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        received: list[T] = self._object("all_gather_object()", value)
        return received

    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        received: T = self._object("broadcast_object()", value)
        return received

    def _object(self, name: str, value: Any) -> Any:
        record = self._next(name, "")
        return pickle.loads(record.data)

    def launch_send(self, array: Array, peer: int, tag: int) -> Work:
        raise NotSupportedError("a recording holds no messages between two ranks")

    def launch_receive(self, array: Array, peer: int | None, tag: int) -> Work:
        raise NotSupportedError("a recording holds no messages between two ranks")

    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        raise NotSupportedError("a recording holds no subgroups")

    def close(self) -> None:
        """Nothing is held."""

    def abort(self, exit_code: int = 1) -> None:
        raise SystemExit(exit_code)


def read_recording(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """Header and records. Raises RecordingFileError for a file that is not one, is cut short, or is corrupt."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordingFileError("a recording cannot be read", where=str(path), got=str(error)) from error
    line, _, rest = content.partition(b"\n")
    if not line.startswith(MAGIC.encode()):
        raise RecordingFileError("this is no recording of collectives", where=str(path), expected=MAGIC)
    try:
        header = json.loads(line[len(MAGIC) :])
        records = []
        for _ in range(header["records"]):
            facts, _, rest = rest.partition(b"\n")
            record, rest = _read_record(json.loads(facts), rest)
            records.append(record)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordingFileError("a recording is cut short or corrupt", where=str(path), got=str(error)) from error
    return header, records


def _read_record(facts: dict[str, Any], rest: bytes) -> tuple[Record, bytes]:
    size = int(facts["data"])
    data = rest[:size]
    if len(data) != size or digest(data) != facts["digest"]:
        raise ValueError(f"record {facts['call']} does not have its digest")
    rows = tuple(tuple(row) for row in facts["rows"])
    return Record(facts["call"], facts["label"], facts["source"], facts["skipped"], rows, data), rest[size + 1 :]
