"""Random graphs and their gradients, compiled for many sizes: each size computes what the interpreter does, also when
the executables of all sizes, which share a library, run one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_small_graphs import random_graph, random_inputs

from compiler_core.aot.joint import make_joint
from compiler_core.backend import for_many_sizes
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.graph.interpret import interpret
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.graph.sizes import graph_at
from compiler_core.symbolic.size import Sizes

SIZES = [(5, 7, 11), (9, 13, 6), (40, 33, 70), (3, 2, 17)]


@pytest.mark.parametrize("seed", range(6))
def test_sizes_that_share_code_compute_their_own(seed: int, tmp_path: Path) -> None:
    sizes = Sizes()
    a, b, c = (sizes.new(hint) for hint in SIZES[0])
    symbolic = random_graph(seed, 10, [(a, b), (b, a), (a, b, c), (1, b), (b,)])
    runs = []
    for row in SIZES:
        numbers = dict(zip(sizes.symbols, row))
        if not all(guard.holds(numbers.__getitem__) for guard in sizes.guards):
            continue
        at, _ = graph_at(symbolic, numbers, symbolic.name)
        graph = run_passes(make_joint(at, [True] * len(at.inputs)).graph, SIMPLIFY_JOINT)
        inputs = random_inputs(graph, seed)
        with for_many_sizes(), config.patch(cache_dir=tmp_path):
            (run,) = NativeBackend().compile([graph], "many")
        runs.append((run, inputs, interpret(graph, inputs)))
    assert len(runs) > 1
    for run, inputs, expected in [*runs, *reversed(runs)]:
        for got, want in zip(run(inputs), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(want).max(initial=0)))
