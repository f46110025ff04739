"""The watchdog on real ranks: who compiles is waited for; who sleeps, died or left a step is named, with the place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

pytest.importorskip("mpi4py")

TRAIN = """
import os, signal, sys, time
import distcompile as torch
import distcompile.distributed as dist
import distcompile.nn as nn
from compiler_core import steps

def compiles():
    with steps.timed("Net_backward_segment2", "build"):
        time.sleep(4)

def sleeps():
    time.sleep(300)

def leaves():
    handle = model.module.bias.register_hook(lambda g: 1 // 0)
    try:
        step()
    except ZeroDivisionError:
        handle.remove()
        time.sleep(300)

def dies():
    os.kill(os.getpid(), signal.SIGKILL)

def raises():
    raise ValueError("rank one is out")

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()

dist.init_process_group(timeout=60)  # to start, on a machine that is busy
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    dist.group_or_default(None).timeout_s = 2.0 if number == 2 else 60.0
    if number == 2 and dist.get_rank() == 1:
        globals()[sys.argv[1]]()
    try:
        step()
    except Exception as error:
        print("told:", str(error).replace("\\n", " | "), flush=True)
        raise
if dist.get_rank() == 0:
    print("all steps done")
dist.destroy_process_group()
"""


def run(tmp_path: Path, what: str) -> tuple[int, str, float]:
    """Exit code, all output, seconds."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    began_s = time.monotonic()
    done = run_on_ranks(2, [str(script), what], limit_s=120)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began_s


def test_a_rank_that_compiles_is_waited_for_past_the_limit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = run_on_ranks(2, [str(script), "compiles"], limit_s=60)
    check_ran(done)
    assert "all steps done" in done.stdout


def test_a_rank_that_sleeps_is_named_with_its_line(tmp_path: Path) -> None:
    code, said, took_s = run(tmp_path, "sleeps")
    assert code != 0
    assert took_s < 100
    assert "rank 1 has been in the program's own code" in said
    assert "at train.py:13" in said


@pytest.mark.long
def test_a_rank_that_left_a_step_is_named_with_the_place(tmp_path: Path) -> None:
    code, said, took_s = run(tmp_path, "leaves")
    assert code != 0
    assert took_s < 100
    assert "rank 1 left step 2 after an exception at train.py:16: ZeroDivisionError" in said


@pytest.mark.parametrize(
    ("what", "story"),
    [
        ("dies", "is gone; at its last sign of life it has been in the program's own code"),
        ("raises", "after an exception at train.py:27: ValueError: rank one is out"),
    ],
)
def test_a_rank_that_ended_ends_the_others_at_once_and_they_know_how(tmp_path: Path, what: str, story: str) -> None:
    code, said, took_s = run(tmp_path, what)
    assert code != 0
    assert took_s < 100
    told = [line for line in said.splitlines() if "told:" in line]
    assert any("rank 1" in line and story in line for line in told), said


HANDLES = """
import sys, time
import distcompile as torch
import distcompile.distributed as dist

dist.init_process_group(timeout=60)
rank, x = dist.get_rank(), torch.ones(4)
dist.all_reduce(x)
dist.group_or_default(None).timeout_s = 1.0
late_s, save_s, ending = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if rank == 1:
    time.sleep(late_s)
try:
    dist.all_reduce(x)
    print("rank", rank, "was told nothing", flush=True)
except TimeoutError:
    print("rank", rank, "was told", flush=True)
    if ending == "two raises" and rank == 2:
        raise
    time.sleep(save_s)
    print("rank", rank, "saved", flush=True)
    if ending == "exit 5":
        sys.exit(5)
"""


def handles(tmp_path: Path, *arguments: str, late_s: float, save_s: float, ending: str = "") -> tuple[int, str]:
    """Exit code and output of three ranks, of which rank 1 comes late."""
    script = tmp_path / "handles.py"
    script.write_text(HANDLES)
    done = run_on_ranks(3, [*arguments, str(script), str(late_s), str(save_s), ending], limit_s=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_a_rank_that_handles_the_time_limit_may_save(tmp_path: Path) -> None:
    code, said = handles(tmp_path, late_s=100, save_s=6)
    assert said.count("saved") == 2, said
    assert "rank(s) 0, 2 handled that error, and may save: the job ends in 600 s (--save-limit)" in said
    assert code == 124
    assert "the job hangs, says rank 0: rank 0 waited too long in all_reduce(float32[4], sum) for rank(s) 1" in said


@pytest.mark.long
def test_nor_does_a_rank_end_it_that_does_not_handle_it(tmp_path: Path) -> None:
    code, said = handles(tmp_path, late_s=100, save_s=6, ending="two raises")
    assert "rank 0 saved" in said, said
    assert "rank 2 saved" not in said
    assert code == 1
    assert "distcompile-run: rank 2 failed with exit code 1; its traceback:" in said


@pytest.mark.long
def test_the_exit_code_is_the_one_that_it_chose(tmp_path: Path) -> None:
    code, said = handles(tmp_path, late_s=100, save_s=2, ending="exit 5")
    assert (code, said.count("saved")) == (5, 2), said


@pytest.mark.long
def test_the_late_rank_is_told_too_and_if_all_end_well_the_job_did(tmp_path: Path) -> None:
    code, said = handles(tmp_path, late_s=3, save_s=4)
    assert (said.count("was told\n"), said.count("saved")) == (3, 3), said
    assert code == 0, said


@pytest.mark.long
def test_nobody_saves_for_ever(tmp_path: Path) -> None:
    code, said = handles(tmp_path, "--save-limit", "2.5", late_s=100, save_s=100)
    assert "the job ends in 2.5 s (--save-limit)" in said, said
    assert "rank(s) 0, 2 handled that error, and had not ended within --save-limit" in said
    assert code == 124
