"""Whole steps write parameters and state where they are, unless somebody else can see what was there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from whole_step_programs import data, mlp

import distcompile as torch
from compiler_core.aot.in_turn import InTurn
from distcompile.nn import functional as F

KINDS = {"SGD": {"lr": 0.1, "momentum": 0.9}, "AdamW": {"lr": 0.01}}


def steps(kind: str = "SGD", **options: Any) -> tuple[Any, Any, Any]:
    model = mlp(torch)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **(KINDS[kind] | options))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def labels(i: int) -> Any:
    return torch.tensor(np.random.RandomState(i).randint(0, 3, 6))


def written(model: Any, optimizer: Any) -> list[Any]:
    """The tensors that a step writes."""
    state = [value for table in optimizer.state.values() for name, value in table.items() if name != "step"]
    return [*model.parameters(), *state]


def places(tensors: list[Any]) -> list[int]:
    """Where each lies. `data_ptr()` would lend the memory."""
    return [tensor._cell.value.ctypes.data for tensor in tensors]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_stay_in_their_memory_and_have_the_numbers_of_eager(kind: str) -> None:
    model, optimizer, step = steps(kind)
    other, its, alone = steps(kind)
    compiled = torch.compile(step, fullgraph=True)
    lay: list[list[int]] = []
    for i in range(6):
        loss, wanted = (
            compiled(data(torch, i), labels(i)),
            torch.compile(alone, disable=True)(data(torch, i), labels(i)),
        )
        lay.append(places(written(model, optimizer)))
        assert abs(loss.item() - wanted.item()) < 1e-6
    assert lay[1] == lay[2] == lay[5]
    assert len(lay[0]) == 4 * (2 if kind == "SGD" else 3)
    for got, expected in zip(written(model, optimizer), written(other, its), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_who_holds_a_value_keeps_it_and_who_shares_memory_sees_the_next() -> None:
    model, _, step = steps()
    compiled = torch.compile(step, fullgraph=True)
    for i in range(3):
        compiled(data(torch, i), labels(i))
    weight = model[0].weight
    copied, shared, row = weight.clone(), weight.detach(), weight.detach()[1]
    numbers, taken = weight.tolist(), weight._cell.value
    compiled(data(torch, 3), labels(3))
    assert copied.tolist() == numbers == taken.tolist()
    assert shared.tolist() == weight.tolist() != numbers
    assert row.tolist() == weight[1].tolist()
    lent, lies = model[2].weight.detach().numpy(), model[2].weight.tolist()
    compiled(data(torch, 4), labels(4))
    assert lent.tolist() == model[2].weight.tolist() != lies


def test_a_row_that_was_looked_at_keeps_its_numbers_where_eager_does() -> None:
    """A view that has computed its value refers to the memory of its base."""
    model, _, step = steps()
    compiled = torch.compile(step, fullgraph=True)
    compiled(data(torch, 0), labels(0))
    compiled(data(torch, 1), labels(1))
    row = model[0].weight.detach()[0]
    seen = row._read()
    numbers = seen.tolist()
    compiled(data(torch, 2), labels(2))
    assert seen.tolist() == numbers
    assert row.tolist() == model[0].weight[0].tolist() != numbers


def test_a_call_that_fails_loses_nothing() -> None:
    model, optimizer, step = steps()
    compiled = torch.compile(step, fullgraph=True)
    for i in range(3):
        compiled(data(torch, i), labels(i))
    before = [tensor.tolist() for tensor in written(model, optimizer)]
    lay = places(written(model, optimizer))
    with pytest.raises(IndexError):
        compiled(data(torch, 3), labels(3) + 7)
    assert [tensor.tolist() for tensor in written(model, optimizer)] == before
    compiled(data(torch, 3), labels(3))
    assert places(written(model, optimizer)) == lay
    assert [tensor.tolist() for tensor in written(model, optimizer)] != before


def test_old_values_that_are_results_stay() -> None:
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))

    @torch.compile(fullgraph=True)
    def step(x: Any) -> Any:
        with torch.no_grad():
            old = weight.clone()
            doubled = weight * 2
            weight.add_(x)
        return old, doubled, weight.detach() + 0

    for _ in range(4):
        before = weight.tolist()
        old, doubled, new = step(torch.ones(3, 4))
        assert old.tolist() == before
        assert doubled.tolist() == [[2 * v for v in row] for row in before]
        assert new.tolist() == weight.tolist() == [[v + 1 for v in row] for row in before]


def test_what_a_backward_reads_is_not_written_over() -> None:
    weight, scale = torch.nn.Parameter(torch.ones(4)), torch.full((4,), 2.0)

    @torch.compile(fullgraph=True)
    def forward(x: Any) -> Any:
        loss = (weight * scale.clone() * x).sum()
        scale.mul_(2)
        return loss

    for k in range(4):
        weight.grad = None
        forward(torch.ones(4)).backward()
        assert weight.grad.tolist() == [2.0 * 2**k] * 4


@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_behind_others_is_in_place_too(scaled: bool) -> None:
    """Nothing looks into the optimizer's parameters before it is known that they stay the same."""
    model, optimizer, _ = steps("AdamW")
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    @torch.compile(fullgraph=True)
    def step(x: Any) -> None:
        loss = model(x).square().mean()
        if scaled:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()

    lay = []
    for i in range(4):
        step(data(torch, i))
        lay.append(places(written(model, optimizer)))
    assert lay[1] == lay[2] == lay[3]


def test_what_lies_over_what_was_shares_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's small results share blocks. One that others lie beside could not be written in place at the next call."""
    told: list[list[list[int]]] = []
    monkeypatch.setattr(InTurn, "hold_together", lambda self, groups, stacks=(): told.append([*map(list, groups)]))
    step = steps("AdamW")[-1]
    compiled = torch.compile(step, fullgraph=True, memory_budget=0.99)
    for i in range(2):
        compiled(data(torch, i), labels(i))
    assert told
    assert not any(told[-1][0]), "all parameters and state are written over"
