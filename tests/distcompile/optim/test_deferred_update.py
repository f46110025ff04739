"""Updates that are put off until their gradients arrive: the same bits as updates made at once, whoever looks when."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy as np
import pytest

import distcompile as dc
from compiler_core.tensor.memory.fence import Fence, settle_all
from compiler_core.tensor.tensor import Tensor
from distcompile import nn
from distcompile.optim.optimizer import Optimizer

OWNER = object()  # of the fences made here: other tests' may still wait
SHAPES = [(4, 3), (7,), (2, 2, 5), (), (33,)]
OPTIMIZERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda p: dc.optim.SGD(p, lr=0.1),
    "momentum": lambda p: dc.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: dc.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: dc.optim.AdamW(p, lr=0.01),
    "eager adamw": lambda p: dc.optim.AdamW(p, lr=0.01, fused=False),
    "groups": lambda p: dc.optim.AdamW([{"params": p[:2], "lr": 0.5}, {"params": p[2:], "betas": (0.8, 0.9)}], lr=0.01),
}


def parameters(seed: int = 0) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [nn.Parameter(Tensor._wrap(rng.standard_normal(shape).astype(np.float32))) for shape in SHAPES]


def gradients(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1000 + seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


class Buckets:
    """Gives gradients that are garbage until somebody waits: two fences, of two and of three parameters."""

    def __init__(self, params: list[Tensor], arrays: list[np.ndarray]) -> None:
        self.fences = [self._give(params[:2], arrays[:2], 0), self._give(params[2:], arrays[2:], 1)]

    @staticmethod
    def _give(params: list[Tensor], arrays: list[np.ndarray], order: int) -> Fence:
        views = [np.full(a.shape, np.nan, np.float32) for a in arrays]

        def wait() -> None:
            for view, array in zip(views, arrays, strict=True):
                np.copyto(view, array)

        fence = Fence(wait, lambda: False, f"bucket {order}", order=order, owner=OWNER)
        for parameter, view in zip(params, views, strict=True):
            parameter._grad = Tensor._wrap(view)
        fence.guard([p._grad._cell for p in params])
        return fence


def same_bits(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(x._cell.current().tobytes() == y._cell.current().tobytes() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_bits_over_many_steps(name: str) -> None:
    at_once, put_off = parameters(), parameters()
    first, second = OPTIMIZERS[name](at_once), OPTIMIZERS[name](put_off)
    schedules = [dc.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (first, second)]
    for step in range(6):
        for parameter, array in zip(at_once, gradients(step), strict=True):
            parameter.grad = Tensor._wrap(array)
        first.step()
        buckets = Buckets(put_off, gradients(step))
        second.step()
        assert not any(fence.is_settled for fence in buckets.fences)
        for schedule in schedules:
            schedule.step()  # the learning rate of the step that was made stays
        assert [p._version for p in put_off] == [p._version for p in at_once]
        second.zero_grad()
        if step % 2:
            settle_all(OWNER)
        assert same_bits(put_off, at_once)
        for a, b in zip(at_once, put_off, strict=True):
            assert first.state[a].keys() == second.state[b].keys()
            assert same_bits(list(first.state[a].values()), list(second.state[b].values()))


READERS: dict[str, Callable[[list[Tensor], Optimizer], object]] = {
    "parameter": lambda p, o: p[0].detach().numpy(),
    "last parameter": lambda p, o: p[-1].detach().numpy(),
    "gradient": lambda p, o: None if p[1].grad is None else p[1].grad.numpy(),
    "state dict": lambda p, o: {k: {n: np.array(t) for n, t in s.items()} for k, s in o.state_dict()["state"].items()},
    "deepcopy": lambda p, o: copy.deepcopy(p[2]),
    "copied optimizer": lambda p, o: copy.deepcopy(o),
    "clip": lambda p, o: nn.utils.clip_grad_norm_(p, 1e9),
    "zero": lambda p, o: o.zero_grad(set_to_none=False),
    "none": lambda p, o: o.zero_grad(),
    "eager": lambda p, o: sum(float(x.sum()) for x in p),
    "write": lambda p, o: [x.data.mul_(0.5) for x in p[:3]],
    "swap": lambda p, o: setattr(p[3], "data", p[3].data.clone()),
    "load": lambda p, o: o.load_state_dict(copy.deepcopy(o.state_dict())),
    "nothing": lambda p, o: None,
}


@pytest.mark.parametrize("seed", range(40))
def test_whoever_looks_sees_what_they_would_have_seen(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(list(OPTIMIZERS))
    at_once, put_off = parameters(seed), parameters(seed)
    first, second = OPTIMIZERS[name](at_once), OPTIMIZERS[name](put_off)
    for step in range(8):
        for parameter, array in zip(at_once, gradients(step), strict=True):
            parameter.grad = Tensor._wrap(array.copy())
        Buckets(put_off, gradients(step))
        for moment in ("before", "after"):
            for reader in rng.sample(list(READERS), rng.randint(0, 2)):
                READERS[reader](at_once, first)
                READERS[reader](put_off, second)
            if moment == "before":
                first.step()
                second.step()
        if rng.random() < 0.5:
            assert same_bits(put_off, at_once), (seed, step)
    assert same_bits(put_off, at_once)
    settle_all(OWNER)
    assert all(p._cell.value is p._cell.raw for p in put_off)


def test_parameters_that_share_memory_are_updated_at_once() -> None:
    params = parameters()
    twin = nn.Parameter(Tensor._wrap(np.zeros((4, 3), np.float32)))
    twin.data = params[0].data
    optimizer = dc.optim.SGD([*params, twin], lr=0.5)
    before = params[0].detach().numpy().copy()
    Buckets(params, gradients(0))
    twin.grad = Tensor._wrap(np.ones((4, 3), np.float32))
    optimizer.step()
    np.testing.assert_allclose(params[0].detach().numpy(), before - 0.5 * gradients(0)[0] - 0.5, rtol=1e-6)
    settle_all(OWNER)


def test_what_somebody_holds_is_not_written_over() -> None:
    params = parameters()
    optimizer = dc.optim.SGD(params, lr=0.5)
    held = params[4]._cell.current()
    kept = held.copy()
    Buckets(params, gradients(1))
    optimizer.step()
    settle_all(OWNER)
    np.testing.assert_array_equal(held, kept)
    assert (params[4].detach().numpy() != kept).any()


def test_what_nobody_else_sees_is_written_over() -> None:
    params = parameters()
    optimizer = dc.optim.SGD(params, lr=0.5)
    Buckets(params, gradients(0))
    optimizer.step()
    settle_all(OWNER)  # the first step may have had to leave the arrays that `parameters` made
    places = [p._cell.raw.__array_interface__["data"][0] for p in params]
    Buckets(params, gradients(1))
    optimizer.step()
    settle_all(OWNER)
    assert [p._cell.raw.__array_interface__["data"][0] for p in params] == places
