"""What ranks do in test_messages_in_small_steps.py; `python message_programs.py CASE` under an MPI launcher."""

from __future__ import annotations

import sys

import numpy as np

from collectives.errors import CollectiveTimeoutError
from collectives.over_mpi.transport import MpiCommunicator

FLOATS = 32 << 20


def moves(world: MpiCommunicator) -> None:
    """128 MiB arrive within the limit."""
    array = np.full(FLOATS, float(world.rank), np.float32)
    (world.send_async(array, 1) if world.rank == 0 else world.receive_async(array, 0)).wait()
    assert (array == 0).all()


def gives_up(world: MpiCommunicator) -> None:
    """A message is given up in the middle, its arrays are dropped; MPI is used on."""
    group = world.subgroup(range(2))
    assert group is not None
    array = np.zeros(FLOATS, np.float32)
    work = group.send_async(array, 1) if world.rank == 0 else group.receive_async(array, 0)
    del array
    try:
        work.wait(0.02)
    except CollectiveTimeoutError:
        del work
    group.close()
    for step in range(20):
        world.all_gather_object((step, "x" * 1000))


if __name__ == "__main__":
    everyone = MpiCommunicator(timeout_s=60)
    {"moves": moves, "gives_up": gives_up}[sys.argv[1]](everyone)
    everyone.close()
