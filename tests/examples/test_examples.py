"""The examples reach what they state, on one rank and many, eager and compiled; and stay short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sharing import some

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"
MOST_LINES = 120
pytestmark = pytest.mark.usefixtures("compiled_as_by_users")

# example -> what its last line holds
SAYS = {
    "char_gpt": "it writes:",
    "cifar_resnet": "held-out accuracy ",
    "custom_function": "one per cent off: parity fails on 2 of 3 rows; first: inner.weight",
    "finetune": "the trunk is as it was; gradients that were reduced: 4",
    "lstm": "error on new sequences 0.0",
    "own_backend": "parity holds: 7 rows, timed against eager and float64",
    "tensor_parallel": "one graph: True; equal on ",
    "vae": "",  # a picture
    "variable_lengths": "capture(s); furthest from the joined gradient",
}
ON_RANKS = {"mlp_digits", "quickstart"}  # tested below, and in tests/docs


def run(name: str, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "launch", "-n", str(ranks), "--timeout", "200"] if ranks > 1 else []
    return subprocess.run(
        [sys.executable, *launcher, str(FOLDER / f"{name}.py"), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


QUICK = (("custom_function", 1), ("own_backend", 2), ("tensor_parallel", 2))


def cases() -> list[tuple[str, int]]:
    """The quick ones first; with --long every example, alone and on two ranks."""
    return sorted({(name, ranks) for name in SAYS for ranks in (1, 2)}, key=lambda case: (case not in QUICK, case))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ranks"), some(cases(), len(QUICK)))
def test_an_example_reaches_what_it_states(name: str, ranks: int) -> None:
    if "sklearn" in (FOLDER / f"{name}.py").read_text():
        pytest.importorskip("sklearn")
    done = run(name, ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert SAYS[name] in done.stdout.splitlines()[-1]
    assert "Warning" not in done.stderr


def test_an_example_that_does_not_reach_it_fails() -> None:
    assert run("lstm", 1, "--steps", "2").returncode == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "backend"), [(2, "codegen"), (1, "codegen"), (1, "eager"), (2, "none")])
def test_digits_are_read_to_the_stated_accuracy(ranks: int, backend: str) -> None:
    pytest.importorskip("sklearn")
    done = run("mlp_digits", ranks, "--backend", backend)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held-out accuracy 0.9" in done.stdout.splitlines()[-1]
    assert len([line for line in done.stdout.splitlines() if "epoch" in line]) == 20


def test_every_example_is_listed_tested_and_short() -> None:
    files = {path.stem: path for path in FOLDER.glob("*.py")}
    assert files.keys() == SAYS.keys() | ON_RANKS
    listed = (FOLDER / "README.md").read_text()
    assert [name for name in files if f"`{name}.py`" not in listed] == []
    assert {name: n for name, path in files.items() if (n := len(path.read_text().splitlines())) > MOST_LINES} == {}
