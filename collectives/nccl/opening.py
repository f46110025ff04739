"""The start of NCCL on a group: its id goes from rank 0 to all over the host communicator, in two gates.

In: the host communicator, the library, this rank's GPU. Out: the id, once all ranks are there, each on a GPU of its
own, with one version of NCCL; or a named error, the same on all ranks, before NCCL could wait for ever.
A gate carries twelve words, an id has sixteen: half in each. Gates are launched in order with other collectives and
wait for nobody, so a rank that does something else meanwhile is a mismatch, as always.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from collectives.errors import NcclError, SharedDeviceError
from collectives.nccl.cuda import Runtime
from collectives.nccl.library import ID_NBYTES, NcclLibrary
from collectives.work import Rows

if TYPE_CHECKING:
    from collectives.communicator import Communicator

WORDS = struct.Struct("<16q")
HALF = 8
DEVICE, VERSION = HALF, HALF + 1


class Opening:
    """One rank's part in the start of a group."""

    def __init__(self, host: Communicator, library: NcclLibrary, cuda: Runtime) -> None:
        name = library.unique_id() if host.rank == 0 else bytes(ID_NBYTES)
        words = WORDS.unpack(name)
        self.where, self.index = f"rank {host.rank} of {host.world_size}", cuda.index
        label = "the start of NCCL"
        first = host.open_gate((*words[:HALF], cuda.identity(), library.version()), 0, label=label)
        last = host.open_gate(words[HALF:], 0, label=f"{label}, continued")
        self.works = [first.work, last.work]

    def is_known(self) -> bool:
        """Whether all ranks have answered. Never blocks."""
        return all(work.is_done() for work in self.works)

    def wait(self, timeout_s: float | None) -> None:
        """Return when they have. Raises what a roll call raises."""
        for work in self.works:
            work.wait(timeout_s)

    def identity(self) -> bytes:
        """Rank 0's id. Raises SharedDeviceError if two ranks have one GPU, NcclError if versions differ."""
        self.wait(0.0)
        first, last = (work.rows for work in self.works)
        self._check(first)
        return WORDS.pack(*first[0][:HALF], *last[0][:HALF])

    def _check(self, rows: Rows) -> None:
        users: dict[int, list[int]] = {}
        for rank, row in enumerate(rows):
            users.setdefault(row[DEVICE], []).append(rank)
        shared = [ranks for ranks in users.values() if len(ranks) > 1]
        if shared:
            raise SharedDeviceError(
                "; ".join(f"ranks {', '.join(map(str, ranks))} use one GPU" for ranks in shared),
                where=f"{self.where}, on its device {self.index}",
                expected="a GPU for each rank: NCCL does not take two ranks on one",
                got=f"{len(users)} GPU(s) for {len(rows)} ranks",
                remedy="torch.cuda.set_device(local_rank) before the first tensor (distcompile-run chooses so); start "
                "no more ranks on a host than it has GPUs",
            )
        versions = {row[VERSION] for row in rows}
        if len(versions) > 1:
            raise NcclError(
                "ranks have loaded different versions of NCCL",
                where=self.where,
                got="; ".join(f"rank {rank}: {row[VERSION]}" for rank, row in enumerate(rows)),
                remedy="install one nvidia-nccl wheel on all hosts",
            )
