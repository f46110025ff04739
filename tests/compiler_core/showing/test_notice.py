"""A compilation that lasts says so, where a person looks; the others are silent."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest

from compiler_core import log, steps
from compiler_core.config import config
from compiler_core.showing import notice


class Terminal(io.StringIO):
    """A stderr that is a terminal, and tells when a line has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.came.set()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Lines come after a twentieth of a second, and a minute later."""
    made = Terminal()
    monkeypatch.setattr(notice, "sys", SimpleNamespace(stderr=made, modules={}))  # pytest puts its own back in sys
    monkeypatch.setattr(notice, "SAY_AT_S", (0.05, 60.0))
    monkeypatch.setattr(notice, "_compilation", notice._Compilation())
    return made


def test_the_step_that_lasts_is_named(terminal: Terminal) -> None:
    with steps.compiling("net", "backend"), steps.compiling("net", "build"):
        assert terminal.came.wait(60)
    assert terminal.getvalue() == "distcompile: compiling net: the C++ compiler is at work, 0 s so far\n"


def test_steps_that_follow_each_other_are_one_compilation(terminal: Terminal) -> None:
    for _ in range(200):
        with steps.compiling("net", "joint"):
            if terminal.came.wait(0.01):
                break
    assert terminal.getvalue().count("\n") == 1


def timers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def check_no_timer(terminal: Terminal) -> None:
    for timer in timers():
        timer.join(30)  # one that was cancelled ends at once
    assert not timers()
    assert not terminal.came.is_set()


def test_a_short_one_is_silent(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "SAY_AT_S", (60.0, 60.0))
    with steps.compiling("net", "joint"):
        assert timers()
    check_no_timer(terminal)


def test_one_that_fails_leaves_no_timer(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "SAY_AT_S", (60.0, 60.0))
    with pytest.raises(OSError, match="full"), steps.compiling("net", "build"):
        raise OSError("full")
    check_no_timer(terminal)


@pytest.mark.parametrize(("knob", "rank"), [("0", 0), ("auto", 1), ("1", 1)])
def test_who_is_not_to_be_told_is_not(terminal: Terminal, knob: str, rank: int) -> None:
    log.set_rank(rank)
    with config.patch(progress=knob), steps.compiling("net", "build"):
        assert not terminal.came.wait(0.2)


def test_without_a_terminal_only_if_asked_for(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTCOMPILE_RUN_COLUMNS", raising=False)
    monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    with steps.compiling("net", "build"):
        assert not terminal.came.wait(0.2)
    with config.patch(progress="1"), steps.compiling("net", "build"):
        assert terminal.came.wait(60)
