"""Norms, paddings and embeddings with all options: values, gradients and buffers, judged by torch, also compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.errors import ArgumentError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


IDS, OFFSETS = np.array([1, 2, 1, 5, 0, 2, 2]), np.array([0, 3, 3, 5])
WEIGHTS = f(7)
CASES: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "batch3d": (lambda nn: nn.BatchNorm3d(3), (f(2, 3, 2, 3, 4),)),
    "instance1d": (lambda nn: nn.InstanceNorm1d(3), (f(2, 3, 6),)),
    "instance2d": (lambda nn: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (f(2, 3, 4, 5),)),
    "instance2d_eval": (lambda nn: nn.InstanceNorm2d(3, track_running_stats=True).eval(), (f(2, 3, 4, 5),)),
    "instance3d_alone": (lambda nn: nn.InstanceNorm3d(3, momentum=0.3, track_running_stats=True), (f(3, 2, 3, 4),)),
    "local_response": (lambda nn: nn.LocalResponseNorm(3, alpha=0.5), (f(2, 5, 3, 3),)),
    "local_response_even": (lambda nn: nn.LocalResponseNorm(4, k=2.0), (f(2, 5, 3),)),
    "constant_pad": (lambda nn: nn.ConstantPad2d((1, 2, 0, 3), 1.5), (f(2, 3, 4, 5),)),
    "zero_pad": (lambda nn: nn.ZeroPad1d(2), (f(2, 3, 4),)),
    "reflection_pad": (lambda nn: nn.ReflectionPad2d((1, 2, 3, 0)), (f(2, 3, 4, 5),)),
    "replication_pad": (lambda nn: nn.ReplicationPad3d(1), (f(2, 3, 2, 3, 4),)),
    "circular_pad": (lambda nn: nn.CircularPad1d((2, 1)), (f(2, 3, 4),)),
    "embedding_frequency": (lambda nn: nn.Embedding(6, 3, padding_idx=2, scale_grad_by_freq=True), (IDS,)),
    "embedding_max_norm": (lambda nn: nn.Embedding(6, 3, max_norm=0.8), (IDS,)),
    "bag_mean": (lambda nn: nn.EmbeddingBag(6, 3), (IDS, OFFSETS)),
    "bag_sum_2d": (lambda nn: nn.EmbeddingBag(6, 3, mode="sum", padding_idx=2), (IDS[:6].reshape(2, 3),)),
    "bag_mean_2d": (lambda nn: nn.EmbeddingBag(6, 3, padding_idx=2), (IDS[:6].reshape(2, 3),)),
    "bag_max": (lambda nn: nn.EmbeddingBag(6, 3, mode="max"), (IDS, OFFSETS)),
    "bag_weighted": (lambda nn: nn.EmbeddingBag(6, 3, mode="sum"), (IDS, OFFSETS, WEIGHTS)),
    "bag_last": (lambda nn: nn.EmbeddingBag(6, 3, mode="sum", include_last_offset=True), (IDS, np.array([0, 4, 7]))),
    "bag_norm": (lambda nn: nn.EmbeddingBag(6, 3, max_norm=0.7), (IDS, OFFSETS)),
    "bag_frequency": (lambda nn: nn.EmbeddingBag(6, 3, mode="sum", scale_grad_by_freq=True), (np.arange(6), OFFSETS)),
}


def run(package: Any, layer: Any, call: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Value, gradients of floating inputs and parameters, and the state afterwards."""
    tensors = [package.tensor(np.array(x)) for x in inputs]
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    out = call(*tensors)
    (out * out.sin()).sum().backward()
    grads = [leaf.grad for leaf in (*leaves, *layer.parameters())]
    return [t.detach().numpy() for t in (out, *grads, *layer.state_dict().values())]


@pytest.mark.parametrize("backend", ["tape", "codegen"])
@pytest.mark.parametrize("name", CASES)
def test_value_gradients_and_state_are_torchs(name: str, backend: str) -> None:
    make, inputs = CASES[name]
    want, mine = make(torch.nn), make(dc.nn)
    mine.load_state_dict({key: value.numpy() for key, value in want.state_dict().items()})
    assert repr(mine) == repr(want)
    call = (
        mine if backend == "tape" else dc.compile(mine, fullgraph=getattr(mine, "max_norm", None) is None)
    )  # which writes into a parameter
    for a, b in zip(run(dc, mine, call, inputs), run(torch, want, want, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-4, atol=2e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_bag_scales_gradients_by_the_frequency_that_torch_counts_in_embedding(
    mode: str, padding: int | None, compiled: bool
) -> None:
    """torch's own bags on the CPU take another row's count, so its `embedding` is the judge: reduced bag by bag."""
    table, given = f(6, 3), f(len(OFFSETS), 3)
    want = torch.tensor(table, requires_grad=True)
    looked_up = torch.nn.functional.embedding(torch.tensor(IDS), want, padding, scale_grad_by_freq=True)
    ends = [*OFFSETS[1:], len(IDS)]
    kept = [[i for i in range(a, b) if IDS[i] != padding] for a, b in zip(OFFSETS, ends)]
    bags = [looked_up[i].sum(0) / (max(len(i), 1) if mode == "mean" else 1) for i in kept]
    torch.stack(bags).backward(torch.tensor(given))
    layer = dc.nn.EmbeddingBag(6, 3, mode=mode, scale_grad_by_freq=True, padding_idx=padding)
    layer.load_state_dict({"weight": table})
    call = dc.compile(layer, fullgraph=True) if compiled else layer
    call(dc.tensor(IDS), dc.tensor(OFFSETS)).backward(dc.tensor(given))
    np.testing.assert_allclose(layer.weight.grad.numpy(), want.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_what_torch_refuses_is_refused() -> None:
    for layer, shape in (
        (dc.nn.BatchNorm1d(3), (1, 3)),
        (dc.nn.InstanceNorm1d(3), (2, 3, 1)),
        (dc.nn.InstanceNorm1d(4, affine=True), (2, 3, 5)),
    ):
        with pytest.raises(ArgumentError):
            layer(dc.ones(*shape))
    for options in ({"mode": "no such"}, {"offsets": None}):
        with pytest.raises(ArgumentError):
            dc.nn.functional.embedding_bag(dc.tensor(IDS), dc.ones(6, 3), **{"offsets": dc.tensor(OFFSETS), **options})


@pytest.mark.parametrize("has_metadata", [False, True])
def test_batch_norm_takes_old_state_without_its_count_of_batches(has_metadata: bool) -> None:
    loaded = []
    for lib in (dc, torch):
        module = lib.nn.Sequential(lib.nn.BatchNorm1d(2))
        state = module.state_dict()
        assert state._metadata["0"] == {"version": 2}
        del state["0.num_batches_tracked"]
        module[0].num_batches_tracked.fill_(3)
        loaded.append(dict(module.load_state_dict(state if has_metadata else dict(state), strict=False)._asdict()))
        assert int(module[0].num_batches_tracked) == 3
    assert loaded[0] == loaded[1]
