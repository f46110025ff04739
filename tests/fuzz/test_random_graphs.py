"""Random graphs with their gradients: every form of a program gives what the graph interpreter gives.

DISTCOMPILE_FUZZ_SEED and DISTCOMPILE_FUZZ_GRAPHS choose others than the usual ones; the seed of a failing graph is in
its message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from random_graphs import RandomGraph

from compiler_core.aot.joint import make_joint
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.dtype import of
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.graph.print import print_graph
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.lowering.interpret import interpret_definitions
from compiler_core.lowering.lower import lower
from compiler_core.lowering.parse import parse_definitions
from compiler_core.lowering.print import print_definitions
from compiler_core.lowering.target import CPU, GPU, Target
from compiler_core.ops.registry import Array
from compiler_core.schedule.from_graphs import lower_and_schedule

FIRST = int(os.environ.get("DISTCOMPILE_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("DISTCOMPILE_FUZZ_GRAPHS", "40"))
SEEDS = range(FIRST, FIRST + COUNT)
TOLERANCE = {"f64": 1e-9, "f32": 1e-3, "f16": 6e-2, "bf16": 3e-1}  # of some forty steps, gradients included


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, optimised: None) -> Iterator[None]:
    with config.patch(cache_dir=Path(tmp_path_factory.mktemp("cache"))):
        yield


@cache
def program(seed: int) -> tuple[Graph, tuple[Array, ...], list[Array]]:
    """(joint graph, its inputs, what the interpreter makes of them)."""
    made = RandomGraph(seed)
    joint = make_joint(made.graph, [of(a).is_floating_point for a in made.arrays])
    rng = np.random.default_rng(seed)
    tangents = [rng.standard_normal(p.shape).astype(p.dtype.numpy) for p in joint.graph.inputs[len(made.arrays) :]]
    inputs = (*made.arrays, *tangents)
    return joint.graph, inputs, interpret(joint.graph, inputs)


def assert_near(actual: list[Array], expected: list[Array], seed: int, graph: Graph) -> None:
    for k, (mine, other) in enumerate(zip(actual, expected, strict=True)):
        assert mine.dtype == other.dtype
        tolerance = TOLERANCE[of(other).short]
        a, b = (v.astype(np.float64).reshape(other.shape) for v in (mine, other))
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        message = f"seed {seed}, output {k}\n{graph}"
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale / 5, err_msg=message)


@pytest.mark.parametrize("seed", SEEDS)
def test_graph_text_reads_back(seed: int) -> None:
    graph, _, _ = program(seed)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


@pytest.mark.parametrize("seed", SEEDS)
def test_simplified_graph_is_the_graph(seed: int) -> None:
    graph, inputs, expected = program(seed)
    with config.patch(verify=True):
        simplified = run_passes(graph, SIMPLIFY_JOINT)
    assert len(simplified.nodes) <= len(graph.nodes)
    assert_near(interpret(simplified, inputs), expected, seed, simplified)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.kind)
def test_definitions_are_the_graph(seed: int, target: Target) -> None:
    """After all passes, and read back from their text."""
    graph, inputs, expected = program(seed)
    simplified = run_passes(graph, SIMPLIFY_JOINT)
    with config.patch(verify=True):
        (defined,) = lower([simplified], target=target)
    given = {node.name: array for node, array in zip(simplified.inputs, inputs)}
    given |= {node.name: node.array for node in simplified.constants}
    again = parse_definitions(print_definitions(defined))
    assert_near(interpret_definitions(again, given), expected, seed, simplified)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fusion", [True, False])
def test_loop_ir_is_the_graph(seed: int, fusion: bool) -> None:
    graph, inputs, expected = program(seed)
    with config.patch(fusion=fusion):
        (lowered,) = lower_and_schedule([run_passes(graph, SIMPLIFY_JOINT)])
    verify_program(lowered)
    assert_near(interpret_program(lowered, inputs), expected, seed, graph)


def test_native_code_is_the_graph(in_full: bool) -> None:
    seeds = SEEDS if in_full else SEEDS[::3]
    graphs = [run_passes(program(seed)[0], SIMPLIFY_JOINT) for seed in seeds]
    executables = NativeBackend().compile(graphs, "fuzz")
    for seed, graph, executable in zip(seeds, graphs, executables):
        _, inputs, expected = program(seed)
        for _ in range(2):  # again, in memory that has been used
            assert_near(executable(list(inputs)), expected, seed, graph)
