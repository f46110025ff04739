"""Gradients that a whole step's forward makes ahead: as eager and as torch, compiled for a CPU, scheduled for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ahead_programs import CLASSES, LOSSES, ROWS, STEPS, plain, trained
from test_steps_in_the_graph import check

import distcompile as ours
from compiler_core import pipeline
from compiler_core.aot import ahead
from compiler_core.aot.budget import peak_of
from compiler_core.aot.partition import Partition, partition
from compiler_core.aot.within import Within
from compiler_core.backend import Executable
from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.graph.verify import verify
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.lowering.target import GPU
from compiler_core.ops.registry import Array
from compiler_core.schedule import in_place
from compiler_core.schedule.from_graphs import lower_and_schedule
from tests.fake_cupy import on_fake_device

AHEAD = {"none_goes_back": set(), "twice_through_one": {0}, "two_heads": {2}}  # what is written there: of others one
Made = list[tuple[Within, Within]]


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Made]:
    """However small they are, of steps in two programs. Out: each whole step before and after."""
    monkeypatch.setattr(ahead, "LEAST", 1)
    monkeypatch.setattr(in_place, "LARGE", 1)
    seen: Made = []

    def keep(within: Within, memory_budget: float) -> Within:
        found = ahead.with_gradients_ahead(within, memory_budget)
        verify(found.graph)
        verify(found.whole())
        seen.append((within, found))
        return found

    monkeypatch.setattr(pipeline, "comes_in_turn", lambda *_: True)
    monkeypatch.setattr(pipeline, "with_gradients_ahead", keep)
    with config.patch(cache_dir=tmp_path):
        yield seen


class Scheduled:
    """A backend: the schedule for a GPU, interpreted. programs: the last that it made."""

    name, announces = "scheduled", True

    def __init__(self) -> None:
        self.programs: list[ir.Program] = []

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Sequence[Graph], name: str) -> list[Executable]:
        stacked = frozenset(node.name for node in graphs[0].outputs) if len(graphs) > 1 else frozenset[str]()
        self.programs = list(lower_and_schedule(graphs, name, replace(GPU, stacked=stacked)))
        return [partial(run, verify_program(p) or p, graph) for p, graph in zip(self.programs, graphs, strict=True)]


def run(
    program: ir.Program,
    graph: Graph,
    inputs: Sequence[Array],
    outs: Sequence[Array | None] | None = None,
    _: Any = None,
) -> list[Array]:
    results = interpret_program(program, [np.array(array) for array in inputs])
    made = [result.reshape(node.shape) for result, node in zip(results, graph.outputs, strict=True)]
    for k, out in enumerate(outs or ()):
        if out is not None:
            out[...] = made[k]
            made[k] = out
    return made


def no_wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


CASES = [*((name, "plain") for name in LOSSES), *(("mean", name) for name in STEPS if name != "plain")]


@pytest.mark.parametrize(("loss", "step"), CASES)
def test_as_eager_and_as_torch(loss: str, step: str, made: Made) -> None:
    tolerance = 3e-2 if "bf16" in loss or step == "in_autocast" else 1e-4
    program = partial(trained, step_of=STEPS[step], of=LOSSES[loss])
    eager = program(ours, no_wrap)
    check(program(pytest.importorskip("torch"), no_wrap), eager, tolerance)
    check(program(ours, ours.compile(fullgraph=True)), eager, tolerance)
    backend = Scheduled()
    check(program(ours, ours.compile(fullgraph=True, backend=backend)), eager, tolerance)
    assert {found.ahead for _, found in made} == AHEAD.get(step, {1})


@pytest.mark.parametrize("loss", ["mean", "summed", "weighted"])
def test_where_every_target_is_ignored(loss: str) -> None:
    program = partial(trained, step_of=plain, of=LOSSES[loss], ignored=ROWS)
    want = program(pytest.importorskip("torch"), no_wrap)
    check(program(ours, no_wrap), want, 1e-5)
    check(program(ours, ours.compile(fullgraph=True)), want, 1e-5)
    check(program(ours, ours.compile(fullgraph=True, backend=Scheduled())), want, 1e-5)


def test_on_a_device_step_by_step(made: Made) -> None:
    program = partial(trained, step_of=plain, of=LOSSES["mean"])
    want = program(ours, no_wrap)
    with on_fake_device(devices=1):
        ours.set_default_device("cuda")
        try:
            got = program(ours, ours.compile(fullgraph=True, backend="aot_eager"))
        finally:
            ours.set_default_device("cpu")
    check(got, want, 1e-4)
    assert [found.ahead for _, found in made] == [1]


def test_logits_are_gone_over_by_one_kernel_and_their_gradient_lies_in_their_place(made: Made) -> None:
    backend = Scheduled()
    trained(ours, ours.compile(fullgraph=True, backend=backend), plain, LOSSES["mean"])
    numel = ROWS * CLASSES
    forward, backward = backend.programs
    large = {buffer.name for buffer in forward.buffers if buffer.numel == numel}
    assert len(large) == 1
    assert large <= {*forward.outputs}
    readers = [step for step in forward.steps if isinstance(step, ir.KernelCall) and touches(step, large)]
    assert len(readers) == 1
    assert not any(isinstance(step, ir.KernelCall) and touches(step, large) for step in backward.steps)
    before, after = (partition(within.joint()[0]) for within in made[0])
    assert handed(after) < handed(before)
    assert peak_of(after.backward) <= peak_of(before.backward)


def handed(parts: Partition) -> int:
    return sum(parts.forward.outputs[i].meta.nbytes for i in parts.saved)


def touches(step: ir.KernelCall, names: set[str]) -> bool:
    return any(slot.buffer in names for slot in step.slots)


def test_a_gradient_that_is_summed_before_the_first_product_stays(made: Made) -> None:
    head = ours.nn.Linear(4, 5)
    optimizer = ours.optim.SGD(head.parameters(), lr=0.1)

    def step(x: ours.Tensor) -> ours.Tensor:
        optimizer.zero_grad()
        loss = head(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    ours.compile(step, fullgraph=True, backend="aot_eager")(ours.ones(3, 4))
    ((before, after),) = made
    assert after is before


def test_a_small_gradient_stays(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LEAST", ROWS * CLASSES * 4 + 1)
    trained(ours, ours.compile(fullgraph=True, backend="aot_eager"), plain, LOSSES["mean"])
    assert [found.ahead for _, found in made] == [0]
