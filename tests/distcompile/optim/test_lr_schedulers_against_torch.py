"""Schedules, judged by torch's: rates (and momenta) over many epochs, saving and restoring, chaining."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def swa(schedulers: Any) -> Any:
    """swa_utils beside these schedulers."""
    return dc.optim.swa_utils if schedulers is dc.optim.lr_scheduler else torch.optim.swa_utils


Make = Callable[[Any, Any], Any]  # (the lr_scheduler module, an optimizer) -> a schedule
CASES: dict[str, Make] = {
    "lambda": lambda m, o: m.LambdaLR(o, lambda t: 0.9**t),
    "lambdas": lambda m, o: m.LambdaLR(o, [lambda t: 1 / (t + 1), lambda t: 0.5]),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda t: 0.9 if t % 2 else 1.1),
    "step": lambda m, o: m.StepLR(o, 3, gamma=0.5),
    "multi_step": lambda m, o: m.MultiStepLR(o, [2, 5, 5, 9], gamma=0.3),
    "constant": lambda m, o: m.ConstantLR(o, factor=0.25, total_iters=4),
    "linear": lambda m, o: m.LinearLR(o, start_factor=0.2, end_factor=0.9, total_iters=6),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.8),
    "polynomial": lambda m, o: m.PolynomialLR(o, total_iters=7, power=1.7),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, T_max=6, eta_min=0.001),
    "warm_restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.001),
    "one_cycle": lambda m, o: m.OneCycleLR(o, max_lr=[0.5, 0.2], total_steps=20),
    "one_cycle_linear": lambda m, o: m.OneCycleLR(
        o, max_lr=0.5, epochs=5, steps_per_epoch=4, anneal_strategy="linear", three_phase=True, pct_start=0.4
    ),
    "cyclic": lambda m, o: m.CyclicLR(o, base_lr=0.01, max_lr=[0.1, 0.2], step_size_up=3, step_size_down=4),
    "cyclic_halved": lambda m, o: m.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="triangular2", cycle_momentum=False),
    "cyclic_decaying": lambda m, o: m.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="exp_range", gamma=0.9),
    "cyclic_own": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 3, scale_fn=lambda x: 0.9**x, scale_mode="iterations"),
    "swa": lambda m, o: swa(m).SWALR(o, [0.05, 0.01], anneal_epochs=6),
    "swa_linear": lambda m, o: swa(m).SWALR(o, 0.05, anneal_epochs=4, anneal_strategy="linear"),
    "sequential": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=4), m.CosineAnnealingLR(o, 8), m.ExponentialLR(o, 0.9)], [4, 10]
    ),
    "chained": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.5, 3), m.ExponentialLR(o, 0.9)], optimizer=o),
}


def optimizers(kind: str = "SGD") -> tuple[Any, Any]:
    result = []
    for package in (dc, torch):
        p = [package.nn.Parameter(package.ones(2)) for _ in range(2)]
        options = {"momentum": 0.9} if kind == "SGD" else {}
        groups = [{"params": p[:1]}, {"params": p[1:], "lr": 0.03}]
        result.append(getattr(package.optim, kind)(groups, lr=0.1, **options))
    return result[0], result[1]


def rates(optimizer: Any) -> list[float]:
    keys = ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr")
    found = [group[key] for group in optimizer.param_groups for key in keys if key in group]
    return [float(x) for value in found for x in (value if isinstance(value, tuple) else (value,))]


def run(schedule: Any, optimizer: Any, epochs: int) -> list[list[float]]:
    seen = [rates(optimizer)]
    for _ in range(epochs):
        optimizer.step()
        schedule.step()
        seen.append(rates(optimizer) + [float(x) for x in schedule.get_last_lr()])
    return seen


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", CASES)
def test_rates_over_twenty_epochs(name: str, kind: str) -> None:
    mine, want = optimizers(kind)
    got = run(CASES[name](dc.optim.lr_scheduler, mine), mine, 19)
    expected = run(CASES[name](torch.optim.lr_scheduler, want), want, 19)
    for epoch, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-12), f"epoch {epoch}"


@pytest.mark.parametrize("name", CASES)
def test_a_restored_schedule_goes_on_where_it_was(name: str) -> None:
    whole, _ = optimizers()
    expected = run(CASES[name](dc.optim.lr_scheduler, whole), whole, 12)
    first, second = optimizers()[0], optimizers()[0]
    schedule = CASES[name](dc.optim.lr_scheduler, first)
    run(schedule, first, 5)
    again = CASES[name](dc.optim.lr_scheduler, second)
    again.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    assert run(again, second, 7)[1:] == [pytest.approx(row) for row in expected[6:]]


def test_a_given_epoch_uses_the_closed_form() -> None:
    mine, want = optimizers()
    for name in ("step", "multi_step", "constant", "linear", "exponential", "polynomial", "cosine"):
        a = CASES[name](dc.optim.lr_scheduler, mine)
        b = CASES[name](torch.optim.lr_scheduler, want)
        mine.step(), want.step()
        for epoch in (3, 7, 1):
            a.step(epoch)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                b.step(epoch)
            assert a.get_last_lr() == pytest.approx(b.get_last_lr()), name


@pytest.mark.parametrize("options", [
    {}, {"mode": "max"}, {"patience": 1, "cooldown": 2, "factor": 0.5}, {"threshold_mode": "abs", "threshold": 0.1},
    {"min_lr": [0.01, 0.02], "patience": 0},
])  # fmt: skip
def test_plateau_lowers_the_rate_in_the_same_epochs(options: dict[str, Any]) -> None:
    mine, want = optimizers()
    a = dc.optim.lr_scheduler.ReduceLROnPlateau(mine, **{"patience": 2, **options})
    b = torch.optim.lr_scheduler.ReduceLROnPlateau(want, **{"patience": 2, **options})
    for i in range(40):
        metric = 1.0 / (i + 1) if i < 8 else 0.12 + 0.01 * (i % 3)
        a.step(metric)
        b.step(metric)
        assert a.get_last_lr() == pytest.approx(b.get_last_lr()), f"epoch {i}"
