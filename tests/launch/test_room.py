"""Room for ranks: a word where they outnumber the CPUs, an error where MPI cannot start them."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from launch_jobs import run

from launch.errors import TooManyRanksError
from launch.machine import room
from launch.machine.binding import allowed_cpus
from launch.screen.verdict import judge
from launch.supervise import Outcome

LARGE = room.Room(files=1 << 20, processes=1 << 22, nbytes=1 << 40)


def test_ranks_that_have_a_cpu_each_are_not_worth_a_word() -> None:
    assert room.shortage(4, 0, 4) == room.shortage(2, 2, 4) == room.shortage(1, 4, 4) == ""


def test_more_ranks_than_cpus_are_told_with_what_to_set() -> None:
    assert room.shortage(5, 0, 4) == (
        "5 ranks on 4 CPUs: they take turns, and wait for each other; -n 4 gives each a CPU of its own"
    )
    assert room.shortage(2, 3, 1).startswith("2 ranks on 1 CPU: ")
    assert room.shortage(2, 3, 4).endswith("--threads-per-rank 2 gives each thread a CPU of its own")


@pytest.mark.parametrize(
    ("small", "expected"),
    [
        (replace(LARGE, files=1024), "at most 341: there are 1024 open files of mpiexec"),
        (replace(LARGE, processes=900), "at most 450: there are 900 processes"),
        (replace(LARGE, nbytes=4_000_000_000), "at most 500: there are 4000000000 bytes of memory"),
    ],
)
def test_ranks_that_cannot_be_started_are_refused(small: room.Room, expected: str) -> None:
    room.check(300, small)
    with pytest.raises(TooManyRanksError, match="999 ranks cannot be started on one host") as caught:
        room.check(999, small)
    assert expected in str(caught.value)


def test_this_host_has_room_for_a_few() -> None:
    room.check(8)


@pytest.mark.parametrize("count", [99_999_999, 999_999_999_999])
def test_an_absurd_number_is_refused_at_once(count: int) -> None:
    done = run("-n", str(count), "--dry-run", "-m", "this")
    assert done.returncode == 2
    assert f"TooManyRanksError: {count} ranks cannot be started on one host" in done.stderr


def test_the_launcher_says_it_once_and_starts() -> None:
    ranks = len(allowed_cpus()) + 1
    if ranks > 9:
        pytest.skip("starts a rank more than there are CPUs")
    done = run("-n", str(ranks), "--no-python", sys.executable, "-c", "print('here')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("here") == ranks
    assert done.stderr.count("they take turns") == 1


def test_what_mpiexec_says_of_ranks_that_it_could_not_start_is_shown() -> None:
    """Of a job of 30 ranks, of which the first left by 255 and mpiexec ended the others."""
    outcome = Outcome(
        size=30, returncode=255, records=(), vanished={rank: 1.0 + rank for rank in range(30)}, mpiexec=None,
        ending_at=None, signum=0, timed_out=False, stopped=None, hang=None, doing={},
        mpiexec_output="[proxy:0] pipe error (Too many open files)\n", last_words={}, survivors=(),
    )  # fmt: skip
    code, words = judge(outcome)
    lines = words.splitlines()
    assert code == 255
    assert lines[0] == "distcompile-run: first rank 0 left with exit code 255 before it had started"
    assert lines[1] == "distcompile-run: then rank 1 was ended by mpiexec before it had started"
    assert lines[21] == "distcompile-run: then 9 others"
    assert lines[-3:] == [lines[0].replace("first ", ""), "  mpiexec said:", outcome.mpiexec_output.strip()]
