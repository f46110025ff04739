"""Boundaries as cuts and as notifications inside one artefact: the same gradients, and buckets that leave as early."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, Net, batch, check_close, gradients, joined_gradients, loss_of, on_ranks
from ddp_models import shard as shard_of

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.config import config
from compiler_core.graph.interpret import interpret
from compiler_core.tensor.tensor import Tensor

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
        return lambda *arrays: interpret(graph, arrays)

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
