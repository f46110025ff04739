"""Schedules stepped where a function is compiled: their counters and rates are inputs from the first call on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from whole_step_programs import data, mlp, show, st

import distcompile as ours

L: Any = ours.optim.lr_scheduler
MAKES: dict[str, Callable[[Any, Any], Any]] = {
    "LambdaLR": lambda L, o: L.LambdaLR(o, lambda t: 0.9**t),
    "MultiplicativeLR": lambda L, o: L.MultiplicativeLR(o, lambda t: 0.9),
    "StepLR": lambda L, o: L.StepLR(o, 3),
    "MultiStepLR": lambda L, o: L.MultiStepLR(o, [2, 5, 5]),
    "ConstantLR": lambda L, o: L.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda L, o: L.LinearLR(o, 0.3, total_iters=4),
    "ExponentialLR": lambda L, o: L.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda L, o: L.PolynomialLR(o, 5, 2.0),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 3, 2),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, 0.1, total_steps=14),
    "OneCycleLR, three phases": lambda L, o: L.OneCycleLR(
        o, 0.1, total_steps=14, three_phase=True, anneal_strategy="linear"
    ),
    "CyclicLR": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, mode="triangular2"),
    "SWALR": lambda L, o: swa_of(L).SWALR(o, swa_lr=0.05, anneal_epochs=4),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler([L.LinearLR(o, 0.3, total_iters=4), L.ExponentialLR(o, 0.9)]),
    "SequentialLR": lambda L, o: L.SequentialLR(o, [L.LinearLR(o, 0.3, total_iters=4), L.ExponentialLR(o, 0.9)], [4]),
}
OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda T, p: T.optim.AdamW(p, lr=0.1),
}


def swa_of(L: Any) -> Any:
    """swa_utils, beside a library's lr_scheduler."""
    return ours.optim.swa_utils if L is ours.optim.lr_scheduler else pytest.importorskip("torch").optim.swa_utils


def trained(T: Any, schedule: str, kind: str, wrap: Callable[..., Any]) -> tuple[list[Any], Any]:
    model = mlp(T)
    optimizer = OPTIMIZERS[kind](T, model.parameters())
    scheduler = MAKES[schedule](T.optim.lr_scheduler, optimizer)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    run, out = wrap(step), []
    for i in range(12):
        loss = show(run(data(T, i)))
        (group,) = optimizer.param_groups
        moving = group.get("betas") or group["momentum"]
        out.append(
            [loss, *scheduler.get_last_lr(), getattr(scheduler, "last_epoch", None), moving, *st(model, optimizer)]
        )
    return out, run


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("schedule", MAKES)
def test_one_capture_has_the_rates_of_eager(schedule: str, kind: str) -> None:
    want, _ = trained(ours, schedule, kind, lambda step: step)
    got, run = trained(ours, schedule, kind, ours.compile(fullgraph=True))
    for a, b in zip(got, want, strict=True):
        assert a[1:4] == b[1:4]
        for x, y in zip(a, b, strict=True):
            assert show(x) == pytest.approx(y, abs=1e-5)
    changes = schedule == "SequentialLR"  # one for each schedule, and one for the step from one to the other
    assert len(run.explain().entries) == (3 if changes else 1)


@pytest.mark.parametrize("schedule", MAKES)
def test_rates_are_torchs(schedule: str) -> None:
    torch = pytest.importorskip("torch")
    want, _ = trained(torch, schedule, "SGD", lambda step: step)
    got, _ = trained(ours, schedule, "SGD", ours.compile(fullgraph=True))
    for a, b in zip(got, want, strict=True):
        assert (a[2], a[1], a[3]) == (b[2], pytest.approx(b[1], rel=1e-12), pytest.approx(b[3], rel=1e-12))


def test_a_rate_that_is_a_tensor_goes_the_ways_of_eager() -> None:
    found = []
    for wrap in (lambda step: step, ours.compile):
        model = mlp(ours)
        optimizer = ours.optim.Adam(model.parameters(), lr=ours.tensor(0.1))  # type: ignore[arg-type]
        schedule = L.StepLR(optimizer, 2)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer, schedule: Any = schedule) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            schedule.step()

        run = wrap(step)
        rates = []
        for i in range(5):
            run(data(ours, i))
            rates.append(float(optimizer.param_groups[0]["lr"]))
        found.append(rates)
    assert found[0] == found[1] == pytest.approx([0.1, 0.01, 0.01, 0.001, 0.001])


def test_a_plateau_of_a_number_that_is_given_has_a_graph_for_each_way() -> None:
    """Better, not better, and so often not that the rate is lowered; and the first, where numbers are constants."""
    found = []
    for compiles in (False, True):
        model = mlp(ours)
        optimizer = ours.optim.SGD(model.parameters(), lr=0.1)
        schedule = L.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)

        def step(
            x: Any, metric: float, model: Any = model, optimizer: Any = optimizer, schedule: Any = schedule
        ) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            schedule.step(metric)

        run: Any = ours.compile(step, fullgraph=True, backend="aot_eager") if compiles else step
        rates = []
        for i in range(24):
            run(data(ours, i), 0.97**i * (1.0, 1.2, 1.3)[i % 3])
            rates.append(optimizer.param_groups[0]["lr"])
        found.append((rates, [p.tolist() for p in model.parameters()]))
    assert found[0] == found[1]
    assert len(run.explain().entries) <= 4
