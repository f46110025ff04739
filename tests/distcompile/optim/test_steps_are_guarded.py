"""What a compiled whole step relies on, and what it leaves: replaced state, gradients that are cleared, memory."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
from whole_step_programs import data, mlp, show, st

import distcompile as torch
from compiler_core.errors import GraphBreak


def steps(clears: bool = False, kind: str = "AdamW") -> tuple[Any, Any, Any]:
    model = mlp(torch)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)

    @torch.compile(fullgraph=True)
    def step(x: Any) -> Any:
        if not clears:
            optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if clears:
            optimizer.zero_grad()
        return loss.detach()

    return model, optimizer, step


def test_state_that_was_replaced_is_read() -> None:
    model, optimizer, step = steps()
    step(data(torch, 0))
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    step(data(torch, 1))
    want = [show(part) for part in st(model, optimizer)]
    for _ in range(3):
        optimizer.load_state_dict(saved)
        model.load_state_dict(weights)
        step(data(torch, 1))
        for got, expected in zip(st(model, optimizer), want, strict=True):
            assert (got == expected).all() if hasattr(got, "all") else got == expected
    assert len(step.explain().entries) == 2  # the second relies on no tensor of the state


def test_gradients_that_the_graph_clears_are_no_outputs() -> None:
    model, _, step = steps(clears=True)
    step(data(torch, 0))
    step(data(torch, 1))
    assert all(parameter.grad is None for parameter in model.parameters())
    (entry,) = step._state.root.entries
    assert len(entry[1].captured.outputs.nodes) == 1  # the loss


def test_a_parameter_that_is_frozen_or_hooked_later_is_seen() -> None:
    model, _, step = steps(kind="SGD")
    step(data(torch, 0))
    model[0].bias.requires_grad_(False)
    before = model[0].bias.clone()
    step(data(torch, 1))
    assert (model[0].bias == before).all()
    seen: list[Any] = []
    model[0].weight.register_hook(seen.append)
    with pytest.raises(GraphBreak, match="hooks on"):
        step(data(torch, 2))


def test_what_is_compiled_keeps_no_optimizer_alive() -> None:
    model = mlp(torch)

    @torch.compile(fullgraph=True)
    def step(optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for i in range(3):
        step(optimizer, data(torch, i))
    gone = weakref.ref(optimizer), weakref.ref(optimizer.state[model[0].weight]["exp_avg"])
    del optimizer
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def scaled_steps() -> Any:
    model = mlp(torch)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", growth_interval=50)

    @torch.compile(fullgraph=True)
    def step(x: Any) -> None:
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


@pytest.mark.parametrize("make", [lambda: steps()[2], scaled_steps])
def test_nothing_grows(make: Any) -> None:
    step, batch = make(), data(torch, 0)
    for _ in range(20):
        step(batch)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(280):
        step(batch)
    gc.collect()
    assert len(gc.get_objects()) <= before + 20
    assert len(step.explain().entries) == 1
