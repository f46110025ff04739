"""The threaded transport: N ranks as threads of one process, deterministic, for tests and for one rank alone.

In: tasks of all ranks, matched by order. Out: finished Works. There is no communication thread: a rank deposits its
task and goes on; whoever deposits last runs the collective for all (`reduce.perform`): timing never matters.
A rank that raises (see `run_ranks`) or closes fails every rank that needs it, with RankFailedError; nobody hangs.
`ThreadedWorld(1)` is how a program runs on one rank without MPI.
"""

from __future__ import annotations

import contextvars
import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from collectives.call import NO_STAMP, Array, CollectiveCall, Task
from collectives.communicator import Communicator
from collectives.errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    ForkedProcessError,
    RankFailedError,
)
from collectives.forked import belongs_to_rank
from collectives.mailbox import Letter, Mailbox
from collectives.mismatch import mismatch_error
from collectives.reduce import perform
from collectives.work import DEFAULT_TIMEOUT_S, LocalWork

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Exchange:
    """One object exchange under way: values by rank, and how many ranks took the result."""

    call: CollectiveCall
    values: dict[int, Any] = field(default_factory=dict)
    taken: int = 0


class ThreadedWorld:
    """What N ranks in one process share. `communicator(rank)` is rank's end of it. timeout_s: limit of every wait."""

    def __init__(self, world_size: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.world_size, self.timeout_s = world_size, timeout_s
        self.changed = threading.Condition()
        self.failure: CollectiveError | None = None
        self.waiting: list[deque[tuple[Task, LocalWork]]] = [deque() for _ in range(world_size)]
        self.exchanges: dict[int, _Exchange] = {}
        self.closed: set[int] = set()
        self.mailbox = Mailbox()
        self.subgroups: dict[tuple[int, tuple[int, ...]], ThreadedWorld] = {}
        belongs_to_rank(self)

    def communicator(self, rank: int) -> ThreadedCommunicator:
        return ThreadedCommunicator(self, rank)

    def fail(self, error: CollectiveError) -> None:
        """Break the world: every collective in flight, and every later one, ends with `error`."""
        with self.changed:
            self.failure = self.failure or error
            for queue in self.waiting:
                while queue:
                    queue.popleft()[1].finish(self.failure)
            self.mailbox.fail(self.failure)
            children = list(self.subgroups.values())
            self.changed.notify_all()
        for child in children:
            child.fail(self.failure)

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child, where the other ranks' threads are not: as `fail`, with a lock that nobody holds."""
        self.changed, self.failure = threading.Condition(), error
        works = [work for queue in self.waiting for _, work in queue]
        works += [letter.work for letter in self.mailbox.wanted]
        self.mailbox = Mailbox()
        for queue in self.waiting:
            queue.clear()
        for work in works:
            work.become_forked(error)

    def deposit(self, rank: int, task: Task, work: LocalWork) -> None:
        """Add rank's next task; run every collective that is complete now."""
        with self.changed:
            self.check_usable(rank)
            self.waiting[rank].append((task, work))
            self._advance()

    def released(self) -> None:
        """A held task was released, or given up: run what is complete now."""
        with self.changed:
            self._advance()

    def _advance(self) -> None:
        """Match the ranks' first tasks for as long as every rank has one that may start."""
        while True:
            for queue in self.waiting:
                while queue and _is_void(*queue[0]):
                    queue.popleft()[1].finish(skipped=True)
            if any(not queue or queue[0][1].is_held for queue in self.waiting):
                break
            self._match([queue.popleft() for queue in self.waiting])
        absent = [r for r, queue in enumerate(self.waiting) if not queue or queue[0][1].is_held]
        for queue in self.waiting:
            for _, pending in queue:
                if not pending.is_held:
                    pending.phase = f"waiting for rank(s) {absent}"

    def _match(self, arrived: list[tuple[Task, LocalWork]]) -> None:
        tasks = [task for task, _ in arrived]
        is_needed = any(task.needed for task in tasks)
        try:
            if len({(task.call, task.stamp) for task in tasks}) > 1:
                raise mismatch_error([(task.call, task.stamp) for task in tasks], [str(task) for task in tasks])
            for _, work in arrived:
                work.start()
                work.rows = tuple(task.words for task in tasks)
            if is_needed:
                perform(tasks)
        except CollectiveError as error:
            for _, work in arrived:
                work.finish(error)
            self.fail(error)
            return
        for _, work in arrived:
            work.finish(skipped=not is_needed)

    def check_usable(self, rank: int) -> None:
        if self.failure is not None:
            raise self.failure
        if rank in self.closed:
            raise ClosedError("this communicator is closed", where=f"rank {rank}")
        if self.closed:
            raise RankFailedError(
                f"rank(s) {sorted(self.closed)} closed the communicator",
                where=f"rank {rank}",
                remedy="make all ranks do the same number of steps",
            )

    def exchange(self, rank: int, sequence: int, call: CollectiveCall, value: Any, timeout_s: float) -> dict[int, Any]:
        """All ranks' values of the control channel's call number `sequence`, by rank."""
        with self.changed:
            self.check_usable(rank)
            entry = self.exchanges.setdefault(sequence, _Exchange(call))
            if entry.call != call:
                error = mismatch_error(
                    [(entry.call, NO_STAMP), (call, NO_STAMP)],
                    [str(entry.call), str(call)],
                    ranks=[next(iter(entry.values)), rank],
                )
                self.fail(error)
                raise error
            entry.values[rank] = value
            self.changed.notify_all()
            self._await(rank, call, entry, timeout_s)
            entry.taken += 1
            if entry.taken == self.world_size:
                del self.exchanges[sequence]
            return entry.values

    def _await(self, rank: int, call: CollectiveCall, entry: _Exchange, timeout_s: float) -> None:
        def is_over() -> bool:
            return len(entry.values) == self.world_size or self.failure is not None or bool(self.closed - {rank})

        arrived = self.changed.wait_for(is_over, timeout_s)
        if len(entry.values) == self.world_size:
            return
        if arrived:
            self.check_usable(rank)
        missing = sorted(set(range(self.world_size)) - entry.values.keys())
        raise CollectiveTimeoutError(
            f"{call} did not finish within {timeout_s:g} s", where=f"rank {rank}", got=f"waiting for rank(s) {missing}"
        )

    def close(self, rank: int) -> None:
        """Take rank out; whoever still waits for it gets RankFailedError."""
        with self.changed:
            self.closed.add(rank)
            stranded = [pair for queue in self.waiting for pair in queue]
            for queue in self.waiting:
                queue.clear()
            gone = RankFailedError(f"rank {rank} closed the communicator before the message came")
            self.mailbox.close(rank, gone)
            for task, work in stranded:
                work.finish(
                    RankFailedError(f"rank {rank} closed the communicator before {task}", where=f"rank {work.rank}")
                )
            self.changed.notify_all()


def _is_void(task: Task, work: LocalWork) -> bool:
    """Whether the first task of a queue is not to be run at all: its gate did not pass, or it was given up."""
    return work.is_cancelled or (task.gate is not None and task.gate.passed is False)


class ThreadedCommunicator(Communicator):
    """One rank's end of a ThreadedWorld."""

    transport = "threaded"

    def __init__(self, world: ThreadedWorld, rank: int) -> None:
        self.world, self.rank, self.world_size, self.timeout_s = world, rank, world.world_size, world.timeout_s
        self._exchanges = 0
        self._subgroups = 0

    def launch(self, task: Task) -> LocalWork:
        work = LocalWork(str(task), rank=self.rank, nbytes=task.nbytes, timeout_s=self.timeout_s, held=task.held)
        work.on_release = self.world.released
        self.world.deposit(self.rank, task, work)
        return work

    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        values = self._exchange(CollectiveCall("all_gather_object"), value, timeout_s)
        return [copy.deepcopy(values[rank]) for rank in range(self.world_size)]

    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        self._check_root(root)
        values = self._exchange(CollectiveCall("broadcast_object", root=root), value, timeout_s)
        received: T = copy.deepcopy(values[root])
        return received

    def launch_send(self, array: Array, peer: int, tag: int) -> LocalWork:
        work = self._message_work(f"send({array.dtype.name}[{array.size}], to rank {peer}, tag {tag})", array)
        work.peer = peer
        with self.world.changed:
            self.world.check_usable(self.rank)
            self.world.mailbox.send(Letter(self.rank, peer, tag, array.copy(), work))
        return work

    def launch_receive(self, array: Array, peer: int | None, tag: int) -> LocalWork:
        source = "any rank" if peer is None else f"rank {peer}"
        work = self._message_work(f"receive({array.dtype.name}[{array.size}], from {source}, tag {tag})", array)
        with self.world.changed:
            self.world.check_usable(self.rank)
            self.world.mailbox.receive(Letter(peer, self.rank, tag, array, work))
        return work

    def _message_work(self, what: str, array: Array) -> LocalWork:
        return LocalWork(what, rank=self.rank, nbytes=array.nbytes, timeout_s=self.timeout_s)

    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        members = self._agreed_members(ranks)
        self._subgroups += 1
        if self.rank not in members:
            return None
        with self.world.changed:
            key = (self._subgroups, members)
            child = self.world.subgroups.setdefault(key, ThreadedWorld(len(members), timeout_s=self.timeout_s))
        return ThreadedCommunicator(child, members.index(self.rank))

    def _exchange(self, call: CollectiveCall, value: Any, timeout_s: float | None) -> dict[int, Any]:
        self._exchanges += 1
        return self.world.exchange(
            self.rank, self._exchanges, call, value, self.timeout_s if timeout_s is None else timeout_s
        )

    def give_up(self, error: CollectiveError) -> None:
        self.world.fail(RankFailedError(f"rank {self.rank} gave up: {error.what}", where=f"rank {self.rank}"))

    def close(self) -> None:
        self.world.close(self.rank)

    def abort(self, exit_code: int = 1) -> None:
        """Fail all ranks; threads cannot be ended from outside."""
        self.world.fail(RankFailedError(f"rank {self.rank} aborted the job with exit code {exit_code}"))


class RankThread(threading.Thread):
    """A thread that is a rank: what a process has once, as its random generator, such a thread has for itself."""

    is_rank = True


def run_ranks(world_size: int, function: Callable[[Communicator], R], *, timeout_s: float = 60.0) -> list[R]:
    """Run `function(communicator)` on `world_size` threads and return the results by rank.

    Each thread starts from a copy of the caller's context variables. If a rank raises, the others' collectives end with
    RankFailedError, and the first exception is raised here, with a note of its rank. timeout_s: limit of every wait,
    and of the whole. Raises CollectiveTimeoutError if a rank does not end.
    """
    world = ThreadedWorld(world_size, timeout_s=timeout_s)
    results: dict[int, R] = {}
    raised: list[tuple[int, BaseException]] = []

    def run(rank: int) -> None:
        try:
            results[rank] = function(world.communicator(rank))
        except BaseException as error:  # noqa: BLE001 - handed to the caller below, whatever it is
            raised.append((rank, error))
            world.fail(
                RankFailedError(
                    f"rank {rank} raised {type(error).__name__}: {error}", remedy="see that rank's traceback"
                )
            )

    threads = [
        RankThread(target=contextvars.copy_context().run, args=(run, rank), name=f"rank {rank}", daemon=True)
        for rank in range(world_size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    if raised:
        rank, error = next(((r, e) for r, e in raised if not isinstance(e, RankFailedError)), raised[0])
        error.add_note(f"raised on rank {rank} of {world_size} (threaded)")
        raise error
    stuck = [thread.name for thread in threads if thread.is_alive()]
    if stuck:
        raise CollectiveTimeoutError(f"{', '.join(stuck)} did not end within {timeout_s:g} s")
    return [results[rank] for rank in range(world_size)]
