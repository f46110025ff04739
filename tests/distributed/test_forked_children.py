"""Jobs whose ranks fork: however a child ends, and whatever it tries, the job never takes it for the rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_job import ROOT, check_ran, run_on_ranks

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

PROGRAM = """
import ctypes, multiprocessing, os, sys, time
import distcompile as torch
import distcompile.distributed as dist
from distcompile.utils.data import DataLoader, Dataset

def ends(way):
    "The child's part."
    if way == "exit":
        sys.exit(0)
    if way == "exit3":
        sys.exit(3)
    if way == "raise":
        raise ValueError("the child's own")
    if way == "exec":
        os.execv("/bin/true", ["true"])
    if way == "crash":
        ctypes.string_at(0)
    if way == "collective":
        dist.all_reduce(torch.ones(4) * 100)
    if way == "again":
        dist.destroy_process_group()
        dist.init_process_group()
    if way == "train":
        model(torch.ones(2, 3)).sum().backward()
    if way == "grads":
        for p in model.parameters():
            p.grad.fill_(100)
        os._exit(0)
    if way == "os._exit":
        os._exit(0)
    if way == "end":
        raise EndOfProgram

class EndOfProgram(BaseException):
    pass

class Reduces(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        x = torch.ones(1) * (100 + dist.get_rank())
        dist.all_reduce(x)
        return x

def check():
    x = torch.ones(4) * (dist.get_rank() + 1)
    dist.all_reduce(x)
    assert x.tolist() == [3] * 4, x

dist.init_process_group()
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
model(torch.ones(2, 3) * rank).sum().backward()
codes = {}
try:
    for way in ("exit", "exit3", "raise", "exec", "crash", "collective", "again", "train", "grads", "os._exit", "end"):
        if rank == 0:
            pid = os.fork()
            if pid == 0:
                ends(way)
                os._exit(77)  # not reached
            codes[way] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        check()
        assert all((p.grad <= 2).all() for p in model.parameters())
except EndOfProgram:
    pass
else:
    process = multiprocessing.get_context("fork").Process(target=check)
    process.start()
    process.join(60)
    assert process.exitcode == 1
    try:
        next(iter(DataLoader(Reduces(), num_workers=1)))
    except RuntimeError as error:
        assert "ForkedProcessError" in str(error), error
    else:
        raise AssertionError("a worker took its parent's place")
    check()
    if rank == 0:
        print("codes", codes, flush=True)
"""
CODES = {
    "exit": 0, "exit3": 3, "raise": 1, "exec": 0, "crash": -11, "collective": 1, "again": 1, "train": 1, "grads": 0,
    "os._exit": 0, "end": 0,
}  # fmt: skip


@pytest.mark.parametrize("mpi", ["mpich", pytest.param("openmpi", marks=pytest.mark.long)])
def test_no_child_speaks_for_its_rank(tmp_path: Path, mpi: str) -> None:
    script = tmp_path / "forks.py"
    script.write_text(PROGRAM)
    done = run_on_ranks(2, ["--mpi", mpi, str(script)], limit_s=120)
    check_ran(done)
    assert f"codes {CODES}" in done.stdout, done.stdout + done.stderr
    assert "ValueError: the child's own" in done.stderr
    assert done.stderr.count("ForkedProcessError: a forked process takes no part") >= 3
    assert "distcompile-run:" not in done.stderr, done.stderr


@pytest.mark.long
def test_under_mpiexec_alone_a_childs_error_does_not_abort_the_job(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(PROGRAM)
    mpiexec = Path(sys.executable).with_name("mpiexec.hydra")
    if not mpiexec.exists():
        pytest.skip("no mpiexec of MPICH beside this Python")
    command = [str(mpiexec), "-n", "2", sys.executable, str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    check_ran(done)
    assert f"codes {CODES}" in done.stdout


STARTS = """
import multiprocessing, os, subprocess, sys
import distcompile as torch
import distcompile.distributed as dist

def takes_part(queue=None):
    try:
        dist.init_process_group(timeout=20)
        dist.all_reduce(torch.ones(1))
        said = "took part"
    except Exception as error:
        said = type(error).__name__
    queue.put(said) if queue is not None else print(said, flush=True)

def asked(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=takes_part, args=(queue,))
    process.start()
    said = queue.get(timeout=60)
    process.join(60)
    return said

if __name__ == "__main__" and "alone" in sys.argv:
    takes_part()
elif __name__ == "__main__":
    before = asked("fork")
    dist.init_process_group(timeout=60)
    others = [asked("fork"), asked("spawn")]
    command = [sys.executable, os.path.abspath(__file__), "alone"]
    others.append(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip())
    x = torch.ones(1)
    dist.all_reduce(x)
    print("said", before, *others, x.item(), flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("mpi", ["mpich", pytest.param("openmpi", marks=pytest.mark.long)])
def test_a_process_that_a_rank_starts_is_not_the_rank(tmp_path: Path, mpi: str) -> None:
    """MPI's variables are in its environment: it would be taken for the rank, or MPI would end it, or the job."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    done = run_on_ranks(2, ["--mpi", mpi, str(script)], limit_s=120)
    check_ran(done)
    # the child that was forked with the group has it: a second one is refused before anything else is
    words = "said ForkedProcessError NotInitializedError ForkedProcessError ForkedProcessError 2.0"
    assert done.stdout.count(words) == 2, done.stdout + done.stderr


@pytest.mark.long
def test_a_launcher_between_makes_ranks(tmp_path: Path) -> None:
    """A rank, or a notebook's job of one, may start jobs."""
    inner, outer = tmp_path / "inner.py", tmp_path / "outer.py"
    inner.write_text(
        "import distcompile.distributed as d\nd.init_process_group()\n"
        # one write each: mpiexec mixes the ranks' output where one line comes in several
        "import os\nos.write(1, f'inner {d.get_world_size()}\\n'.encode())\n"
    )
    mpiexec = Path(sys.executable).with_name("mpiexec.hydra")
    if not mpiexec.exists():
        pytest.skip("no mpiexec of MPICH beside this Python")
    outer.write_text(
        "import os, subprocess, sys\n"
        "of_ranks = ('PMI', 'HYD', 'MPI_', 'RANK', 'WORLD', 'LOCAL', 'ROLE', 'GROUP', 'NODE')\n"
        "clean = {k: v for k, v in os.environ.items() if not k.startswith(of_ranks)}\n"
        f"for command in (['{mpiexec}', '-n', '2', sys.executable], [sys.executable, '-m', 'launch', '-n', '2']):\n"
        f"    subprocess.run([*command, '{inner}'], env=clean, check=True, timeout=60)\n"
    )
    done = run_on_ranks(1, [str(outer)], limit_s=120)
    check_ran(done)
    assert done.stdout.count("inner 2") == 4, done.stdout + done.stderr
