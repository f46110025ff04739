"""The bits of a compiled training step do not depend on the number of threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpt_graphs import gpt

from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.graph.parse import parse_graph


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
def test_one_two_and_three_threads_give_equal_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt(layers=1, d=64, heads=2, batch=4, time=64, vocabulary=48, dropout=0.1)
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        with config.patch(num_threads=threads, cache_dir=tmp_path):
            forward, backward = NativeBackend().compile([model.forward, model.backward], "gpt")
        values = forward(list(model.arrays))
        gradients = backward(model.backward_inputs(values))
        results.append([np.array(value) for value in (*values, *gradients)])
    for other in results[1:]:
        for value, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(value, want)


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(96, 294, 1506), (1100, 250, 130), (609, 133, 831), (400, 64, 3000), (824, 20, 924), (1179, 74, 165)],
)
def test_products_have_equal_bits(m: int, k: int, n: int) -> None:
    """Tall ones and wide ones, in f32 and f64: shared out by rows, by columns, or not at all."""
    rng = np.random.default_rng(0)
    for dtype in ("f32", "f64"):
        text = f"graph g(%a: {dtype}[{m}, {k}] input 'a', %b: {dtype}[{k}, {n}] input 'b') {{\n"
        graph = parse_graph(f"{text}  %c: {dtype}[{m}, {n}] = matmul(%a, %b)\n  return %c\n}}")
        given = [rng.standard_normal(node.shape).astype(node.dtype.numpy) for node in graph.inputs]
        results = []
        for threads in (1, 2, 3):
            with config.patch(num_threads=threads):
                (run,) = NativeBackend().compile([graph], "product")
            results.append(np.array(run(given)[0]))
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


_PRODUCTS = """
import numpy as np
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.graph.parse import parse_graph
graph = parse_graph("graph g(%a: f32[400, 64] input 'a', %b: f32[64, 3000] input 'b') {\\n"
                    "  %c: f32[400, 3000] = matmul(%a, %b)\\n  return %c\\n}")
given = [np.random.default_rng(0).standard_normal(n.shape).astype(np.float32) for n in graph.inputs]
made = []
for threads in (1, 2, 3):
    with config.patch(num_threads=threads):
        (run,) = NativeBackend().compile([graph], "product")
    made.append(np.array(run(given)[0]).tobytes())
assert len(set(made)) == 1, "other bits"
"""


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
def test_products_have_equal_bits_with_other_kernels_than_the_cpus() -> None:
    """OPENBLAS_CORETYPE may name kernels without AVX-512 on a CPU that has it: they block columns another way."""
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    done = subprocess.run(
        [sys.executable, "-c", _PRODUCTS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
