"""benchmarks/eager.py: what it names as slower, and that its rows run and are timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import distcompile

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_rows_that_are_slower_are_named_worst_first(eager: ModuleType) -> None:
    rows = {
        "slow": {"distcompile": [3.0, 3.0], "torch": [1.0, 1.0]},
        "slowest": {"distcompile": [9.0, 9.0], "torch": [1.0, 1.0]},
        "equal": {"distcompile": [1.0], "torch": [1.0]},
        "alone": {"distcompile": [1.0]},
    }
    assert eager.slower(rows, 2.0) == ["9.00  slowest", "3.00  slow"]
    assert eager.line("slow", rows["slow"]).endswith("| 3.00 (3.00 to 3.00) |")
    assert eager.line("alone", rows["alone"]).endswith("|  |  |")


def test_a_row_runs() -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "eager.py"),
        "--only",
        "add small",
        "gpt, 4 layers of 32*",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "| add small |" in done.stdout
    assert "2 rows, 0 above 2.0" in done.stdout


def test_every_tiny_call_runs(eager_rows: ModuleType) -> None:
    calls = eager_rows.tiny_calls(distcompile)
    assert len(calls) > 200
    for call in calls.values():
        call()
