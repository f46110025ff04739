"""What is printed of an error that nobody catches: the user's frames and the error's text, never less, on any rank."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import distcompile as dc
from distcompile.showing import traces
from distcompile.showing.traces import fold

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys, threading
import distcompile as torch
from distcompile import nn
from distcompile.utils.data import DataLoader

def checked(x):
    if x.shape[0] > 2:
        raise ValueError("mine: too many rows")
    return x + 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, x):
        return checked(self.inner(x))

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise KeyError("in my backward")

class Odd(Exception):
    __hash__ = None
    __notes__ = "no list"
    def __eq__(self, other):
        return True

class Data:
    def __len__(self):
        return 4
    def __getitem__(self, place):
        raise Odd("no such sample")

def eager(): Net()(torch.ones(3, 5))
def captured(): torch.compile(Net())(torch.ones(3, 4))
def compiled(): torch.compile(lambda x, i: x[i])(torch.ones(3), torch.tensor([7]))
def backward(): Twice.apply(torch.ones(3, requires_grad=True)).sum().backward()
def data(): list(DataLoader(Data(), batch_size=2))
def thread(): threading.Thread(target=eager).start() or sys.exit(1)
def library(): json.loads("{bad")
def unknown(): Net().no_such_method
@torch.compile
def absent(x=torch.ones(3)):
    return x + {}["k"]
@torch.compile
def handled(x=torch.ones(3)):
    try:
        x = x + {}["k"]
    except KeyError as error:
        raise RuntimeError("outer") from error
def caused():
    try:
        eager()
    except Exception as error:
        raise RuntimeError("outer") from error

globals()[sys.argv[1]]()
"""
CASES = [
    ("eager", ["in eager", "in forward"], "ShapeError: linear: sizes do not fit"),
    ("captured", ["in captured", "in forward", "in checked"], "ValueError: mine: too many rows"),
    ("compiled", ["in compiled"], "index 7 is out of range"),
    ("backward", ["in backward"], "KeyError: 'in my backward'"),
    ("data", ["in data", "in __getitem__"], "Odd: no such sample"),
    ("thread", ["in eager", "in forward"], "ShapeError: linear: sizes do not fit"),
    ("library", ["in library", "in loads", "in decode"], "JSONDecodeError"),
    ("unknown", ["in unknown"], "no_such_method"),
    ("absent", ["in absent"], "KeyError: 'k'"),
    ("handled", ["in handled"], "RuntimeError: outer"),
    ("caused", ["in caused", "in eager", "in forward"], "RuntimeError: outer"),
]


def failed(tmp_path: Path, case: str, launcher: list[str], **environment: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *launcher, str(path), case],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


def our_frames(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith(f'File "{ROOT}/')]


@pytest.mark.parametrize(("case", "frames", "error"), CASES)
def test_the_users_frames_and_the_error_stay(tmp_path: Path, case: str, frames: list[str], error: str) -> None:
    text = failed(tmp_path, case, [])
    assert error in text
    assert all(frame in text for frame in frames)
    assert len(our_frames(text)) == (case == "unknown")  # an error that we do not know keeps its origin
    assert ("left out; DISTCOMPILE_TRACEBACK=full" in text) == (case not in ("library", "unknown", "data"))


@pytest.mark.parametrize("value", ["full", "no value at all"])
def test_all_frames_are_there_if_asked_for(tmp_path: Path, value: str) -> None:
    text = failed(tmp_path, "captured", [], DISTCOMPILE_TRACEBACK=value)
    assert len(our_frames(text)) > 5
    assert "ValueError: mine: too many rows" in text
    said = f"DISTCOMPILE_TRACEBACK={value!r} is not valid: expected folded or full; all frames are shown"
    assert (said in text) == (value != "full")


def test_an_empty_knob_is_as_one_that_is_not_set(tmp_path: Path) -> None:
    assert our_frames(failed(tmp_path, "captured", [], DISTCOMPILE_TRACEBACK="")) == []


@pytest.mark.parametrize("case", ["captured", "data"])
def test_ranks_tell_the_same(tmp_path: Path, case: str) -> None:
    text = failed(tmp_path, case, ["-m", "launch", "-n", "2", "--timeout", "100"])
    (frames, error) = next((frames, error) for name, frames, error in CASES if name == case)
    assert error in text
    assert all(frame in text for frame in frames)
    assert our_frames(text) == []


def test_a_rank_with_all_frames(tmp_path: Path) -> None:
    text = failed(tmp_path, "captured", ["-m", "launch", "-n", "1"], DISTCOMPILE_TRACEBACK="full")
    assert len(our_frames(text)) > 5


def test_a_traceback_of_our_frames_alone_stays_whole() -> None:
    """As an error in one of our threads has it."""
    source = "def inner():\n    raise TypeError('ours')\ndef outer():\n    inner()\n"
    names: dict[str, object] = {}
    exec(compile(source, f"{ROOT}/collectives/made_up.py", "exec"), names)
    with pytest.raises(TypeError) as caught:
        names["outer"]()  # type: ignore[operator]
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # this test's own frame
    before = traceback.format_exception(error)
    fold(error)
    assert traceback.format_exception(error) == before


class Shell:
    """What IPython offers for errors."""

    def __init__(self, *others: type[BaseException]) -> None:
        self.custom_exceptions: tuple[type[BaseException], ...] = others
        self.shown: list[BaseException] = []

    def set_custom_exc(self, kinds: tuple[type[BaseException], ...], show: Any) -> None:
        self.custom_exceptions, self.show = kinds, show

    def showtraceback(self, told: tuple[Any, BaseException, Any], tb_offset: int | None = None) -> None:
        assert told[2] is told[1].__traceback__
        self.shown.append(told[1])


def test_a_notebook_shows_the_users_frames_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    traces.install()
    with pytest.raises(RuntimeError) as caught:
        dc.ones(2, 3) @ dc.ones(2, 3)
    shell.show(shell, caught.type, caught.value, caught.tb)
    assert shell.shown == [caught.value]
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)] == [
        "test_a_notebook_shows_the_users_frames_alone"
    ]


def test_a_notebook_with_a_handler_of_its_own_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(KeyError)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    traces.install()
    assert shell.custom_exceptions == (KeyError,)
