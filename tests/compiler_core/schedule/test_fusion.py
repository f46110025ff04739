"""What may share a kernel, what may not and why; and the text of the kernels that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler_core import log
from compiler_core.config import config
from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.print import print_kernel
from compiler_core.lowering.define import define
from compiler_core.lowering.target import CPU
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.chunks import n_chunks
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.schedule.fuse import Grouping
from compiler_core.schedule.legality import (
    MAX_COLS,
    MAX_STREAMS,
    Group,
    Hazard,
    Legal,
    LoopShape,
    can_fuse,
    describe,
    initial_group,
)

Function = Callable[..., Node | Sequence[Node]]


def build(function: Function, *shapes: tuple[int, ...]) -> Graph:
    builder = GraphBuilder("g")
    inputs = [builder.placeholder("x", TensorMeta(shape, float32)) for shape in shapes]
    with use_trace(builder):
        result = function(*inputs)
    return builder.build([result] if isinstance(result, Node) else result)


def groups(graph: Graph) -> tuple[dict[str, Group], dict[str, object]]:
    defined = define(graph)
    sizes = {name: meta.numel for name, meta in defined.metas.items()}
    infos = {name: describe(definition, sizes) for name, definition in defined.definitions.items()}
    return {name: initial_group(info) for name, info in infos.items()}, infos


def verdict(graph: Graph, first: str, second: str) -> Legal | Hazard:
    alone, infos = groups(graph)
    return can_fuse(alone[first], alone[second], infos)  # type: ignore[arg-type]


# ---- legality


def test_a_row_reduction_and_its_reader_share_rows() -> None:
    graph = build(lambda x: prims.sub(x, prims.expand(F.amax(x, 1, True), x.shape)), (4, 6))
    assert verdict(graph, "max", "sub") == Legal(LoopShape(24, 6))


@pytest.mark.parametrize(
    ("function", "first", "second", "kind"),
    [
        (lambda x: prims.matmul(prims.exp(x), prims.permute(x, (1, 0))), "exp", "matmul", "library"),
        (lambda x: prims.exp(prims.sum(x, (0,))), "sum", "exp", "barrier"),
        (lambda x: prims.add(prims.exp(x), prims.flip(prims.exp(prims.neg(x)), (1,))), "exp_1", "add", "access"),
        (lambda x: [prims.sum(x, (1,)), prims.sum(prims.reshape(x, (8, 3)), (1,))], "sum", "sum_1", "shape"),
        (lambda x: [prims.exp(x), prims.neg(F.narrow(x, 1, 0, 4))], "exp", "neg", "shape"),
    ],
)
def test_hazards_name_their_kind(function: Function, first: str, second: str, kind: str) -> None:
    hazard = verdict(build(function, (4, 6)), first, second)
    assert isinstance(hazard, Hazard)
    assert hazard.kind == kind
    assert hazard.why


def test_a_row_that_is_too_long_for_the_cache_is_a_hazard() -> None:
    graph = build(lambda x: F.softmax(x, 1), (2, MAX_COLS + 1))
    hazard = verdict(graph, "max", "sub")
    assert isinstance(hazard, Hazard)
    assert hazard.kind == "size"


def test_a_sum_of_many_arrays_is_cut() -> None:
    n = 2 * MAX_STREAMS

    def function(*xs: Node) -> Node:
        total = xs[0]
        for x in xs[1:]:
            total = prims.add(total, x)
        return total

    (program,) = lower_and_schedule([build(function, *[(4, 6)] * n)])
    calls = [step for step in program.steps if isinstance(step, ir.KernelCall)]
    assert 1 < len(calls) <= 4
    assert all(len(call.slots) <= MAX_STREAMS + 1 for call in calls)


def test_scatters_are_kernels_of_their_own() -> None:
    def function(x: Node) -> Node:
        index = F.argmax(x, 1)
        return prims.index_add(x, index, prims.exp(x))

    hazard = verdict(build(function, (4, 6)), "exp", "index_add")
    assert isinstance(hazard, Hazard)
    assert hazard.kind == "scatter"


def test_a_third_group_between_two_keeps_them_apart() -> None:
    def function(x: Node) -> Node:
        y = prims.exp(x)
        return prims.add(y, prims.matmul(y, y))

    defined = define(build(function, (4, 4)))
    sizes = {name: meta.numel for name, meta in defined.metas.items()}
    partition = Grouping({name: describe(item, sizes) for name, item in defined.definitions.items()})
    hazard = partition.try_merge(partition.group_of["exp"], partition.group_of["add"])
    assert isinstance(hazard, Hazard)
    assert hazard.kind == "cycle"


# ---- what comes of it


def only_kernel(function: Function, *shapes: tuple[int, ...]) -> ir.Kernel:
    """The one kernel that a function becomes, after checking what it computes."""
    graph = build(function, *shapes)
    (program,) = lower_and_schedule([graph])
    arrays = [np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate(shapes)]
    for result, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)
    (step,) = program.steps
    assert isinstance(step, ir.KernelCall)
    return step.kernel


def loads(kernel: ir.Kernel, param: str) -> int:
    return print_kernel(kernel).count(f"{param}[") - sum(
        isinstance(s, ir.Store) and s.buffer == param for s in ir.walk(kernel.body)
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x, 1),
        lambda x: F.layer_norm(x, x.shape[1:]),
        lambda x: F.logsumexp(x, 1),
        lambda x: F.mean(F.mul(F.tanh(x), x), None),
    ],
)
@pytest.mark.parametrize("shape", [(64, 48), (3, 5), (1, 4), (640, 16)])
def test_row_functions_are_one_kernel(function: Function, shape: tuple[int, ...]) -> None:
    only_kernel(function, shape)


def test_siblings_that_stream_one_array_share_a_kernel() -> None:
    only_kernel(lambda x: [F.softmax(x, 1), F.sum(x, 0), F.sum(x)], (64, 48))


def test_softmax_keeps_its_exponentials_in_row_scratch() -> None:
    kernel = only_kernel(lambda x: F.softmax(x, 1), (64, 256))
    locals_ = [s for s in ir.walk(kernel.body) if isinstance(s, ir.Local)]
    assert [s.numel for s in locals_] == [256]
    assert [p.numel for p in kernel.params] == [64 * 256] * 2
    assert kernel.body[0].kind == "parallel"  # type: ignore[union-attr]


def test_a_stored_value_is_read_back_not_kept_twice() -> None:
    def function(x: Node, y: Node, z: Node) -> list[Node]:
        total = prims.add(prims.add(x, y), z)
        return [total, F.layer_norm(total, (64,))]

    kernel = only_kernel(function, (8, 64), (8, 64), (8, 64))
    assert not [s for s in ir.walk(kernel.body) if isinstance(s, ir.Local)]
    assert [loads(kernel, f"p{k}") for k in range(3)] == [1, 1, 1]


def test_a_bias_gradient_rides_along() -> None:
    """The sum over rows is a store-add along the columns, in chunks with partial results of their own."""

    def function(g: Node, x: Node) -> list[Node]:
        dx = prims.mul(g, prims.tanh(x))
        return [dx, prims.sum(dx, (0,))]

    kernel = only_kernel(function, (128, 64), (128, 64))
    adds = [s for s in ir.walk(kernel.body) if isinstance(s, ir.Store) and s.mode == "add"]
    assert len(adds) == 1
    outer = kernel.body[0]
    assert isinstance(outer, ir.Loop)
    assert (outer.kind, outer.extent) == ("parallel", 16)


@pytest.mark.parametrize(
    ("outer", "result", "domain", "chunks"),
    [
        (1024, 256, 262144, 16),
        (1000, 1, 1000, 10),
        (7, 1, 7000, 7),
        (13, 4, 52000, 13),
        (997, 1, 9970, 1),
        (8, 4096, 32768, 1),
    ],
)  # fmt: skip
def test_chunks_depend_on_shapes_alone(outer: int, result: int, domain: int, chunks: int) -> None:
    assert n_chunks(outer, result, domain, CPU) == chunks


@pytest.mark.parametrize(
    ("outer", "result", "domain", "chunks"), [(132, 4, 528, 8), (130, 1, 130, 8), (997, 1, 997, 8), (7, 1, 7, 1)]
)
def test_chunks_of_many_sizes_are_as_many_whatever_divides(outer: int, result: int, domain: int, chunks: int) -> None:
    assert n_chunks(outer, result, domain, replace(CPU, many_sizes=True)) == chunks


def test_a_scalar_placeholder_is_loaded_once_a_row_at_most() -> None:
    kernel = only_kernel(lambda x, s: prims.mul(x, prims.expand(s, x.shape)), (64, 64), ())
    inner = [s for s in ir.walk(kernel.body) if isinstance(s, ir.Loop) and s.kind == "vector"]
    assert all("p1[" not in str(s) for s in inner)


def test_decisions_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with config.patch(logs=frozenset({"fusion"})):
        lower_and_schedule([build(lambda x: prims.neg(prims.exp(x)), (3,))])
    assert "exp + neg, 12 bytes: merged" in capsys.readouterr().err
    assert log.LEVELS["fusion"] == 3


def test_without_fusion_every_value_is_a_kernel() -> None:
    graph = build(lambda x: prims.neg(prims.exp(prims.tanh(x))), (3,))
    with config.patch(fusion=False):
        (program,) = lower_and_schedule([graph])
    assert len(program.steps) == 3


# ---- golden text


def test_the_text_of_softmax(golden: Callable[[str, str], None]) -> None:
    golden("loop_ir/softmax.txt", print_kernel(only_kernel(lambda x: F.softmax(x, 1), (64, 256))))


def test_the_text_of_layer_norm_with_residual(golden: Callable[[str, str], None]) -> None:
    def function(x: Node, r: Node, w: Node, b: Node) -> list[Node]:
        total = prims.add(x, r)
        return [total, F.layer_norm(total, (64,), w, b)]

    golden("loop_ir/layer_norm.txt", print_kernel(only_kernel(function, (32, 64), (32, 64), (64,), (64,))))


@pytest.mark.parametrize(
    ("shape", "dim", "extent"),
    [((16, 32, 64), 1, 16), ((4, 32, 64), 0, 16), ((3, 48, 64), 0, 16)],
)
def test_sums_that_keep_an_axis_run_in_parallel_over_it(shape: tuple[int, ...], dim: int, extent: int) -> None:
    """Mean over time, gradient of positions: no partial results where some axis keeps the sums apart."""
    kernel = only_kernel(lambda x: [prims.exp(x), F.sum(prims.exp(x), dim)], shape)
    loops = [s for s in kernel.body if isinstance(s, ir.Loop)]
    assert [(loop.kind, loop.extent) for loop in loops if loop.kind != "vector"] == [("parallel", extent)]
    assert len(kernel.params) == 3
