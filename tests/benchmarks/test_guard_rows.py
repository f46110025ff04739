"""benchmarks/guards.py: what counts as quick enough, and that its rows run and are timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_calls_are_compared_with_the_peer_and_checks_with_the_clock(guards: ModuleType) -> None:
    assert guards.reaches("call", {"distcompile": [1.0, 1.0], "torch": [2.0, 2.1]})
    assert guards.reaches("call", {"distcompile": [1.1], "torch": [2.0]}) is False
    assert guards.reaches("call", {"distcompile": [1.0]}) is None
    assert guards.reaches("check", {"distcompile": [4e-6], "torch": [1e-6]})
    assert guards.reaches("check", {"distcompile": [6e-6]}) is False
    assert guards.reaches("capture of 250 lines", {"distcompile": [0.9]})
    assert guards.reaches("capture of 250 lines", {"distcompile": [1.1]}) is False


def test_growth_is_a_lines_time(guards: ModuleType) -> None:
    rows = {guards.FEW: {"distcompile": [0.1]}, guards.MANY: {"distcompile": [1.6]}}
    assert guards.growth(rows, "distcompile") == pytest.approx(2.0)
    assert guards.growth(rows, "torch") is None
    assert guards.growth({}, "distcompile") is None


def test_the_rows_run() -> None:
    command = [sys.executable, str(BENCHMARKS / "guards.py"), "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert "| call of 10 tensors fb |" in done.stdout
    assert "| capture of 2,000 lines |" in done.stdout, done.stderr
    assert "| check of a GPT after another module changed |" in done.stdout, done.stderr
