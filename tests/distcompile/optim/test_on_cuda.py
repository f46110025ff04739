"""Optimizers on the stand-in device: one compiled program a device, over the parameters' own memory, as on the CPU."""

from __future__ import annotations

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
