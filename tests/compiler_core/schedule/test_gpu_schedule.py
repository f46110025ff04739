"""The schedule for GPUs: nests of blocks and chunks in the text, the interpreter's numbers against eager's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from schedule_graphs import random_graph

from compiler_core.codegen.triton.load import load
from compiler_core.codegen.triton.module import print_module
from compiler_core.codegen.triton.tiles import Tile, candidates
from compiler_core.codegen.triton_backend import KernelRunner, TritonBackend
from compiler_core.dtype import DType, float32, int64
from compiler_core.errors import GraphError, IndexError_
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program, run_kernel
from compiler_core.loop_ir.parse import parse_kernel
from compiler_core.loop_ir.print import print_kernel
from compiler_core.loop_ir.verify import verify_kernel, verify_program
from compiler_core.lowering.target import CPU, GPU, Target
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, use_trace
from compiler_core.schedule import gpu_scatter
from compiler_core.schedule.from_graphs import lower_and_schedule

SIZES = [(1, 1), (3, 4097), (129, 3), (1000, 1), (4097, 1), (1, 1000), (129, 129)]


def graph_of(function: Callable[..., Node | list[Node]], *shapes: tuple[int, ...], dtype: DType = float32) -> Graph:
    builder = GraphBuilder("g")
    inputs = [builder.placeholder("x", TensorMeta(shape, dtype)) for shape in shapes]
    with use_trace(builder):
        made = function(*inputs)
    return builder.build(made if isinstance(made, list) else [made])


def only_kernel(graph: Graph) -> ir.Kernel:
    (kernel,) = lower_and_schedule([graph], "g", GPU)[0].kernels
    return kernel


def loops_of(kernel: ir.Kernel) -> list[str]:
    """Extents and kinds, outer before inner."""
    return [f"{loop.extent} {loop.kind}" for loop in ir.walk(kernel.body) if isinstance(loop, ir.Loop)]


def inputs_of(graph: Graph, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(node.shape).astype(node.dtype.numpy) for node in graph.inputs]


def test_every_row_axis_is_parallel_where_rows_are_not_summed() -> None:
    scores = graph_of(lambda x: F.softmax(F.transpose(x, 1, 2), -1), (4, 12, 64, 32))
    assert loops_of(only_kernel(scores))[:3] == ["4 parallel", "64 parallel", "12 block"]
    assert loops_of(only_kernel(graph_of(lambda x: F.softmax(x, -1), (4, 12, 64, 32))))[0] == "3072 block"


def test_sums_over_rows_take_two_stages_in_as_many_chunks_as_fill_the_machine() -> None:
    kernel = only_kernel(graph_of(lambda x: F.sum(F.mul(x, x), (0,)), (8192, 4096)))
    assert loops_of(kernel)[:4] == ["16 parallel", "4096 vector", "8192 block", "4096 vector"]
    assert "for i2 in 8192 block of i0" in print_kernel(kernel)
    first, second = print_module([kernel]).launches[kernel.name]
    assert first.programs >= 4 * GPU.multiprocessors
    assert second.programs >= 64
    assert loops_of(only_kernel(graph_of(lambda x: F.sum(x, (0, 1)), (4096, 4096))))[0] == "528 parallel"


def layer_norm_and_sums(x: Node, g: Node) -> list[Node]:
    """What a layer norm's backward is made of: rows reduced, rows added up, and a result of every element."""
    centred = F.sub(x, F.mean(x, (1,), True))
    scaled = F.mul(g, centred)
    return [F.sub(scaled, F.mean(scaled, (1,), True)), F.sum(scaled, (0,)), F.sum(g, (0,)), F.sum(x, (0, 1))]


def test_rows_reduced_and_added_up_share_one_pass() -> None:
    kernel = only_kernel(graph_of(layer_norm_and_sums, (4096, 768), (4096, 768)))
    launches = print_module([kernel]).launches[kernel.name]
    assert launches[0].programs >= 3 * GPU.multiprocessors
    assert not any(launch.scratch for launch in launches)
    loads = print_module([kernel]).source.split("@triton.jit")[-len(launches)].count("tl.load")
    assert loads == 2, "each operand is read once"


def place_among_all(x: Node) -> list[Node]:
    """One search over several rows side by side."""
    y = F.div(x, F.add(F.abs(F.sum(x, (0,))), 1.0))
    return [y, F.argmax(y, None, False), F.argmin(y, None, False)]


GRAPHS: dict[str, Callable[[Node], Node | list[Node]]] = {
    "layer norm and sums": lambda x: layer_norm_and_sums(x, F.mul(x, 0.5)),
    "softmax along rows": lambda x: F.softmax(x, -1),
    "softmax along columns": lambda x: F.softmax(x, 0),
    "sum of all": lambda x: F.sum(F.mul(x, x), (0, 1)),
    "maximum of columns": lambda x: F.amax(x, (0,)),
    "transpose": lambda x: F.mul(F.transpose(x, 0, 1), 2.0),
    "places": lambda x: [F.argmax(x, 1, False), F.argmax(x, 0, False)],
    "place among all of what columns divide": lambda x: place_among_all(x),
    "taken": lambda x: prims.take(x, prims.cast(F.abs(F.mul(F.sum(x, (1,)), 0.0)), int64)),
}


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:backend 'triton'")
@pytest.mark.parametrize("name", GRAPHS)
def test_odd_sizes_equal_eager(name: str) -> None:
    pytest.importorskip("triton")
    graphs = [graph_of(GRAPHS[name], size) for size in SIZES]
    executables = TritonBackend().compile(graphs, "odd_sizes")
    for graph, executable in zip(graphs, executables, strict=True):
        inputs = inputs_of(graph)
        with np.errstate(all="ignore"):
            for found, wanted in zip(executable(inputs), interpret(graph, inputs), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-4, err_msg=str(graph.inputs[0].shape))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_equal_eager(seed: int) -> None:
    graph, inputs = random_graph(seed)
    (program,) = lower_and_schedule([graph], graph.name, GPU)
    verify_program(program)
    for kernel in program.kernels:
        assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
    with np.errstate(all="ignore"):
        for found, wanted in zip(interpret_program(program, inputs), interpret(graph, inputs), strict=True):
            np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.long
@pytest.mark.triton
def test_any_tile_gives_the_same_numbers() -> None:
    pytest.importorskip("triton")
    rng = np.random.default_rng(5)
    kernel = only_kernel(graph_of(layer_norm_and_sums, (67, 130), (67, 130)))
    arrays = [rng.standard_normal(p.numel).astype(np.float32) for p in kernel.params]
    expected = [array.copy() for array in arrays]
    run_kernel(kernel, expected)
    (first, *_) = print_module([kernel]).launches[kernel.name]
    assert first.shape is not None
    tiles = [*candidates(first.shape), Tile(1, 256, 4), Tile(8, 64, 2), Tile(4, 128, 1), Tile(2, 256, 1, 2)]
    assert len(set(tiles)) > 4
    for tile in tiles:
        module = print_module([kernel], {first.function: tile})
        found = [array.copy() for array in arrays]
        KernelRunner(module, load(module, interpret=True))(kernel, found)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-4, err_msg=str(tile))


PARTS = """kernel parts(p0: f32[11] in, p1: f32[4] out)
  for i0 in 4 parallel
    acc a0: f32 sum
    for i1 in 11 block of i0
      a0 <- p0[i1]
    p1[i0] = a0
"""


def test_a_loop_of_another_runs_its_part() -> None:
    kernel = parse_kernel(PARTS)
    verify_kernel(kernel)
    assert print_kernel(kernel) == PARTS
    arrays = [np.arange(11, dtype=np.float32), np.zeros(4, np.float32)]
    run_kernel(kernel, arrays)
    bounds = [0, 3, 6, 9, 11]
    assert arrays[1].tolist() == [sum(range(a, b)) for a, b in pairwise(bounds)]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("of i0", "of i3", "i3 is no axis of a loop before"),
        ("for i0 in 4 parallel", "for i0 in 4 serial", "not a parallel loop around it"),
        ("    p1[i0] = a0", "    p1[0] = a0", "store to one address"),
        ("      a0 <- p0[i1]", "      for i2 in 2 block\n        a0 <- p0[i1]", "block loop in a block loop"),
    ],
)
def test_the_verifier_names_what_is_wrong(old: str, new: str, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        verify_kernel(parse_kernel(PARTS.replace(old, new)))


def expanded(index: Any, rows: int) -> Any:
    return F.expand(F.unsqueeze(index, 0), (rows, *index.shape))


SCATTERS: dict[str, tuple[Callable[..., Node], list[tuple[int, ...]], tuple[int, ...], int]] = {
    "rows by rank": (lambda b, s, i: prims.index_add(b, i, s), [(9, 5), (70, 5)], (70,), 9),
    "elements by rank": (lambda b, s, i: prims.index_add(b, i, s), [(7,), (100,)], (100,), 7),
    "few rows, in order": (lambda b, s, i: prims.index_add(b, i, s), [(9, 5), (8, 5)], (8,), 9),
    "columns, in order": (lambda b, s, i: F.scatter_add(b, 0, i, s), [(6, 40), (33, 40)], (33, 40), 6),
    "lines, in order": (lambda b, s, i: F.scatter_add(b, 1, i, s), [(40, 6), (40, 33)], (40, 33), 6),
    "elements by rank, the last": (lambda b, s, i: prims.index_copy(b, i, s), [(7,), (100,)], (100,), 7),
    "rows by rank, the last": (lambda b, s, i: prims.index_copy(b, i, s), [(9, 5), (70, 5)], (70,), 9),
    "lines by place": (lambda b, s, i: F.scatter_add(b, 1, expanded(i, 40), s), [(40, 6), (40, 33)], (33,), 6),
    "onto twice itself": (
        lambda b, s, i: F.scatter_add(F.mul(b, 2.0), 1, expanded(i, 40), s),
        [(40, 6), (40, 33)],
        (33,),
        6,
    ),
    "blocks by place": (
        lambda b, s, i: F.scatter_add(b, 2, F.expand(F.unsqueeze(i, 0), (9, 4, 33)), s),
        [(9, 4, 6), (9, 4, 33)],
        (4, 33),
        6,
    ),
}


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:backend 'triton'")
@pytest.mark.parametrize(
    ("name", "most"),
    [*((name, 65536) for name in SCATTERS), *((f"rows by rank{last}", 32) for last in ("", ", the last"))],
)
def test_scatters_keep_the_order_of_their_sources(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(gpu_scatter, "MAX_RANKED", most)
    function, shapes, of_index, bound = SCATTERS[name]
    builder = GraphBuilder("g")
    nodes = [builder.placeholder("x", TensorMeta(shape, float32)) for shape in shapes]
    index = builder.placeholder("i", TensorMeta(of_index, int64))
    with use_trace(builder):
        graph = builder.build([function(*nodes, index)])
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    inputs.append(rng.integers(0, bound, of_index))
    (wanted,) = interpret(graph, inputs)
    (program,) = lower_and_schedule([graph], "g", GPU)
    verify_program(program)
    texts = [print_kernel(kernel) for kernel in program.kernels]
    assert any("from" in text for text in texts) == ("in order" not in name)
    assert [print_kernel(parse_kernel(text)) for text in texts] == texts
    for backwards in (False, True):
        (found,) = interpret_program(program, inputs, backwards=backwards)
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)
    (found,) = TritonBackend().compile([graph], "scatter")[0](inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    inputs[-1].ravel()[3] = bound
    with pytest.raises(IndexError_, match="out of range"):
        TritonBackend().compile([graph], "scatter")[0](inputs)


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_product_is_written_where_a_scatter_adds_onto_it(target: Target, *, kept: bool) -> None:
    """As the gradients of a head and of the embedding tied to it. kept: somebody else wants the product, too."""
    builder = GraphBuilder("g")
    a, b = (builder.placeholder(name, TensorMeta(shape, float32)) for name, shape in (("a", (9, 4)), ("b", (4, 5))))
    source = builder.placeholder("s", TensorMeta((70, 5), float32))
    index = builder.placeholder("i", TensorMeta((70,), int64))
    with use_trace(builder):
        product = prims.matmul(a, b)
        graph = builder.build([prims.index_add(product, index, source), *[product][: int(kept)]])
    (program,) = lower_and_schedule([graph], "g", target)
    verify_program(program)
    read = {slot.buffer for step in program.steps[1:] for slot in ir.slots_of(step)}
    assert (program.steps[0].result.slot.buffer == program.outputs[0]) != kept
    assert (program.outputs[-1] in read) if kept else len([b for b in program.buffers if b.numel == 45]) == 1
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(node.shape).astype(np.float32) for node in (a, b, source)]
    inputs.append(rng.integers(0, 9, (70,)))
    for found, wanted in zip(interpret_program(program, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)


def test_a_product_that_is_added_onto_itself_is_kept() -> None:
    def function(x: Node) -> Node:
        product = prims.matmul(x, x)
        return prims.index_add(product, prims.cast(F.abs(F.sum(x, (1,))), int64), product)

    graph = graph_of(function, (40, 40))
    (program,) = lower_and_schedule([graph], "g", GPU)
    inputs = [np.full((40, 40), 0.01, np.float32)]
    np.testing.assert_allclose(
        interpret_program(program, inputs)[0].reshape(40, 40), interpret(graph, inputs)[0], rtol=1e-5
    )


def sums_of_different_rows(x: Node) -> list[Node]:
    """As in the backward of a position's embedding behind a layer norm."""
    y = F.sub(x, F.mean(x, (2,), True))
    return [F.sum(y, (0,)), F.sum(y, (0, 1)), F.sum(F.mul(y, y), (0, 1)), F.sum(y, (1,)), F.mul(y, 2.0)]


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:backend 'triton'")
@pytest.mark.parametrize("shape", [(4, 6, 10), (5, 33, 7), (1, 9, 8), (9, 1, 8)])
@pytest.mark.parametrize("outputs", [(0, 1, 2, 4), (0, 3), (0, 1, 3, 4), (3, 4)])
def test_sums_that_keep_different_rows_are_shared_out(shape: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    pytest.importorskip("triton")
    graph = graph_of(graph_function(outputs), shape)
    inputs = inputs_of(graph)
    wanted = interpret(graph, inputs)
    (program,) = lower_and_schedule([graph], "g", GPU)
    verify_program(program)
    for results in (interpret_program(program, inputs), TritonBackend().compile([graph], "sums")[0](inputs)):
        for found, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
    large = lower_and_schedule([graph_of(graph_function(outputs), (16, 1024, 768))], "g", GPU)[0]
    launches = print_module(large.kernels).launches
    first = launches[large.kernels[0].name][0]
    assert first.programs >= GPU.multiprocessors


def graph_function(outputs: tuple[int, ...]) -> Callable[[Node], list[Node]]:
    return lambda x: [sums_of_different_rows(x)[k] for k in outputs]


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:backend 'triton'")
def test_a_long_row_of_a_cross_entropy_is_read_once() -> None:
    pytest.importorskip("triton")
    rows, columns = 5, 20001
    builder = GraphBuilder("g")
    logits = builder.placeholder("x", TensorMeta((rows, columns), float32))
    labels = builder.placeholder("y", TensorMeta((rows,), int64))
    with use_trace(builder):
        graph = builder.build([F.cross_entropy(logits, labels, reduction="none"), F.amax(logits, (1,))])
    (program,) = lower_and_schedule([graph], "g", GPU)
    verify_program(program)
    (kernel,) = program.kernels
    text = print_kernel(kernel)
    assert print_kernel(parse_kernel(text)) == text
    assert "expsum" in text
    assert [loop for loop in loops_of(kernel) if "vector" in loop] == [f"{columns} vector"]
    x = np.random.default_rng(3).standard_normal((rows, columns)).astype(np.float32) * 5
    x[1, 7], x[2, 9], x[3, :19000], x[4, 3] = np.nan, np.inf, -np.inf, 200
    inputs = [x, np.array([0, columns - 1, 5, 19500, 3])]
    with np.errstate(all="ignore"):
        wanted = interpret(graph, inputs)
        for results in (interpret_program(program, inputs), TritonBackend().compile([graph], "ce")[0](inputs)):
            for found, expected in zip(results, wanted, strict=True):
                np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-5)


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:backend 'triton'")
@pytest.mark.parametrize("shape", [(7, 33), (65, 5), (1, 9), (4, 1)])
def test_lines_stand_side_by_side(shape: tuple[int, ...]) -> None:
    pytest.importorskip("triton")

    def lines(x: Node) -> list[Node]:
        return [
            F.cumsum(x, 0),
            F.cumsum(x, 1),
            F.argmax(x, 0, False),
            prims.cummax_places(x, 0),
            prims.cummin_places(x, 1),
        ]

    graph = graph_of(lines, shape)
    inputs = inputs_of(graph)
    (program,) = lower_and_schedule([graph], "g", GPU)
    verify_program(program)
    launches = [launch for made in print_module(program.kernels).launches.values() for launch in made]
    assert min(shape) == 1 or not any(launch.scratch for launch in launches)
    wanted = interpret(graph, inputs)
    for results in (interpret_program(program, inputs), TritonBackend().compile([graph], "lines")[0](inputs)):
        for found, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)


def shuffled(x: Node) -> Node:
    """The gradient of `x.repeat(1, 4, 1, 1)` shuffled: 12 channels as 4 x 3 are summed, as 3 x 2 x 2 are read."""
    apart = F.permute(F.reshape(x, (2, 3, 6, 2, 6, 2)), (0, 1, 3, 5, 2, 4))
    return F.sum(F.reshape(apart, (2, 4, 3, 6, 6)), 1)


def two_ways(x: Node) -> list[Node]:
    """Sums of one value by axes that cut each other: 4 x 3 and 3 x 4."""
    y = F.mul(F.reshape(x, (2, 12, 36)), F.reshape(x, (2, 12, 36)))
    return [F.sum(F.reshape(y, (2, 4, 3, 36)), 1), F.sum(F.reshape(y, (2, 3, 4, 36)), (0, 1)), F.sum(y, (0, 1))]


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("function", [shuffled, two_ways])
def test_an_axis_of_loops_is_not_kept_and_summed_at_once(function: Callable[[Node], Any], target: Target) -> None:
    graph = graph_of(function, (2, 3, 12, 12))
    (program,) = lower_and_schedule([graph], "g", target)
    verify_program(program)
    inputs = inputs_of(graph)
    for got, expected in zip(interpret_program(program, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


def _turned(x: Any) -> Node:
    """Pairs are swapped, as a rotary embedding does: an index needs // 2 and % 2."""
    x = F.getitem(x, (slice(None), slice(0, 64)))
    pairs = prims.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    first, second = (F.getitem(pairs, (..., slice(k, k + 1))) for k in range(2))
    swapped = F.cat([prims.neg(second), first], -1)
    return prims.mul(x, prims.reshape(swapped, x.shape))


def _of_columns_in_two_orders(x: Any) -> Node:
    """A row's columns as (64, 9) and as (9, 64)."""
    turned = prims.reshape(prims.permute(prims.reshape(x, (40, 9, 64)), dims=(0, 2, 1)), (40, 576))
    return prims.sum(prims.mul(x, turned), dims=(1,))


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:backend 'triton'")
@pytest.mark.parametrize(
    ("function", "shape", "loops"),
    [
        (_turned, (300, 96), ["300 block", "64 vector"]),
        (_of_columns_in_two_orders, (40, 576), ["40 block", "576 vector"]),
    ],
    ids=["pairs", "rows"],
)
def test_few_columns_are_no_axis_of_their_own(
    function: Callable[..., Node], shape: tuple[int, ...], loops: list[str]
) -> None:
    graph = graph_of(function, shape)
    assert loops_of(only_kernel(graph)) == loops
    (program,), given = lower_and_schedule([graph], "g", GPU), inputs_of(graph)
    (found,), (expected,) = interpret_program(program, given), interpret(graph, given)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    (ran,) = TritonBackend().compile([graph], "g")[0](given)
    np.testing.assert_allclose(ran, expected, rtol=1e-4, atol=1e-5)
