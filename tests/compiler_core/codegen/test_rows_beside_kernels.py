"""Rows that a kernel keeps beside it: long ones lie in memory of the thread, whose address is asked for once a row."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.config import config


def rows_of(rng: Any, columns: int) -> tuple[Any, Any]:
    x = dc.tensor(rng.standard_normal((5, columns)).astype(np.float32) * 3, requires_grad=True)
    return x, dc.tensor(rng.integers(0, columns, 5))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [8192, 8193, 20011])
def test_losses_of_long_rows_and_their_gradients_are_those_of_float64(columns: int, threads: int, rng: Any) -> None:
    x, y = rows_of(rng, columns)
    with config.patch(num_threads=threads):
        loss = dc.compile(lambda x, y: F.cross_entropy(x, y), fullgraph=True)(x, y)
        loss.backward()
    wide, places = x.detach().double().numpy(), np.arange(5)
    shares = np.exp(wide - wide.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    np.testing.assert_allclose(loss.item(), -np.log(shares[places, y.numpy()]).mean(), rtol=1e-5)
    shares[places, y.numpy()] -= 1
    np.testing.assert_allclose(x.grad.numpy(), shares / 5, rtol=1e-4, atol=1e-8)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump")
def test_no_loop_over_them_calls_anything(rng: Any, tmp_path: Path) -> None:
    """g++ asked for the address of such a row in every turn of the loops over it, by a call that spills all vectors."""
    with config.patch(cache_dir=tmp_path, num_threads=1):
        dc.compile(lambda x: F.softmax(x, dim=1), fullgraph=True, dynamic=False)(rows_of(rng, 16384)[0].detach())
    (library,) = tmp_path.rglob("kernels.so")
    text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
    kernel = next(part for part in text.split("\n\n") if re.search(r"<\w*k_k0_\w+>:", part) and "tls_get" in part)
    lines = kernel.splitlines()
    places = {line.split(":")[0].strip(): number for number, line in enumerate(lines)}
    loops = []
    for number, line in enumerate(lines):
        jump = re.search(r"\sj\w+\s+([0-9a-f]+) <", line)
        if jump and places.get(jump[1], number) < number:
            loops.append(range(places[jump[1]], number + 1))
    innermost = [a for a in loops if not any(b is not a and b.start >= a.start and b.stop <= a.stop for b in loops)]
    assert innermost
    for loop in innermost:
        assert not any("__tls_get_addr" in lines[number] for number in loop), "\n".join(
            lines[number] for number in loop
        )
