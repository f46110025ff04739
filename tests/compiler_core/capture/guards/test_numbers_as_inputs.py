"""Numbers that change are inputs: programs run 24 steps, as plainly, and compile no more often than is said.

What is said is: once for each way through the code, and once more where a number was a constant at first. An
optimizer's step and a backward inside the compiled function end graphs, so each program that has them has three.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as torch
from distcompile import nn
from distcompile.optim import lr_scheduler

STEPS = 24
Program = tuple[Callable[..., Any], Callable[[], Any]]
MAKERS: dict[str, tuple[Callable[[], Program], int]] = {}


def makes(compiled: int) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Registers what makes a program: (a function of a tensor of 4 x 4 and of the step, what it has changed).

    compiled: how many graphs may be made.
    """

    def register(maker: Callable[[], Program]) -> Callable[[], Program]:
        MAKERS[maker.__name__] = maker, compiled
        return maker

    return register


@makes(2)
def counter_in_a_list() -> Program:
    n = [0, 7]

    def step(x: Any, i: int) -> Any:
        n[0] += 1
        return x * n[0] + n[1]

    return step, lambda: n


@makes(3)
def several_places_of_lists() -> Program:
    n, d = [0, 1.5, 2], deque([1, 2])

    def step(x: Any, i: int) -> Any:
        n[-1] += n[0]
        n[0], d[1] = n[0] + 1, d[1] * 2 % 97
        return x + n[-1], len(n), n[1], d[0]

    return step, lambda: (n, list(d))


@makes(5)
def item_then_the_whole_list() -> Program:
    n = [1, 2, 3]

    def step(x: Any, i: int) -> Any:
        n[i % 3] += 1
        return x + max(n[0], 100), tuple(n) if i < 0 else len(n)

    return step, lambda: n


@makes(8)
def counters_by_key() -> Program:
    counts: dict[str, int] = {}

    def step(x: Any, i: int) -> Any:
        key = "abc"[i % 3]
        counts[key] = counts.get(key, 0) + 1
        return x + counts[key]

    return step, lambda: counts


@makes(2)
def counters_of_an_object() -> Program:
    box: Any = type("Box", (), {})()
    box.t, box.f = 0, 1.0

    def step(x: Any, i: int) -> Any:
        box.t += 1
        box.f *= 0.9
        return x * box.f / (1 - 0.9**box.t)

    return step, lambda: vars(box)


@makes(2)
def powers_and_bits() -> Program:
    def step(x: Any, i: int) -> Any:
        n = (i * 3 + 1) & 7 | 8
        return x * 1.01 ** (i + 1) + (n ^ 5), n << 1, 2**n

    return step, lambda: ()


@makes(2)
def formulas_that_double() -> Program:
    def step(x: Any, i: int) -> Any:
        n = i
        for _ in range(40):
            n = (n + n) % 1_000_003
        return x + n

    return step, lambda: ()


@makes(3)
def found_in_tables() -> Program:
    stops = {7: 0.5}

    def step(x: Any, i: int) -> Any:
        return x * stops[i] if i in stops else x + stops.get(i, 1) + i

    return step, lambda: ()


@makes(2)
def sums_of_lists() -> Program:
    def step(x: Any, i: int) -> Any:
        rates = [0.1 * i, 2.0, i / 3]
        a, b, c = tuple(rates)
        pairs = [p * q for p, q in zip(rates, list(rates), strict=True)]
        return x * sum(rates) + max(pairs), a, b, min((c, 4.0))

    return step, lambda: ()


@makes(2)
def moving_average() -> Program:
    mean, seen = torch.ones(4), [0]

    def step(x: Any, i: int) -> Any:
        seen[0] += 1
        decay = min(0.999, (1 + seen[0]) / (10 + seen[0]))
        mean.mul_(decay).add_(x[0], alpha=1 - decay)
        mean.lerp_(x[1], decay / 10)
        return mean * 1, torch.full((2,), decay), torch.tensor(decay) + torch.tensor(seen[0])

    return step, lambda: mean


@makes(3)
def gradients_beside_numbers() -> Program:
    weight = torch.linspace(0.5, 2.0, 16).reshape(4, 4).requires_grad_()

    def step(x: Any, i: int) -> Any:
        a = 0.1 * (i + 1)
        y = (weight**a).clamp(min=a / 4, max=2 * a) + torch.where(x > a, weight, a) - weight.mul(a)
        z = torch.addcmul(y, weight, x, value=a).masked_fill(x < -a, a).add(weight, alpha=i)
        (found,) = torch.autograd.grad(z.sum(), weight)
        return z, found

    return step, lambda: ()


@makes(2)
def item_after_a_break() -> Program:
    log: list[float] = []

    def step(x: Any, i: int) -> Any:
        scale = x.abs().mean().item()
        log.append(scale)
        y = x / (scale + 1e-3)
        return y * 2 + scale, scale * 100

    return step, lambda: log


@makes(4)
def several_numbers_after_breaks() -> Program:
    def step(x: Any, i: int) -> Any:
        low, high = float(x.min()), float(x.max())
        a, b = x[0, :2].tolist()
        return (x - low) / (high - low) + a * b

    return step, lambda: ()


class OwnAdam(torch.optim.Optimizer):
    """As people write it: the number of steps of each parameter is an int."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["t"], state["m"] = 0, torch.zeros_like(p)
                state["t"] += 1
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.add_(state["m"] / (1 - 0.9 ** state["t"]), alpha=-group["lr"])


def trained(optimizer: Callable[[Any], Any], schedule: Callable[[Any], Any] | None) -> Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    opt = optimizer(model.parameters())
    scheduler = schedule(opt) if schedule is not None else None

    def step(x: Any, i: int) -> Any:
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        if scheduler is not None:
            scheduler.step()
        return loss

    return step, lambda: ([p.detach() for p in model.parameters()], [g["lr"] for g in opt.param_groups])


def sequential(opt: Any) -> Any:
    first, then = lr_scheduler.LinearLR(opt, total_iters=5), lr_scheduler.ExponentialLR(opt, 0.9)
    return lr_scheduler.SequentialLR(opt, [first, then], [5])


SCHEDULES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "OneCycleLR": (lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=60), 5),
    "StepLR": (lambda o: lr_scheduler.StepLR(o, 5, 0.5), 7),
    "CosineAnnealingLR": (lambda o: lr_scheduler.CosineAnnealingLR(o, 30), 4),
    "LambdaLR": (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch * math.cos(epoch / 50)), 4),
    "LinearLR": (lambda o: lr_scheduler.LinearLR(o, total_iters=10), 5),
    "ExponentialLR": (lambda o: lr_scheduler.ExponentialLR(o, 0.9), 4),
    "PolynomialLR": (lambda o: lr_scheduler.PolynomialLR(o, 30), 4),
    "CosineAnnealingWarmRestarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5), 5),
    "CyclicLR": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=4), 5),
    "MultiStepLR": (lambda o: lr_scheduler.MultiStepLR(o, [5, 10]), 7),
    "SequentialLR": (sequential, 7),
}


def as_data(value: Any) -> Any:
    """A value with arrays in place of tensors, its containers copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().copy()
    if isinstance(value, dict):
        return {key: as_data(held) for key, held in value.items()}
    return type(value)(map(as_data, value)) if isinstance(value, (list, tuple)) else value


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
    elif isinstance(ours, dict):
        assert_same(list(ours.items()), list(theirs.items()))
    else:
        assert ours == theirs


def run(maker: Callable[[], Program], compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """What every step gives and has changed, and the function that was called."""
    function, changed = maker()
    step, draw = compile(function), np.random.default_rng(0)
    seen = []
    for i in range(STEPS):
        x = torch.from_numpy(draw.standard_normal((4, 4)).astype(np.float32))
        seen.append(as_data((step(x, i), changed())))
    return seen, step


def check(maker: Callable[[], Program], compiled: int, backend: str = "eager") -> None:
    """As plainly, and with no more graphs; nothing runs eager, for whatever reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, step = run(maker, lambda function: torch.compile(function, backend=backend))
    theirs, _ = run(maker, lambda function: function)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine, other)
    told = step.explain()
    assert not told.skipped
    assert len(told.entries) <= compiled, told.recompiles


@pytest.mark.parametrize("name", MAKERS)
def test_as_plainly_with_few_graphs(name: str) -> None:
    check(*MAKERS[name])


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    schedule, compiled = SCHEDULES[name]
    check(lambda: trained(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), schedule), compiled)


def test_an_optimizer_of_the_users_own() -> None:
    check(lambda: trained(OwnAdam, None), 4)


def test_only_the_step_of_an_optimizer_of_the_users_own() -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 4) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    plain, compiled = (OwnAdam(model.parameters()) for model in models)
    step = torch.compile(compiled.step, fullgraph=True, backend="aot_eager")
    for _ in range(STEPS):
        x = torch.randn(2, 4)
        for model, update in zip(models, (plain.step, step), strict=True):
            model.zero_grad()
            model(x).pow(2).sum().backward()
            update()
        assert_same(*([as_data(p) for p in model.parameters()] for model in models))
    assert len(step.explain().entries) <= 3


DTYPES = ("float32", "float64", "bfloat16", "int64", "int32", "bool")
BESIDE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, n: (x + n, n * x, x.add(n)),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "in place": lambda x, n: x.clone().mul_(n).sub_(x, alpha=n),
    "filled": lambda x, n: x.clone().fill_(n),
    "masked": lambda x, n: x.masked_fill(x == x, n),
    "power": lambda x, n: (x**n, x.pow(n)),
    "clamped": lambda x, n: (x.clamp(min=n), torch.clamp(x, max=n), x.clip(-2, n)),
    "compared": lambda x, n: (x < n, n <= x, x == n, torch.ne(x, n)),
    "where": lambda x, n: (torch.where(x == 1, x, n), x.where(x == 1, n / 3), torch.where(x == 1, n, x)),
    "divided": lambda x, n: (x / n, x.div(n + 1), x.div(n + 1, rounding_mode="floor")),
    "negative power": lambda x, n: (x + 1) ** (1 - n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addcdiv": lambda x, n: x.addcdiv(x, x + 3, value=n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "made": lambda x, n: (torch.tensor(n), torch.full((2, 1), n), torch.full((2,), n, dtype=x.dtype)),
}


def told(function: Callable[[Any, Any], Any], x: Any, n: Any) -> Any:
    """What a call gives; of what it raises, that it does."""
    try:
        return as_data(function(x, n))
    except Exception:  # noqa: BLE001 - refused in both
        return "refused"


@pytest.mark.parametrize("name", BESIDE)
def test_beside_tensors_of_every_dtype(name: str) -> None:
    """The dtype, and to the last bits the values, that the number itself gives."""
    function = BESIDE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            x = torch.tensor([0, 1, 2, 5]).to(getattr(torch, dtype))
            for numbers in ((2, 3, 0), (0.5, 1.7, 2.5)):
                compiled = torch.compile(function, backend="eager")
                for n in numbers:
                    ours, theirs = told(compiled, x, n), told(function, x, n)
                    assert type(ours) is type(theirs), (dtype, n)
                    for mine, other in zip(*(v if isinstance(v, tuple) else (v,) for v in (ours, theirs)), strict=True):
                        if not isinstance(mine, str):
                            assert mine.dtype == other.dtype, (dtype, n)
                            close = {"rtol": 1e-2 if mine.dtype.itemsize < 4 else 1e-6, "atol": 0}
                            np.testing.assert_allclose(mine, other, **close, err_msg=f"{dtype} {n}")
