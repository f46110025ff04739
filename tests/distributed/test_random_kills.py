"""A rank killed at a random moment: ended in time, right culprit, right code, nothing left (benchmarks/kills.py).

The compiler runs where it is to be interrupted; the other trials share a cache, which no killed rank may spoil.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kills.py"
SPEC = importlib.util.spec_from_file_location("kills", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
kills = importlib.util.module_from_spec(SPEC)
sys.modules["kills"] = kills
SPEC.loader.exec_module(kills)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")


def check(seed: int, trials: int, folder: Path) -> None:
    """Run trials; say the seed's trial and the launcher's words of those that do not hold."""
    rng = random.Random(seed)
    failures = []
    for number in range(trials):
        trial = kills.draw(rng, ("mpich", "openmpi"))
        result = kills.run(trial, folder / (str(number) if trial.phase == "compile" else "shared"))
        if result.problems:
            failures.append(f"{trial}: {'; '.join(result.problems)}\n{result.words}")
    assert not failures, "\n".join([f"{len(failures)} of {trials} with seed {seed}", *failures])


@pytest.mark.long
def test_ranks_killed_at_random_moments(tmp_path: Path) -> None:
    check(3, 6, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_ranks_killed_at_random_moments(tmp_path: Path) -> None:
    """As benchmarks/kills.py, which takes any number of trials and any seed."""
    check(4, 12, tmp_path)
