"""Gradients of parts of a value, joined once: the numbers of the slices' rule, and no copy where parts lie together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.tensor.autograd.windows import Windows
from tests.fake_cupy import on_fake_device

CASES: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda x: sum((k + 1) * (part * part).sum() for k, part in enumerate(x.unbind(1))),
    "chunk": lambda x: sum((k + 1) * (part * part).sum() for k, part in enumerate(x.chunk(2, 2))),
    "parts that overlap": lambda x: (x[:2] * 3).sum() + (x[1:] * x[1:]).sum(),
    "parts and the whole": lambda x: (x[:2] * 3).sum() + (x[2:] * x[2:]).sum() + x.exp().sum(),
    "one part": lambda x: (x[:, 0] * 2).sum(),
    "parts that leave a hole": lambda x: (x[0] * x[0]).sum() + x[3].sum(),
    "one part twice": lambda x: (x[:2] * x[:2]).sum() + (x[:2] * 3).sum() + x[2:].exp().sum(),
    "along two dims": lambda x: (x[:2, :3] * x[2:, 3:]).sum() + x[:2, 3:].exp().sum(),
    "every second": lambda x: (x[::2] * x[1::2]).sum(),
    "turned": lambda x: sum(k * part.sum() for k, part in enumerate((x.permute(2, 0, 1) * 2).unbind(0))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_the_sum_is_that_of_the_rule(name: str, on: str) -> None:
    data = np.random.default_rng(1).standard_normal((4, 6, 8))
    with on_fake_device():
        x = dc.tensor(data).to(on).requires_grad_()
        CASES[name](x * 1.0).backward()
        (by_rule,) = dc.autograd.grad(CASES[name](x * 1.0), x, create_graph=True)
        np.testing.assert_allclose(x.grad.cpu().numpy(), by_rule.detach().cpu().numpy(), rtol=1e-12)


def test_hooks_see_the_gradient_of_the_whole() -> None:
    seen: list[Any] = []
    x = dc.ones(4, 2, requires_grad=True) * 1.0
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x[:2].sum() + 2 * x[2:].sum()).backward()
    assert seen == [[[1.0, 1.0]] * 2 + [[2.0, 2.0]] * 2]


@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_parts_that_lie_together_are_not_copied(on: str) -> None:
    with on_fake_device():
        made = dc.arange(24.0).reshape(2, 3, 4).to(on)._cell.raw
        joined = Windows((2, 3, 4), (0, 1, 0), made[:, 1:2])
        joined.parts += [((0, 0, 0), made[:, :1]), ((0, 2, 0), made[:, 2:])]
        first, apart = joined.joined(), Windows((2, 3, 4), (0, 0, 0), made[:, :1])
        apart.parts += [((0, 1, 0), made[:, 1:2]), ((0, 2, 0), made[:, 2:].copy())]
        for found, is_same in ((first, True), (apart.joined(), False)):
            assert dc.Tensor._wrap(found).tolist() == dc.Tensor._wrap(made).tolist()
            address = [a.data.ptr if on == "cuda" else a.ctypes.data for a in (found, made)]
            assert (address[0] == address[1]) is is_same
