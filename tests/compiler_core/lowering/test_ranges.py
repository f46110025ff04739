"""Between which numbers integers lie: what is said is true, places known to be inside are not checked, others are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler_core.dtype import DType, float32, int8, int64
from compiler_core.errors import IndexError_
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.lowering.ranges import Ranges
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.composites import running, statistics
from compiler_core.ops.registry import use_trace
from compiler_core.ops.sorting import composite as sorting
from compiler_core.pipeline import simplify
from compiler_core.schedule.from_graphs import lower_and_schedule


def build(function: Callable[..., Node], *metas: TensorMeta) -> Graph:
    builder = GraphBuilder("g")
    inputs = [builder.placeholder("x", meta) for meta in metas]
    with use_trace(builder):
        result = function(*inputs)
    return simplify(builder.build([result]))


def checks_of(graph: Graph) -> list[ir.Check]:
    (program,) = lower_and_schedule([graph])
    return [s for kernel in program.kernels for s in ir.walk(kernel.body) if isinstance(s, ir.Check)]


X = TensorMeta((5, 12), float32)
I = TensorMeta((5, 12), int64)  # noqa: E741
KNOWN: dict[str, Callable[[Node], Node]] = {
    "argmax": lambda x: F.argmax(x, 1),
    "argmin of dim 0": lambda x: F.argmin(x, 0),
    "sort": lambda x: sorting.sort(x, 1)[1],
    "topk": lambda x: sorting.topk(x, 3, 1)[1],
    "running": lambda x: running.cummax(x, 1)[1],
    "turned round": lambda x: F.sub(11, sorting.argsort(x, 1)),
    "of a mask": lambda x: F.mul(prims.cast(F.gt(x, 0.0), int64), -7),
    "between": lambda x: F.minimum(F.maximum(prims.cast(x, int64), -2), 3),
    "chosen": lambda x: F.where(F.gt(x, 0.0), running.cummax(x, 1)[1], F.full((5, 12), -4, dtype=int64)),
    "searched": lambda x: prims.slice(statistics.searchsorted(sorting.sort(x, 1)[0], x), (0, 2), (5, 9), (1, 3)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_said_is_true_and_something_is_said(name: str) -> None:
    graph = build(KNOWN[name], X)
    ranges = Ranges()
    for node in graph.nodes:
        ranges.note(node)
    rng = np.random.default_rng(0)
    low, high = ranges.known[graph.outputs[0].name]
    assert high - low <= 22
    for scale in (0.1, 3.0, 1e4):
        (found,) = interpret(graph, [scale * rng.standard_normal((5, 12)).astype(np.float32)])
        assert low <= found.min()
        assert found.max() <= high


@pytest.mark.parametrize("dtype", [int8, int64], ids=str)
def test_nothing_is_said_of_what_may_wrap(dtype: DType) -> None:
    def function(x: Node) -> Node:
        largest = F.full((5, 12), int(np.iinfo(dtype.numpy).max), dtype=dtype)
        return F.add(largest, prims.cast(F.gt(x, 0.0), dtype))

    graph, ranges = build(function, X), Ranges()
    for node in graph.nodes:
        ranges.note(node)
    assert graph.outputs[0].name not in ranges.known


INSIDE: dict[str, Callable[[Node], Node]] = {
    "gather of a running maximum": lambda x: prims.gather(x, running.cummax(x, 1)[1], 1),
    "gather of an order": lambda x: prims.gather(x, sorting.argsort(x, 1), 1),
    "searched": lambda x: statistics.searchsorted(sorting.sort(x, 1)[0], x),
    "buckets": lambda x: statistics.bucketize(x, F.full((9,), 0.5)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_places_inside_are_not_checked(name: str) -> None:
    graph = build(INSIDE[name], X)
    assert not checks_of(graph)
    given = [np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)]
    (program,) = lower_and_schedule([graph])
    np.testing.assert_array_equal(interpret_program(program, given)[0], interpret(graph, given)[0].ravel())


def test_others_are() -> None:
    for places in (lambda i: i, lambda i: F.add(i, 1), lambda i: F.clamp(i, max=11), lambda i: F.clamp(i, 0, 12)):
        graph = build(lambda x, i, places=places: prims.gather(x, places(i), 1), X, I)
        assert checks_of(graph)
    graph = build(lambda x: prims.gather(x, F.add(running.cummax(x, 1)[1], 1), 1), X)
    (program,) = lower_and_schedule([graph])
    with pytest.raises(IndexError_):
        interpret_program(program, [np.sort(np.zeros(X.shape, np.float32), 1)])


def test_numbers_are_found_with_nan_last() -> None:
    sequence = np.array([-1.0, 0.0, 0.0, 2.5, np.inf, np.nan, np.nan], np.float32)
    values = np.array([-np.inf, -1.0, 0.0, 1.0, 2.5, np.inf, np.nan, -0.0], np.float32)
    metas = (TensorMeta(sequence.shape, float32), TensorMeta(values.shape, float32))
    for right in (False, True):
        graph = build(lambda s, x, right=right: statistics.searchsorted(s, x, right=right), *metas)
        (program,) = lower_and_schedule([graph])
        want = np.searchsorted(sequence, values, "right" if right else "left")
        np.testing.assert_array_equal(interpret_program(program, [sequence, values])[0], want)
        np.testing.assert_array_equal(interpret(graph, [sequence, values])[0], want)
