"""The composite functions compiled: forward and gradients as one fused C++ program, against the graph interpreter.

Where conformance compiles ops alone, here they meet: views composed into loads, chains fused into reductions and GEMMs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from composite_checks import ALL, draw
from traced_calls import trace

from compiler_core.aot.joint import make_joint
from compiler_core.backend import Executable
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.ops.registry import Array

GROUPS = 8
NAMES = sorted(ALL)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, optimised: None) -> Iterator[None]:
    with config.patch(cache_dir=Path(tmp_path_factory.mktemp("cache"))):
        yield


def joint_graph(name: str) -> Graph:
    """The check's forward and, where it has them, gradients, as recorded."""
    check = ALL[name]
    forward = trace(check.call, draw(check))
    return make_joint(forward, [True] * len(check.shapes)).graph if check.smooth else forward


@cache
def compiled(group: int) -> dict[str, tuple[Graph, Executable]]:
    """The checks of one group, built as one shared object."""
    names = NAMES[group::GROUPS]
    graphs = [joint_graph(name) for name in names]
    simplified = [run_passes(graph, SIMPLIFY_JOINT) for graph in graphs]
    executables = NativeBackend().compile(simplified, f"composites_{group}")
    return dict(zip(names, zip(graphs, executables)))


def inputs_of(graph: Graph, arrays: list[Array]) -> list[Array]:
    """The operands, and random cotangents."""
    rng = np.random.default_rng(8)
    tangents = [rng.standard_normal(p.shape).astype(p.dtype.numpy) for p in graph.inputs[len(arrays) :]]
    return [*arrays, *tangents]


@pytest.mark.parametrize("group", range(GROUPS))
def test_compiled_is_interpreted(group: int) -> None:
    wrong = []
    for name, (graph, executable) in compiled(group).items():
        values = inputs_of(graph, draw(ALL[name]))
        with np.errstate(all="ignore"):
            expected = interpret(graph, values)
        try:
            for mine, other in zip(executable(values), expected, strict=True):
                assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
                np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-5, equal_nan=True)
        except AssertionError as error:
            wrong.append(f"{name}: {error}\n{graph}")
    assert not wrong, f"{len(wrong)} checks\n" + "\n".join(wrong)
