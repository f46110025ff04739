"""Progress: a bar where it can be redrawn, few lines elsewhere, and never a long silence in the demo."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from distcompile.demo import display as demo_display
from distcompile.demo.display import Display
from distcompile.showing import progress as module
from distcompile.showing.progress import make_console, progress


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    written = io.StringIO()
    with progress(Console(file=written, force_terminal=True, width=80), lines_every_s=None) as say:
        say("judging [this]", 0.5)
    assert "judging [this]" in written.getvalue()


def test_elsewhere_lines_keep_their_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    written = io.StringIO()
    with progress(Console(file=written, width=80), lines_every_s=3.0) as say:
        for second in range(10):
            now[0] = float(second)
            say(f"part {second}", second / 10)
    assert written.getvalue().splitlines() == [" 30% part 3", " 60% part 6", " 90% part 9"]


@pytest.mark.parametrize("console", [None, Console(file=io.StringIO())])
def test_who_wants_no_lines_gets_none(console: Console | None) -> None:
    with progress(console, lines_every_s=None) as say:
        say("anything", 0.5)
    assert console is None or console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_the_launcher_says_how_wide_a_bar_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCOMPILE_RUN_COLUMNS", "57")
    console = make_console()
    assert console.is_terminal
    assert console.width == 57


def shown(monkeypatch: pytest.MonkeyPatch, **console: Any) -> tuple[Display, io.StringIO]:
    """The demo's display, which breaks silence after a twentieth of a second."""
    written = io.StringIO()
    monkeypatch.setattr(demo_display, "SILENCE_S", 0.05)
    monkeypatch.setattr(demo_display, "make_console", lambda: Console(file=written, width=80, **console))
    return Display(10, 0), written


def wait_for(written: io.StringIO, text: str) -> None:
    until_s = time.monotonic() + 60
    while text not in written.getvalue() and time.monotonic() < until_s:
        time.sleep(0.01)
    assert text in written.getvalue()


def test_the_demo_is_never_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    display, written = shown(monkeypatch)
    with display:
        wait_for(written, "compiling, 0 s so far")
        display.step(3, 2.5, 1000.0)
        wait_for(written, "step    3/10   loss 2.500")
        with display.task_of("parity") as say:
            say("parity: eager", 0.25)
            wait_for(written, " 25% parity: eager")
    said = written.getvalue()
    time.sleep(0.2)
    assert written.getvalue() == said  # its thread has ended


def test_the_demo_on_a_terminal_shows_a_bar_and_the_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    display, written = shown(monkeypatch, force_terminal=True)
    with display:
        display.say("a line")
        display.step(10, 2.5, 1000.0)
        display.evaluation(10, 2.4, 1000.0)
    assert "a line" in written.getvalue()
    assert "10/10" in written.getvalue()


def test_other_ranks_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_display, "make_console", lambda: pytest.fail("no console on other ranks"))
    display = Display(10, 1)
    with display, display.task_of("parity") as say:
        display.say("text")
        display.step(1, 2.5, 1000.0)
        display.evaluation(1, 2.4, 1000.0)
        say("parity: eager", 0.25)
