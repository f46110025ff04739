"""What a process writes on its board: phases as they nest, the user's line, exceptions until a step goes well."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_core import observe
from compiler_core.config import config
from compiler_core.errors import ConfigError
from compiler_core.steps import timed
from distcompile.watchdog import PATH_VARIABLE, limit_s
from distcompile.watchdog.status import Status
from launch.board import Phase, Reader, Where, create

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def status(tmp_path: Path) -> Iterator[Status]:
    status = Status(create(str(tmp_path / "board"), 0))
    observe.install(status)
    yield status
    observe.install(None)
    status.finish()
    status.thread.join(60)


def record(status: Status) -> tuple[Phase, str, int]:
    main = Reader(status.board.memory).snapshot().main
    return main.phase, main.label, main.segment


def test_phases_nest(status: Status) -> None:
    assert record(status)[0] is Phase.USER_CODE
    with observe.phase("forward", "Net"):
        assert record(status) == (Phase.FORWARD, "Net", -1)
        with timed("Net_backward_segment2", "build"):
            assert record(status) == (Phase.COMPILING, "Net_backward (step 'build')", 2)
        assert record(status) == (Phase.FORWARD, "Net", -1)
    with observe.phase("backward"):
        observe.segment(3)
        assert record(status) == (Phase.BACKWARD, "", 3)
        with observe.phase("optimizer", "SGD"):
            observe.segment(9)
            assert record(status) == (Phase.OPTIMIZER, "SGD", -1)
        assert record(status) == (Phase.BACKWARD, "", 3)
    assert record(status)[0] is Phase.USER_CODE


def test_a_phase_keeps_its_begin(status: Status) -> None:
    reader = Reader(status.board.memory)
    with observe.phase("backward"):
        began = reader.snapshot().main.since_ns
        with observe.phase("optimizer"):
            assert reader.snapshot().main.since_ns > began
        assert reader.snapshot().main.since_ns == began


def test_the_beat_keeps_nothing_alive(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the main thread's frames: held until the next beat, they kept a step's saved values for half a
    second, which on a GPU were the next steps' memory."""
    wait, seen, has_looked = status.ending.wait, threading.Event(), threading.Event()

    def waits(seconds: float) -> bool:
        if seen.is_set():
            has_looked.set()
        return wait(seconds) if not has_looked.is_set() else wait(60)

    monkeypatch.setattr(status.ending, "wait", waits)
    monkeypatch.setattr(status.board, "beat", seen.set)

    def step() -> weakref.ref[Any]:
        saved = np.zeros(8)
        assert has_looked.wait(60)  # at this frame; now it sleeps
        return weakref.ref(saved)

    assert step()() is None


def test_other_threads_are_not_told(status: Status) -> None:
    def other() -> None:
        with observe.phase("backward"):
            observe.segment(1)
            assert record(status)[0] is Phase.USER_CODE

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    assert record(status)[0] is Phase.USER_CODE


def test_an_exception_is_told_until_a_step_goes_well(status: Status) -> None:
    status.begin_step(57)
    with pytest.raises(ZeroDivisionError), observe.phase("backward"):
        _ = 1 // 0
    noted = Reader(status.board.memory).snapshot().exception
    assert noted is not None
    assert (noted.step, noted.label) == (57, "ZeroDivisionError: integer division or modulo by zero")
    assert noted.text.startswith("test_status.py:")
    status.begin_step(58)
    assert Reader(status.board.memory).snapshot().exception is not None
    status.end_step()
    assert Reader(status.board.memory).snapshot().exception is None


def test_a_compile_that_raises_is_no_exception_of_a_step(status: Status) -> None:
    with pytest.raises(ValueError, match="no"), observe.phase("compiling", "Net: capture"):
        raise ValueError("no")
    assert Reader(status.board.memory).snapshot().exception is None


def test_the_beat_goes_on_and_ends(status: Status) -> None:
    before = status.board.words[3]
    until_s = time.monotonic() + 60
    while status.board.words[3] == before or not Reader(status.board.memory).snapshot().line:
        assert time.monotonic() < until_s, "no beat"
        status.ending.wait(0.05)
    assert status.board.words[3] > before
    assert Reader(status.board.memory).snapshot().line.startswith("test_status.py:")
    status.finish()
    assert record(status)[0] is Phase.FINISHED
    assert Where.MAIN == 0


def test_a_board_of_the_process_above_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "board"
    create(str(path), 3)
    before = path.read_bytes()
    code = "from distcompile import watchdog; s = watchdog.start(); assert s.board.words[2] == 0; s.begin_step(5)"
    environment = {**os.environ, PATH_VARIABLE: str(path)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, timeout=60, check=True)
    assert path.read_bytes() == before
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment | {PATH_VARIABLE: "/nowhere"}, timeout=60, check=True
    )


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_limit_that_is_no_number_is_a_named_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DISTCOMPILE_WATCHDOG_S", text)
    config.values.pop("watchdog_s", None)
    with pytest.raises(ConfigError, match="DISTCOMPILE_WATCHDOG_S"):
        limit_s()


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, seconds in (("", None), ("0", 0.0), ("2.5", 2.5)):
        monkeypatch.setenv("DISTCOMPILE_WATCHDOG_S", text)
        config.values.pop("watchdog_s", None)
        assert limit_s() == seconds
