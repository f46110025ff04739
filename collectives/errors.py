"""The catalogue of errors of collectives: what went wrong, on which rank, what was expected, what to do.

In: facts. Out: exceptions laid out as the compiler core's are (this package imports nothing of the core).
After a `CollectiveMismatchError`, `CollectiveTimeoutError` in the transport, or `RankFailedError`, the communicator is
broken: ranks no longer agree which call comes next, so every later call raises the same error.
"""

from __future__ import annotations


class CollectiveError(RuntimeError):
    """Base of this package's errors.

    what: one sentence. where: rank and call. expected, got: the two sides. remedy: what the user can do.
    is_consequence: raised because of another rank; the launcher then looks for the cause there.
    """

    is_consequence = False

    def __init__(self, what: str, *, where: str = "", expected: str = "", got: str = "", remedy: str = "") -> None:
        self.what, self.where, self.expected, self.got, self.remedy = what, where, expected, got, remedy
        rows = (("at", where), ("expected", expected), ("got", got), ("what to do", remedy))
        super().__init__("\n".join([what, *(f"  {label}: {text}" for label, text in rows if text)]))


class SlowRanksWarning(UserWarning):
    """A collective has been waiting for other ranks for a long time; it goes on waiting."""


class SlowEngineWarning(UserWarning):
    """Collectives are run by a Python thread, as the native engine could not be built or loaded."""


class CopyEnginesWarning(UserWarning):
    """Large sums between the GPUs of a host are left to NCCL's kernels: its ranks do not reach each other's memory."""


class CollectiveArgumentError(CollectiveError, ValueError):
    """A buffer, reduction or root rank that the collective does not take; raised before anything is sent."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A collective did not finish in time; says which ranks it still waits for."""

    is_consequence = True


class CollectiveMismatchError(CollectiveError):
    """Ranks met in different collectives, or in one with different sizes, dtypes, reductions or roots."""


class RankFailedError(CollectiveError):
    """Another rank raised, or left the job, while this one needed it."""

    is_consequence = True


class ClosedError(CollectiveError):
    """A collective on a communicator that was closed."""


class ForkedProcessError(CollectiveError):
    """A process that was forked from a rank used what belongs to the rank: it would have taken its parent's place."""


class TransportError(CollectiveError):
    """The transport itself failed in the middle of a collective; holds the transport's own message."""

    is_consequence = True


class MpiNotFoundError(CollectiveError, ImportError):
    """mpi4py, or the MPI library that it loads, is not there."""


class ThreadLevelError(CollectiveError):
    """MPI was initialised without MPI_THREAD_MULTIPLE, which the communication thread needs."""


class NcclNotFoundError(CollectiveError, ImportError):
    """CuPy, a GPU, or NCCL is not there, and a collective of device arrays was asked for."""


class NcclError(TransportError):
    """NCCL refused a call, or failed behind our back; holds NCCL's own words."""


class SharedDeviceError(CollectiveError):
    """Two ranks of a group use one GPU, which NCCL refuses."""
