"""Calls of one kernel on different arrays as one launch: steps, launches, and the numbers of both interpreters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler_core.codegen.triton.load import compile_ptx, load
from compiler_core.codegen.triton.module import print_module
from compiler_core.codegen.triton_backend import TritonBackend
from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_kernel
from compiler_core.loop_ir.print import print_kernel
from compiler_core.loop_ir.verify import verify_program
from compiler_core.lowering.target import CPU, GPU
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.schedule import batch
from compiler_core.schedule.from_graphs import lower_and_schedule

SHAPES = [(5000,), (5000,), (3, 1700), (5000,), (3, 1700), (4500,), (5000,)]  # larger than Target.small


def updates(shapes: list[tuple[int, ...]] = SHAPES, *, more: Callable[[list[Node]], list[Node]] = list) -> Graph:
    """Each x - rate * g, as an optimizer's."""
    builder = GraphBuilder("updates")
    rate = builder.placeholder("rate", TensorMeta((), float32))
    results = []
    with use_trace(builder):
        for k, shape in enumerate(shapes):
            x, g = (builder.placeholder(f"{name}{k}", TensorMeta(shape, float32)) for name in "xg")
            results.append(F.sub(x, F.mul(prims.tanh(g), rate)))
        return builder.build(more(results))


def check(graph: Graph) -> ir.Program:
    """The program for a GPU; its numbers are eager's, in both interpreters."""
    (program,) = lower_and_schedule([graph], "updates", GPU)
    verify_program(program)
    for kernel in program.kernels:
        assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
    rng = np.random.default_rng(2)
    inputs = [np.asarray(rng.standard_normal(node.shape), np.float32) for node in graph.inputs]
    wanted = interpret(graph, inputs)
    for results in (interpret_program(program, inputs), TritonBackend().compile([graph], "updates")[0](inputs)):
        for found, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(np.reshape(found, expected.shape), expected, rtol=1e-5, atol=1e-6)
    return program


pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:backend 'triton'")]
pytest.importorskip("triton")


def test_calls_of_one_kernel_are_one_launch() -> None:
    program = check(updates())
    assert sorted(len(step.slots) for step in program.steps) == [4, 7, 13]  # rate, and three arrays of each
    module = print_module(list(program.kernels))
    launches = [launch for made in module.launches.values() for launch in made]
    assert len(launches) == 3
    large = max(launches, key=lambda launch: len(launch.signature))
    assert large.programs % 4 == 0
    ptx = compile_ptx(load(module, interpret=False)[large.function], large)
    assert ptx.count("st.global") <= 8, "one body serves all"


def test_on_a_cpu_calls_stay_apart() -> None:
    (program,) = lower_and_schedule([updates()], "updates", CPU)
    assert len(program.steps) == len(SHAPES)


def test_a_launch_has_at_most_so_many_params(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_PARAMS", 10)
    program = check(updates([(4200,)] * 7))
    assert sorted(len(step.slots) for step in program.steps) == [4, 10, 10]


def test_what_reads_a_result_comes_after_it() -> None:
    def more(results: list[Node]) -> list[Node]:
        total = F.sum(results[2], (0,))
        return [*results, prims.matmul(results[2], F.transpose(results[4], 0, 1)), F.mul(total, 2.0)]

    check(updates(more=more))


def test_sums_in_two_stages_stay_apart() -> None:
    program = check(updates([(300, 40), (300, 40)], more=lambda results: [F.sum(x, (0,)) for x in results]))
    assert len(program.steps) == 2


def behind_products(count: int = 4, *, read: bool = False) -> Graph:
    """Each x - rate * tanh(a @ b): what is between the updates is no kernel. read: the second's result is used."""
    builder = GraphBuilder("updates")
    rate = builder.placeholder("rate", TensorMeta((), float32))
    results = []
    with use_trace(builder):
        a = builder.placeholder("a", TensorMeta((64, 96), float32))
        for k in range(count):
            x = builder.placeholder(f"x{k}", TensorMeta((64, 96), float32))
            b = builder.placeholder(f"b{k}", TensorMeta((96, 96), float32))
            a = prims.matmul(a, b)
            results.append(F.sub(x, F.mul(prims.tanh(a), rate)))
        if read:
            results.append(prims.matmul(results[1], b))
        return builder.build(results)


def test_updates_wait_for_each_other() -> None:
    program = check(behind_products())
    assert [type(step) for step in program.steps] == [ir.RoutineCall] * 4 + [ir.KernelCall]


def test_none_waits_where_that_would_keep_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_HELD", 3 * 64 * 96 * 4 - 1)
    program = check(behind_products())
    kinds = [type(step) is ir.KernelCall for step in program.steps]
    assert kinds == [False, False, False, True, False, True]


def test_what_is_read_waits_for_none() -> None:
    program = check(behind_products(read=True))
    updates = [step for step in program.steps if isinstance(step, ir.KernelCall)]
    assert len(updates) == 2


def test_none_waits_past_an_event() -> None:
    (program,) = lower_and_schedule([behind_products()], "updates", CPU)
    steps = [*program.steps]
    second = next(step for step in steps[3:] if isinstance(step, ir.KernelCall))
    told = second.slots[-1].buffer
    steps.insert(steps.index(second) + 1, ir.Signal(0, (told,)))
    found = batch.gathered(steps, {})
    assert [type(step).__name__[0] for step in found] == [*"RRKKSRRKK"]
    assert sorted(map(str, found)) == sorted(map(str, steps))
