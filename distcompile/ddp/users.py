"""Users: which parameters any rank's backward used, so that those that no rank used keep their `.grad`.

In: all names, and those that this rank left out. Out: a count, reduced behind the buckets; then the names in use.
The count is a message between hosts, an i32[names] in memory of the host wherever gradients are.
"""

from __future__ import annotations

from collections.abc import Collection, Set

import numpy as np

from collectives import Communicator, Gate, Stamp


class Users:
    """names: of all trained parameters. left_out: those that this rank did not use."""

    def __init__(
        self,
        communicator: Communicator,
        names: Collection[str],
        left_out: Set[str],
        *,
        stamp: Stamp,
        gate: Gate | None,
    ) -> None:
        self.names = sorted(names)
        self.counts = np.array([name not in left_out for name in self.names], np.int32)
        self.work = communicator.all_reduce_async(self.counts, "sum", label="used parameters", stamp=stamp, gate=gate)

    def wait(self) -> set[str]:
        """The names that some rank used. Raises what the collective raises."""
        self.work.wait()
        return {name for name, count in zip(self.names, self.counts.tolist(), strict=True) if count}
