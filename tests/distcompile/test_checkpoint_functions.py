"""torch.utils.checkpoint: each scenario runs with both packages and must tell the same; memory, DDP, named errors."""

from __future__ import annotations

import importlib
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import nn
from distcompile.distributed import destroy_process_group, use_communicator
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

warnings.filterwarnings("ignore", message=".*use_reentrant.*")


def both(scenario: Any, *args: Any) -> None:
    """The scenario's numbers with torch and with us."""
    torch = pytest.importorskip("torch")
    ours = scenario(dc, importlib.import_module("distcompile.utils.checkpoint"), *args)
    theirs = scenario(torch, importlib.import_module("torch.utils.checkpoint"), *args)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        if isinstance(a, (int, str, bool)) or a is None or b is None:
            assert a == b
        else:
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=1e-6)


def tensor(torch: Any, *shape: int, grad: bool = True) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return torch.tensor(values, requires_grad=grad)


def kwargs_and_outputs(torch: Any, cp: Any) -> list[Any]:
    x, w, calls = tensor(torch, 3, 4), tensor(torch, 4, 4), []

    def segment(v: Any, number: int, *, weight: Any, names: list[str]) -> Any:
        calls.append(number)
        h = torch.tanh(v @ weight)
        return {"out": h * number, "none": None, "names": names, "view": h.t(), "whole": (v > 0).sum()}

    made = cp.checkpoint(segment, x, 3, weight=w, names=["a"], use_reentrant=False)
    (made["out"].sum() + (made["view"] * made["view"]).sum()).backward()
    return [made["out"], made["names"][0], made["whole"], x.grad, w.grad, len(calls)]


def nested(torch: Any, cp: Any, reentrant: bool) -> list[Any]:
    x, w, calls = tensor(torch, 3, 4), tensor(torch, 4, 4), []

    def inner(v: Any) -> Any:
        calls.append(1)
        return torch.sigmoid(v @ w)

    def outer(v: Any) -> Any:
        return cp.checkpoint(inner, cp.checkpoint(inner, v, use_reentrant=reentrant), use_reentrant=reentrant) + v

    cp.checkpoint(outer, x, use_reentrant=reentrant).square().sum().backward()
    return [x.grad, w.grad]


def several_outputs(torch: Any, cp: Any, reentrant: bool) -> list[Any]:
    x, y = tensor(torch, 2, 3), tensor(torch, 3, 2, grad=False)
    a, b, c = cp.checkpoint(lambda u, v: (u @ v, u.exp(), "text"), x, y, use_reentrant=reentrant)
    (a.sum() * 2).backward()
    return [a, b, c, x.grad, y.grad, b.requires_grad]


def sequential(torch: Any, cp: Any, reentrant: bool) -> list[Any]:
    w = [tensor(torch, 4, 4) for _ in range(5)]
    x = tensor(torch, 2, 4)
    layers = [lambda v, w=w: torch.tanh(v @ w) for w in w]
    made = cp.checkpoint_sequential(layers, 3, x, use_reentrant=reentrant)
    made.sum().backward()
    return [made, x.grad, *(v.grad for v in w)]


def autograd_grad_and_second_order(torch: Any, cp: Any) -> list[Any]:
    x = tensor(torch, 2, 3)
    y = cp.checkpoint(lambda v: (v**3).sin(), x * 2, use_reentrant=False)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return [first, second]


def changed_in_place(torch: Any, cp: Any) -> list[Any]:
    x = tensor(torch, 3, 3)
    h = x * 2
    if torch is dc:  # torch refuses a value that was changed; here the second run sees what the first was given
        y = cp.checkpoint(lambda v: torch.relu(v.add_(1) * x), h, use_reentrant=False)
    else:
        y = torch.relu(h.add_(1) * x)
    (y.sum() + h.square().sum()).backward()
    return [h, y, x.grad]


def without_gradient(torch: Any, cp: Any) -> list[Any]:
    with torch.no_grad():
        y = cp.checkpoint(lambda v: v * 2, tensor(torch, 2, 2), use_reentrant=False)
    z = cp.checkpoint(lambda v: v * 2, tensor(torch, 2, 2, grad=False), use_reentrant=False)
    return [y, y.requires_grad, z.requires_grad]


def twice_with_retained(torch: Any, cp: Any) -> list[Any]:
    x = tensor(torch, 3, 3)
    y = cp.checkpoint(lambda v: v.exp() * v, x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    return [x.grad]


def hooks_run_once(torch: Any, cp: Any) -> list[Any]:
    x, seen = tensor(torch, 3, 3), []
    h = x * 2
    h.register_hook(lambda g: seen.append("h"))
    x.register_hook(lambda g: seen.append("x"))
    y = cp.checkpoint(lambda v: v.exp() + x, h, use_reentrant=False)
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return [x.grad, ",".join(seen)]


@pytest.mark.torch
@pytest.mark.parametrize("scenario", [kwargs_and_outputs, autograd_grad_and_second_order, changed_in_place,
                                      without_gradient, twice_with_retained, hooks_run_once])  # fmt: skip
def test_without_reentry(scenario: Any) -> None:
    both(scenario)


@pytest.mark.torch
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("scenario", [nested, several_outputs, sequential])
def test_either_way(scenario: Any, reentrant: bool) -> None:
    both(scenario, reentrant)


@pytest.mark.torch
def test_errors_are_torchs() -> None:
    def said(torch: Any, cp: Any) -> list[Any]:
        x, out = tensor(torch, 2, 2), []
        loss = cp.checkpoint(lambda v: v * 2, x, use_reentrant=True).sum()
        lost = cp.checkpoint(lambda v: v.detach(), x, use_reentrant=True).sum()
        for attempt in (
            lambda: cp.checkpoint(lambda v, k: v, x, k=1, use_reentrant=True),
            lambda: cp.checkpoint(lambda v: v, x, debug=True, use_reentrant=True),
            lambda: cp.checkpoint(lambda v: v, x, determinism_check="x", use_reentrant=False),
            lambda: cp.checkpoint_sequential([], 1, x, unknown=1, use_reentrant=False),
            lambda: torch.autograd.grad(loss, x),
            lambda: lost.backward(),
        ):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                attempt()
            out += [isinstance(caught.value, ValueError), str(caught.value).split()[0]]
        with pytest.warns(UserWarning, match="None of the inputs"):
            cp.checkpoint(lambda v: v, tensor(torch, 2, grad=False), use_reentrant=True)
        with pytest.warns(UserWarning, match="use_reentrant"):
            cp.checkpoint(lambda v: v, x)
        return out

    both(said)


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_draws_the_same_bits_again(reentrant: bool) -> None:
    net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 6))
    x = dc.randn(4, 6, requires_grad=True)

    def run(function: Any) -> list[np.ndarray[Any, Any]]:
        dc.manual_seed(1)
        net.zero_grad()
        y = function(x)
        dc.rand(3)
        y.square().sum().backward()
        return [*(p.grad.numpy().copy() for p in net.parameters()), y.detach().numpy(), dc.rand(2).numpy()]

    kept = run(lambda v: checkpoint(net, v, use_reentrant=reentrant))
    for a, b in zip(run(net), kept, strict=True):
        np.testing.assert_array_equal(a, b)
    other = run(lambda v: checkpoint(net, v, use_reentrant=reentrant, preserve_rng_state=False))
    assert not np.array_equal(other[0], kept[0])
    assert np.array_equal(other[-2], kept[-2])


@pytest.mark.parametrize("reentrant", [False, True])
def test_intermediate_values_are_not_kept(reentrant: bool) -> None:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.Tanh()) for _ in range(8)]
    x = dc.randn(512, 256, requires_grad=True)  # 512 KiB, as is every value in between

    checkpoint(layers[0], x, use_reentrant=reentrant)  # what the first use of a function loads is not counted

    def held(run: Any) -> int:
        tracemalloc.start()
        try:
            y = x
            for layer in layers:
                y = run(layer, y)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    plain = held(lambda layer, y: layer(y))
    kept = held(lambda layer, y: checkpoint(layer, y, use_reentrant=reentrant))
    assert kept < 9.5 * x.nbytes
    assert plain > 2.8 * kept  # of a layer three values against one, the layer's operand


def test_a_second_run_that_differs_is_an_error() -> None:
    x, sizes = dc.randn(4, requires_grad=True), iter([4, 3, 4, 4])

    def uneven(v: dc.Tensor) -> dc.Tensor:
        return v[: next(sizes)].exp().sum()

    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(uneven, x, use_reentrant=False).backward()
    modes = iter([1, 2, 1, 2, 1, 2])

    def longer(v: dc.Tensor) -> dc.Tensor:
        for _ in range(next(modes)):
            v = v * 2
        return v

    with pytest.raises(CheckpointError, match="different number of tensors"):
        checkpoint(longer, x, use_reentrant=False).sum().backward()
    checkpoint(longer, x, use_reentrant=False, determinism_check="none").sum().backward()
    assert x.grad is not None
    assert x.grad[0] == 4
    with pytest.raises(CheckpointError, match="a leaf of its own"):
        checkpoint(lambda v: v * dc.ones(4, requires_grad=True), x, use_reentrant=False).sum().backward()
    y = checkpoint(lambda v: v.exp(), x, use_reentrant=False)
    with dc.no_grad():
        x.add_(1)
    with pytest.raises(CheckpointError, match="changed in place"):
        y.sum().backward()
    flags = iter([True, False])
    with pytest.raises(CheckpointError, match="other results"):
        checkpoint(lambda v: v * 2 if next(flags) else v.detach() * 2, x, use_reentrant=False,
                   determinism_check="none").sum().backward()  # fmt: skip


def test_contexts_and_what_is_not_offered() -> None:
    entered: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *error: object) -> None:
            pass

    x = dc.randn(3, requires_grad=True)
    with set_checkpoint_debug_enabled(True), set_checkpoint_early_stop(False):
        y = checkpoint(dc.exp, x, use_reentrant=False, context_fn=lambda: (Note("first"), Note("second")))
    assert entered == ["first"]
    assert len(noop_context_fn()) == 2
    y.sum().backward()
    assert entered == ["first", "second"]


class Blocks(nn.Module):
    def __init__(self, mode: bool | None) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.first = nn.Linear(6, 16)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2)) for _ in range(2)])
        self.mode = mode

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if self.mode is None else checkpoint(block, x, use_reentrant=self.mode)
        return x.square().mean()


def ddp_case(comm: Communicator) -> None:
    with use_communicator(comm):
        found = []
        for mode, compiled in [(None, False), (False, False), (True, False), (None, True), (False, True), (True, True)]:
            model = DistributedDataParallel(Blocks(mode), bucket_cap_mb=0.001)
            dc.manual_seed(5)
            x = dc.randn(4 * comm.world_size, 6)[comm.rank * 4 : comm.rank * 4 + 4]
            run = dc.compile(model) if compiled else model
            for _ in range(2):
                run(x).backward()
            found.append([p.grad.numpy().copy() for p in model.parameters()])
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)
        for a, b in zip(found[0], found[1], strict=True):
            np.testing.assert_array_equal(a, b)
        destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2])
def test_under_ddp(ranks: int, counter_draws: None) -> None:
    run_ranks(ranks, ddp_case, timeout_s=120)
