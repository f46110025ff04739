"""However a rank, or mpiexec, ends: the right culprit, the right code, on MPICH and on Open MPI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from launch_jobs import (
    NAMES_MAPPED,
    TIMEOUT_S,
    left_in_shared_memory,
    processes_with,
    program,
    run,
    start,
    wait_until,
)

from launch.machine.leftovers import SharedMemoryWatch
from tests.sharing import some

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# rank 1 ends as argv[1] says once all are up; the others wait for it in MPI
ENDS = f"""{NAMES_MAPPED}import os, signal, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
note_shared_memory(sys.argv[2] + str(world.rank))
world.Barrier()
if world.rank == 1:
    exec(sys.argv[1])
world.Barrier()
"""
MPIS = ["mpich", "openmpi"]


@pytest.mark.parametrize("mpi", ["mpich", pytest.param("openmpi", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("ending", "code", "words"),
    some(
        [
            ("os._exit(0)", 1, "left with exit code 0 before the end of its program"),
            ("os.kill(os.getpid(), 9)", 137, "was ended by SIGKILL"),
            ("raise ValueError('mine')", 1, "ValueError: mine"),
            ("os._exit(3)", 3, "left with exit code 3"),
            ("import ctypes; ctypes.CDLL(None).exit(0)", 1, "left with exit code 0 before the end"),
            ("os.kill(os.getpid(), 11)", 139, "was ended by SIGSEGV"),
            ("world.Abort(7)", 7, ""),
        ],
        3,
    ),
)
def test_the_rank_that_ends_the_job_is_named(tmp_path: Path, mpi: str, ending: str, code: int, words: str) -> None:
    line = ["-n", "3", "--mpi", mpi, "--bind", "none", "--grace", "1"]
    done = run(*line, program(tmp_path, ENDS), ending, str(tmp_path / "shm"))
    assert done.returncode == code, done.stderr
    blamed = [line for line in done.stderr.splitlines() if line.startswith("distcompile-run: rank")]
    assert len(blamed) == 1
    assert blamed[0].startswith("distcompile-run: rank 1 "), done.stderr
    assert words in done.stderr
    assert left_in_shared_memory(tmp_path) == []


def test_all_ranks_may_leave_by_os_exit(tmp_path: Path) -> None:
    done = run("-n", "2", "--bind", "none", program(tmp_path, "import os\nprint('x', flush=True)\nos._exit(0)\n"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rank_may_become_another_program(tmp_path: Path) -> None:
    text = "import os, time\ntime.sleep(float(os.environ['RANK']) * 2)\nos.execvp('true', ['true'])\n"
    done = run("-n", "2", "--bind", "none", "--grace", "0.5", program(tmp_path, text))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mpi", ["mpich", pytest.param("openmpi", marks=pytest.mark.long)])
def test_ranks_that_become_other_programs_leave_nothing_of_mpis_but_what_is_theirs(tmp_path: Path, mpi: str) -> None:
    own = Path("/dev/shm") / f"dctest-{uuid.uuid4()}"
    text = f"""{NAMES_MAPPED}import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
note_shared_memory(sys.argv[1] + str(world.rank))
if world.rank == 0:
    file = open("{own}", "w")
    time.sleep(1)  # the launcher sees who has it open
world.Barrier()
os.execvp("true", ["true"])
"""
    try:
        done = run("-n", "2", "--mpi", mpi, "--bind", "none", program(tmp_path, text), str(tmp_path / "shm"))
        assert (done.returncode, done.stderr) == (0, "")
        assert mpi == "openmpi" or left_in_shared_memory(tmp_path) == []
        assert own.exists()
    finally:
        own.unlink(missing_ok=True)


def test_what_a_peer_says_of_a_death_is_not_the_cause(tmp_path: Path) -> None:
    """Rank 0 notices and fails first, as far as the launcher hears; rank 1's death is the kernel's word."""
    text = """
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 1:
    os.kill(os.getpid(), 9)
raise FileNotFoundError("/proc/123/fd/4")
"""
    done = run("-n", "2", "--bind", "none", program(tmp_path, text))
    assert done.returncode == 137, done.stderr
    first = "distcompile-run: first rank 1 was ended by SIGKILL\n"
    assert f"{first}distcompile-run: then rank 0 failed too: FileNotFoundError" in done.stderr
    assert "rank 1" in done.stderr.splitlines()[-2]


def test_an_error_that_speaks_of_another_rank_is_not_the_cause(tmp_path: Path) -> None:
    text = """
import os, sys, time
from mpi4py import MPI
class PeerError(RuntimeError):
    is_consequence = True
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 1:
    time.sleep(0.5)
    raise KeyError("the true cause")
try:
    raise PeerError("rank 1 is gone")
except PeerError as error:
    raise RuntimeError("so I stop") from error
"""
    done = run("-n", "2", "--bind", "none", program(tmp_path, text))
    assert done.returncode == 1
    first = "distcompile-run: first rank 1 failed: KeyError: 'the true cause'\n"
    assert f"{first}distcompile-run: then rank 0 failed too: RuntimeError: so I stop\n" in done.stderr
    assert done.stderr.endswith("KeyError: 'the true cause'\n")


FOREVER = f"""{NAMES_MAPPED}import os, sys, time
from mpi4py import MPI
note_shared_memory(sys.argv[2] + os.environ["RANK"])
MPI.COMM_WORLD.Barrier()
open(sys.argv[1] + os.environ["RANK"], "w").write(str(os.getpid()))
while True:
    time.sleep(1000)
"""


def forever(folder: Path, mpi: str, marker: str, *options: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A job of two ranks that runs until it is ended, and the ranks' pids."""
    up = [folder / f"up{rank}" for rank in range(2)]
    line = ["-n", "2", "--mpi", mpi, "--bind", "none", *options, program(folder, FOREVER), str(folder / "up")]
    line.append(str(folder / "shm"))
    job = start(*line, DCTEST=marker)
    wait_until(lambda: all(path.exists() and path.read_text() for path in up))
    return job, [int(path.read_text()) for path in up]


@pytest.mark.parametrize("mpi", MPIS)
def test_a_killed_mpiexec_is_named_as_that(tmp_path: Path, mpi: str) -> None:
    marker = str(uuid.uuid4())
    job, _ = forever(tmp_path, mpi, marker)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    _, err = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 137
    assert err.splitlines()[-1] == "distcompile-run: mpiexec itself was ended by SIGKILL; no rank had failed"
    assert processes_with(marker) == []
    assert left_in_shared_memory(tmp_path) == []


@pytest.mark.parametrize("mpi", MPIS)
def test_a_stopped_rank_is_found_without_a_timeout(tmp_path: Path, mpi: str) -> None:
    marker = str(uuid.uuid4())
    job, pids = forever(tmp_path, mpi, marker, "--stop-limit", "1")
    begun = time.monotonic()
    os.kill(pids[1], signal.SIGSTOP)
    _, err = job.communicate(timeout=TIMEOUT_S)
    assert time.monotonic() - begun < 90
    assert job.returncode == 128 + signal.SIGSTOP
    assert f"rank 1 (process {pids[1]}) has been stopped (SIGSTOP)" in err.splitlines()[-1]
    assert err.count("in <module>") == 2, "the stopped one's stack as well"
    assert processes_with(marker) == []
    assert left_in_shared_memory(tmp_path) == []


def test_of_shared_memory_goes_what_looks_like_the_jobs_and_nobody_uses(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("mpich_shm_before", "mpich_shm_left", "mpich_shm_used", "mine")]
    before, left, used, mine = names
    before.touch()
    watch = SharedMemoryWatch(str(tmp_path))
    try:
        with used.open("w"):
            left.touch()
            mine.touch()
            watch.take([])
            assert watch.remove() == ["mpich_shm_left"]
        assert [path for path in names if not path.exists()] == [left]
    finally:
        watch.close()


def test_what_others_made_in_shared_memory_stays(tmp_path: Path) -> None:
    bystander = Path("/dev/shm") / f"mpich_shm_test_{uuid.uuid4()}"
    made_meanwhile = Path("/dev/shm") / f"mine_{uuid.uuid4()}"
    try:
        with bystander.open("w"):  # in use: jobs of other tests that end meanwhile leave it, too
            job, pids = forever(tmp_path, "mpich", str(uuid.uuid4()))
            made_meanwhile.touch()
            os.kill(pids[0], signal.SIGKILL)
            job.communicate(timeout=TIMEOUT_S)
        assert bystander.exists()
        assert made_meanwhile.exists()
    finally:
        bystander.unlink()
        made_meanwhile.unlink()
