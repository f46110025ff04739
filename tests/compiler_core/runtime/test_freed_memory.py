"""runtime/freed_memory.py: what arrays gave back is there for the next ones, unless the user said otherwise."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import distcompile as dc
import distcompile.nn.functional as F

x, g = dc.randn(8, 64, 32, 32, requires_grad=True), dc.ones(8, 64, 32, 32)

def step():
    h = [F.relu(x)]
    for _ in range(8):
        h.append(F.silu(h[-1]))
    x.grad = None
    h[-1].backward(g)

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""
pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")


def faults(**variables: str) -> float:
    """Pages that a step of PROGRAM, which makes some 2 MB arrays, faults in."""
    environment = {name: value for name, value in os.environ.items() if name not in ("GLIBC_TUNABLES",)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment | variables, capture_output=True, text=True, timeout=240,
        check=True,
    )  # fmt: skip
    return float(done.stdout)


def test_a_step_faults_no_pages_in_that_it_had_before() -> None:
    assert faults() < 100


def test_what_the_user_says_stands() -> None:
    assert faults(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 1000
