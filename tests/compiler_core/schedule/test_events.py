"""Signals and waits: the same at every stage, as early and as late as they may stand, and never a value too soon."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from schedule_graphs import random_graph

from compiler_core.backend import CallableBackend, Executable, InterpreterBackend
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.dtype import float32
from compiler_core.errors import BackendError, GraphError
from compiler_core.events import Events
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_program
from compiler_core.loop_ir.print import print_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.lowering.target import CPU, GPU, Target
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, use_trace
from compiler_core.runtime.profiler import profiling
from compiler_core.schedule.from_graphs import lower_and_schedule


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class Diary:
    """Notes every event, and what stood in the outputs when it was signalled; may write inputs when waited for."""

    def __init__(self, graph: Graph, outs: Sequence[Array], deliver: Callable[[int], None] | None = None) -> None:
        self.graph, self.outs, self.deliver = graph, outs, deliver
        self.notes: list[str] = []
        self.seen: dict[int, Array] = {}

    def signal(self, event: int) -> None:
        self.notes.append(f"signal {event}")
        self.seen |= {place: self.outs[place].copy() for place in self.graph.signals[event]}

    def wait(self, event: int) -> None:
        self.notes.append(f"wait {event}")
        if self.deliver is not None:
            self.deliver(event)


def two_layers() -> Graph:
    """Two products whose results are announced one by one, and two weights that are waited for one by one."""
    builder = GraphBuilder("layers")
    x = builder.placeholder("x", TensorMeta((4, 6), float32))
    first = builder.placeholder("first", TensorMeta((6, 6), float32), role="parameter")
    second = builder.placeholder("second", TensorMeta((6, 6), float32), role="parameter")
    with use_trace(builder):
        h = prims.tanh(F.matmul(x, first))
        y = prims.tanh(F.matmul(h, second))
    return replace(builder.build([h, y]), signals=((0,), (1,)), waits=((1,), (2,)))


def program(graph: Graph) -> ir.Program:
    return lower_and_schedule([graph])[0]


def run_loop_ir(graph: Graph) -> Executable:
    made = program(graph)
    verify_program(made)

    def run(inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None):
        return interpret_program(made, inputs, outs, events)

    return run


STAGES = {
    "graph": lambda graph: InterpreterBackend("aot_eager").compile([graph], "g")[0],
    "loop_ir": run_loop_ir,
    "native": lambda graph: NativeBackend().compile([graph], "g")[0],
    "callable": lambda graph: CallableBackend(lambda g, _: lambda *tensors: interpret(g.ir, tensors)).compile(
        [graph], "g"
    )[0],
}


@pytest.fixture(params=STAGES)
def stage(request) -> Callable[[Graph], Executable]:
    return STAGES[request.param]


def test_graphs_with_events_print_and_parse() -> None:
    graph = two_layers()
    text = print_graph(graph)
    assert "  wait 1: inputs 2\n" in text
    assert "  signal 0: outputs 0\n" in text
    assert print_graph(parse_graph(text)) == text
    verify(graph)
    for wrong in ({"signals": ((0,), (0,))}, {"waits": ((7,),)}):
        with pytest.raises(GraphError, match=r"names? a place twice"):
            verify(replace(graph, **wrong))


def test_a_program_with_events(golden) -> None:
    made = program(two_layers())
    golden("loop_ir/events.txt", print_program(made))
    assert print_program(parse_program(print_program(made))) == print_program(made)
    verify_program(made)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda steps: [s for s in steps if isinstance(s, ir.Signal)] + list(steps), "stands twice"),
        (lambda steps: sorted(steps, key=lambda s: not isinstance(s, ir.Signal)), "written after its event"),
        (lambda steps: sorted(steps, key=lambda s: isinstance(s, ir.Wait)), "read before its event"),
        (lambda steps: [ir.Signal(9, ("x",)), *steps], "x is no output"),
        (lambda steps: [ir.Wait(9, ("tanh",)), *steps], "tanh is no input"),
    ],
)
def test_a_misplaced_event_is_refused(change, complaint: str) -> None:
    made = program(two_layers())
    with pytest.raises(GraphError, match=complaint):
        verify_program(replace(made, steps=tuple(change(made.steps))))


def test_events_come_in_order_with_their_values(stage, rng) -> None:
    graph = two_layers()
    inputs = [rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs]
    expected = interpret(replace(graph, signals=(), waits=()), inputs)
    given = [inputs[0], np.zeros_like(inputs[1]), np.zeros_like(inputs[2])]

    def deliver(event: int) -> None:
        given[event + 1][...] = inputs[event + 1]

    outs = [np.zeros((4, 6), np.float32) for _ in graph.outputs]
    diary = Diary(graph, outs, deliver)
    results = stage(graph)(given, outs, diary)
    assert sorted(diary.notes) == ["signal 0", "signal 1", "wait 0", "wait 1"]
    for k, value in enumerate(expected):
        np.testing.assert_allclose(results[k], value, rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(diary.seen[k], results[k])


def test_native_events_stand_between_the_layers(rng) -> None:
    graph = two_layers()
    outs = [np.zeros((4, 6), np.float32) for _ in graph.outputs]
    diary = Diary(graph, outs)
    NativeBackend().compile([graph], "g")[0](
        [rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs], outs, diary
    )
    assert diary.notes == ["wait 0", "signal 0", "wait 1", "signal 1"]


def test_without_events_nothing_is_announced(stage, rng) -> None:
    graph = two_layers()
    inputs = [rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs]
    for got, expected in zip(stage(graph)(inputs), interpret(graph, inputs)):
        np.testing.assert_allclose(np.reshape(got, expected.shape), expected, rtol=2e-6, atol=1e-6)


class Refuse:
    def __init__(self, word: str) -> None:
        self.word = word
        self.after: list[str] = []

    def signal(self, event: int) -> None:
        self._met("signal", event)

    def wait(self, event: int) -> None:
        self._met("wait", event)

    def _met(self, word: str, event: int) -> None:
        self.after.append(f"{word} {event}")
        if word == self.word and event == 0:
            raise KeyError("no")


@pytest.mark.parametrize("word", ["signal", "wait"])
def test_what_an_event_raises_comes_out(stage, word: str, rng) -> None:
    graph, refuse = two_layers(), Refuse(word)
    inputs = [rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs]
    run = stage(graph)
    with pytest.raises(KeyError, match="no"):
        run(inputs, [np.zeros((4, 6), np.float32) for _ in graph.outputs], refuse)
    assert refuse.after[-1] == f"{word} 0"  # nothing is announced, or waited for, after that
    run(inputs, None, None)


def test_what_an_event_is_about_is_never_copied(rng) -> None:
    graph = two_layers()
    run = NativeBackend().compile([graph], "g")[0]
    inputs = [rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs]
    outs = [np.zeros((4, 6), np.float32) for _ in graph.outputs]
    inputs[0] = np.asfortranarray(inputs[0])
    run(inputs, outs, Diary(graph, outs))  # no event is about the first input
    with pytest.raises(BackendError, match=r"input 1 of .* would be copied"):
        run([inputs[0], np.asfortranarray(inputs[1]), inputs[2]], outs, Diary(graph, outs))
    with pytest.raises(BackendError, match=r"output 1 of .* would be copied"):
        run(inputs, [outs[0], np.zeros((6, 4), np.float32).T], Diary(graph, outs))


def test_the_profiler_counts_events_apart(rng) -> None:
    graph = two_layers()
    run = NativeBackend().compile([graph], "profiled_events")[0]
    outs = [np.zeros((4, 6), np.float32) for _ in graph.outputs]
    with profiling() as profile:
        run([rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs], outs, Diary(graph, outs))
    labels = {row.label for row in profile.rows if row.graph == run.entry.symbol}
    assert {"signal 0", "wait 1", "gemm f32 4x6 6x6"} <= labels


def bias_then_more(announced: bool) -> Graph:
    """A bias gradient, announced; and more work on what it sums."""
    builder = GraphBuilder("bias")
    g, h = (builder.placeholder(name, TensorMeta((64, 32), float32)) for name in "gh")
    with use_trace(builder):
        inner = F.mul(g, F.sub(prims.full((64, 32), 1.0, float32), F.mul(h, h)))
        bias = F.sum(inner, (0,))
        more = F.mul(inner, h)
    return replace(builder.build([bias, more]), signals=((0,), (1,)) if announced else ())


def test_fusion_crosses_a_signal_that_it_does_not_delay() -> None:
    assert len(program(bias_then_more(announced=False)).kernels) == 1
    assert len(program(bias_then_more(announced=True)).kernels) == 1


def test_no_merge_makes_a_signal_wait_for_other_work() -> None:
    builder = GraphBuilder("late")
    g = builder.placeholder("g", TensorMeta((64, 32), float32))
    w = builder.placeholder("w", TensorMeta((32, 32), float32))
    with use_trace(builder):
        early = prims.tanh(g)
        late = F.mul(F.matmul(prims.exp(g), w), g)  # streams g too: without events it would join `early`
    graph = builder.build([early, late])
    steps = program(replace(graph, signals=((0,), (1,)))).steps
    position = next(k for k, step in enumerate(steps) if isinstance(step, ir.Signal))
    assert not any(isinstance(step, ir.RoutineCall) for step in steps[:position])


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_announce_what_is_complete(seed: int) -> None:
    graph, inputs = random_graph(seed)
    rng = random.Random(seed)
    places = rng.sample(range(len(graph.outputs)), len(graph.outputs))
    cut = rng.randint(0, len(places))
    waits = tuple((i,) for i in rng.sample(range(len(inputs)), rng.randint(0, len(inputs))))
    graph = replace(graph, signals=(tuple(places[:cut]), tuple(places[cut:])), waits=waits)
    verify(graph)
    for name in ("graph", "loop_ir", "native") if seed < 12 else ("graph", "loop_ir"):
        given = [x.copy() for x in inputs]
        for (i,) in waits:
            given[i][...] = np.nan

        def deliver(event: int, given: list[Array] = given) -> None:
            (place,) = waits[event]
            given[place][...] = inputs[place]

        outs = [np.full(n.shape, 7, n.dtype.numpy) for n in graph.outputs]
        diary = Diary(graph, outs, deliver)
        results = STAGES[name](graph)(given, outs, diary)
        assert sorted(diary.notes) == sorted(["signal 0", "signal 1", *(f"wait {k}" for k in range(len(waits)))])
        for place, (result, expected) in enumerate(
            zip(results, interpret(replace(graph, signals=(), waits=()), inputs))
        ):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(diary.seen[place], result)


def test_calls_made_by_events_have_an_arena_of_their_own(rng) -> None:
    """A gradient hook or a deferred update runs compiled code while another artefact is half way."""
    graph = two_layers()
    run = NativeBackend().compile([graph], "nested")[0]
    inputs = [rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs]
    expected = interpret(replace(graph, signals=(), waits=()), inputs)

    class Nested:
        depth = 0

        def signal(self, event: int) -> None:
            self.wait(event)

        def wait(self, event: int) -> None:
            if self.depth < 2:
                self.depth += 1
                run([np.full_like(x, 3) for x in inputs], [np.zeros((4, 6), np.float32) for _ in expected], self)
                self.depth -= 1

    outs = [np.zeros((4, 6), np.float32) for _ in expected]
    for got, value in zip(run(inputs, outs, Nested()), expected):
        np.testing.assert_allclose(got, value, rtol=2e-6, atol=1e-6)


def mlp_backward() -> Graph:
    """What an activation is computed again for: its layer's product, announced first, and the gradient before it."""
    builder = GraphBuilder("mlp")
    z = builder.placeholder("z", TensorMeta((256, 128), float32))
    g = builder.placeholder("g", TensorMeta((256, 64), float32))
    w = builder.placeholder("w", TensorMeta((64, 128), float32), role="parameter")
    with use_trace(builder):
        t = prims.tanh(z)
        dw = F.matmul(F.transpose(g, 0, 1), t)
        dz = prims.mul(F.matmul(g, w), prims.mul(t, prims.sub(t, prims.mul(t, t))))
        bias = F.sum(dz, 0)
    return builder.build([dw, bias, dz])


@pytest.mark.parametrize(("target", "is_one"), [(CPU, False), (GPU, True)], ids=["cpu", "gpu"])
def test_on_a_gpu_a_bucket_waits_a_little_rather_than_have_memory_read_twice(target: Target, is_one: bool) -> None:
    plain = mlp_backward()
    (alone,) = lower_and_schedule([plain], "g", target)
    (told,) = lower_and_schedule([replace(plain, signals=((0,), (1,)))], "g", target)
    verify_program(told)
    kernels = [[step.kernel for step in made.steps if isinstance(step, ir.KernelCall)] for made in (alone, told)]
    assert (kernels[0] == kernels[1]) is is_one
    assert sorted(step.event for step in told.steps if isinstance(step, ir.Signal)) == [0, 1]
