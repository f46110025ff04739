"""Boundaries as cuts and as notifications inside one artefact: the same gradients, and buckets that leave as early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, Net, batch, check_close, gradients, joined_gradients, loss_of, on_ranks
from ddp_models import shard as shard_of

from collectives import Communicator
from compiler_core.aot.strategy import GradientPlan, LocalGradients, ParameterInfo
from compiler_core.capture import compile
from compiler_core.config import config
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.placement import writes
from compiler_core.loop_ir.print import print_kernel
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile import nn
from distcompile.ddp.plan.bucket_plan import Caps
from distcompile.ddp.plan.splitter import plan_backward, whole

TINY_MB = 1e-6  # every parameter a bucket
BOUNDARIES = ["cut", "notification"]


def train(communicator: Communicator, boundary: str, backend: object, *, accumulate: bool, hooks: bool) -> tuple:
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
    run = compile(ddp, backend=backend, fullgraph=True)
    seen: list[float] = []
    if hooks:
        ddp.module.w2.register_hook(lambda grad: seen.append(float(grad.sum())) or grad * 2.0)
    for seed in (1, 2):
        ddp.zero_grad()
        if accumulate:
            with ddp.no_sync():
                loss_of(run(shard_of(batch(seed + 7), communicator))).backward()
        loss_of(run(shard_of(batch(seed), communicator))).backward()
    assert ddp._strategy.boundary == boundary
    return gradients(ddp.module), seen, [row.segment for row in ddp.overlap_report().rows]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_cut_and_notification_give_the_same(backend: str, accumulate: bool, hooks: bool) -> None:
    results = {}
    for boundary in BOUNDARIES:
        with config.patch(boundary=boundary):
            results[boundary] = on_ranks(2, lambda c: train(c, boundary, backend, accumulate=accumulate, hooks=hooks))  # noqa: B023
    for (cut, saw, segments), (notified, saw_too, parts) in zip(results["cut"], results["notification"]):
        check_close(notified, cut)
        np.testing.assert_allclose(saw_too, saw)
        assert parts == segments == sorted(segments)
        assert len(set(parts)) > 1


def test_a_backend_that_tells_only_at_the_end_gets_cuts() -> None:
    def backend(graph, example_inputs):
        return lambda *tensors: interpret(graph.ir, tensors)

    for found, _, _ in on_ranks(2, lambda c: train(c, "cut", backend, accumulate=False, hooks=False)):
        check_close(found, joined_gradients(Net(), batch(2)))


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_what_a_gradient_hook_raises_inside_the_artefact_comes_out(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend, fullgraph=True)

        def refuse(grad: Tensor) -> None:
            raise KeyError("not this one")

        handle = ddp.module.w1.register_hook(refuse)
        with pytest.raises(KeyError, match="not this one"):
            loss_of(run(shard_of(batch(1), communicator))).backward()
        handle.remove()

    on_ranks(2, step)


# ---- the order of a backward


class Caught(LocalGradients):
    """Keeps the backward graph and which of its outputs is whose gradient."""

    def plan(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
    ) -> GradientPlan:
        self.backward = backward
        self.outputs = {p.name: p.output_index for p in parameters if p.output_index is not None}
        return super().plan(forward, backward, parameters, announces)


def caught_backward(module: nn.Module, *inputs: Tensor) -> Caught:
    strategy = Caught()
    object.__setattr__(module, "__gradient_strategy__", lambda: strategy)
    compile(module, fullgraph=True)(*inputs)
    return strategy


def signals_of(program: ir.Program, names: Sequence[Sequence[str]]) -> list[float]:
    """For each bucket, the share of the products' work after which its outputs are complete."""
    done, total = [0.0], 0.0
    for step in program.steps:
        if isinstance(step, ir.RoutineCall):
            total += math.prod(step.operands[0].layout.shape) * step.result.layout.shape[-1]
        done.append(total)
    last = {name: k for k, step in enumerate(program.steps, 1) for name in writes(step)}
    return [done[max(last[name] for name in group)] / total for group in names]


@pytest.mark.parametrize("cap_mb", [1e-6, 0.01, 0.05])
def test_gradients_are_ready_earlier_and_no_more_memory_is_used(cap_mb: float) -> None:
    manual_seed(0)
    layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(3)]
    caught = caught_backward(nn.Sequential(*layers), randn(2, 16, 32))
    plan = plan_backward(caught.backward, caught.outputs, Caps.from_mb(cap_mb))
    (announced,) = whole(caught.backward, plan, caught.outputs, with_scale=True)
    plain = replace(announced.graph, signals=())
    early, late = lower_and_schedule([announced.graph, plain])
    names = [[early.outputs[place] for place in signal] for signal in announced.graph.signals]
    assert early.arena_nbytes <= late.arena_nbytes
    sooner, later = signals_of(early, names), signals_of(late, names)
    assert sooner == sorted(sooner)
    assert all(a <= b + 1e-9 for a, b in zip(sooner, later)), (sooner, later)


class Normed(nn.Module):
    """Sums over rows (biases, norms) that fusion likes to put together."""

    def __init__(self) -> None:
        super().__init__()
        manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(24, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).pow(2).mean()


def test_bits_do_not_depend_on_bucket_sizes() -> None:
    def rank(communicator: Communicator) -> list[dict[str, bytes]]:
        manual_seed(1 + communicator.rank)
        x = randn(300, 24)
        found = []
        for cap_mb in (25, 2e-3, 3e-4, TINY_MB):
            ddp = DistributedDataParallel(Normed(), bucket_cap_mb=cap_mb)
            compile(ddp, fullgraph=True)(x).backward()
            found.append({name: array.tobytes() for name, array in gradients(ddp.module).items()})
        return found

    for found in on_ranks(2, rank):
        assert all(bits == found[0] for bits in found)


@pytest.mark.parametrize("caps_mb", [(25, 1e-6), (0.05, 0.01)])
def test_kernels_do_not_depend_on_bucket_sizes(caps_mb: tuple[float, float]) -> None:
    manual_seed(0)
    layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)]
    caught = caught_backward(nn.Sequential(*layers), randn(2, 16, 32))
    texts = []
    for cap_mb in caps_mb:
        plan = plan_backward(caught.backward, caught.outputs, Caps.from_mb(cap_mb))
        (announced,) = whole(caught.backward, plan, caught.outputs, with_scale=True)
        (program,) = lower_and_schedule([announced.graph])
        texts.append(sorted(print_kernel(kernel).partition("(")[2] for kernel in program.kernels))
    assert texts[0] == texts[1]
