"""`distcompile-run --as-torch` runs a DDP script that was written for torch: two ranks train as one process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sharing import some

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "tests" / "as_torch" / "ddp_script.py")
TIMEOUT_S = 120


def trained(*words: str) -> dict[str, Any]:
    """The parameters that a job of `python words...` prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().removeprefix("[0] "))
    return found


@pytest.mark.parametrize("options", some([["--compile"], []], 1), ids=["compiled", "eager"])
def test_two_ranks_train_as_one_process(options: list[str]) -> None:
    one = trained("-m", "distcompile.as_torch", SCRIPT)
    two = trained("-m", "launch", "--as-torch", "-n", "2", SCRIPT, *options)
    assert set(one) == set(two) == {"net1.weight", "net1.bias", "net2.weight", "net2.bias"}
    for name, expected in one.items():
        np.testing.assert_allclose(two[name], expected, rtol=1e-5, atol=1e-6)
