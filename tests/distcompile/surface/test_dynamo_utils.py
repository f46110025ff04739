"""torch._dynamo.utils and run: what compilations did, counted and told; calls that compile nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import distcompile as dc
from distcompile import Tensor, _dynamo, nn
from distcompile._dynamo.counting import CompileProfiler, compile_times, counters, guard_failures


@pytest.fixture(autouse=True)
def _counted_anew() -> None:
    counters.clear()
    guard_failures.clear()


def broken(x: Tensor, n: int) -> Tensor:
    y = x * n
    print(end="")
    return y + 1


def test_a_report_tells_breaks_and_recompiles_with_how_often() -> None:
    with CompileProfiler() as profiler:
        run = dc.compile(broken, backend=profiler)
        other = dc.compile(lambda x: x + 1, backend="eager")
        other(dc.ones(2)), other(dc.ones(2, 2))
        for x in (dc.ones(3), dc.ones(3, dtype=dc.float64), dc.ones(2, 2)):
            assert run(x, 2).tolist() == broken(x, 2).tolist()
        report = profiler.report()
    assert profiler.frame_count == 6
    (line,) = [line for line in report.splitlines() if "print()" in line]
    assert line.endswith(" 3")
    assert "args[0].dtype == float32" in report
    assert "lambda" not in report
    assert set(profiler.get_metrics()["guard_failures"]) == {"broken"}


def test_torchs_file_has_them() -> None:
    for utils in (_dynamo.utils, import_module("distcompile._dynamo.utils")):
        assert utils.CompileProfiler is CompileProfiler
        assert utils.counters is counters


def test_a_report_of_nothing() -> None:
    report = CompileProfiler().report()
    assert "No graph breaks detected." in report
    assert "No recompilation detected." in report


def test_counters_count_captures_and_breaks() -> None:
    run = dc.compile(broken, backend="eager")
    for _ in range(2):
        run(dc.ones(3), 2)
    assert counters["frames"] == {"total": 2, "ok": 2}
    assert counters["stats"]["unique_graphs"] == 2
    assert [(count, "print" in reason) for reason, count in counters["graph_break"].items()] == [(1, True)]
    run(dc.ones(3, dtype=dc.float64), 2)
    assert guard_failures[broken.__code__][0] == "args[0].dtype == float32"


def test_failed_guards_of_a_module_are_under_its_forward() -> None:
    net = nn.Linear(3, 2)
    run = dc.compile(net, backend="eager")
    run(dc.ones(1, 3)), run(dc.ones(3))
    assert len(guard_failures[nn.Linear.forward.__code__]) == 1


def test_compile_times_in_torchs_forms() -> None:
    dc.compile(lambda x: x + 1, backend="aot_eager")(dc.ones(3))
    table = compile_times()
    assert "capture" in table
    steps, times = compile_times(repr="csv", aggregate=True)
    assert len(steps) == len(times)
    assert all(float(time) >= 0 for time in times)
    assert compile_times(repr="other") is None


def test_run_compiles_nothing() -> None:
    def double(x: Tensor) -> Tensor:
        return x * 2

    compiled = dc.compile(double, backend="eager")
    compiled(dc.ones(3))
    frozen = _dynamo.run(compiled)
    assert frozen(dc.ones(3)).tolist() == [2.0] * 3
    assert frozen(dc.ones(2, 2)).tolist() == [[2.0] * 2] * 2
    assert _dynamo.run(double)(dc.ones(2)).tolist() == [2.0] * 2
    with _dynamo.run():
        compiled(dc.ones(1, 1))
    assert len(compiled.explain().entries) == 1
    compiled(dc.ones(1, 1))
    assert len(compiled.explain().entries) == 2
    net = nn.Linear(3, 2)
    assert _dynamo.run(dc.compile(net, backend="eager"))(dc.ones(1, 3)).shape == (1, 2)


def test_a_function_as_backend_gets_one_graph_of_all_sizes() -> None:
    given: list[Any] = []

    def backend(graph: Any, examples: Any) -> Any:
        given.append((str(graph), [example.shape for example in examples]))
        return graph.forward

    def f(x: Tensor, w: Tensor) -> Tensor:
        return dc.tanh(x @ w).reshape(-1, 2, 5).sum(0) * x.shape[0]

    run, w = dc.compile(f, backend=backend, dynamic=True), dc.randn(4, 5)
    for rows in (4, 6, 8):
        x = dc.randn(rows, 4)
        assert dc.allclose(run(x, w), f(x, w))
    ((text, shapes),) = given
    assert "s0" in text
    assert shapes[0] == (4, 4)
    weights = dc.randn(4, 5, requires_grad=True)  # with gradients each size has graphs of its own
    for rows in (4, 6):
        x = dc.randn(rows, 4)
        run(x, weights).sum().backward()
    assert len(given) == 5
    f(dc.ones(4, 4), mine := weights.detach().requires_grad_()).sum().backward()
    weights.grad = None
    run(dc.ones(4, 4), weights).sum().backward()
    assert dc.allclose(weights.grad, mine.grad)
