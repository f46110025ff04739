"""What is not reached: what runs as it is beside functions compiled by themselves, and all of it where frames cannot be
evaluated.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from reached_programs import SEEN, compiled, double, mark, needs_frames, outside, x

import distcompile as dc
from compiler_core import log
from compiler_core.bytecode.machine import Machine
from compiler_core.capture.compiled.reached import Reached, judge
from compiler_core.config import config
from compiler_core.runtime import frames
from compiler_core.runtime.frames import OFF, PLAIN, frame_evaluation
from distcompile import Tensor, compiler


@pytest.fixture(autouse=True)
def _clear() -> None:
    SEEN.clear()


def counts_lines(tracer: str) -> int:
    counted = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal counted
        counted += frame.f_code is double.__code__ and event == "call"
        return trace

    getattr(sys, tracer)(trace)
    try:
        double_outside(x())
    finally:
        getattr(sys, tracer)(None)
    return counted


double_outside = compiler.disable(lambda t: next(map(double, [t])), recursive=False)


@needs_frames
@pytest.mark.parametrize("tracer", ["settrace", "setprofile"])
def test_tracers_see_all(tracer: str) -> None:
    before = getattr(sys, tracer.replace("set", "get"))()
    assert counts_lines(tracer) == 1
    getattr(sys, tracer)(before)
    assert SEEN == ["plain"]


@needs_frames
@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring_tools_see_all() -> None:
    sys.monitoring.use_tool_id(4, "a test")
    try:
        double_outside(x())
    finally:
        sys.monitoring.free_tool_id(4)
    assert SEEN == ["plain"]


@needs_frames
def test_stances_and_the_knob() -> None:
    for stance in ("force_eager", "frozen", "eager_on_recompile"):
        with compiler.set_stance(stance):
            double_outside(x())
    assert SEEN == ["plain"] * 3
    SEEN.clear()
    run = compiled(lambda x: outside(lambda t: next(map(double, [t])), x))
    with config.patch(frame_evaluation=False):
        assert run(x()).tolist() == [2.0, 4.0]
    assert SEEN == ["outside", "plain"]


class WithOperators:
    def __init__(self, value: Tensor) -> None:
        mark()
        self.value = value

    def __add__(self, other: Any) -> Any:
        mark()
        return self.value + other


def generates(x: Tensor) -> Iterator[Tensor]:
    mark()
    yield x
    mark()


@needs_frames
def test_what_is_not_a_plain_call_runs_as_it_is() -> None:
    def various(t: Tensor) -> Any:
        space = {"t": t, "mark": mark}
        exec("mark(); u = t + 1", space)

        class Body:
            mark()
            held = t

        comprehended = [(mark(), one)[1] for one in [t]]
        return [*generates(t), WithOperators(t) + 1, space["u"], Body.held, *comprehended]

    run = compiled(lambda x: shallow(x))
    shallow = compiler.disable(various, recursive=False)
    for _ in range(2):
        SEEN.clear()
        found = run(x(1.0))
        assert [t.tolist() for t in found] == [[1.0], [2.0], [2.0], [1.0], [1.0]]
        assert SEEN == ["plain"] * 7
    assert judge(Machine.run.__code__) == OFF
    assert judge(traceback.format_exc.__code__) == judge(WithOperators.__init__.__code__) == PLAIN


class Doubled(dc.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return double(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (saved,) = ctx.saved_tensors
        return grad * 2 + saved * 0


@needs_frames
def test_what_runs_between_parts_of_ours_is_left_to_them() -> None:
    run = compiled(lambda x: outside(Doubled.apply, x))
    for _ in range(2):
        leaf = x().requires_grad_()
        run(leaf).sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [2.0, 2.0]
    assert SEEN == ["outside", "plain"] * 2


@needs_frames
def test_functions_without_tensors_are_not_compiled() -> None:
    def key(n: int) -> int:
        mark()
        return -n

    run = compiled(lambda x: x * outside(sorted, [1, 2], key=key)[0])
    assert run(x()).tolist() == [2.0, 4.0]
    assert SEEN == ["outside", "plain", "plain"]


@needs_frames
def test_what_never_has_a_tensor_is_soon_not_asked_of(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer = Reached.answer

    def counts(self: Reached, function: Any, values: tuple[Any, ...]) -> Any:
        asked.append(function.__name__)
        return answer(self, function, values)

    def small(n: int) -> int:
        return n + 1

    monkeypatch.setattr(Reached, "answer", counts)
    run = compiled(lambda x: x * sum(outside(lambda: list(map(small, range(300))))))
    assert run(x(1.0)).tolist() == [float(sum(range(301)))]
    assert 0 < asked.count("small") < 100


# -- where it cannot be had


@needs_frames
def test_where_somebody_else_evaluates_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken:
        def is_free(self) -> bool:
            return False

    monkeypatch.setattr(frames, "_loaded", Taken)
    run = compiled(lambda x: outside(lambda t: next(map(double, [t])), x))
    with pytest.warns(UserWarning, match="another library evaluates Python's frames"):
        assert run(x()).tolist() == [2.0, 4.0]
    assert SEEN == ["outside", "plain"]


@pytest.fixture
def unloaded() -> Iterator[None]:
    frames._loaded.cache_clear()
    log.forget_warnings()
    yield
    frames._loaded.cache_clear()
    log.forget_warnings()


@pytest.mark.parametrize("lack", ["compiler", "headers", "Python"])
def test_without_it_all_else_works(lack: str, unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if lack == "headers":
        monkeypatch.setattr(frames.sysconfig, "get_path", lambda name: "/nowhere")
    if lack == "Python":
        monkeypatch.setattr(frames, "KNOWN", ())
    run = compiled(lambda x: outside(lambda t: next(map(double, [t])), x))
    with (
        config.patch(**({"cxx": "no-such-compiler"} if lack == "compiler" else {})),
        warnings.catch_warnings(record=True) as said,
    ):
        for _ in range(2):
            assert run(x()).tolist() == [2.0, 4.0]
            assert double_outside(x()).tolist() == [2.0, 4.0]
        assert frame_evaluation() is None
    (only,) = said
    assert "functions that only uncompiled code calls are not compiled" in str(only.message)
    assert set(SEEN) == {"outside", "plain"}
    SEEN.clear()
    if lack != "compiler":
        directly = compiler.disable(lambda t: double(t), recursive=False)
        assert directly(x()).tolist() == [2.0, 4.0]
        assert SEEN == ["captured"]  # by the machine
