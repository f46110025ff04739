"""Process groups and collectives over arrays: the `Communicator` and its transports. Knows arrays, not models.

In: NumPy arrays and picklable objects. Out: reduced, broadcast, gathered ones. MPI is loaded only by
`collectives.over_mpi.transport`.
"""

from collectives.call import ReduceOp, Stamp
from collectives.communicator import Communicator
from collectives.connect import connect, was_launched_by_mpi
from collectives.threaded import ThreadedWorld, run_ranks
from collectives.work import Gate, Work, WorkTimes

__all__ = [
    "Communicator",
    "Gate",
    "ReduceOp",
    "Stamp",
    "ThreadedWorld",
    "Work",
    "WorkTimes",
    "connect",
    "run_ranks",
    "was_launched_by_mpi",
]
