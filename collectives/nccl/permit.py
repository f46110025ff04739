"""Permits: when a collective of device arrays may be enqueued, and that all ranks mean the same by it.

In: roll calls over the host communicator. Out: `Permit`s, which are asked once they are done; and `TalliedGate`s.
A kernel of NCCL waits on the GPU, for ever, for ranks that never come, or that come with another size. So nothing is
enqueued before the ranks have told each other, over MPI, that all are there with the same call. DDP's buckets have one
roll call for all: the gate at the start of the backward. That a rank launched fewer of them than the others, because
an exception ended its backward half way, is seen at the next roll call of either kind: each carries the number of
collectives launched behind gates so far (the tally).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from collectives.call import CALL_LENGTH, DEVICE_WORDS, CollectiveCall, Stamp, Task
from collectives.errors import CollectiveError, CollectiveMismatchError
from collectives.mismatch import mismatch_error
from collectives.reduce import check_splits
from collectives.work import Gate, Rows, Work

if TYPE_CHECKING:
    from collectives.communicator import Communicator

STAMP = CALL_LENGTH
NEEDED, TALLY = STAMP + 3, STAMP + 4


class Tally:
    """How many collectives this rank launched behind gates that passed, or may still pass."""

    def __init__(self, where: str) -> None:
        self.where, self.count = where, 0
        self.open: list[tuple[Gate, int]] = []

    def add(self, gate: Gate) -> None:
        """One more behind `gate`."""
        count = self.open.pop()[1] if self.open and self.open[-1][0] is gate else 0
        self.open.append((gate, count + 1))

    def drop(self, gate: Gate) -> None:
        """One that was added behind `gate` was given up."""
        for place, (other, count) in enumerate(self.open):
            if other is gate:
                self.open[place] = gate, count - 1
                return
        self.count -= bool(gate.passed)

    def now(self) -> int:
        """The tally; what gates that did not pass kept back does not count."""
        while self.open and self.open[0][0].passed is not None:
            gate, count = self.open.pop(0)
            self.count += count if gate.passed else 0
        return self.count + sum(count for _, count in self.open)

    def compare(self, counts: Sequence[int]) -> None:
        """Raise CollectiveMismatchError unless all ranks launched equally many."""
        if len(set(counts)) > 1:
            said = "; ".join(f"rank {rank}: {count}" for rank, count in enumerate(counts))
            raise CollectiveMismatchError(
                "ranks launched different numbers of buckets on their GPUs before this",
                where=self.where,
                expected="as many on every rank: each backward to its end, or on no rank",
                got=said,
                remedy="look for an exception that was caught in the middle of a backward, on the ranks with fewer",
            )


class TalliedGate(Gate):
    """A gate that also compares the tally, as its last word, which is not shown."""

    def __init__(self, work: Work, agree: int, tally: Tally, fail: Callable[[CollectiveError], None]) -> None:
        """fail: ends what is in flight, which waits for what other ranks never launched."""
        super().__init__(work, agree)
        self.tally, self.fail = tally, fail

    def wait(self, timeout_s: float | None = None) -> Rows:
        super().wait(timeout_s)
        self.check()
        return tuple(row[:-1] for row in self.work.rows)

    def check(self) -> None:
        """Compare what is there. Raises CollectiveMismatchError, on all ranks alike."""
        try:
            self.tally.compare([row[-1] for row in self.work.rows])
        except CollectiveMismatchError as error:
            self.fail(error)
            raise


class Permit:
    """What must be known before a task is enqueued: its gate has passed, and its own roll call was answered alike.

    works: done when all is known. splits: of an uneven all-to-all, what all ranks send and receive.
    """

    def __init__(
        self, gate: Gate | None, roll: Work | None, task: Task, tally: Tally, splits: Splits | None = None
    ) -> None:
        self.gate, self.roll, self.tally, self.splits = gate, roll, tally, splits
        self.label = str(task)
        self.works = [work for work in (gate.work if gate is not None else None, roll) if work is not None]
        if splits is not None:
            self.works.append(splits.work)

    def is_known(self) -> bool:
        """Whether the answer is there. Never blocks."""
        return all(work.is_done() for work in self.works)

    def wait(self, timeout_s: float | None) -> None:
        """Return when it is. Raises what the roll call raises."""
        for work in self.works:
            work.wait(timeout_s)

    def withdraw(self) -> None:
        """The task was given up: it is not launched, as far as other ranks are concerned."""
        if self.gate is not None and self.roll is None:
            self.tally.drop(self.gate)

    @property
    def phase(self) -> str:
        return next((work.phase for work in self.works if not work.is_done()), "about to be enqueued")

    def is_given(self) -> bool:
        """Once it is known: whether the task is to run; if not, it is skipped on all ranks.

        Raises CollectiveMismatchError if ranks mean different things, and what the roll call ended with.
        """
        self.wait(0.0)
        if self.gate is not None:
            if isinstance(self.gate, TalliedGate):
                self.gate.check()
            if not self.gate.passed:
                return False
        if self.roll is None:
            return True
        rows = self.roll.rows
        check_same(rows, self.label)
        self.tally.compare([row[TALLY] for row in rows])
        if self.splits is not None:
            self.splits.check()
        return any(row[NEEDED] for row in rows)


class Splits:
    """What each rank sends to, and receives from, each: told to all behind the roll call."""

    def __init__(self, host: Communicator, task: Task) -> None:
        assert task.splits is not None
        mine = np.array([*task.splits[0], *task.splits[1]], np.int64)
        self.table = np.zeros((host.world_size, 2, host.world_size), np.int64)
        self.work = host.all_gather_async(self.table, mine, label=f"splits of {task}")

    def check(self) -> None:
        """Raise CollectiveMismatchError unless each rank expects what the others send."""
        check_splits([(tuple(sent), tuple(received)) for sent, received in self.table.tolist()])


def roll_call(host: Communicator, task: Task, tally: Tally) -> Work:
    """Have the ranks tell each other what they are about to do."""
    words = (*task.call.code, *task.stamp.encode(), int(task.needed), tally.now())
    assert len(words) == DEVICE_WORDS
    return host.open_gate(words, 0, label=str(task)).work


def check_same(rows: Rows, label: str) -> None:
    """Raise CollectiveMismatchError unless all ranks said the same call and stamp."""
    said = [row[:NEEDED] for row in rows]
    if len(set(said)) > 1:
        error = mismatch_error([(CollectiveCall.decode(row[:STAMP]), Stamp(*row[STAMP:])) for row in said])
        error.add_note(f"this rank entered {label}")
        raise error
