"""Outputs over inputs: which pairs a program allows, and that its code gives the same numbers there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from schedule_graphs import random_graph

from compiler_core.dtype import float32, int64
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir.ir import Check, KernelCall, Slot, slots_of, walk
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, Value, use_trace
from compiler_core.pipeline import compile_graphs
from compiler_core.runtime.executor import NativeExecutable
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.schedule.over_inputs import Pair, over_inputs

SQUARE = TensorMeta((32, 32), float32)


def built(write: Callable[..., Sequence[Value]], names: str = "pg") -> Graph:
    builder = GraphBuilder("g")
    nodes = [builder.placeholder(name, TensorMeta((32,), int64) if name == "i" else SQUARE) for name in names]
    with use_trace(builder):
        outputs = [node for node in write(*nodes) if isinstance(node, Node)]
        return builder.build(outputs)


def step(p: Value, g: Value) -> Value:
    return prims.add(p, prims.tanh(g))


@pytest.mark.parametrize(
    ("write", "names", "pairs"),
    [
        (lambda p, g: [step(p, g)], "pg", {(0, 0), (0, 1)}),
        (lambda p, g: [step(p, F.matmul(g, p))], "pg", {(0, 0)}),  # read by what comes before
        (lambda p, g: [step(p, g), F.matmul(p, g)], "pg", set()),  # read afterwards, or before: all stay
        (lambda p: [step(p, prims.permute(p, (1, 0)))], "p", set()),  # other elements are read, too
        (lambda p: [F.softmax(p, 1)], "p", {(0, 0)}),
        (lambda p, i: [step(p, F.embedding(i, p))], "pi", set()),  # rows of others, and a check
    ],
)
def test_which_pairs(write: Callable[..., Sequence[Value]], names: str, pairs: set[Pair]) -> None:
    (program,) = lower_and_schedule([built(write, names)])
    assert set(over_inputs(program)) == pairs


def test_nothing_is_written_over_before_what_may_fail() -> None:
    graph = built(lambda p, g, i: [step(p, g), F.matmul(g, F.embedding(i, g))], "pgi")
    (program,) = lower_and_schedule([graph])
    checked = max(k for k, one in enumerate(program.steps) if isinstance(one, KernelCall) and _checks(one))
    for output, _ in over_inputs(program):
        first = min(k for k, one in enumerate(program.steps) if program.outputs[output] in map(_name, slots_of(one)))
        assert first > checked


def _name(slot: Slot) -> str:
    return slot.buffer


def _checks(call: KernelCall) -> bool:
    return any(isinstance(part, Check) for part in walk(call.kernel.body))


def test_random_graphs_give_the_same_numbers_over_their_inputs() -> None:
    """Every pair by itself, then as many as go together."""
    made = [random_graph(seed) for seed in range(60)]
    found = 0
    for (graph, arrays), run in zip(made, compile_graphs([graph for graph, _ in made], "over"), strict=True):
        assert isinstance(run, NativeExecutable)
        wanted = [np.array(array) for array in run(arrays)]
        pairs = sorted(run.over_inputs)
        together = {output: (output, place) for place, output in {place: output for output, place in pairs}.items()}
        found += len(pairs)
        for chosen in [*([pair] for pair in pairs), list(together.values())]:
            inputs = [array.copy() for array in arrays]
            outs: list[Array | None] = [None] * len(wanted)
            for output, place in chosen:
                assert inputs[place].size == wanted[output].size
                outs[output] = inputs[place].reshape(wanted[output].shape)
            for got, expected in zip(run(inputs, outs), wanted, strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=f"{chosen}\n{graph}")
    assert found > 20
