"""The examples reach what they state, on one rank and many, eager and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sharing import some

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("compiled_as_by_users")


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "backend"), some([(2, "codegen"), (1, "codegen"), (1, "eager"), (2, "none")], 1))
def test_digits_are_read_to_the_stated_accuracy(ranks: int, backend: str) -> None:
    pytest.importorskip("sklearn")
    launcher = ["-m", "launch", "-n", str(ranks), "--timeout", "200"] if ranks > 1 else []
    command = [sys.executable, *launcher, str(ROOT / "examples" / "mlp_digits.py"), "--backend", backend]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held-out accuracy 0.9" in done.stdout.splitlines()[-1]
    assert len([line for line in done.stdout.splitlines() if "epoch" in line]) == 20
