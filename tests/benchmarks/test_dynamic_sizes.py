"""benchmarks/dynamic_sizes.py and twins.py: that rows run, and how often a program of 20 lengths is captured.

By default once with constants, and once when the length has changed; a smaller last batch is no capture more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 2  # captures
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.long
def test_twenty_lengths_are_captured_a_few_times_and_none_runs_eager(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    command = [sys.executable, str(BENCHMARKS / "dynamic_sizes.py"), "--rounds", "1", "--json", str(told)]
    command += ["--only", "lstm", "cache", "--modes", "default"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    for program, sides in json.loads(told.read_text())["programs"].items():
        for side, (result,) in sides.items():
            assert result["captures"] <= MOST, (program, side)
            assert result["eager"] == 0, (program, side)


def test_twins_are_timed_beside_each_other(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    command = [sys.executable, str(BENCHMARKS / "twins.py"), "--only", "softmax", "--rounds", "2", "--json", str(told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert "| softmax | " in done.stdout, done.stderr
    assert [len(times) for times in json.loads(told.read_text())["rows"]["softmax"]] == [2, 2]
