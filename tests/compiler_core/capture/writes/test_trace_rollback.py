"""`CaptureTrace.mark` and `rollback`: after it, the trace and all handles are as if the steps between had never run.

Random programs of three parts: begin, a part that is taken back, rest. The graph of (begin, part taken back, rest)
must compute what that of (begin, rest) computes, in every handle and in every cell from outside.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.aot.boundary import gradient_boundary
from compiler_core.capture.trace import CaptureTrace
from compiler_core.graph.interpret import interpret
from compiler_core.ops.registry import use_trace
from compiler_core.tensor import Tensor
from compiler_core.tensor.autograd.grad_mode import set_grad_enabled
from compiler_core.tensor.making import creation, random_creation

Handles = dict[str, Tensor]


def outside() -> Handles:
    """What was there before the trace: a buffer, a view of another one, a parameter."""
    base = creation.tensor(np.arange(6.0).reshape(2, 3))
    return {
        "buffer": creation.tensor(np.ones((2, 3))),
        "base": base,
        "weight": creation.tensor(np.full((2, 3), 2.0), requires_grad=True),
    }


def _set(h: Handles, name: str, value: Tensor) -> None:
    h[name] = value


STEPS: tuple[Callable[[Handles], Any], ...] = (
    lambda h: h["buffer"].add_(1),
    lambda h: h["buffer"][0].mul_(3),
    lambda h: _set(h, "made", h["buffer"] * 2 + h["base"]),
    lambda h: _set(h, "made", h["made"] * h["weight"]),
    lambda h: h["made"].add_(h["weight"]),
    lambda h: _set(h, "window", h["made"][1]),
    lambda h: _set(h, "window", h["buffer"].view(-1)[1:4]),
    lambda h: h["window"].sub_(0.5),
    lambda h: _set(h, "drawn", random_creation.rand(2, 3)),
    lambda h: h["made"].add_(h["drawn"]),
    lambda h: h["made"].detach_(),
    lambda h: h["made"].unsqueeze_(0).squeeze_(0),
    lambda h: h["base"].copy_(h["made"].detach()),
    lambda h: _set(h, "made", gradient_boundary((h["made"],), lambda g: (g,))[0]),
    lambda h: h["window"].requires_grad,
)


def program(seed: int, count: int) -> list[Callable[[Handles], Any]]:
    rng = random.Random(seed)
    return [rng.choice(STEPS) for _ in range(count)]


def traced(parts: list[list[Callable[[Handles], Any]]], taken_back: int | None, records: bool) -> tuple[Any, ...]:
    """What the graph computes after running `parts`, of which one is taken back."""
    handles = outside()
    cells = [handles[name]._cell for name in ("buffer", "base", "weight")]
    trace = CaptureTrace("f", ())
    with use_trace(trace):
        for name in ("made", "window", "drawn"):
            handles[name] = handles["base"][0] if name == "window" else handles["base"] + 0
        for number, part in enumerate(parts):
            mark, kept = trace.mark(), dict(handles)
            for step in part:
                with set_grad_enabled(records):
                    step(handles)
            if number == taken_back:
                trace.rollback(mark)
                handles.clear()
                handles.update(kept)
        nodes = [handles[name]._read() for name in sorted(handles)]
        metas = [(tuple(t.shape), t.requires_grad, t.is_leaf, t._version) for _, t in sorted(handles.items())]
    graph = trace.build([*nodes, *trace.written.values()])
    by_placeholder = {lift.placeholder: lift.cell for lift in trace.lifted.values()}
    key = np.array([1, 2, 3], np.uint64)
    inputs = [by_placeholder[n].current() if n in by_placeholder else key for n in graph.inputs]
    written = [cells.index(cell) for cell in trace.written]
    return interpret(graph, inputs), metas, written, trace.draws, len(trace.boundaries), len(graph.nodes)


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_part_that_is_taken_back_leaves_nothing(seed: int, records: bool) -> None:
    begin, middle, rest = program(seed, 5), program(seed + 1000, 6), program(seed + 2000, 5)
    values, *facts = traced([begin, middle, rest], 1, records)
    expected, *expected_facts = traced([begin, [], rest], 1, records)
    assert facts == expected_facts
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)


def test_the_part_does_change_something_when_it_stays() -> None:
    """The test above can fail: without the rollback most programs differ."""
    differing = 0
    for seed in range(20):
        begin, middle, rest = program(seed, 5), program(seed + 1000, 6), program(seed + 2000, 5)
        stays, gone = traced([begin, middle, rest], None, False), traced([begin, [], rest], 1, False)
        differing += stays[1:] != gone[1:]
    assert differing > 15


def test_nested_marks_and_a_second_rollback() -> None:
    handles = outside()
    buffer = handles["buffer"]
    trace = CaptureTrace("f", ())
    with use_trace(trace):
        outer = trace.mark()
        view = buffer[0]
        inner = trace.mark()
        view.add_(1)
        version = buffer._version
        trace.rollback(inner)
        assert buffer._version == version - 1
        buffer.mul_(3)
        graph = trace.build([view._read()])
        trace.rollback(outer)
        assert not trace.written
        assert buffer._version == 0
        assert trace.rng is None
    np.testing.assert_array_equal(interpret(graph, [np.ones((2, 3))])[0], [3.0, 3.0, 3.0])
    np.testing.assert_array_equal(buffer._read(), np.ones((2, 3)))


def test_a_view_from_outside_that_was_read_during_the_part_is_not_stale_after_it() -> None:
    base = creation.tensor(np.zeros(4))
    view, other = base[1:], creation.tensor(np.zeros(4))
    trace = CaptureTrace("f", ())
    with use_trace(trace):
        mark = trace.mark()
        view._cell.root.touch()  # as a write in the trace does
        view._cell.current()
        trace.rollback(mark)
    base.add_(1)
    np.testing.assert_array_equal(view._read(), np.ones(3))
    assert other._version == 0


def test_gradients_and_flags_of_handles_come_back() -> None:
    weight = creation.tensor(np.ones(3), requires_grad=True)
    trace = CaptureTrace("f", ())
    with use_trace(trace):
        made = weight * 2
        mark = trace.mark()
        weight.grad = creation.tensor(np.ones(3))
        weight.requires_grad_(False)
        made.detach_()
        trace.rollback(mark)
        assert weight.grad is None
        assert weight.requires_grad
        assert made.requires_grad
