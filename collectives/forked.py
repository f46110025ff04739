"""A forked child is not the rank that its parent is: what it inherits of a communicator refuses, by a named error.

In: communicators, as they are made. Out: in a child, each is told so at once (`become_forked`), before the program goes
on there: its next use, and a wait for what was under way, is a ForkedProcessError. No call asks who it is.
Ranks and sizes can still be read, closing does nothing, and nothing that the child does reaches other ranks: neither
the parent's engine, nor MPI, nor memory that ranks share (arena.py).
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from collectives.errors import ForkedProcessError


class Forkable(Protocol):
    """What belongs to a rank."""

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child, which has this one thread: from now on refuse with `error`. Must take no lock."""


_of_this_rank: weakref.WeakSet[Forkable] = weakref.WeakSet()


def belongs_to_rank(thing: Forkable) -> None:
    """Have `thing` told in a forked child."""
    _of_this_rank.add(thing)


def refusal(rank: int = 0) -> ForkedProcessError:
    """The error of this process, a child that was forked a moment ago or earlier.

    rank: the process that is the rank, if this one was not forked from it, but started by it.
    """
    came = f"started by process {rank}" if rank else f"forked from process {os.getppid()}"
    return ForkedProcessError(
        f"a {'process that a rank started' if rank else 'forked process'} takes no part in the process group of its "
        + ("rank" if rank else "parent"),
        where=f"process {os.getpid()}, {came}",
        expected="collectives, messages and DistributedDataParallel in the process that is the rank",
        remedy="give the result back to the parent (a queue, a pipe, what the DataLoader's worker returns) and have "
        "it call; get_rank() and get_world_size() can be asked here",
    )


def _in_child() -> None:
    inherited = list(_of_this_rank)
    _of_this_rank.clear()
    error = refusal()
    for thing in inherited:
        thing.become_forked(error)


os.register_at_fork(after_in_child=_in_child)
