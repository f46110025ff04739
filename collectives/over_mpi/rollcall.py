"""Roll call: all ranks tell each other which collective they enter, before any data moves.

In: this rank's `CollectiveCall` and `Stamp`, its number in the sequence, and what it adds. Out: what each rank added,
once every rank entered the same collective.
Method: one 256-byte message to and from every other rank, over persistent point-to-point requests. It buys three things
that an MPI collective alone does not give: a rank that waits for a late one *sleeps* (an MPI wait burns its core); a
time-out names the ranks that are missing; and ranks that enter different collectives get a named error on all sides.
Limit: the cost grows with the number of ranks (about 2 us a rank); past a few hundred a tree would be better.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collectives.call import CALL_LENGTH, GATE_WORDS, NO_STAMP, Array, CollectiveCall, Stamp
from collectives.errors import CollectiveTimeoutError, RankFailedError, SlowRanksWarning
from collectives.mismatch import mismatch_error
from collectives.observer import ASK_EVERY_S, EXCUSED_S, LONG_WAIT_S, current
from collectives.over_mpi.kept import give_up, is_used

TAG = 7001
# a message, in int64 words: the sequence number; call and stamp, which are compared; what the rank adds
NEEDED = 1 + CALL_LENGTH + 3
CALL, STAMP, COMPARED = slice(1, 1 + CALL_LENGTH), slice(1 + CALL_LENGTH, NEEDED), slice(1, NEEDED)
# what is added: whether data are needed, where the buffer lies in shared memory, a gate's words
PLACE, WORDS = slice(NEEDED + 1, NEEDED + 5), slice(NEEDED + 5, NEEDED + 5 + GATE_WORDS)
LENGTH = 32
WARN_AFTER_S = 60.0
SPIN_S = 200e-6  # an awaited roll call yields the core, but does not sleep, this long
LONGEST_SLEEP_S = 500e-6  # between two looks; if somebody waits, the second of these;
LONGEST_AWAITED_SLEEP_S = 100e-6
CALLS_BEHIND_DATA = 16  # of MPI, in a look, where it has data to move first
SEE_THAT_RANK = "see the output of that rank; this one only needed it"
SLEEP_SHARE = 0.01  # or this share of the time waited so far, if that is more


class Backoff:
    """How long to leave the core between two looks for late ranks: short at first, longer the longer it takes.

    With `is_awaited()` (someone can do nothing else meanwhile) it starts by only yielding. stretched_s: no sleep gets
    longer for being one of a long wait; for data, of which MPI may move only a little at each look. Nor does any once
    data were given up that MPI still moves (kept.py).
    """

    def __init__(self, is_awaited: Callable[[], bool], *, stretched_s: float = math.inf) -> None:
        self.is_awaited, self.stretched_s = is_awaited, stretched_s
        self.sleep_s, self.began_s = 20e-6, time.perf_counter()

    def pause(self) -> None:
        sleep_s = self.next_s()
        if sleep_s:
            time.sleep(sleep_s)
        else:
            os.sched_yield()

    def next_s(self) -> float:
        """How long to sleep before the next look; 0: only yield."""
        waited_s, is_awaited = time.perf_counter() - self.began_s, self.is_awaited()
        if is_awaited and waited_s < SPIN_S:
            return 0.0
        longest_s = LONGEST_AWAITED_SLEEP_S if is_awaited else LONGEST_SLEEP_S
        stretched_s = 0.0 if is_used() else min(SLEEP_SHARE * waited_s, self.stretched_s)
        sleep_s = min(self.sleep_s, max(longest_s, stretched_s))
        self.sleep_s *= 1.3
        return sleep_s


class Patience:
    """When a wait is worth a warning, and when it is over. what: the collective, for messages.

    world: the number in the world of each rank of the group, by which the observer knows ranks.
    """

    def __init__(self, what: str, rank: int, timeout_s: float, world: Sequence[int]) -> None:
        self.what, self.rank, self.timeout_s, self.world = what, rank, timeout_s, world
        self.limit_s = timeout_s
        self.began_s, self.warned = time.perf_counter(), False
        self.observer, self.told, self.asked_s = current(), [-1], 0.0

    def check(self, missing: list[int]) -> None:
        """Tell and ask the observer; warn once after WARN_AFTER_S.

        Raises RankFailedError when a missing rank is known to be gone, and CollectiveTimeoutError after the time limit,
        unless a rank is still compiling.
        """
        waited_s = time.perf_counter() - self.began_s
        if waited_s < LONG_WAIT_S:
            return
        ranks = [self.world[r] for r in missing]
        if ranks != self.told:
            self.told = ranks
            self.observer.waiting(self.what, ranks)
        if waited_s - self.asked_s < ASK_EVERY_S and waited_s < self.limit_s:
            return
        self.asked_s = waited_s
        gone = self.observer.gone(ranks)
        if gone:
            raise RankFailedError(
                f"{self.what}: rank(s) {missing} will not come",
                where=f"rank {self.rank}",
                got=gone,
                remedy=SEE_THAT_RANK,
            )
        if waited_s > self.limit_s:
            if not self.observer.excuses(ranks, self.timeout_s):
                raise self._timeout_error(missing, ranks)
            self.limit_s = waited_s + EXCUSED_S
        if waited_s > WARN_AFTER_S and not self.warned:
            self.warned = True
            text = f"rank {self.rank} has waited {waited_s:.0f} s for rank(s) {missing} in {self.what}"
            warnings.warn("; ".join(filter(None, (text, self.observer.doing(ranks)))), SlowRanksWarning, stacklevel=2)

    def _timeout_error(self, missing: list[int], ranks: list[int]) -> CollectiveTimeoutError:
        doing = self.observer.timed_out(self.what, ranks)
        return CollectiveTimeoutError(
            f"{self.what}: not all ranks came within {self.timeout_s:g} s",
            where=f"rank {self.rank}",
            got="; ".join(filter(None, (f"rank(s) {missing} missing", doing))),
            remedy="those ranks are still computing, in another collective, or gone",
        )

    def end(self) -> None:
        """The wait is over, well or not."""
        if self.told != [-1]:
            self.observer.settled()


class RollCall:
    """The roll call of one (duplicated) MPI communicator. Use from one thread at a time."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self.mpi, self.rank, self.world_size = mpi, comm.Get_rank(), comm.Get_size()
        self.peers = [r for r in range(self.world_size) if r != self.rank]
        everyone = comm.Get_group()
        self.world = mpi.Group.Translate_ranks(everyone, list(range(self.world_size)), mpi.COMM_WORLD.Get_group())
        self.sequence = 0
        self.mine = np.zeros(LENGTH, np.int64)
        self.theirs = np.zeros((self.world_size, LENGTH), np.int64)
        self.receives = [comm.Recv_init(self.theirs[peer], source=peer, tag=TAG) for peer in self.peers]
        self.sends = [comm.Send_init(self.mine, dest=peer, tag=TAG) for peer in self.peers]
        self.is_receiving = False

    def missing(self) -> list[int]:
        """Ranks not yet heard in the present roll call."""
        return [peer for peer in self.peers if self.theirs[peer, 0] != self.sequence]

    def gather(
        self,
        call: CollectiveCall,
        what: str,
        *,
        timeout_s: float,
        is_awaited: Callable[[], bool],
        tell: Callable[[str], None],
        stamp: Stamp = NO_STAMP,
        added: Sequence[int] = (),
    ) -> Array:
        """Return when every rank entered `call`: all ranks' messages, i64[world, LENGTH], by rank.

        added: this rank's words from NEEDED on. tell: receives, once the wait gets long, what is waited for.
        Raises CollectiveMismatchError, RankFailedError (a rank closed) or CollectiveTimeoutError.
        """
        self.announce(call, stamp, added)
        requests = [*self.receives, *self.sends]
        backoff, patience = Backoff(is_awaited), Patience(what, self.rank, timeout_s, self.world)
        try:
            while not self._are_done(requests):
                backoff.pause()
                missing = self.missing()
                tell(f"waiting for rank(s) {missing}")
                patience.check(missing)
        finally:
            patience.end()
        self.is_receiving = False
        check_rows(self.theirs, self.rank, call, what)
        return self.theirs.copy()

    def announce(self, call: CollectiveCall, stamp: Stamp = NO_STAMP, added: Sequence[int] = ()) -> None:
        """Tell all ranks that this one enters `call`. Waits for nobody; `gather`, or `free`, comes next."""
        self.sequence += 1
        self.mine[:] = 0
        words = (self.sequence, *call.code, *stamp.encode(), *added)
        self.mine[: len(words)] = words
        self.theirs[self.rank] = self.mine
        self.mpi.Prequest.Startall([*self.receives, *self.sends])
        self.is_receiving = True

    def _are_done(self, requests: list[Any]) -> bool:
        return any(self.mpi.Request.Testall(requests) for _ in range(CALLS_BEHIND_DATA if is_used() else 1))

    def free(self) -> None:
        """Release the requests; ones still waiting (after an error) are given up."""
        if self.is_receiving and not give_up(self.sends, self.receives, self.mine, self.theirs):
            return
        for request in (*self.receives, *self.sends):
            request.Free()


def check_rows(rows: Array, rank: int, call: CollectiveCall, what: str) -> None:
    """Compare all ranks' messages. what: this rank's call, for the error.

    Raises RankFailedError if a rank closed the communicator, CollectiveMismatchError if they differ.
    """
    if (rows[:, COMPARED] == rows[rank, COMPARED]).all():
        return
    entries = [_entry(row.tolist()) for row in rows]
    gone = [r for r, (other, _) in enumerate(entries) if other.kind == "close" and call.kind != "close"]
    if gone:
        raise RankFailedError(
            f"rank(s) {gone} ended while rank {rank} entered {what}",
            where=f"rank {rank}",
            remedy="make all ranks do the same number of steps; see the output of the ranks that ended",
        )
    error = mismatch_error(entries)
    error.add_note(f"this rank, {rank}, entered {what}")
    raise error


def _entry(words: list[int]) -> tuple[CollectiveCall, Stamp]:
    return CollectiveCall.decode(tuple(words[CALL])), Stamp(*words[STAMP])
