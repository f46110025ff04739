"""Processes that must not be left behind: who descends from us, and how to end them all.

In: process ids. Out: signals sent. Linux: the launcher adopts orphans (PR_SET_CHILD_SUBREAPER), so a rank whose mpiexec
died, or a process that a rank started, is still found in /proc as a descendant; ranks also ask the kernel to die with
their parent (PR_SET_PDEATHSIG), for the case that the launcher itself is killed outright. Elsewhere: known pids only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_KEPT_FILE_LIMIT = "DISTCOMPILE_RUN_NOFILE"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `signum` to this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def lift_file_limit() -> None:
    """Allow this process, and mpiexec, as many open files as they may have: a rank takes about five of each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        os.environ[_KEPT_FILE_LIMIT] = str(soft)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_file_limit() -> None:
    """In a rank: the limit that the launcher was started with."""
    soft = os.environ.pop(_KEPT_FILE_LIMIT, "")
    if soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents first, zombies left out; empty where there is no /proc."""
    if os.path.exists(f"/proc/{root}/task/{root}/children"):
        return _walk(root)
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(folder.name))
    found, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(0), []):
            found.append(pid)
            queue.append(pid)
    return found


def _walk(root: int) -> list[int]:
    """`descendants` through the kernel's own lists of children, where it keeps them: the rest of /proc is not read."""
    found, queue = [], [root]
    while queue:
        for pid in _children_of(queue.pop(0)):
            queue.append(pid)
            if state_of(pid) not in ("Z", ""):
                found.append(pid)
    return found


def _children_of(pid: int) -> list[int]:
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            pids += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return pids


def state_of(pid: int) -> str:
    """The process's state as `ps` shows it: "R", "S", "T" ...; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def send(pids: Iterable[int], signum: int) -> None:
    """Send `signum` to each that still exists; SIGQUIT, which asks for stacks, to its main thread."""
    deliver = _to_main_thread if signum == signal.SIGQUIT else os.kill
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            deliver(pid, signum)


def _to_main_thread(pid: int, signum: int) -> None:
    """As `os.kill`, but no other thread takes the signal.

    One that waits in a stopped process would else go to whichever thread wakes first, and the main thread's stack,
    written by another thread while the main one runs, is torn.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):  # of Linux, in glibc since 2.30
        os.kill(pid, signum)
    elif libc.tgkill(pid, pid, signum):  # the main thread's number is its process's
        raise OSError(ctypes.get_errno(), "tgkill")


def kill_all(known: Iterable[int], within_s: float = 3.0) -> list[int]:
    """SIGKILL every descendant and every pid in `known`, until none is left. Returns those that survived (none)."""
    deadline = time.monotonic() + within_s
    send(known, signal.SIGKILL)
    while True:
        left = descendants(os.getpid())
        if not left or time.monotonic() > deadline:
            return left
        send(left, signal.SIGKILL)
        time.sleep(0.01)
