"""The hang report: what every rank was doing, also a stopped one, from boards and stacks."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent

import pytest
from launch_jobs import program, run

from launch import boards
from launch.board import Phase, Where, create, now_ns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TRAINS = """
import os, sys, time
import distcompile as torch
from distcompile import nn
from distcompile.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group()
model = DistributedDataParallel(nn.Linear(8, 4))
for step in range(5):
    if step == 3 and torch.distributed.get_rank() == 1:
        exec(sys.argv[1])
    model(torch.randn(3, 8)).square().mean().backward()
"""


def test_sentences_come_from_the_boards_that_there_are(tmp_path: Path) -> None:
    made = create(boards.path_of(str(tmp_path), 1), 1)
    made.write(Where.MAIN, Phase.COMPILING, now_ns() - 41_000_000_000, 57, segment=2, label=made.place("GPT"))
    seen = boards.Boards(str(tmp_path))
    assert seen.sentences(3) == {1: "rank 1 has been compiling segment 2 of GPT for 41 s, step 57"}
    assert seen.look(3) is None
    made.hang("waited too long")
    seen.next_look = 0.0
    assert seen.look(3) == boards.Hang(1, "waited too long", frozenset({1}))
    made.write(Where.MAIN, Phase.FINISHED, now_ns())
    assert seen.look(3, at_once=True) == boards.Hang(1, "waited too long", frozenset())
    made.hang("")
    assert seen.look(3, at_once=True) is None


def test_a_stopped_rank_is_reported_with_what_it_did(tmp_path: Path) -> None:
    done = run(
        "-n", "2", "--stop-limit", "1.5", "--bind", "none", program(tmp_path, TRAINS), "os.kill(os.getpid(), 19)"
    )
    assert done.returncode == 147, done.stderr
    assert "rank 0 has been waiting for rank(s) 1" in done.stderr
    assert "rank 1 has been in the program's own code" in done.stderr
    assert done.stderr.count('program.py", line') >= 2, "both stacks"
    assert "has been stopped (SIGSTOP)" in done.stderr.splitlines()[-1]


@pytest.mark.long
def test_a_rank_that_is_waited_for_too_long_is_shown_where_it_is(tmp_path: Path) -> None:
    line = ["-n", "2", "--bind", "none", "--watchdog", "3", "--timeout", "50", program(tmp_path, TRAINS)]
    done = run(*line, "def asleep_here():\n    time.sleep(100)\nasleep_here()")
    assert done.returncode in (1, 124), done.stderr
    assert "in asleep_here" in done.stderr
    assert "rank 0 left step 3 after an exception" in done.stderr or "the job hangs, says rank 0" in done.stderr


@pytest.mark.long
def test_a_hang_is_told_where_no_rank_fails_of_it(tmp_path: Path) -> None:
    """The ranks die of the launcher's SIGKILL, after it has begun to end the job: that explains nothing."""
    keeps_quiet = f"try:\n{indent(TRAINS, '    ')}\nexcept BaseException:\n    time.sleep(100)\n"
    limits = ["--watchdog", "3", "--save-limit", "2", "--timeout", "50"]
    line = ["-n", "2", "--bind", "none", *limits, program(tmp_path, keeps_quiet)]
    done = run(*line, "def asleep_here():\n    time.sleep(100)\nasleep_here()")
    assert done.returncode == 124, done.stderr
    assert "in asleep_here" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "distcompile-run: the job hangs, says rank 0: rank 0 waited too long"
    )


def test_a_failed_rank_is_told_by_its_peers_and_blamed_alone(tmp_path: Path) -> None:
    done = run("-n", "2", "--bind", "none", program(tmp_path, TRAINS), "raise ValueError('no luck')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no luck\n")
    assert "rank 1 failed with exit code 1" in done.stderr
