"""benchmarks/operations.py: what it compares, what it names as lost, and that a row runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_rows_that_lose_and_rows_that_differ_are_named(operations: ModuleType) -> None:
    def outcome(name: str, ours: float, theirs: float, note: str = "") -> object:
        times = {"distcompile": [ours, 9 * ours, ours], "torch": [theirs, theirs, theirs]}
        return operations.Outcome(name, times, {}, note)

    rows = [outcome("quick", 1.0, 2.0), outcome("slow", 2.0, 1.0), outcome("odd", 1.0, 1.5, "DIFFERENT by 3.0%")]
    text = operations.summary(rows, 1.0)
    assert "3 rows compared, 1 below 1.0" in text
    assert "0.50  slow" in text
    assert "quick" not in text
    assert "odd: DIFFERENT by 3.0%" in text


def test_digests_are_compared(operations: ModuleType) -> None:
    assert operations._difference([[1.0, 2.0], [1.001, 2.0]]) == ""
    assert "DIFFERENT" in operations._difference([[1.0, 2.0], [1.1, 2.0]])
    assert "DIFFERENT" in operations._difference([[1.0], [1.0, 2.0]])
    assert "DIFFERENT" in operations._difference([[1.0], [float("nan")]])


def test_a_row_is_measured() -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "operations.py"),
        "--only",
        "cumsum of i64",
        "SGD step",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("| cumsum of i64 |", "| SGD step |"))]
    assert len(lines) == 2
    assert all(float(line.split("|")[2]) > 0 for line in lines)
