"""`item()` of what a graph computes, under fullgraph=True: the number when it has run; looked at before, an error."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch
from compiler_core.errors import GraphBreak
from distcompile import nn
from tests.fake_cupy import on_fake_device

LOG: deque[Any] = deque(maxlen=3)
TOTAL = 0.0


def named(x: Any) -> Any:
    return dict(k=x.max().item())  # noqa: C408  the form that is tested


class Slots:
    __slots__ = ("pair", "value")

    def __init__(self) -> None:
        self.pair, self.value = (0.0, 0), 0.0


HELD, NUMBERS = Slots(), {"seen": 0.0}


def counted(x: Any) -> float:
    global TOTAL
    TOTAL = TOTAL + x.sum().item()
    return TOTAL


def put(x: Any) -> int:
    LOG.append((1, [x.sum().item()]))
    HELD.value, HELD.pair = x.sum().item(), (x.mean().item(), 2)
    NUMBERS["seen"] += x.max().item()
    NUMBERS.update(least=x.min().item())
    return len(LOG)


def several(x: Any) -> Any:
    total = 0.0
    for k in range(4):
        total += (x * k).sum().item()
    return total / 4, -total, sum([row.item() for row in x.sum(1)]), round(total, 2)


def before_and_after(x: Any) -> Any:
    y = torch.zeros(1)
    y.copy_(x.sum())
    before = y.item()
    y.add_(1)
    return before, y.item(), y


def raised(x: Any) -> Any:
    raise ValueError(x.sum().item())


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "in containers": lambda x: {"a": [x.sum().item(), (x.mean().item(), 1)], **{"k": x.max().item()}, "more": named(x)},
    "whole numbers": lambda x: (x.argmax().item(), int((x > 0).sum()), int(x.sum()), float((x > 0).sum())),
    "other dtypes": lambda x: (x.double().sum().item(), x.bfloat16()[0, 0].item(), x.half()[0, 0].item()),
    "of an argument": lambda x: (x[0, 0].item(), x),
    "twice, and the tensor": lambda x: [(y := x.sum()).item(), y, y.item()],
    "in a text": lambda x: f"{x[0, 0].item():.3f} of {x.argmax().item()}",
    "kinds": lambda x: (isinstance(x.sum().item(), float), type(x.argmax().item()), x.sum().item() is None),
    "of a gradient": lambda x: torch.func.grad(lambda y: (y * y).sum())(x).sum().item(),
    "computed with": several,
    "put where others see it": put,
    "added to a global": counted,
    "before and after a write": before_and_after,
    "in an error": raised,
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "if": lambda x: x if x.sum().item() > 0 else -x,
    "times a tensor": lambda x: x * x.sum().item(),
    "as a size": lambda x: torch.zeros(int(x.sum())),
    "made a tensor": lambda x: torch.tensor(x.sum().item()),
    "as a key": lambda x: {x.sum().item(): x},
    "over it": lambda x: 1 / x.sum().item(),
    "the larger": lambda x: max(x.sum().item(), 1.0),
    "a bool": lambda x: (x > 0).any().item(),
}


def outcome(function: Callable[[Any], Any], x: Any) -> Any:
    try:
        return plain(function(x))
    except ValueError as error:
        return "raised", plain(error.args)


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list, deque)):
        return [type(value).__name__, *map(plain, value)]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else (type(value).__name__, value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_number_is_there_when_the_call_returns(name: str) -> None:
    global TOTAL
    torch.manual_seed(0)
    batches = [torch.randn(3, 4) for _ in range(5)]
    seen = []
    compiled = torch.compile(PROGRAMS[name], fullgraph=True, backend="aot_eager")
    for function in (PROGRAMS[name], compiled):
        LOG.clear()
        NUMBERS.clear()
        NUMBERS["seen"] = TOTAL = 0.0
        seen.append([(outcome(function, x), plain([LOG, HELD.value, HELD.pair, NUMBERS, TOTAL])) for x in batches])
    assert seen[0] == seen[1]
    assert len(compiled.explain().entries) <= 5  # one for each length of the log
    assert not compiled.explain().breaks


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_at_it_before_is_refused_with_the_line_and_else_breaks_the_graph(name: str) -> None:
    x = torch.arange(4.0)
    with pytest.raises(GraphBreak, match=r"item\(\)|int\(\)") as refused:
        torch.compile(REFUSED[name], fullgraph=True)(x)
    assert __file__ in refused.value.where
    broken = torch.compile(REFUSED[name])
    for _ in range(3):
        assert plain(broken(x)) == plain(REFUSED[name](x))


def whole_step(place: str) -> Callable[[Any], Any]:
    torch.manual_seed(0)
    net = nn.Linear(4, 2).to(place)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler(place, init_scale=8.0, growth_interval=1)
    losses: list[float] = []

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.item())
        return loss.item(), norm.item(), scaler.get_scale(), schedule.get_last_lr(), float(loss), list(losses)

    return step


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_whole_step_gives_its_numbers(place: str) -> None:
    with on_fake_device(1):
        eager, compiled = whole_step(place), torch.compile(whole_step(place), fullgraph=True, backend="aot_eager")
        for k in range(4):
            x = torch.randn(3, 4, device=place) * (float("inf") if k == 2 else 1)
            expected, found = eager(x), compiled(x)
            assert repr(found[:1] + found[2:]) == repr(expected[:1] + expected[2:])
            assert found[1] == pytest.approx(expected[1], rel=1e-6, nan_ok=True)
        assert not compiled.explain().breaks


def test_data_that_the_graph_refuses_leaves_no_number_behind() -> None:
    log: list[Any] = []

    def look_up(table: Any, index: Any) -> Any:
        found = table[index].sum()
        log.append(found.item())
        try:
            return torch.nn.functional.embedding(index + 1, table).sum().item()
        except IndexError:
            return "out of range"

    compiled = torch.compile(look_up, fullgraph=True)
    table = torch.ones(4, 2)
    for place in (3, 1, 3, 0):
        assert compiled(table, torch.tensor([place])) == (2.0 if place < 3 else "out of range")
    assert log == [2.0] * 4
    assert {type(number) for number in log} == {float}
