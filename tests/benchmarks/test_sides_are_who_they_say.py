"""Benchmarks never show one side's numbers as the other's: what a process reports of itself is checked."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
OURS = {"framework": "distcompile", "version": "0.1.0", "has_torch": "no"}
PEER = {"framework": "torch", "version": "2.13.0", "has_torch": "yes"}


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("sides")


def says(fields: dict[str, str]) -> list[str]:
    return [sys.executable, "-c", f"print('noise'); print({json.dumps(fields)!r})"]


def test_sides_that_are_right(sides: ModuleType) -> None:
    assert sides.measure(sides.ours(*says(OURS)), "2.13.0")["version"] == "0.1.0"
    assert sides.measure(sides.peer(*says(PEER)), "2.13.0")["version"] == "2.13.0"


@pytest.mark.parametrize(
    ("side", "told"),
    [
        ("peer", OURS),
        ("ours", PEER),
        ("ours", OURS | {"has_torch": "yes"}),
        ("peer", PEER | {"version": "1.0"}),
        ("peer", {"framework": "torch"}),
    ],
)
def test_sides_that_are_not(sides: ModuleType, side: str, told: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="not what it should be"):
        sides.measure(getattr(sides, side)(*says(told)), "2.13.0")


def test_one_command_on_two_sides_is_run_twice(sides: ModuleType) -> None:
    run: Any = importlib.import_module("run")
    command = [sys.executable, "-c", "print()"]
    assert sides.ours(*command) != sides.peer(*command)
    assert len({sides.ours(*command): 1, sides.peer(*command): 2}) == 2
    assert run.report


def test_a_peer_without_torch_is_refused(sides: ModuleType, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module named torch' >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(SystemExit, match="does not import torch"):
        sides.peer_version(str(python))
    python.write_text("#!/bin/sh\necho 0.1.0 distcompile.nn.layers.linear\n")
    with pytest.raises(SystemExit, match="does not import torch"):
        sides.peer_version(str(python))


def test_a_failing_side_ends_the_run_with_its_output(sides: ModuleType) -> None:
    with pytest.raises(SystemExit, match="it broke"):
        sides.measure(sides.ours(sys.executable, "-c", "raise SystemExit('it broke')"), "")


def test_our_side_reports_itself(sides: ModuleType) -> None:
    code = "import json, framework; print(json.dumps(framework.identity()))"
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); {code}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS.parent, capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout)["framework"] == "distcompile"
    sides.check_identity(json.loads(done.stdout), sides.OURS, "")


def test_unknown_names_are_refused(sides: ModuleType) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--what", "speed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "nothing called speed" in done.stderr
