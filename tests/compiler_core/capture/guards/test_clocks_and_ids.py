"""Clocks that captured code reads, and ids of objects: no graph ends for them, times are those of each call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch
from compiler_core.errors import GraphBreak


def called(function: Callable[..., Any], steps: int = 20) -> tuple[Any, list[Any]]:
    """The compiled function, and what it gave for each number."""
    compiled = torch.compile(function, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compiled.explain, [compiled(torch.ones(3), i) for i in range(steps)]


def test_a_timer_around_the_whole_step_is_in_one_graph() -> None:
    spans: list[tuple[float, float]] = []

    def step(x: Any, i: int) -> Any:
        began = time.perf_counter()
        y = x * 2 + i
        spans.append((began, time.perf_counter() - began))
        return y

    before = time.perf_counter()
    explain, found = called(step)
    assert [y.tolist() for y in found] == [[2.0 + i] * 3 for i in range(20)]
    assert len(explain().entries) <= 2
    assert not explain().breaks
    begins = [began for began, _ in spans]
    assert all(span > 0 for _, span in spans)
    assert begins == sorted(set(begins))
    assert begins[0] > before
    assert all(a + span < b for (a, span), b in zip(spans, begins[1:], strict=False))


@pytest.mark.parametrize("name", ["time", "perf_counter_ns", "monotonic", "process_time", "thread_time_ns"])
def test_every_clock_shows_the_time_of_the_call(name: str) -> None:
    clock = getattr(time, name)

    def step(x: Any, i: int) -> Any:
        first = clock()
        y = x + 1
        last = clock()
        return y, first, last, last - last, f"{first}", last is last

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    low = clock()
    for _ in range(5):
        _, first, last, nothing, text, same = compiled(torch.ones(2), 0)
        high = clock()
        assert low <= first <= last <= high
        assert type(first) is type(low)
        assert (nothing, text, same) == (0, str(first), True)
        low = high


def test_a_clock_between_two_parts_tells_them_apart() -> None:
    def step(x: Any, i: int) -> Any:
        began = time.perf_counter()
        y = slow(x)
        between = time.perf_counter()
        z = y * 3
        return z, between - began, time.perf_counter() - between

    @torch.compiler.disable
    def slow(x: Any) -> Any:
        time.sleep(0.01)
        return x + 1

    explain, found = called(step)
    assert all(z.tolist() == [6.0] * 3 and first >= 0.01 and second >= 0 for z, first, second in found)
    assert len(explain().breaks) == 1


def test_ops_after_a_clock_are_in_the_next_graph() -> None:
    def step(x: Any, i: int) -> Any:
        y = x * 2
        between = time.perf_counter()
        y = y + 1
        y = y + 1
        return y + 1, between

    explain, found = called(step)
    assert all(y.tolist() == [5.0] * 3 for y, _ in found)
    assert [times for _, times in found] == sorted({times for _, times in found})
    assert len(explain().entries) == 2
    assert not explain().breaks
    assert [op for entry in explain().entries for op in entry.operations] == ["mul", "add", "add", "add"]
    with pytest.raises(GraphBreak, match="after perf_counter"):
        torch.compile(step, backend="eager", fullgraph=True)(torch.ones(2), 0)


def test_a_decision_by_time_is_made_at_every_call() -> None:
    until = [time.monotonic() + 1e9]

    def step(x: Any, i: int) -> Any:
        late = time.monotonic() > until[0]
        return x + (10 if late else 1)

    compiled = torch.compile(step, backend="eager")
    for i in range(6):
        until[0] = 0.0 if i % 2 else 1e18
        assert compiled(torch.zeros(1), i).item() == (10 if i % 2 else 1)
    assert len(compiled.explain().entries) <= 4


def test_a_time_as_a_constant_breaks_the_graph_once() -> None:
    seen: dict[int, int] = {}

    def step(x: Any, i: int) -> Any:
        seen[time.perf_counter_ns()] = i
        return x + i

    explain, found = called(step)
    assert [y.tolist() for y in found] == [[1.0 + i] * 3 for i in range(20)]
    assert list(seen.values()) == list(range(20))
    assert len(explain().breaks) == 1


class Thing:
    pass


def test_ids_of_what_stays_are_constants() -> None:
    thing, parameters = Thing(), [torch.ones(3, requires_grad=True), torch.ones(3)]
    counts: dict[int, int] = {}

    def step(x: Any, i: int) -> Any:
        counts[id(thing)] = counts.get(id(thing), 0) + 1
        return x * sum(1 for p in parameters if id(p) == id(parameters[0])), id(thing)

    explain, found = called(step)
    assert counts == {id(thing): 20}
    assert all(y.tolist() == [1.0] * 3 and told == id(thing) for y, told in found)
    assert len(explain().entries) <= 2
    assert not explain().breaks


def test_ids_of_other_objects_are_theirs() -> None:
    def step(x: Any, thing: Any) -> Any:
        return x + 1, id(thing), id(x)

    compiled = torch.compile(step, backend="eager")
    for _ in range(20):
        thing, x = Thing(), torch.ones(2)
        assert compiled(x, thing)[1:] == (id(thing), id(x))
    assert len(compiled.explain().entries) <= 8


def test_the_id_of_what_is_made_breaks_the_graph() -> None:
    def step(x: Any, i: int) -> Any:
        made = Thing()
        return id(made) == id(made), {id(made): x}[id(made)] + 1

    _, found = called(step, 5)
    assert all(same is True and y.tolist() == [2.0] * 3 for same, y in found)


def test_a_grad_scaler_inside_the_step() -> None:
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=7)

    @torch.compile(backend="eager")
    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss

    losses = [step(torch.full((2, 4), 0.5)).item() for _ in range(20)]
    assert losses == sorted(losses, reverse=True)
    assert scaler.get_scale() == 2.0**18
    assert len(step.explain().breaks) <= 3
    assert len(step.explain().entries) <= 12
