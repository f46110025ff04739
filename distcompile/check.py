"""`distcompile-run --check`: what does this machine have, and does it work? Runs on the ranks; rank 0 prints.

    launcher, on all ranks -> `python -m distcompile.check` -> a line a topic: ok | warning | problem, with what to do

In: nothing but the ranks. Out: lines on rank 0; exit code 1 if there is a problem on any rank. Topics: MPI and its
thread level, how communication progresses while Python computes (tried, not looked up), latency and bandwidth of an
all-reduce and between two ranks by size, binding, compiler (tried), cache, GPUs. Limits: times are medians of few
repeats, for a look at a machine, not for a comparison.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from collectives import Communicator, connect
from collectives.errors import CollectiveError
from compiler_core.errors import DistCompileError
from compiler_core.runtime import places
from compiler_core.runtime.build import build_library
from compiler_core.runtime.toolchain import find_toolchain
from distcompile.engine_build import build_engine

_TIMEOUT_S = 60.0
_SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24)  # bytes
_REPEATS = 15
_SLOW_S = 1e-3  # for 1 KiB between ranks of one host: they wait for a core
_PROGRESS_NBYTES = 4 << 20

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. remedy: what to do, if it is not ok."""

    state: State
    topic: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        what_to_do = f"\n{'':22}what to do: {self.remedy}" if self.remedy else ""
        return f"{self.state:>8}  {self.topic:<10}  {self.text}{what_to_do}"


def check_mpi(communicator: Communicator) -> list[Finding]:
    """The library that the ranks loaded, and its thread level."""
    if communicator.transport != "mpi":
        return [Finding("warning", "MPI", "not in use: one rank", "distcompile-run --check -n 2")]
    from mpi4py import MPI

    version = " ".join(MPI.Get_library_version().strip("\0 ").splitlines()[0].split(",")[0].split())
    names = {MPI.THREAD_SINGLE: "SINGLE", MPI.THREAD_FUNNELED: "FUNNELED", MPI.THREAD_SERIALIZED: "SERIALIZED"}
    level = names.get(MPI.Query_thread(), "MULTIPLE")
    state: State = "ok" if level == "MULTIPLE" else "problem"
    remedy = "" if state == "ok" else "the communication thread needs THREAD_MULTIPLE: another build of MPI"
    return [Finding(state, "MPI", f"{version}; thread level {level}; {communicator.world_size} ranks", remedy)]


def check_progress(communicator: Communicator) -> list[Finding]:
    """Whether an all-reduce comes to its end while Python computes. Collective."""
    if communicator.world_size == 1:
        return []
    array = communicator.allocate(_PROGRESS_NBYTES // 4, np.dtype(np.float32))
    alone_s = _median_s(communicator, lambda: communicator.all_reduce(array, "sum"))
    shares = [_share_hidden(communicator, array, alone_s) for _ in range(5)]
    hidden = min(communicator.all_gather_object(median(shares)))
    engine = type(getattr(communicator, "engine", None)).__name__
    how = {"NativeEngine": "a native thread that never takes the GIL", "ThreadEngine": "a Python thread"}
    text = f"{how.get(engine, engine)}; {hidden:.0%} of a 4 MiB all-reduce ran while Python computed"
    if engine == "ThreadEngine":
        return [
            Finding("warning", "progress", text, "install a C++ compiler: the native thread does not wait for the GIL")
        ]
    if hidden < 0.5:
        remedy = "give the communication thread a core: fewer ranks, or --threads-per-rank below the cores of a rank"
        return [Finding("warning", "progress", text, remedy)]
    return [Finding("ok", "progress", text)]


def _share_hidden(communicator: Communicator, array: np.ndarray, alone_s: float) -> float:
    """Of an all-reduce that takes `alone_s`, the part that need not be waited for after computing twice as long."""
    communicator.barrier()
    work = communicator.all_reduce_async(array, "sum")
    until = time.perf_counter() + 2 * alone_s
    while time.perf_counter() < until:
        pass
    begun = time.perf_counter()
    work.wait()
    return max(0.0, 1.0 - (time.perf_counter() - begun) / alone_s)


def check_speed(communicator: Communicator) -> list[Finding]:
    """Latency and bandwidth by size, of an all-reduce and between rank 0 and the last. Collective."""
    if communicator.world_size == 1:
        return []
    found = []
    for nbytes in _SIZES:
        array = communicator.allocate(nbytes // 4, np.dtype(np.float32))
        reduce_s = _median_s(communicator, lambda: communicator.all_reduce(array, "sum"))  # noqa: B023
        there_s = _median_s(communicator, lambda: _ping_pong(communicator, array)) / 2  # noqa: B023
        size = f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"
        pair = f"rank 0 to {communicator.world_size - 1}: {_speed(nbytes, there_s)}"
        text = f"{size:>6}: all-reduce {_speed(nbytes, reduce_s)}; {pair}"
        is_slow = nbytes == _SIZES[0] and reduce_s > _SLOW_S
        remedy = (
            "ranks wait for a core, or for the network: fewer ranks on a host; see `binding` below" if is_slow else ""
        )
        found.append(Finding("warning" if is_slow else "ok", "speed", text, remedy))
    return found


def _speed(nbytes: int, seconds: float) -> str:
    return f"{seconds * 1e6:8.0f} us, {nbytes / seconds / 1e9:6.2f} GB/s"


def _ping_pong(communicator: Communicator, array: np.ndarray) -> None:
    last = communicator.world_size - 1
    if communicator.rank == 0:
        communicator.send_async(array, last).wait()
        communicator.receive_async(array, last).wait()
    elif communicator.rank == last:
        communicator.receive_async(array, 0).wait()
        communicator.send_async(array, 0).wait()


def _median_s(communicator: Communicator, call: Callable[[], None]) -> float:
    """Rank 0's median, on all ranks. Collective."""
    times = []
    for _ in range(_REPEATS):
        communicator.barrier()
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return communicator.broadcast_object(median(times[2:]))


def check_binding(communicator: Communicator) -> list[Finding]:
    """Whether the ranks of a host have cores of their own. Collective."""
    cpus = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    rows = communicator.all_gather_object((socket.gethostname(), cpus, threads))
    shared = [
        (a, b)
        for a, (host, mine, _) in enumerate(rows)
        for b, (other, theirs, _) in enumerate(rows[:a])
        if host == other and mine & theirs
    ]
    text = "; ".join(f"rank {r}: cpus {_ranges(mine)}, {n} threads" for r, (_, mine, n) in enumerate(rows[:8]))
    if not shared:
        return [Finding("ok", "binding", text)]
    rank, other = shared[0]
    remedy = f"ranks {other} and {rank} share cores: fewer ranks, end other bound jobs, or --bind LIST"
    return [Finding("warning", "binding", text, remedy)]


def _ranges(cpus: frozenset[int]) -> str:
    """{0, 1, 2, 5} as 0-2,5."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in parts) or "unknown"


def check_compiler() -> list[Finding]:
    """Whether a C++ compiler is there, and makes a shared object."""
    try:
        toolchain = find_toolchain()
        said = subprocess.run([toolchain.path, "--version"], capture_output=True, text=True, timeout=60, check=False)
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            build_library({"check": 'extern "C" int check() { return 1; }\n'}, Path(folder) / "check.so", toolchain)
    except (DistCompileError, OSError, subprocess.TimeoutExpired) as error:
        return [Finding("problem", "compiler", str(error).splitlines()[0], str(getattr(error, "remedy", "")))]
    version = (said.stdout.splitlines() or ["version unknown"])[0]
    return [Finding("ok", "compiler", f"{toolchain.path}: {version}; builds in {time.perf_counter() - begun:.1f} s")]


def check_cache() -> list[Finding]:
    """Whether compiled code can be kept."""
    failures = []
    for number in range(places.ROOTS):
        try:
            folder = places.root(number)
            places.check_usable(folder)
            if not os.access(folder, os.W_OK):
                raise PermissionError(f"{folder} cannot be written")
        except OSError as error:
            failures.append(str(error))
            continue
        disk = os.statvfs(folder)
        text = f"{folder}: {disk.f_bavail * disk.f_frsize / 1e9:.1f} GB free"
        if not failures:
            return [Finding("ok", "cache", text)]
        remedy = "set DISTCOMPILE_CACHE_DIR to a folder that can be written and stays"
        return [Finding("warning", "cache", f"{text}; not the first choice: {failures[0]}", remedy)]
    remedy = "free space, or set DISTCOMPILE_CACHE_DIR and TMPDIR to folders that can be written"
    return [Finding("problem", "cache", f"nowhere to keep compiled code: {'; '.join(failures)}", remedy)]


def check_gpus() -> list[Finding]:
    """GPUs of this host; training does not use them yet."""
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return [Finding("ok", "GPUs", f"{count} of NVIDIA's, not used by training yet" if count else "none; not needed")]


def check_all(communicator: Communicator) -> tuple[list[Finding], int]:
    """(what rank 0 prints, exit code). Collective."""
    own = [*check_compiler(), *check_cache(), *check_gpus()]
    joint = [*check_mpi(communicator), *check_progress(communicator), *check_speed(communicator)]
    joint += check_binding(communicator)
    everyone: Sequence[tuple[str, list[Finding]]] = communicator.all_gather_object((socket.gethostname(), own))
    here = everyone[0][0]
    others = {
        Finding(f.state, f.topic, f"on {host}: {f.text}", f.remedy)
        for host, found in everyone
        for f in found
        if host != here and f.state != "ok"
    }
    found = [*joint, *everyone[0][1], *sorted(others, key=str)]
    return found, 1 if any(f.state == "problem" for f in found) else 0


def _count(found: Sequence[Finding], state: str) -> str:
    """How many are so, in words."""
    count = sum(f.state == state for f in found)
    return f"{count} {state}{'' if count == 1 else 's'}"


def main() -> int:
    """Print on rank 0. Returns the exit code."""
    try:
        communicator = connect("host", timeout_s=_TIMEOUT_S, build=build_engine)
    except CollectiveError as error:
        print(Finding("problem", "MPI", error.what, error.remedy), flush=True)
        return 1
    found, code = check_all(communicator)
    if communicator.rank == 0:
        print(*found, f"{_count(found, 'problem')}, {_count(found, 'warning')}", sep="\n", flush=True)
    communicator.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
