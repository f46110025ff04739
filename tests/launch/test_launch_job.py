"""Real jobs: output, threads, failures, signals, and that nothing stays behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
from launch_jobs import TIMEOUT_S, environment, processes_with, program, run, start, wait_until

HELLO = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
print("rank", world.rank, "of", world.size, sys.argv[1:], __name__, os.path.basename(__file__))
sys.stderr.write("warn\\n")
"""

FOREVER = """
import os, subprocess, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
if world.rank == 0:  # a process of its own session, which no process group reaches
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
world.Barrier()
open(sys.argv[1] + str(world.rank), "w").close()
if world.rank == 1 and len(sys.argv) > 2:
    exec(sys.argv[2])
while True:
    time.sleep(1000)
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_two_ranks_see_each_other_and_keep_their_streams(tmp_path: Path) -> None:
    done = run("-n", "2", program(tmp_path, HELLO), "--flag", "x")
    assert done.returncode == 0, done.stderr
    expected = [f"[{r}] rank {r} of 2 ['--flag', 'x'] __main__ program.py" for r in range(2)]
    assert sorted(done.stdout.splitlines()) == expected
    assert sorted(done.stderr.splitlines()) == ["[0] warn", "[1] warn"]


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_finds_torchruns_variables(tmp_path: Path, size: int) -> None:
    text = """
    import os
    found = [os.environ.get(n, "") for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    os.write(1, (" ".join(found) + chr(10)).encode())  # one write: unbuffered, print makes several, which mix
    """
    done = run("-n", str(size), "--no-prefix", program(tmp_path, dedent(text)), RANK="9", WORLD_SIZE="10")
    assert sorted(done.stdout.splitlines()) == [f"{rank} {size} {rank} {size}" for rank in range(size)]


def test_modules_and_packages_run(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "__main__.py").write_text("from . import sub\nprint(__package__, __name__, sub.x)\n")
    (tmp_path / "pack" / "sub.py").write_text("x = 5\n")
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        done = run("-n", "1", "-m", "pack")
    finally:
        os.chdir(here)
    assert done.stdout == "pack __main__ 5\n"


def test_a_users_own_launch_module_wins(tmp_path: Path) -> None:
    program(tmp_path, "mine = True", "launch.py")
    script = program(tmp_path, "import launch, errors_of_mine\nprint(launch.mine)\n")
    program(tmp_path, "", "errors_of_mine.py")
    assert run(script).stdout == "True\n"


def test_one_rank_and_no_prefix_leave_output_alone(tmp_path: Path) -> None:
    script = program(tmp_path, "print('a', end='')")
    assert run(script).stdout == "a"
    assert run("-n", "2", "--no-prefix", script).stdout == "aa"


@linux
def test_ranks_share_the_cores(tmp_path: Path) -> None:
    text = "import os\nprint(sorted(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'))"
    script = program(tmp_path, text)
    cores = len(os.sched_getaffinity(0))
    lines = run("-n", "2", script).stdout.splitlines()
    assert len(lines) == 2
    if cores >= 2:
        assert len({line.split("]")[1] for line in lines}) == 2  # different cores
    every = str(sorted(os.sched_getaffinity(0)))
    unbound = run("-n", "2", "--bind", "none", script, OMP_NUM_THREADS="5").stdout.splitlines()
    assert all(line.endswith(f"{every} 5") for line in unbound)


def test_a_failing_rank_ends_the_job_with_its_traceback_last(tmp_path: Path) -> None:
    marker = f"DCTEST={uuid.uuid4()}"
    script = program(tmp_path, FOREVER)
    begun = time.monotonic()
    failing = "def f():\n    raise ValueError('boom')\nf()"
    done = run("-n", "2", script, str(tmp_path / "up"), failing, DCTEST=marker.split("=")[1])
    assert time.monotonic() - begun < 90  # FOREVER is 1000
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: boom\n")
    assert "rank 1 failed with exit code 1" in done.stderr
    assert "child.py" not in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert processes_with(marker) == []


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("sys.exit(7)", 7, "exit code 7"),
        ("sys.exit('no luck')", 1, "no luck"),
        ("os._exit(5)", 5, "exit code 5"),
        ("os.kill(os.getpid(), 9)", 137, "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", 139, "Segmentation fault"),
        ("os.abort()", 134, "Aborted"),
    ],
)
def test_however_a_rank_ends_its_code_is_the_jobs(tmp_path: Path, ending: str, code: int, words: str) -> None:
    done = run("-n", "2", program(tmp_path, FOREVER), str(tmp_path / "up"), ending)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "rank 1" in done.stderr


def test_an_exit_of_zero_is_no_failure(tmp_path: Path) -> None:
    done = run("-n", "2", program(tmp_path, "import sys\nprint('x')\nsys.exit(0)"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_users_excepthook_still_runs(tmp_path: Path) -> None:
    text = "import sys\nsys.excepthook = lambda kind, value, tb: print('hook', kind.__name__)\nraise KeyError('k')"
    done = run("-n", "1", program(tmp_path, text))
    assert done.stdout == "hook KeyError\n"
    assert done.stderr.endswith("KeyError: 'k'\n")


@linux
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_process(tmp_path: Path, signum: signal.Signals) -> None:
    marker = str(uuid.uuid4())
    job = start("-n", "2", program(tmp_path, FOREVER), str(tmp_path / "up"), DCTEST=marker)
    wait_until(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists())
    begun = time.monotonic()
    job.send_signal(signum)
    _, err = job.communicate(timeout=TIMEOUT_S)
    assert time.monotonic() - begun < 29, "they were killed, after the grace period"
    assert job.returncode == 128 + signum
    assert signum.name in err
    assert processes_with(marker) == []


def test_under_nohup_a_hangup_ends_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "launch",
        "-n",
        "2",
        program(tmp_path, "import time\nprint('ready')\ntime.sleep(2)"),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with subprocess.Popen(command, env=environment(), preexec_fn=ignore, **pipes) as job:  # type: ignore[call-overload]  # noqa: PLW1509
        job.stdout.readline()
        job.send_signal(signal.SIGHUP)
        _, err = job.communicate(timeout=TIMEOUT_S)
    assert (job.returncode, err) == (0, "")


@linux
def test_ranks_that_ignore_signals_are_killed(tmp_path: Path) -> None:
    marker = str(uuid.uuid4())
    text = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER
    job = start("-n", "2", "--grace", "1", program(tmp_path, text), str(tmp_path / "up"), DCTEST=marker)
    wait_until(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists())
    begun = time.monotonic()
    job.terminate()
    job.communicate(timeout=TIMEOUT_S)
    assert 0.5 < time.monotonic() - begun < 90
    assert processes_with(marker) == []


@linux
def test_when_the_launcher_is_killed_the_ranks_die(tmp_path: Path) -> None:
    marker = str(uuid.uuid4())
    text = FOREVER.replace("world.rank == 0", "False")  # a detached grandchild then has nobody left to end it
    job = start("-n", "2", program(tmp_path, text), str(tmp_path / "up"), DCTEST=marker)
    wait_until(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists())
    job.kill()
    job.communicate(timeout=TIMEOUT_S)
    wait_until(lambda: processes_with(marker) == [])


def test_the_line_of_a_dry_run_runs_by_itself(tmp_path: Path) -> None:
    """Without the launcher there is no socket, as on another host: output and traceback go through mpiexec."""
    text = "from mpi4py import MPI\nprint('ran')\nMPI.COMM_WORLD.Barrier()\nif MPI.COMM_WORLD.rank: raise KeyError('k')"
    shown = run("-n", "2", "--dry-run", program(tmp_path, text))
    line = shown.stdout.strip().splitlines()[-1]
    done = subprocess.run(
        line, shell=True, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode != 0  # the failing rank's, or that of the rank which mpiexec killed for it
    assert done.stdout.count("ran") == 2
    assert "KeyError: 'k'" in done.stderr


def test_user_signals_reach_every_rank(tmp_path: Path) -> None:
    text = """
import signal, sys, time
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
print("ready")
while not got:
    time.sleep(0.02)
print("signalled")
"""
    job = start("-n", "2", program(tmp_path, text))
    assert job.stdout is not None
    assert sorted(job.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    job.send_signal(signal.SIGUSR1)
    out, _ = job.communicate(timeout=TIMEOUT_S)
    assert sorted(out.splitlines()) == ["[0] signalled", "[1] signalled"]
    assert job.returncode == 0


def test_a_handled_sigterm_lets_ranks_end_well(tmp_path: Path) -> None:
    text = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready")
time.sleep(1000)
"""
    job = start("-n", "2", program(tmp_path, text))
    assert job.stdout is not None
    for _ in range(2):
        job.stdout.readline()
    job.terminate()
    _, err = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 143, "the program did not come to its own end"
    assert err.splitlines()[-1] == "distcompile-run: ended by SIGTERM, which all ranks handled: they ended well"


def test_ranks_have_longer_after_a_signal_than_after_a_failure(tmp_path: Path) -> None:
    text = """
import signal, sys, time
def save(*_):
    time.sleep(4.5)  # longer than the 3 s that ranks have after a failure
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready")
time.sleep(1000)
"""
    job = start("-n", "2", program(tmp_path, text))
    assert job.stdout is not None
    for _ in range(2):
        job.stdout.readline()
    job.terminate()
    out, err = job.communicate(timeout=TIMEOUT_S)
    assert out.count("saved") == 2
    assert "the ranks have had SIGTERM, and 30 s to end (--grace); a second one ends them at once" in err
    assert job.returncode == 143


def test_a_timeout_shows_where_every_rank_was(tmp_path: Path) -> None:
    text = "from mpi4py import MPI\ndef stuck_here():\n    MPI.COMM_WORLD.recv()\nstuck_here()\n"
    done = run("-n", "2", "--timeout", "2", program(tmp_path, text))
    assert done.returncode == 124
    assert done.stderr.count("in stuck_here") == 2


def test_a_closed_pipe_ends_the_job(tmp_path: Path) -> None:
    marker = str(uuid.uuid4())
    job = start("-n", "2", program(tmp_path, "while True:\n    print('y' * 1000)\n"), DCTEST=marker)
    assert job.stdout is not None
    job.stdout.readline()
    job.stdout.close()
    job.stdout = None
    job.wait(timeout=TIMEOUT_S)
    assert job.returncode == 141
    if sys.platform == "linux":
        assert processes_with(marker) == []


def test_much_output_arrives_whole_and_in_order(tmp_path: Path) -> None:
    done = run("-n", "2", program(tmp_path, "for i in range(20000):\n    print('line', i)\n"))
    for rank in range(2):
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}]")]
        assert lines == [f"[{rank}] line {i}" for i in range(20000)]


@linux
def test_on_a_terminal_a_bar_is_rewritten_in_place(tmp_path: Path) -> None:
    text = """
import os, sys, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    for part in ("\\r10%", "\\r" + os.environ["DISTCOMPILE_RUN_COLUMNS"], "\\n"):
        sys.stdout.write(part)
        sys.stdout.flush()
        time.sleep(0.3)
"""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "launch", "-n", "2", program(tmp_path, text)]
    environ = environment(COLUMNS="80")
    job = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert job.wait(timeout=TIMEOUT_S) == 0
    assert os.read(ours, 1000) == b"[0] 10%\r\x1b[2K[0] 75\r\x1b[2K[0] 75\r\n"
    os.close(ours)


def test_a_missing_module_is_the_ranks_failure() -> None:
    done = run("-n", "2", "-m", "no_such_module_anywhere")
    assert done.returncode == 1
    assert "no module 'no_such_module_anywhere'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["torch", "torch.nn"])
def test_a_program_that_finds_no_torch_is_told_of_as_torch(tmp_path: Path, name: str) -> None:
    text = f"raise ModuleNotFoundError(\"No module named '{name}'\", name={name!r})"
    result = run("-n", "1", program(tmp_path, text))
    assert result.returncode == 1
    assert f"ModuleNotFoundError: No module named '{name}'\n  what to do: distcompile-run --as-torch" in result.stderr


def test_another_module_that_is_missing_has_nothing_to_do_with_torch(tmp_path: Path) -> None:
    assert "--as-torch" not in run("-n", "1", program(tmp_path, "import torchless_module")).stderr
