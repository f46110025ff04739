"""Functions compiled while a profiler or a debugger watches: as without. Each in a process of its own, for what goes
wrong here is memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import cProfile, sys
import distcompile as torch

def caught(x):
    try:
        raise ValueError("a")
    except ValueError:
        y = 1
    return x * y

def fails(x):
    raise ValueError(x.shape)

def caught_outside(x):
    try:
        fails(x)
    except ValueError:
        x = x + 1
    return x

def ended(x):
    numbers = iter([1, 2])
    while True:
        try:
            x = x + next(numbers)
        except StopIteration:
            return x

def escapes(x):
    fails(x * 2)

def watch(frame, event, argument):
    frame.f_lineno, frame.f_code.co_name
    return watch

profiler = cProfile.Profile()
{begin}
for _ in range(3):
    for function in (caught, caught_outside, ended):
        assert torch.compile(function, backend="eager")(torch.ones(2)).tolist() == function(torch.ones(2)).tolist()
    try:
        torch.compile(escapes, backend="eager")(torch.ones(2))
    except ValueError as error:
        lines = []
        entry = error.__traceback__
        while entry:
            lines.append((entry.tb_frame.f_code.co_name, entry.tb_lineno))
            entry = entry.tb_next
        assert ("escapes", 31) in lines and ("fails", 13) in lines, lines
{end}
print("done")
"""


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("profiler.enable()", "profiler.disable()"),
        ("sys.setprofile(watch)", "sys.setprofile(None)"),
        ("sys.settrace(watch)", "sys.settrace(None)"),
    ],
)
def test_exceptions_are_caught(begin: str, end: str) -> None:
    program = PROGRAM.format(begin=begin, end=end)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
