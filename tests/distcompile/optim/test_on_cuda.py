"""Optimizers on the stand-in device: one compiled program a device, over the parameters' own memory, as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

import distcompile as dc
from compiler_core.config import config
from distcompile import optim
from tests.fake_cuda import FakeCuda

KINDS = {
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.1, centered=True),
}


def test_a_device_whose_parameters_have_no_gradient_at_a_later_step(fake_cuda: FakeCuda) -> None:
    """Its group's numbers are then no inputs of the other's program."""
    with config.patch(use_cache=False):
        first, second = (dc.ones(3, device=f"cuda:{k}").requires_grad_() for k in range(2))
        optimizer = optim.SGD([{"params": [first], "lr": 0.5}, {"params": [second], "lr": 0.25}])
        for others in (True, False, True):
            first.grad = dc.ones(3, device="cuda:0")
            second.grad = dc.ones(3, device="cuda:1") if others else None
            optimizer.step()
        assert (first[0].item(), second[0].item()) == (-0.5, 0.5)


def test_memory_that_a_strided_view_shows_is_not_written_over(fake_cuda: FakeCuda) -> None:
    """The tape keeps the windows of a parameter for another's gradient; CuPy's refer to the memory alone."""
    with config.patch(use_cache=False):
        weight, x = dc.arange(6.0, device="cuda").requires_grad_(), dc.ones(2, 3, device="cuda").requires_grad_()
        optimizer = optim.SGD([weight], lr=1.0)
        for _ in range(2):
            weight.grad = dc.ones(6, device="cuda")
            loss = (weight.as_strided((2, 3), (3, 1)) * x).sum()
            shown = weight.detach().cpu().reshape(2, 3).clone()
            kept = loss._node.edges[0].saved[0].current()  # the product's first operand
            optimizer.step()
            dc.testing.assert_close(dc.tensor(kept.get()), shown)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_one_program_for_each_device(kind: str, fake_cuda: FakeCuda) -> None:
    places = ("cuda:0", "cuda:1", "cpu", "cuda:0")
    with config.patch(use_cache=False):
        start = [dc.linspace(-1, 1, 3 + k) for k in range(len(places))]
        moved = [x.to(place).requires_grad_() for x, place in zip(start, places, strict=True)]
        alone = [x.detach().clone().requires_grad_() for x in start]
        ours, expected = KINDS[kind](moved), KINDS[kind](alone)
        for k in range(3):
            for x, y in zip(moved, alone, strict=True):
                x.grad = (y.detach() * (k - 1.5) + 0.3).to(x.device)
                y.grad = y.detach() * (k - 1.5) + 0.3
            before = [x._cell.raw for x in moved[:2]]
            addresses, launched = [raw.data.ptr for raw in before], len(fake_cuda.named("cuLaunchKernel"))
            del before
            ours.step()
            expected.step()
            assert len(fake_cuda.named("cuLaunchKernel")) > launched
            assert [x._cell.raw.data.ptr for x in moved[:2]] == addresses
        for x, y, place in zip(moved, alone, places, strict=True):
            assert str(x.device) == place
            dc.testing.assert_close(x.cpu(), y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "asgd", "radam", "rprop"])
def test_whole_steps_are_the_cpus(kind: str, fake_cuda: FakeCuda) -> None:
    """In two programs; who holds the old values keeps them."""
    makes = {
        "asgd": lambda p: optim.ASGD(p, lr=0.1, t0=1),
        "radam": lambda p: optim.RAdam(p, lr=0.1),
        "rprop": lambda p: optim.Rprop(p, lr=0.1),
    }
    results = []
    with config.patch(use_cache=False):
        for place, run in (("cuda", dc.compile(fullgraph=True)), ("cpu", lambda f: f)):
            w = dc.linspace(-1, 1, 24).reshape(4, 6).to(place).requires_grad_()
            v = dc.linspace(-2, 1, 12).reshape(6, 2).to(place).requires_grad_()
            x = dc.linspace(-1, 2, 20).reshape(5, 4).to(place)
            optimizer = (KINDS | makes)[kind]([w, v])

            def step(x: dc.Tensor, w: dc.Tensor = w, v: dc.Tensor = v, optimizer: Any = optimizer) -> dc.Tensor:
                optimizer.zero_grad()
                loss = ((x @ w).tanh() @ v).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            call, losses, held = run(step), [], []
            for k in range(5):
                losses.append(call(x).item())
                held += [(w.detach().clone(), w.tolist())] if k == 2 else []
            assert held[0][0].tolist() == held[0][1]
            results.append([dc.tensor(losses), w.detach().cpu(), v.detach().cpu()])
    for got, want in zip(*results, strict=True):
        dc.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
