"""Collectives as ops of graphs: equal to eager code's, gradients too; launched early; ranks that differ are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_forms import FORMS
from graph_collectives import PROGRAMS, Program

import distcompile as dc
from collectives import Communicator, run_ranks
from collectives.errors import CollectiveError, CollectiveMismatchError
from compiler_core.dtype import float32
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes.launch import Launched, launched
from compiler_core.loop_ir.ir import Signal, Wait
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.collectives.op import ALL_REDUCE
from compiler_core.ops.registry import OPS, use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule
from distcompile import distributed as dist
from distcompile.ddp.errors import NotInitializedError
from distcompile.distributed import _functional_collectives as fc
from distcompile.distributed import launch_memory

BACKENDS = ["eager", "aot_eager", "codegen"]
# what speaks of futures, of objects or of the communicator itself ends the graph
BREAK = {
    *("waited_by_a_future", "followed_by_a_function", "all_futures", "waited_by_map", "objects_and_barriers"),
    "on_the_group_itself",
}


def on_ranks(count: int, body: Callable[[Communicator], Any], *, timeout_s: float = 60) -> list[Any]:
    def run(world: Communicator) -> Any:
        with dist.use_communicator(world):
            return body(world)

    return run_ranks(count, run, timeout_s=timeout_s)


@pytest.mark.parametrize("form", [f for f in FORMS if f.__name__ not in BREAK], ids=lambda form: form.__name__)
def test_a_form_is_one_graph(form: Program) -> None:
    def body(world: Communicator) -> None:
        compiled = dc.compile(form, fullgraph=True)
        for step in range(3):
            x = dc.arange(3.0) + step + 10 * world.rank
            expected = form(x.clone())
            assert compiled(x).tolist() == expected.tolist()

    on_ranks(2, body)


@pytest.mark.parametrize("name", sorted(BREAK))
def test_other_forms_say_what_ends_the_graph(name: str) -> None:
    (form,) = (f for f in FORMS if f.__name__ == name)

    def body(world: Communicator) -> None:
        with pytest.raises(GraphBreak, match=r"talks to other ranks|numpy"):
            dc.compile(form, fullgraph=True)(dc.arange(3.0))

    on_ranks(2, body)


def value_and_gradient(function: Program, data: Any, weight: Any) -> tuple[Any, Any]:
    x = dc.tensor(data).requires_grad_()
    out = function(x)
    (out * dc.tensor(weight[: out.numel()]).reshape(out.shape)).sum().backward()
    assert x.grad is not None
    return out.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_values_and_gradients_are_those_of_eager_code(function: Program, ranks: int, backend: str) -> None:
    def body(world: Communicator) -> None:
        compiled = dc.compile(function, fullgraph=True, backend=backend)
        for step in range(2):
            rng = np.random.default_rng(7 * step + world.rank)
            data, weight = rng.uniform(-1, 1, (4 * ranks, 3)), rng.uniform(-1, 1, 400)
            for got, expected in zip(
                value_and_gradient(compiled, data, weight), value_and_gradient(function, data, weight), strict=True
            ):
                np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)

    on_ranks(ranks, body)


# ---- the convention of gradients: those of the sum of all ranks' losses


REDUCTIONS = ({"reduction": "sum"}, {"reduction": "avg"})
GRADIENTS: list[tuple[str, dict[str, Any], Callable[[int], tuple[int, ...]]]] = [
    *(("all_reduce", attrs, lambda ranks: (3,)) for attrs in REDUCTIONS),
    ("all_gather", {}, lambda ranks: (3,)),
    *(("reduce_scatter", attrs, lambda ranks: (ranks, 3)) for attrs in REDUCTIONS),
    ("broadcast_from", {"root": 1}, lambda ranks: (3,)),
    *(("reduce_to", {**attrs, "root": 1}, lambda ranks: (3,)) for attrs in REDUCTIONS),
    ("gather_to", {"root": 1}, lambda ranks: (3,)),
    ("scatter_from", {"root": 1}, lambda ranks: (ranks, 3)),
    ("all_to_all", {}, lambda ranks: (ranks, 3)),
]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("name", "attrs", "shape"), GRADIENTS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_vjp_is_that_of_the_inner_product_summed_over_ranks(
    name: str, attrs: dict[str, Any], shape: Callable[[int], tuple[int, ...]], ranks: int
) -> None:
    """Σ_r <g_r, d f(x)_r> by differences, for a step of each rank's x in turn, against Σ_r <vjp(g)_r, d x_r>."""
    of = {**attrs, "group": "world", "ranks": ranks}
    rng = np.random.default_rng(3)
    xs = rng.uniform(-1, 1, (ranks, *shape(ranks)))
    steps = rng.uniform(-1, 1, xs.shape)
    op = OPS[name]

    def value(moved: Any) -> list[Any]:
        return on_ranks(ranks, lambda world: op.eager(np, moved[world.rank], **of))

    outs = value(xs)
    gs = rng.uniform(-1, 1, (ranks, *outs[0].shape))
    pulled = on_ranks(
        ranks,
        lambda w: op.vjp(gs[w.rank], outs[w.rank], xs[w.rank], **of)[0],  # type: ignore[operator]
    )
    eps = 1e-6
    for rank in range(ranks):
        step = np.zeros_like(xs)
        step[rank] = steps[rank]
        difference = (np.stack(value(xs + eps * step)) - np.stack(value(xs - eps * step))) / (2 * eps)
        assert (gs * difference).sum() == pytest.approx((pulled[rank] * step[rank]).sum(), rel=1e-6, abs=1e-9)


def test_only_sums_have_a_gradient() -> None:
    def body(world: Communicator) -> None:
        x = dc.ones(3, requires_grad=True)
        for function in (lambda x: fc.all_reduce(x, "max"), dc.compile(lambda x: fc.all_reduce(x, "max"))):
            found = function(x)
            with pytest.raises(AutogradError, match="max"):
                found.sum().backward()

    on_ranks(2, body)


# ---- the graph


def graph_of(build: Callable[[Any], Any], shape: tuple[int, ...] = (2, 3)) -> Graph:
    builder = GraphBuilder("step")
    x = builder.placeholder("x", TensorMeta(shape, float32))
    with use_trace(builder):
        return builder.build(build(x))


def launch(graph: Graph) -> Launched | None:
    return launched(graph, 4 << 20)


def reduced(x: Any) -> Any:
    return prims.all_reduce(x, reduction="sum", group="world", ranks=2)


def test_collectives_become_events() -> None:
    plan = launch(graph_of(lambda x: [prims.exp(reduced(prims.sin(x))), reduced(x)]))
    assert plan is not None
    assert str(plan.graph) == (
        "graph step(%x: f32[2, 3] input '', %all_reduce: f32[2, 3] input 'collective:all_reduce', "
        "%all_reduce_1: f32[2, 3] input 'collective:all_reduce_1') {\n"
        "  %sin: f32[2, 3] = sin(%x)\n"
        "  %exp: f32[2, 3] = exp(%all_reduce)\n"
        "  %all_reduce_1_operand: f32[2, 3] = cast(%x) dtype=f32\n"
        "  wait 0 behind 0: inputs 1, 2\n"
        "  signal 0: outputs 1, 2\n"
        "  return %exp, %sin, %all_reduce_1_operand\n"
        "}\n"
    )
    assert str(parse_graph(str(plan.graph))) == str(plan.graph)
    assert (plan.kept, plan.shown) == ((0,), ((1, 1),))
    assert [str(launch) for launch in plan.launches] == ["all_reduce(f32[2, 3], f32[2, 3], sum) of group 'world'"]


def test_one_that_reads_another_is_a_launch_of_its_own() -> None:
    plan = launch(graph_of(lambda x: [reduced(reduced(x))]))
    assert plan is not None
    assert len(plan.launches) == 2
    alone = launch(graph_of(lambda x: [reduced(x), reduced(prims.sin(x))], (1 << 19,)))
    assert alone is not None
    assert len(alone.launches) == 2  # large ones


ASKED: list[Program] = [
    lambda x: fc.all_reduce(x.sin(), "sum").cos() + fc.all_reduce(x * dist.get_rank(), "sum"),  # folded on rank 1
    lambda x: fc.all_reduce(x.sin(), "sum").sum() + fc.all_gather_tensor(x * (dist.get_rank() + 1), 0),  # on rank 0
    lambda x: fc.all_reduce(x.sin(), "sum") - fc.all_reduce(x if dist.get_rank() else x * 0.5, "sum"),
]


@pytest.mark.parametrize("step", ASKED)
def test_what_a_rank_need_not_compute_does_not_change_the_order(step: Program) -> None:
    """The second operand is there before the first, on one rank: its sum met the other's, without an error."""

    def body(world: Communicator) -> None:
        x = dc.arange(3.0) + world.rank + 1
        dc.testing.assert_close(dc.compile(step, fullgraph=True)(x), step(x))

    on_ranks(2, body)


def test_a_graph_without_collectives_is_not_touched() -> None:
    assert launch(graph_of(lambda x: [prims.sin(x)])) is None
    assert launch(graph_of(lambda x: [prims.all_reduce(x, reduction="sum", group="alone", ranks=1)])) is None


def test_effects_are_neither_dropped_nor_merged() -> None:
    """Rank 1 reads nothing of what it takes part in, and the same sum is asked for twice."""

    def step(x: Any) -> Any:
        first, second = fc.all_reduce(x, "sum"), fc.all_reduce(x, "sum")
        return first + second if dist.get_rank() == 0 else x * 1

    def body(world: Communicator) -> Any:
        compiled = dc.compile(step, fullgraph=True)
        return [compiled(dc.ones(2)).tolist() for _ in range(3)][-1]

    assert on_ranks(2, body) == [[4.0, 4.0], [1.0, 1.0]]
    assert ALL_REDUCE.effect


def test_other_work_stands_between_launch_and_wait() -> None:
    """The operand first, then what does not read the result, of which no kernel is merged with one that does."""

    def step(x: Any) -> list[Any]:
        total = prims.sum(prims.sin(x), (0,))
        made = reduced(prims.matmul(x, x))
        return [total, prims.sum(prims.mul(made, x), (0,))]

    plan = launch(graph_of(step, (256, 256)))
    assert plan is not None
    (program,) = lower_and_schedule([plan.graph])
    texts = [type(one).__name__ if isinstance(one, (Signal, Wait)) else one.note for one in program.steps]
    order = [next(k for k, text in enumerate(texts) if word in text) for word in ("Signal", "%sin", "Wait", "%mul")]
    assert order == sorted(order)


# ---- ranks that differ


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_ranks_that_do_not_do_the_same_are_told(backend: str) -> None:
    def step(x: Any) -> Any:
        return fc.all_reduce(x * 2, "sum") if dist.get_rank() == 0 else fc.broadcast(x * 2, 0)

    def body(world: Communicator) -> None:
        with pytest.raises(CollectiveError) as caught:
            dc.compile(step, fullgraph=True, backend=backend)(dc.ones(3))
        assert isinstance(caught.value, CollectiveMismatchError)
        assert "all_reduce" in str(caught.value)
        assert "broadcast" in str(caught.value)

    on_ranks(2, body, timeout_s=30)


def test_other_graphs_with_the_same_collective_are_told() -> None:
    """One rank's graph holds one more: the first would match, the hash says it is of another graph."""

    def step(x: Any) -> Any:
        y = fc.all_reduce(x * 2, "sum")
        return fc.all_reduce(y.exp(), "sum") if dist.get_rank() == 0 else y

    def body(world: Communicator) -> None:
        with pytest.raises(CollectiveMismatchError, match="of plan"):
            dc.compile(step, fullgraph=True)(dc.ones(3))

    on_ranks(2, body, timeout_s=30)


def test_a_failure_gives_its_collectives_up() -> None:
    """An index out of bounds on all ranks: raised, and the next call goes on."""

    def step(x: Any, at: Any) -> Any:
        return fc.all_reduce(x[at].exp(), "sum")

    def body(world: Communicator) -> Any:
        compiled = dc.compile(step, fullgraph=True)
        x = dc.arange(3.0)
        compiled(x, dc.tensor([1, 2]))
        with pytest.raises(IndexError):
            compiled(x, dc.tensor([1, 7]))
        return compiled(x * 0, dc.tensor([0, 1])).tolist()

    assert on_ranks(2, body) == [[2.0, 2.0]] * 2


def test_memory_is_used_again_and_results_that_are_held_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    before = launch_memory.Memory.__init__

    def counted(self: Any, *given: Any) -> None:
        made.append(1)
        before(self, *given)

    monkeypatch.setattr(launch_memory.Memory, "__init__", counted)

    def body(world: Communicator) -> None:
        compiled = dc.compile(lambda x: fc.all_reduce(x * 2, "sum"), fullgraph=True)
        for step in range(30):
            compiled(dc.ones(64) * step)
        held = compiled(dc.ones(64))
        view = held.reshape(8, 8)[2]
        del held
        for step in range(30):
            compiled(dc.ones(64) * step)
        assert view.tolist() == [4.0] * 8

    on_ranks(2, body)
    assert len(made) <= 2 * 3


# ---- groups


def test_groups_have_graphs_of_their_own() -> None:
    def body(world: Communicator) -> Any:
        mine, _ = dist.new_subgroups(2)
        ring = dist.new_group([0, 3])

        def step(x: Any) -> Any:
            y = fc.all_reduce(x, "sum", mine)
            if dist.get_rank() in (0, 3):
                y = y + fc.all_reduce(x * 10, "sum", ring)
            return fc.all_reduce(y, "sum", dist.group.WORLD)

        compiled = dc.compile(step, fullgraph=True)
        x = dc.ones(1) * (world.rank + 1)
        return [compiled(x).item(), step(x).item()]

    assert on_ranks(4, body) == [[120.0, 120.0]] * 4


def test_a_group_that_is_gone_is_told() -> None:
    kept: dict[int, Any] = {}

    def step(x: Any, group: Any) -> Any:
        return fc.all_reduce(x, "sum", group)

    compiled = dc.compile(step, fullgraph=True)

    def body(world: Communicator) -> None:
        kept[world.rank] = dist.new_group([0, 1])
        compiled(dc.ones(1), kept[world.rank])
        dist.destroy_process_group(kept[world.rank])
        with pytest.raises(NotInitializedError, match="gone"):
            compiled(dc.ones(1), kept[world.rank])

    on_ranks(2, body, timeout_s=30)
