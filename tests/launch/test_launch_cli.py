"""The command line: where the program starts, what is refused, what --dry-run prints."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from launch_jobs import environment, program, run

from launch.cli import main
from launch.command import build_command
from launch.errors import UsageError, WorldSizeError
from launch.machine.mpi_discovery import FAMILIES, MPI
from launch.options import build_parser, parse, split_command_line
from launch.ranks import NO_MPI, RankIdentity, identify


@pytest.mark.parametrize(
    ("line", "own", "rest"),
    [
        ("-n 2 -m demo --steps 3 -n 5", "-n 2", "-m demo --steps 3 -n 5"),
        ("-n2 script.py -x", "-n2", "script.py -x"),
        ("--timeout=3 --bind none s.py", "--timeout=3 --bind none", "s.py"),
        ("--no-prefix s.py --dry-run", "--no-prefix", "s.py --dry-run"),
        ("-n 2 -- s.py", "-n 2", "s.py"),
        ("--mpi-args=-v s.py", "--mpi-args=-v", "s.py"),
    ],
)
def test_the_program_s_arguments_are_its_own(line: str, own: str, rest: str) -> None:
    assert split_command_line(build_parser(), line.split()) == (own.split(), rest.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [("-n 2", "nothing to run"), ("-n 2 -m", "nothing to run"), ("-n 0 -m x", "0 ranks"), ("absent.py", "no file")],
)
def test_what_cannot_run_is_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(line.split())


def test_main_prints_the_error_and_returns_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-n", "2"]) == 2
    assert "UsageError: nothing to run" in capsys.readouterr().err


def test_dry_run_prints_a_line_that_a_shell_runs(tmp_path: Path) -> None:
    script = program(tmp_path, "print('ran')", "a b.py")
    shown = run("-n", "2", "--dry-run", script, "--x", "1 2")
    assert shown.returncode == 0
    *comments, line = shown.stdout.strip().splitlines()
    words = shlex.split(line)
    assert words[-3:] == [script, "--x", "1 2"]
    assert words[1:3] == ["-n", "2"]
    assert all(comment.startswith("#") for comment in comments)
    assert "OMP_NUM_THREADS=" in shown.stdout
    assert "\nran" not in shown.stdout


def test_dry_run_respects_the_users_threads() -> None:
    assert "OMP_NUM_THREADS=" not in run("--dry-run", "-m", "this", OMP_NUM_THREADS="3").stdout


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_hosts_are_said_in_each_mpi_s_words(family: object) -> None:
    mpi = MPI(family, "5.0.0", "", "mpiexec")  # type: ignore[arg-type]
    options = parse(["-n", "2", "--hosts", "a,b", "--mpi-args", "--x 'y z'", "-m", "this"])
    command = build_command(mpi, options, "", {})
    assert "a,b" in command
    assert command.index("y z") < command.index("--mpi")


def test_a_rank_knows_who_it_is() -> None:
    environ = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert identify("MPICH", 4, environ) == RankIdentity(3, 4, 1, 2)
    assert identify(NO_MPI, 1, {}) == RankIdentity(0, 1, 0, 1)


@pytest.mark.parametrize("environ", [{}, {"PMI_RANK": "0", "PMI_SIZE": "1"}])
def test_a_world_of_the_wrong_size_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(WorldSizeError, match="one of 2 ranks"):
        identify("MPICH", 2, environ)


@pytest.mark.parametrize("module", ["launch", "distcompile.run"])
def test_the_command_is_also_a_module(module: str) -> None:
    """As `python -m torch.distributed.run` is."""
    command = [sys.executable, "-m", module, "-n", "2"]
    done = subprocess.run(command, check=False, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, "UsageError: nothing to run" in done.stderr) == (2, True)
