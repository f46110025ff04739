"""benchmarks/zoo.py: what it compares, what it names, what it takes from a file, and that a row runs end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def of_row(name: str, ours: float, loss: float = 2.0, **errors: str) -> dict[str, Any]:
    """A row whose torch takes 1 s, with a loss of 2.0."""
    sides = {
        side: {"seconds": [s, 3 * s], "cpu": [s, s], "mb": 2.0 * s, "first_s": s, "losses": [3.0, 2.5, told]}
        for side, s, told in (("distcompile", ours, loss), ("torch", 1.0, 2.0))
        if side not in errors
    }
    return {"row": name, "mode": "eager", "device": "cpu", "threads": 1, "errors": errors, **sides}


def test_rows_that_lose_fail_or_differ_are_named(zoo: ModuleType) -> None:
    rows = [
        of_row("quick", 0.5), of_row("slow", 2.0), of_row("near", 1.05, 2.001), of_row("odd", 1.0, 2.1),
        of_row("nan", 1.0, float("nan")), of_row("broken", 1.0, distcompile="ValueError: no"),
    ]  # fmt: skip
    told = zoo.summary(rows)
    assert "5 of 6 rows compared, geometric mean of time 1.010 (torch's over ours 0.990), of peak 1.010" in told
    assert "1 lose by over 1.1:\n  2.00  slow\n3 with something wrong:\n  odd: LOSSES DIFFER" in told
    assert "  nan: LOSSES DIFFER" in told
    assert "  broken: distcompile: ValueError: no" in told
    cells = zoo.line(rows[1]).split(" | ")
    assert cells[:9] == ["| slow", "4000.00", "2000.00", "2.00", "2.00", "4", "2", "2.0", "1.0"]
    assert "distcompile: ValueError: no" in zoo.line(rows[5])


def test_there_are_40_rows_that_say_what_they_need(zoo: ModuleType) -> None:
    assert len(zoo.ROWS) == 40
    assert {package for row in zoo.ROWS.values() for package in row.needs} == {"torchvision", "timm", "transformers"}
    assert zoo.missing(sys.executable, ("json", "no_such_package_here")) == ["no_such_package_here"]


@pytest.mark.torch
def test_a_row_runs_and_is_not_run_again(tmp_path: Path) -> None:
    absent = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    file = tmp_path / "rows.jsonl"
    command = [sys.executable, str(BENCHMARKS / "zoo.py"), "--only", "bert", "--mode", "eager", "--rounds", "2"]
    command += ["--json", str(file), "--skip-done", "--kernels"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout for _ in range(2)
    )
    (row,) = map(json.loads, file.read_text().splitlines())
    assert first.splitlines()[2] == second.splitlines()[2]
    assert "1 of 1 rows compared" in first
    assert row["errors"] == {}
    for side in ("distcompile", "torch"):
        found = row[side]
        assert len(found["seconds"]) == len(found["cpu"]) == 2
        assert min(found["mb"], found["first_s"], *found["seconds"], *found["cpu"]) > 0
        assert found["losses"] == pytest.approx(row["torch"]["losses"], rel=1e-3)
        assert found["losses"][2] < found["losses"][0]
    assert len(row["distcompile"]["kernels"]) == 3


@pytest.mark.torch
def test_a_side_that_fails_or_ends_is_an_error_of_its_row(zoo: ModuleType, tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip("not installed: torch")
    given = zoo.argparse.Namespace(
        mode="eager", device="cpu", threads=1, rounds=1, kernels=False, limit=60.0, peer_python=sys.executable
    )
    version = zoo.peer_version(sys.executable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo.Server, "ask", lambda self, **question: self.end() or self._answer())
        (row,) = zoo.measured(["bert"], given, version, str(tmp_path))
    assert {side: error[:54] for side, error in row["errors"].items()} == dict.fromkeys(
        ("torch", "distcompile"), "a side of this benchmark ended before it answered, exit code -9"[:54]
    )
