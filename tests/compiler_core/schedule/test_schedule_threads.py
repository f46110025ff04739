"""The bits of a compiled training step do not depend on the number of threads."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from gpt_graphs import gpt

from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config


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
