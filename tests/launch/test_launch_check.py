"""`distcompile-run --check`: every topic has a line; what is wrong is a problem with a remedy and an exit code."""

from __future__ import annotations

import pytest
from launch_jobs import run

from tests.sharing import some

TOPICS = ("launcher", "MPI", "progress", "speed", "binding", "compiler", "cache", "GPUs")


@pytest.mark.parametrize("mpi", some(["mpich", "openmpi"], 1))
def test_each_topic_is_reported(mpi: str) -> None:
    done = run("--check", "--mpi", mpi)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[1] for line in lines if line.startswith(("  ", " w"))} >= set(TOPICS) - {"launcher"}
    assert "thread level MULTIPLE; 2 ranks" in done.stdout
    assert done.stdout.count("all-reduce  ") == 4
    assert lines[-1].startswith("0 problems")


def test_a_missing_compiler_is_a_problem() -> None:
    done = run("--check", "-n", "1", DISTCOMPILE_CXX="no-such-compiler")
    assert done.returncode == 1
    assert "problem  compiler    no C++ compiler: no-such-compiler not found" in done.stdout
    assert "what to do: install one" in done.stdout


def test_a_cache_that_cannot_be_written_is_a_warning() -> None:
    done = run("--check", "-n", "1", DISTCOMPILE_CACHE_DIR="/proc/nowhere")
    assert done.returncode == 0, done.stdout
    assert "warning  cache" in done.stdout
    assert "not the first choice" in done.stdout
