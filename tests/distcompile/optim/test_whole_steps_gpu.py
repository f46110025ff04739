"""Whole steps on a GPU: one graph, and the numbers of eager code there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import whole_step_programs_more
from test_steps_in_the_graph import check, results
from whole_step_programs import BREAKING, PROGRAMS

import distcompile as ours

assert whole_step_programs_more
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    ours.set_default_device("cuda")
    yield
    ours.set_default_device("cpu")


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: str, mode: str | None) -> None:
    compiled = ours.compile(fullgraph=program not in BREAKING, mode=mode)
    check(
        results(ours, program, compiled),
        results(ours, program, lambda step: step),
        2e-2 if program == "bf16" else 1e-4,
    )


def test_large_parameters_stay_where_they_are() -> None:
    """Unless somebody holds what was there. Not in the call that is captured, which is looked at."""
    w = ours.ones(1500, 1500).requires_grad_()
    optimizer = ours.optim.AdamW([w], lr=0.1)

    @ours.compile(fullgraph=True)
    def step(x: ours.Tensor) -> ours.Tensor:
        optimizer.zero_grad()
        loss = (x @ w).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    places, x = [], ours.ones(4, 1500)
    for k in range(5):
        step(x)
        held = w.detach().clone() if k == 2 else None
        places.append(w._cell.raw.data.ptr)
        if held is not None:
            before, kept = held.sum().item(), held
    assert places[1] == places[2]
    assert places[3] == places[4]
    assert kept.sum().item() == before


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_small_parameters_stay_where_they_are(mode: str | None) -> None:
    """Where others lay beside them in one block, they were written elsewhere at each call."""
    model = ours.nn.Sequential(*(ours.nn.Linear(32, 32) for _ in range(4)))
    optimizer = ours.optim.AdamW(model.parameters(), lr=0.1)

    @ours.compile(fullgraph=True, mode=mode)
    def step(x: ours.Tensor) -> ours.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    places = []
    for _ in range(5):
        step(ours.ones(4, 32))
        places.append([parameter._cell.raw.data.ptr for parameter in model.parameters()])
    assert places[1] == places[2] == places[4]
