"""The native engine from Python: packs tasks, keeps their buffers alive, and puts its errors into words.

In: tasks, from any thread. Out: `NativeWork`. The C++ thread (native/) does everything between launch and completion;
it never takes the GIL, so it runs while Python computes.
Invariants: a task's buffers are referred to until it is done; the engine's memory outlives every Work (dc_drop frees
tasks only). The layout of a record is that of native/state.h.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from collectives.arena import NOWHERE, Arena, address_of
from collectives.call import GATE_WORDS, Array, CollectiveCall, Task
from collectives.errors import (
    ClosedError,
    CollectiveArgumentError,
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ForkedProcessError,
    RankFailedError,
    TransportError,
)
from collectives.host import Host
from collectives.native import EngineLibrary, refusing
from collectives.native_work import DONE, NativeWork
from collectives.observer import current
from collectives.over_mpi.kept import keep_for_ever
from collectives.over_mpi.rollcall import LENGTH, check_rows
from collectives.programs import MessageProgram, program_of
from collectives.reduce import check_splits
from collectives.work import GRACE_S, Work

STAGE_NBYTES = 256 << 10
HELD, QUIET = 1, 2
RECORD = Struct("=48q")
PADDING = (0,) * 5  # after a gate's words, to the end of the row
NO_WORDS = (0,) * GATE_WORDS
NO_PROGRAM = (0, 0, 0, 0)
FINE, MISMATCH, LATE, STUCK, MPI_FAILED, PEER_DIED, PEER_FAILED, OUT_OF_REACH, CLOSED_EARLY, NO_MEMORY, SPLITS = range(
    11
)


class NativeEngine:
    """Runs the tasks of one MPI communicator.

    host: what its ranks share if they are on one host, else None. world: each rank's number in the world.
    """

    def __init__(
        self, comm: Any, mpi: Any, library: EngineLibrary, host: Host | None, *, world: Sequence[int], timeout_s: float
    ) -> None:
        self.library, self.host, self.mpi, self.world = library, host, mpi, world
        self.rank, self.world_size, self.timeout_s = comm.Get_rank(), comm.Get_size(), timeout_s
        self.where = f"rank {self.rank} of {self.world_size}"
        self.arena = Arena() if host is not None else None
        self.pending: deque[NativeWork] = deque()
        self.settling = threading.Lock()
        self.held: weakref.WeakSet[NativeWork] = weakref.WeakSet()
        self.failed: CollectiveError | None = None
        self.is_closed = False
        self.farewell: Work | None = None
        settings = (
            self.rank, self.world_size, _limit_ns(timeout_s),
            int(host is None or host.has_core_for_each), 0 if host is None else host.address, STAGE_NBYTES,
            *functions_of(mpi), mpi._handleof(comm), mpi._handleof(mpi.BYTE),
        )  # fmt: skip
        words = (ctypes.c_int64 * len(settings))(*settings)
        processes = (ctypes.c_int64 * self.world_size)(*((0,) * self.world_size if host is None else host.processes))
        self.pointer: int = library.calls.dc_open(words, processes)
        if not self.pointer:
            raise TransportError("the communication thread could not be started", where=self.where)
        self.error_code = ctypes.c_int32.from_address(self.pointer)

    def allocate(self, nbytes: int) -> Array | None:
        """Shared bytes, zeroed; None if ranks share no memory."""
        return None if self.arena is None else self.arena.allocate(nbytes)

    @property
    def broken(self) -> CollectiveError | None:
        """Why nothing can be launched any more."""
        return self.failure() if self.error_code.value else None

    # -- launching

    def launch(self, task: Task, *, quiet: bool = False) -> Work:
        """Queue `task`. quiet: who launches it waits for it at once, and drives it."""
        if self.pending:
            self.settle()
        call, target, nbytes = task.call, task.target, task.nbytes
        table = self._exchange_splits(task) if call.kind == "all_to_all_uneven" else None
        program = self._program(task)
        address = address_of(target)
        place = NOWHERE if self.arena is None else self.arena.locate(address, target.nbytes)
        record = RECORD.pack(
            0, *call.code, *task.stamp.encode(), task.needed, *place, *_padded(task.words), *PADDING,
            address if task.source is target else address_of(task.source), address,
            0 if task.gate is None else self._gate(task), call.root, HELD * task.held | QUIET * quiet,
            *(NO_PROGRAM if program is None else program.words), nbytes,
            0 if table is None else address_of(table), 0, 0, 0, 0, 0,
        )  # fmt: skip
        pointer = self.library.quick.dc_launch(self.pointer, record)
        if not pointer:
            raise MemoryError(f"no memory for {task}")
        work = NativeWork(self, task, pointer, nbytes, program, table)
        self.pending.append(work)
        if task.held:
            self.held.add(work)
        return work

    def _program(self, task: Task) -> MessageProgram | None:
        """Needed where messages move the data: between hosts, and for parts of different sizes."""
        if task.call.kind in ("gate", "barrier", "close") or (self.host is not None and task.splits is None):
            return None
        return program_of(task.call, self.rank, self.world_size, task.splits)

    def _gate(self, task: Task) -> int:
        assert task.gate is not None
        work = task.gate.work
        if not isinstance(work, NativeWork) or work.engine is not self:
            raise CollectiveArgumentError("the gate belongs to another communicator", where=self.where, got=str(task))
        return work.pointer

    def _exchange_splits(self, task: Task) -> Array:
        """All ranks' splits, i64[world, 2 world], filled by an all-gather launched here: compared before data move."""
        assert task.splits is not None
        mine = np.array([*task.splits[0], *task.splits[1]], np.int64)
        table = np.zeros((self.world_size, mine.size), np.int64)
        call = CollectiveCall("all_gather", dtype="int64", count=mine.size)
        self.launch(Task(call, mine, table.reshape(-1), f"splits of {task}", stamp=task.stamp, gate=task.gate))
        return table

    # -- completion

    def settle(self) -> None:
        """Let go of the buffers of works that are done. If another thread is at it, that will do."""
        if not self.settling.acquire(blocking=False):
            return
        try:
            while self.pending and self.pending[0].view.state == DONE:
                if self.pending[0].view.error:
                    self.failure()
                work = self.pending.popleft()
                if work.failed_while_mpi_moved:
                    keep_for_ever(work.task)  # MPI may still write its arrays
                work.task = None
        finally:
            self.settling.release()

    def wait(self, pointer: int, limit_s: float) -> bool:
        """Whether the task is done within `limit_s` seconds; this thread drives it meanwhile if no other does."""
        return bool(self.library.calls.dc_wait(self.pointer, pointer, int(limit_s * 1e9)))

    def excuse(self) -> None:
        """The present roll call's time limit starts anew."""
        self.library.quick.dc_excuse(self.pointer)

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child, where the engine's thread is not: no native function is called any more."""
        self.failed, self.library, self.settling = error, refusing(error), threading.Lock()

    def give_up(self, error: CollectiveError) -> None:
        """End the task under way, and all later ones, with `error`. Ranks that meet nobody here learn that it ends."""
        if self.failed is None and not self.error_code.value and not self.pending and self.farewell is None:
            self._say_farewell()
            for work in list(self.pending):  # none, if all ranks are here already
                self.wait(work.pointer, 1e-3)
        self.failed = self.failed or error
        self.library.calls.dc_abandon(self.pointer, isinstance(error, CollectiveTimeoutError))

    def missing(self) -> list[int]:
        """The ranks that the present roll call waits for."""
        if self.is_closed:
            return []
        ranks = (ctypes.c_int64 * self.world_size)()
        return list(ranks[: self.library.quick.dc_missing(self.pointer, ranks)])

    def failure(self) -> CollectiveError:
        """What the engine failed of, in words; the same exception each time."""
        if self.failed is None:
            detail, rows = (ctypes.c_int64 * 4)(), np.zeros((self.world_size, LENGTH), np.int64)
            code = self.library.quick.dc_error(self.pointer, detail, rows.ctypes.data)
            culprit = next((work for work in list(self.pending) if work.pointer == detail[3]), None)
            self.failed = self._describe(code, detail[0], detail[1], rows, culprit)
        return self.failed

    def _describe(self, code: int, a: int, b: int, rows: Array, work: NativeWork | None) -> CollectiveError:
        what = "a collective" if work is None else work.what
        if code == MISMATCH and work is not None:
            try:
                check_rows(rows, self.rank, work.call, what)
            except CollectiveError as error:
                return error
        if code == LATE and work is not None:
            return work.late_error(self.timeout_s, self.missing())
        if code == SPLITS and work is not None and work.table is not None:
            return _splits_error(work.table, self.world_size)
        text, kind = _TEXTS[code]
        if code == PEER_FAILED and b in (LATE, STUCK):
            text, kind = "rank {a} gave up at its time limit while rank {rank} was in {what}", CollectiveTimeoutError
            current().gave_up(what, self.world[a])
        return kind(
            text.format(what=what, rank=self.rank, a=a, limit=self.timeout_s),
            where=self.where,
            got=self._got(code, a, b),
            remedy="see the output of the other ranks" if kind is not ClosedError else "",
        )

    def _got(self, code: int, a: int, b: int) -> str:
        if code == STUCK:
            return f"waiting for rank(s) {self.missing()}"
        if code == MPI_FAILED:
            return f"MPI: {self.mpi.Get_error_string(a)}"
        if code == PEER_DIED:
            return current().doing([self.world[a]])
        if code == PEER_FAILED:
            kind = f"{_TEXTS[b][1].__name__} there" if b in _TEXTS else ""
            return "; ".join(filter(None, (kind, current().doing([self.world[a]]))))
        return f"errno {b}" if code == OUT_OF_REACH else ""

    # -- the end

    def release(self, pointer: int, *, cancels: bool) -> None:
        """Let a held task start, or give it up."""
        if not self.is_closed:
            self.library.quick.dc_release(self.pointer, pointer, cancels)

    def set_timeout(self, timeout_s: float) -> None:
        """The limit of waits that give none, from now on."""
        if timeout_s != self.timeout_s:
            self.timeout_s = timeout_s
            self.library.quick.dc_limit(self.pointer, _limit_ns(timeout_s))

    def leave(self) -> None:
        """Give up what is held, and tell the other ranks, behind what is queued, that this one ends."""
        for work in list(self.held):
            work.cancel()
        if not self.error_code.value:
            self._say_farewell()

    def _say_farewell(self) -> None:
        empty = np.empty(0, np.uint8)
        self.farewell = self.launch(Task(CollectiveCall("close"), empty, empty))

    def stop(self, timeout_s: float) -> None:
        """After `leave`: finish what is queued, and end the thread."""
        if self.farewell is not None:
            self._await_farewell(self.farewell, timeout_s)
        self.library.calls.dc_join(self.pointer)
        self.settle()
        self.failed = self.failure() if self.error_code.value else None
        self.error_code = ctypes.c_int32(self.error_code.value)
        self.is_closed = True
        self.library.calls.dc_free(self.pointer)
        if self.arena is not None:
            self.arena.close()

    def _await_farewell(self, work: Work, timeout_s: float) -> None:
        try:
            work.wait(timeout_s)
        except CollectiveTimeoutError:
            self.library.calls.dc_abandon(self.pointer, True)
        except CollectiveError:
            return  # kept in `failed`; the communicator raises it where somebody asks


_TEXTS: dict[int, tuple[str, type[CollectiveError]]] = {
    MISMATCH: ("{what}: ranks met in different collectives", CollectiveMismatchError),
    LATE: ("{what}: not all ranks came within {limit:g} s", CollectiveTimeoutError),
    STUCK: ("{what}: ranks stopped in the middle, for {limit:g} s", CollectiveTimeoutError),
    MPI_FAILED: ("MPI failed in {what}", TransportError),
    PEER_DIED: ("the process of rank {a} ended while rank {rank} was in {what}", RankFailedError),
    PEER_FAILED: ("rank {a} gave up after an error of its own while rank {rank} was in {what}", RankFailedError),
    OUT_OF_REACH: ("the shared memory of rank {a} could not be opened for {what}", TransportError),
    CLOSED_EARLY: ("the communicator was closed before {what} was done", ClosedError),
    NO_MEMORY: ("no memory for {what}", TransportError),
}


def _padded(words: tuple[int, ...]) -> tuple[int, ...]:
    return (*words, *NO_WORDS[len(words) :]) if words else NO_WORDS


def _limit_ns(timeout_s: float) -> int:
    """The engine's own limit: a little later than that of a wait, which knows more of the missing ranks."""
    return min(int((timeout_s + GRACE_S) * 1e9), 1 << 62)


def _splits_error(table: Array, world: int) -> CollectiveError:
    """The error of an uneven all-to-all whose parts do not fit. table: i64[world, 2 world]."""
    rows = table.tolist()
    try:
        check_splits([(tuple(row[:world]), tuple(row[world:])) for row in rows])
    except CollectiveError as error:
        return error
    return TransportError("the engine and the definition of an all-to-all do not agree", got=str(rows))


def functions_of(mpi: Any) -> tuple[int, int, int]:
    """Addresses of MPI's functions, in the library that mpi4py loaded. Raises AttributeError or OSError."""
    library = ctypes.CDLL(mpi.__file__)
    functions = (library.MPI_Isend, library.MPI_Irecv, library.MPI_Test)
    isend, irecv, test = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return isend, irecv, test
