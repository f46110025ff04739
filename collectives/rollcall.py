"""Roll call: all ranks tell each other which collective they enter, before any data moves.

In: this rank's `Call` and its number in the sequence. Out: return when every rank entered the same one.
Method: one 88-byte message to and from every other rank, over persistent point-to-point requests. It buys three things
that an MPI collective alone does not give: a rank that waits for a late one *sleeps* (an MPI wait burns its core); a
time-out names the ranks that are missing; and ranks that enter different collectives get a named error on all sides.
Limit: the cost grows with the number of ranks (about 2 us a rank); past a few hundred a tree would be better.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives.call import CALL_LENGTH, Call
from collectives.errors import CollectiveMismatchError, CollectiveTimeoutError, RankFailedError, SlowRanksWarning
from collectives.threaded import mismatch_error

TAG = 7001
CALL = slice(1, 1 + CALL_LENGTH)  # of a message: its Call; before it the sequence number, after it what the rank adds
CODE_LENGTH = 1 + CALL_LENGTH + 4
WARN_AFTER_S = 60.0
SPIN_S = 200e-6  # an awaited roll call yields the core, but does not sleep, this long
LONGEST_SLEEP_S = 500e-6  # between two looks; if somebody waits, the second of these;
LONGEST_AWAITED_SLEEP_S = 100e-6
SLEEP_SHARE = 0.01  # or this share of the time waited so far, if that is more


Extra = tuple[int, int, int, int]


class Backoff:
    """How long to leave the core between two looks for late ranks: short at first, longer the longer it takes.

    With `is_awaited()` (someone can do nothing else meanwhile) it starts by only yielding.
    """

    def __init__(self, is_awaited: Callable[[], bool]) -> None:
        self.is_awaited, self.sleep_s, self.began_s = is_awaited, 20e-6, time.perf_counter()

    def pause(self) -> None:
        waited_s, is_awaited = time.perf_counter() - self.began_s, self.is_awaited()
        if is_awaited and waited_s < SPIN_S:
            os.sched_yield()
            return
        longest_s = LONGEST_AWAITED_SLEEP_S if is_awaited else LONGEST_SLEEP_S
        time.sleep(min(self.sleep_s, max(longest_s, SLEEP_SHARE * waited_s)))
        self.sleep_s *= 1.3


class Patience:
    """When a wait is worth a warning, and when it is over. what: the collective, for messages."""

    def __init__(self, what: str, rank: int, timeout_s: float) -> None:
        self.what, self.rank, self.timeout_s = what, rank, timeout_s
        self.began_s, self.warned = time.perf_counter(), False

    def check(self, missing: list[int]) -> None:
        """Warn once after WARN_AFTER_S. Raises CollectiveTimeoutError after the time limit."""
        waited_s = time.perf_counter() - self.began_s
        if waited_s > self.timeout_s:
            raise CollectiveTimeoutError(
                f"{self.what}: not all ranks came within {self.timeout_s:g} s",
                where=f"rank {self.rank}",
                got=f"rank(s) {missing} missing",
                remedy="those ranks are still computing or compiling, in another collective, or gone",
            )
        if waited_s > WARN_AFTER_S and not self.warned:
            self.warned = True
            text = f"rank {self.rank} has waited {waited_s:.0f} s for rank(s) {missing} in {self.what}"
            warnings.warn(text, SlowRanksWarning, stacklevel=2)


class RollCall:
    """The roll call of one (duplicated) MPI communicator. Use from one thread at a time."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self.mpi, self.rank, self.world_size = mpi, comm.Get_rank(), comm.Get_size()
        self.peers = [r for r in range(self.world_size) if r != self.rank]
        self.sequence = 0
        self.mine = np.zeros(CODE_LENGTH, np.int64)
        self.theirs = np.zeros((self.world_size, CODE_LENGTH), np.int64)
        self.receives = [comm.Recv_init(self.theirs[peer], source=peer, tag=TAG) for peer in self.peers]
        self.sends = [comm.Send_init(self.mine, dest=peer, tag=TAG) for peer in self.peers]
        self.is_receiving = False

    def missing(self) -> list[int]:
        """Ranks not yet heard in the present roll call."""
        return [peer for peer in self.peers if self.theirs[peer, 0] != self.sequence]

    def gather(
        self,
        call: Call,
        what: str,
        *,
        timeout_s: float,
        is_awaited: Callable[[], bool],
        tell: Callable[[str], None],
        extra: Extra = (0, 0, 0, 0),
    ) -> list[Extra]:
        """Return when every rank entered `call`: each rank's `extra` integers, by rank.

        tell: receives, once the wait gets long, what is waited for.
        Raises CollectiveMismatchError, RankFailedError (a rank closed) or CollectiveTimeoutError.
        """
        self.sequence += 1
        self.mine[:] = (self.sequence, *call.encode(), *extra)
        self.theirs[self.rank] = self.mine
        requests = [*self.receives, *self.sends]
        self.mpi.Prequest.Startall(requests)
        self.is_receiving = True
        backoff, patience = Backoff(is_awaited), Patience(what, self.rank, timeout_s)
        while not self.mpi.Request.Testall(requests):
            backoff.pause()
            missing = self.missing()
            tell(f"waiting for rank(s) {missing}")
            patience.check(missing)
        self.is_receiving = False
        self._compare(call, what)
        return [(a, b, c, d) for a, b, c, d in self.theirs[:, CALL.stop :].tolist()]

    def _compare(self, call: Call, what: str) -> None:
        if (self.theirs[:, CALL] == self.mine[CALL]).all():
            return
        calls = [self._decoded(row) for row in self.theirs]
        gone = [rank for rank, other in enumerate(calls) if other.kind == "close" and call.kind != "close"]
        if gone:
            raise RankFailedError(
                f"rank(s) {gone} ended while rank {self.rank} entered {what}",
                where=f"rank {self.rank}",
                remedy="make all ranks do the same number of steps; see the output of the ranks that ended",
            )
        raise self._mismatch(calls, what)

    def _mismatch(self, calls: list[Call], what: str) -> CollectiveMismatchError:
        texts = [str(call) for call in calls]
        error = mismatch_error(calls, texts)
        error.add_note(f"this rank, {self.rank}, entered {what}")
        return error

    @staticmethod
    def _decoded(row: Any) -> Call:
        return Call.decode(tuple(int(value) for value in row[CALL]))

    def free(self) -> None:
        """Release the requests; ones still waiting (after an error) are cancelled."""
        if self.is_receiving:
            for request in self.receives:
                request.Cancel()
            return
        for request in (*self.receives, *self.sends):
            request.Free()
