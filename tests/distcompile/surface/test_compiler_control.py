"""distcompile.compiler and _dynamo: what is captured and how, stances, explain."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import distcompile as dc
from compiler_core.errors import BackendError, ConfigError, GraphBreak, RecompileLimitError
from compiler_core.graph.interpret import interpret
from compiler_core.ops.registry import current_trace
from distcompile import Tensor, compiler
from distcompile._dynamo import CompileProfiler, explain

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    CALLS.clear()


def compiled(function: Any, **options: Any) -> Any:
    return dc.compile(function, backend="eager", **options)


def entries(function: Any) -> int:
    return len(function.explain().entries)


def test_the_worked_example() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        x = a / (abs(a) + 1)
        print("woo")
        if b.sum() < 0:
            b = b * -1
        return x * b

    a, b = dc.tensor([1.0, -3.0]), dc.tensor([2.0, 1.0])
    found = explain(function)(a, b)
    assert (found.graph_count, found.graph_break_count, found.op_count) == (3, 2, 5)
    first, second = found.break_reasons
    assert "print" in first.reason
    assert "bool" in second.reason
    line = function.__code__.co_firstlineno
    assert [first.user_stack[0].rsplit(":")[-1], second.user_stack[0].rsplit(":")[-1]] == [str(line + 2), str(line + 3)]
    run = compiled(function)
    for _ in range(2):
        run(a, b), run(a, -b)
    warm = entries(run)
    for _ in range(3):
        assert run(a, b).tolist() == run(a, -b).tolist() == function(a, b).tolist()
    assert entries(run) == warm


def test_graph_break_and_disable() -> None:
    @compiler.disable(reason="it prints")
    def outside(x: Tensor) -> Tensor:
        assert current_trace() is None
        CALLS.append("outside")
        return x + 1

    def function(x: Tensor) -> Tensor:
        y = x * 2
        compiler.graph_break()
        return outside(y) * 3

    run = compiled(function)
    for n in range(1, 4):
        assert run(dc.ones(1)).tolist() == [9.0]
        assert len(CALLS) == n
    first, second = run.explain().breaks
    assert first.reason == "a graph break was asked for"
    assert "it prints" in second.reason
    with pytest.raises(GraphBreak, match="asked for"):
        compiled(function, fullgraph=True)(dc.ones(1))


def inner(x: Tensor) -> Tensor:
    CALLS.append("captured" if current_trace() is not None else "plain")
    return x * 2


def test_disable_that_is_not_recursive_compiles_what_is_called() -> None:
    shallow = compiler.disable(lambda x: inner(x) + 1, recursive=False)
    deep = compiler.disable(lambda x: inner(x) + 1)
    for _ in range(3):
        assert shallow(dc.ones(1)).tolist() == deep(dc.ones(1)).tolist() == [3.0]
    assert CALLS.count("captured") == 3  # the effect of the capturing call, replayed; never run by itself


def test_allow_disallow_constant_substitute() -> None:
    def native(x: Tensor) -> Tensor:
        CALLS.append("native")
        return x + 1

    def constant() -> int:
        CALLS.append("constant")
        return 3

    def kept_out(x: Tensor) -> Tensor:
        return x * 5

    lock = threading.Lock()

    def unknown(x: Tensor) -> Tensor:
        with lock:
            return x - 1

    compiler.allow_in_graph(native)
    compiler.assume_constant_result(constant)
    compiler.disallow_in_graph(kept_out)

    @compiler.substitute_in_graph(unknown)
    def known(x: Tensor) -> Tensor:
        return x - 1

    run = compiled(lambda x: unknown(native(x) * constant()), fullgraph=True)
    assert run(dc.ones(1)).tolist() == run(dc.ones(1)).tolist() == [5.0]
    assert sorted(CALLS) == ["constant", "native"]
    broken = compiled(lambda x: kept_out(x) + 1)
    assert broken(dc.ones(1)).tolist() == [6.0]
    assert "disallow_in_graph" in broken.explain().breaks[0].reason
    with pytest.raises(ConfigError):
        compiler.substitute_in_graph(unknown)(known)


def test_stances() -> None:
    run = compiled(lambda x, n: x[:n], fullgraph=True)
    run(dc.ones(4), 1)
    with compiler.set_stance("fail_on_recompile"):
        assert run(dc.ones(4), 1).tolist() == [1.0]
        with pytest.raises(RecompileLimitError, match="fail_on_recompile"):
            run(dc.ones(4), 2)
        assert compiled(lambda x: x + 1)(dc.ones(1)).tolist() == [2.0]  # the first time is no recompile
    for stance in ("eager_on_recompile", "frozen", "force_eager"):
        with compiler.set_stance(stance):
            assert run(dc.ones(4), 2).tolist() == [1.0, 1.0]
        assert entries(run) == 1
    assert run(dc.ones(4), 2).tolist() == [1.0, 1.0]
    assert entries(run) == 2
    with pytest.raises(ConfigError, match="no stance"):
        compiler.set_stance("sideways")

    @compiler.set_stance("force_eager")
    def eager(x: Tensor) -> Tensor:
        result: Tensor = run(x, 3)
        return result

    assert eager(dc.ones(4)).tolist() == [1.0] * 3
    assert entries(run) == 2


def test_reset_forgets() -> None:
    run = compiled(inner)
    run(dc.ones(1))
    assert entries(run) == 1
    compiler.reset()
    assert entries(run) == 0
    assert run(dc.ones(1)).tolist() == [2.0]


def test_backends_and_the_profiler() -> None:
    assert "codegen" in compiler.list_backends()
    assert "eager" in compiler.list_backends(exclude_tags=())
    with CompileProfiler() as profiler:
        dc.compile(lambda x: x.sin().cos(), backend=profiler)(dc.ones(2))
    assert profiler.get_metrics() == {"frames": 1, "ops": 2, "guard_failures": {}}
    assert "2 ops" in profiler.report()


@pytest.mark.parametrize("skip", [False, True])
def test_hooks_after_compilation_are_noticed_unless_asked_not_to(skip: bool) -> None:
    model = dc.nn.Sequential(dc.nn.Identity())
    run = compiled(model, options={"skip_hook_guards": skip})
    x = dc.ones(1)
    assert run(x).tolist() == [1.0]
    handle = model[0].register_forward_hook(lambda module, args, output: output * 10)
    assert run(x).tolist() == [1.0 if skip else 10.0]
    handle.remove()
    assert run(x).tolist() == [1.0]


def test_a_program_gives_a_backend_a_name() -> None:
    seen = []

    @dc._dynamo.register_backend(name="counts_graphs", tags=("experimental",))
    def counting(graph: Any, examples: Any) -> Any:
        seen.append(len(graph.ir.calls))
        return lambda *inputs: interpret(graph.ir, inputs)

    assert dc.compile(lambda x: x * 2 + 1, backend="counts_graphs")(dc.ones(2)).tolist() == [3.0, 3.0]
    assert len(seen) == 1
    assert "counts_graphs" not in compiler.list_backends()
    assert "counts_graphs" in compiler.list_backends(exclude_tags=("debug",))
    with pytest.raises(AssertionError, match="duplicate name: counts_graphs"):
        dc._dynamo.register_backend(counting, "counts_graphs")
    with pytest.raises(AssertionError, match="duplicate name: inductor"):
        dc._dynamo.register_backend(counting, "inductor")
    with pytest.raises(BackendError, match="there is no backend 'unheard of'"):
        dc.compile(lambda x: x, backend="unheard of")
