"""The minifier finds the guilty call among many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from random_small_graphs import random_graph

from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.minify import differs, largest_difference, minify
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.verify import verify


def wrong_about(op_name: str) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
    """A backend that computes everything right, except `op_name`, which is one percent off."""

    def backend(module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def override(call: Any, environment: Any) -> Any:
            if call.op.name != op_name:
                return None
            right = call.op.eager(np, *(environment[arg] for arg in call.args), **call.attrs)
            return {call: right * 1.01}

        return lambda *inputs: interpret(module.ir, [x.numpy() for x in inputs], override=override)

    return backend


def faults() -> list[tuple[int, str]]:
    """(seed, op): random graphs whose outputs depend on an op enough for its fault to show."""
    ops = ("tanh", "matmul", "sum", "mul", "erf")
    return [(seed, op) for seed in range(12) for op in ops if differs(wrong_about(op))(random_graph(seed, size=60))]


@pytest.mark.parametrize(("seed", "op_name"), faults())
def test_the_guilty_call_is_all_that_remains(seed: int, op_name: str) -> None:
    backend = wrong_about(op_name)
    small = verify(minify(random_graph(seed, size=60), differs(backend)))
    assert differs(backend)(small)
    assert [call.op.name for call in small.calls] == [op_name]
    assert len(small.inputs) <= 2


def test_faults_show_in_many_graphs() -> None:
    assert len(faults()) > 20


def test_a_fault_of_two_ops_together_keeps_both() -> None:
    graph = random_graph(3, size=40)

    def fails(candidate: Graph) -> bool:
        pairs = ((call, arg) for call in candidate.calls for arg in call.args if hasattr(arg, "op"))
        return any(call.op.name == "permute" and arg.op.name != "permute" for call, arg in pairs)

    small = minify(graph, fails)
    assert len(small.calls) == 2
    assert small.calls[1].op.name == "permute"


def test_what_does_not_fail_is_refused() -> None:
    with pytest.raises(GraphError, match="does not show the fault"):
        minify(random_graph(0), lambda graph: False)


def test_differences_are_relative_and_strict_about_nan() -> None:
    graph = parse_graph("graph g(%x: f32[2] input 'x') {\n  %y: f32[2] = log(%x)\n  return %y\n}")
    assert largest_difference(graph, "aot_eager") == 0.0
    assert largest_difference(graph, wrong_about("log")) == pytest.approx(0.01, rel=1e-3)
    always = replace(graph, name="h")
    assert largest_difference(always, lambda g, e: lambda *a: [np.zeros(2, np.float32)]) > 0.5
