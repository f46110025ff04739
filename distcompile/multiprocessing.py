"""torch.multiprocessing's names: Python's multiprocessing, and `spawn`, which runs a function in several processes.

In: a function of (number of the process, *args). Out: its processes, ended; or, if one fails, the others ended and an
error with the failed one's traceback. Tensors that are sent to other processes share their memory with them
(`sending.py`), by file descriptors whatever the sharing strategy is called.

Ranks come from MPI. A script that spawns its ranks (`spawn(run, args=(world_size,), nprocs=world_size)`) gets them from
`distcompile-run -n N`: where as many processes are asked for as there are ranks, and no group is there yet, each rank
calls `fn(rank, *args)` in place. Otherwise processes that are started here are no ranks, and `init_process_group` says
so where a script takes them for some (`environment.py`).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import multiprocessing.managers
import multiprocessing.queues
import multiprocessing.sharedctypes
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing import *  # noqa: F403  # all of Python's names are torch's too
from pathlib import Path
from typing import Any

from distcompile.distributed.environment import MPI_PREFIXES, place
from distcompile.errors import ArgumentError
from distcompile.surface import sending  # noqa: F401  # from here on, tensors are sent that way

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

GRACE_S = 30.0  # how long the others may take to end after one has failed
_STRATEGIES = {"file_descriptor", "file_system"}
_strategy = ["file_descriptor"]
_PR_SET_PDEATHSIG = 1
# what a caller would read on while it waits: only a process of its own can be at the other end
_CHANNELS = (
    multiprocessing.queues.Queue,
    multiprocessing.queues.SimpleQueue,
    multiprocessing.connection.Connection,
    multiprocessing.managers.BaseProxy,
    multiprocessing.sharedctypes.SynchronizedBase,
)


class ProcessException(RuntimeError):
    """A process failed. error_index: its number. error_pid: its id."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process failed with an error: the text holds its traceback."""


class ProcessExitedException(ProcessException):
    """A process ended on its own, or by a signal. exit_code: below zero, the signal."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], number: int, args: tuple[Any, ...], said: str, parent: int) -> None:
    """The process: call, and leave the traceback of an error in the file `said`."""
    _end_with(parent)
    for name in [name for name in os.environ if name.startswith(MPI_PREFIXES)]:
        del os.environ[name]  # this is not the rank that started it
    try:
        fn(number, *args)
    except KeyboardInterrupt:
        pass  # the parent hears it too
    except Exception:  # noqa: BLE001  # the parent raises it
        Path(said).write_bytes(pickle.dumps(traceback.format_exc()))
        sys.exit(1)


def _end_with(parent: int) -> None:
    """Have this process interrupted when its parent is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGINT)


class ProcessContext:
    """Processes under way. join() waits for them."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for one more to end; True when all have. timeout, grace_period: seconds.

        Raises: ProcessRaisedException or ProcessExitedException if one failed: the others are ended then.
        """
        if not self.sentinels:
            return True
        ready: Iterable[Any] = multiprocessing.connection.wait(list(self.sentinels), timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            if not self.sentinels:
                self._forget()
            return not self.sentinels
        self._end_others(GRACE_S if grace_period is None else grace_period)
        raise self._error(failed)

    def _end_others(self, grace_s: float) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + grace_s
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _error(self, index: int) -> ProcessException:
        process, said = self.processes[index], Path(self.error_files[index])
        text = pickle.loads(said.read_bytes()) if said.exists() and said.stat().st_size else ""
        self._forget()
        pid, code = int(process.pid), int(process.exitcode)
        if text:
            message = f"\n\n-- Process {index} terminated with the following error:\n{text}"
            return ProcessRaisedException(message, index, pid)
        if code < 0:
            name = signal.Signals(-code).name
            return ProcessExitedException(f"process {index} terminated with signal {name}", index, pid, code, name)
        return ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)

    def _forget(self) -> None:
        for said in self.error_files:
            Path(said).unlink(missing_ok=True)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    numa_options: object = None,
) -> ProcessContext | None:
    """Call fn(i, *args) in `nprocs` processes, i from 0. join: wait for all, else give the ProcessContext.

    Under `distcompile-run -n nprocs`, before there is a process group: these are the ranks, and i is this one's (not
    with join=False, nor where a queue among `args` leads back to the caller: then there are processes).
    Raises: ProcessRaisedException with the traceback of the first that fails, ProcessExitedException for one that ends
    otherwise; ArgumentError for an unknown start method.
    """
    if start_method not in multiprocessing.get_all_start_methods():
        raise ArgumentError(f"no such start method: {start_method!r}",
                            expected=", ".join(multiprocessing.get_all_start_methods()))  # fmt: skip
    rank = _rank_in_place(nprocs, args) if join else None
    if rank is not None:
        _call_as_rank(fn, rank, args)
        return None
    context: Any = multiprocessing.get_context(start_method)
    processes, files = [], []
    for number in range(nprocs):
        handle, said = tempfile.mkstemp(prefix="distcompile-spawn-", suffix=".pickle")
        os.close(handle)
        process = context.Process(target=_run, args=(fn, number, args, said, os.getpid()), daemon=daemon)
        process.start()
        processes.append(process)
        files.append(said)
    started = ProcessContext(processes, files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def _rank_in_place(nprocs: int, args: tuple[Any, ...]) -> int | None:
    """This process's rank if the `nprocs` processes that are asked for are the job's ranks."""
    from distcompile.distributed.group import is_initialized

    if is_initialized() or any(isinstance(value, _CHANNELS) for value in args):
        return None
    return place(nprocs)


def _call_as_rank(fn: Callable[..., Any], rank: int, args: tuple[Any, ...]) -> None:
    """fn(rank, *args) here, with the errors of a process that fails. A group that it leaves open is closed."""
    from distcompile.distributed.group import destroy_process_group, is_initialized

    try:
        fn(rank, *args)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if code:
            message = f"process {rank} terminated with exit code {code}"
            raise ProcessExitedException(message, rank, os.getpid(), code) from ending
    except Exception as error:
        message = f"\n\n-- Process {rank} terminated with the following error:\n{traceback.format_exc()}"
        raise ProcessRaisedException(message, rank, os.getpid()) from error
    if is_initialized():
        destroy_process_group()


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes`, with fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """torch's names of ways to share memory. Here it is the first, in any."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The one that was set."""
    return _strategy[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Take note of a way to share memory. Raises AssertionError for an unknown one, as torch."""
    assert new_strategy in _STRATEGIES, f"unknown sharing strategy {new_strategy!r}"
    _strategy[0] = new_strategy
