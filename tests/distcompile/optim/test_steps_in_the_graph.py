"""optimizer.step() where a function is compiled: whole steps as one graph, against torch and our own eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scaler_programs
import whole_step_programs_last
import whole_step_programs_more
from whole_step_programs import BREAKING, PROGRAMS, Wrap, data, mlp, show, st

import distcompile as ours
from compiler_core.errors import GraphBreak

assert scaler_programs
assert whole_step_programs_last
assert whole_step_programs_more  # whose programs are in the table too

MAKES: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda T, p: T.optim.SGD(p, lr=0.1),
    "momentum": lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda T, p: T.optim.Adam(p, lr=0.01),
    "AdamW": lambda T, p: T.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda T, p: T.optim.Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "rate is a tensor": lambda T, p: T.optim.Adam(p, lr=T.tensor(0.01)),
    "RMSprop": lambda T, p: T.optim.RMSprop(p, lr=0.01, momentum=0.9),
    "Adagrad": lambda T, p: T.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "Adadelta": lambda T, p: T.optim.Adadelta(p),
    "Adamax": lambda T, p: T.optim.Adamax(p),
    "NAdam": lambda T, p: T.optim.NAdam(p),
    "RAdam": lambda T, p: T.optim.RAdam(p),
    "ASGD": lambda T, p: T.optim.ASGD(p),
    "Rprop": lambda T, p: T.optim.Rprop(p),
    "Adafactor": lambda T, p: T.optim.Adafactor(p, lr=0.1, weight_decay=0.1),
    "Muon": lambda T, p: T.optim.Muon([q for q in p if q.requires_grad_(q.ndim == 2).requires_grad], lr=0.01),
}


def results(library: Any, program: str, wrap: Wrap) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return show(PROGRAMS[program](library, wrap))


def check(got: Any, want: Any, tolerance: float) -> None:
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            check(a, b, tolerance)
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    elif isinstance(want, float):
        assert got == pytest.approx(want, abs=1e-4)
    else:
        assert type(got) is type(want)
        assert got == want


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager_and_as_torch(program: str) -> None:
    tolerance = 2e-2 if program == "bf16" else 3e-5
    got = results(ours, program, ours.compile(fullgraph=program not in BREAKING))
    check(got, results(ours, program, lambda step: step), tolerance)
    check(got, results(pytest.importorskip("torch"), program, lambda step: step), tolerance)


@pytest.mark.parametrize("program", PROGRAMS)
def test_with_a_memory_budget_as_eager(program: str) -> None:
    """In two programs, the second of which computes again what the partition says, as on a GPU."""
    tolerance = 2e-2 if program == "bf16" else 3e-5
    got = results(ours, program, ours.compile(fullgraph=program not in BREAKING, memory_budget=0.99))
    check(got, results(ours, program, lambda step: step), tolerance)


def whole(make: Callable[[Any, Any], Any]) -> tuple[Any, Any, Callable[[Any], Any]]:
    model = mlp(ours)
    optimizer = make(ours, model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


@pytest.mark.parametrize("kind", MAKES)
def test_one_graph_has_the_bits_of_separate_calls(kind: str) -> None:
    """Counts and rates are inputs: nothing is compiled again when they change. (RAdam's formula changes once.)"""
    seen = []
    for is_whole in (True, False):
        model, optimizer, step = whole(MAKES[kind])
        forward = ours.compile(lambda x, model=model: model(x).square().mean())  # type: ignore[misc]

        def apart(x: Any, forward: Any = forward, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = forward(x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = ours.compile(step, fullgraph=True) if is_whole else apart
        losses = []
        for i in range(8):
            if i == 5:
                optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"] * 0.5
            losses.append(show(run(data(ours, i))))
        seen.append([losses, st(model, optimizer)])
        if is_whole:
            assert len(run.explain().entries) == (2 if kind == "RAdam" else 1)
    check(seen[0], seen[1], 0.0)


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "NAdam"])
def test_a_scaled_step_in_one_graph_has_the_bits_of_separate_calls(kind: str) -> None:
    """Scale and counts, too; and what was left out leaves everything as it was."""
    seen = []
    for is_whole in (True, False):
        model = mlp(ours)
        optimizer, scaler = MAKES[kind](ours, model.parameters()), ours.amp.GradScaler("cpu", 8.0, growth_interval=2)
        forward = ours.compile(lambda x, model=model: model(x).square().mean())  # type: ignore[misc]

        def step(x: Any, forward: Any = forward, optimizer: Any = optimizer, scaler: Any = scaler) -> None:
            optimizer.zero_grad()
            scaler.scale(forward(x)).backward()
            scaler.step(optimizer)
            scaler.update()

        run = ours.compile(step, fullgraph=True) if is_whole else step
        left = []
        for i in range(8):
            x = data(ours, i)
            if i in (2, 5):
                x[0, 0] = float("nan")
            before = st(model, optimizer)
            run(x)
            left.append([*st(model)[:4], *st(model, optimizer)[8:], scaler.get_scale(), scaler._get_growth_tracker()])
            if i in (2, 5):
                check(left[-1][:-2], [*before[:4], *before[8:]], 0.0)
        seen.append(left)
        if is_whole:
            assert len(run.explain().entries) == 1
    check(seen[0], seen[1], 0.0)


def test_a_break_behind_a_step_is_told_and_leaves_all_as_it_was() -> None:
    model = mlp(ours)
    optimizer = ours.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        with ours.no_grad():
            return bool(loss > 0)

    before = st(model, optimizer)
    with pytest.raises(GraphBreak, match="bool"):
        ours.compile(step, fullgraph=True)(data(ours, 0))
    assert ours.is_grad_enabled()
    check(st(model, optimizer)[:8], before[:8], 0.0)
