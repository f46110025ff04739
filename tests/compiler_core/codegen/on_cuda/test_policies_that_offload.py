"""Values that the policy of a checkpointed function sends to the host's memory: the same bits, whichever call it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from saving_steps import Graphs, batch, model

import distcompile as dc
from compiler_core.codegen.cuda_backend import CudaBackend
from distcompile import nn
from distcompile.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from tests.fake_cuda import FakeCuda
from tests.fake_cupy import on_fake_device

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]
PRODUCTS = (dc.ops.aten.mm.default, dc.ops.aten.addmm.default)


def products(policy: CheckpointPolicy) -> Callable[[], Any]:
    """Contexts of a policy that does this with the results of products, and computes the rest again."""

    def said(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return policy if op in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, said)


def loss_of(net: nn.Module, policy: CheckpointPolicy, x: Any) -> Any:
    return checkpoint(net, x, use_reentrant=False, context_fn=products(policy)).square().sum()


def gradients(policy: CheckpointPolicy, backend: Any, **options: Any) -> tuple[list[Any], Any]:
    net = model()
    call = dc.compile(lambda x: loss_of(net, policy, x), backend=backend, fullgraph=True, **options)
    for k in range(2):
        call(batch(k)).backward()
    return [p.grad.cpu().numpy() for p in net.parameters()], call


def whole_step(policy: CheckpointPolicy, backend: Any) -> list[Any]:
    net = model()
    optimizer = dc.optim.SGD(net.parameters(), lr=0.1)

    @dc.compile(backend=backend, fullgraph=True)
    def step(x: Any) -> None:
        optimizer.zero_grad()
        loss_of(net, policy, x).backward()
        optimizer.step()

    for k in range(3):
        step(batch(k))
    return [p.detach().cpu().numpy() for p in net.parameters()]


def same(found: list[Any], expected: list[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", [CudaBackend(90), Graphs()], ids=["launched", "replayed"])
def test_what_a_policy_names_goes_to_the_host(backend: Any, fake_cuda: FakeCuda) -> None:
    stays, here = gradients(CheckpointPolicy.MUST_SAVE, backend)
    assert not fake_cuda.named("cuMemcpyAsync")
    goes, there = gradients(CheckpointPolicy.MUST_CPU_OFFLOAD, backend)
    assert fake_cuda.named("cuMemcpyAsync")
    assert not fake_cuda.travelling
    same(goes, stays)
    forward = dict(there.explain().entries[0].graphs)["forward"]
    names = {forward.outputs[place].op.name for place in forward.hosted}
    assert names == {"matmul"}
    assert there.explain().entries[0].memory.hosted > 0 == here.explain().entries[0].memory.hosted


def test_what_it_prefers_there_goes_if_it_is_worth_a_copy(fake_cuda: FakeCuda) -> None:
    gradients(CheckpointPolicy.PREFER_CPU_OFFLOAD, CudaBackend(90))
    assert not fake_cuda.named("cuMemcpyAsync")


def test_a_whole_step_sends_them_too(fake_cuda: FakeCuda) -> None:
    stays = whole_step(CheckpointPolicy.MUST_SAVE, CudaBackend(90))
    assert not fake_cuda.named("cuMemcpyAsync")
    same(whole_step(CheckpointPolicy.MUST_CPU_OFFLOAD, CudaBackend(90)), stays)
    assert fake_cuda.named("cuMemcpyAsync")


def eager(policy: CheckpointPolicy) -> tuple[list[Any], set[type]]:
    net, contexts = model(), products(policy)()
    loss = checkpoint(net, batch(), use_reentrant=False, context_fn=lambda: contexts).square().sum()
    kinds = {type(value) for values in contexts[0].kept.values() for value in values if value is not None}
    loss.backward()
    return [p.grad.cpu().numpy() for p in net.parameters()], kinds


def test_in_eager_code_they_wait_in_the_hosts_memory() -> None:
    with on_fake_device(1):
        stays, kinds = eager(CheckpointPolicy.MUST_SAVE)
        assert np.ndarray not in kinds
        goes, kinds = eager(CheckpointPolicy.MUST_CPU_OFFLOAD)
        assert kinds == {np.ndarray}
        same(goes, stays)


def test_on_the_cpu_they_stay_and_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = nn.Linear(4, 4)
        call = dc.compile(lambda x: loss_of(net, CheckpointPolicy.MUST_CPU_OFFLOAD, x), fullgraph=True)
        call(dc.ones(2, 4)).backward()
    assert not dict(call.explain().entries[0].graphs)["forward"].hosted
