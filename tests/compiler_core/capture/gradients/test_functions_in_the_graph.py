"""autograd.Function in compiled code: traced rules, rules that run in Python, everything a context may hold.

Every program runs under torch, here eager, and compiled by three backends, several calls each; values, gradients and
what the rules leave behind must agree, in one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile
from compiler_core.errors import GraphError
from compiler_core.ops.primitives.custom_gradient import HISTORY, rule_of
from compiler_core.tensor.autograd.function_calls import FunctionContext
from compiler_core.tensor.autograd.function_purity import only_computes
from tests.compiler_core.capture.writes.test_writes_in_the_graph import (
    CALLS,
    Case,
    arange,
    backward,
    close,
    look,
    story,
)

torch = pytest.importorskip("torch")

Program = Callable[..., Any]


def straight_through(lib: Any) -> Program:
    class Round(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            ctx.scale = scale
            return lib.round(x * scale)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.scale * 3, None

    return lambda p, x: Round.apply(p * 0.3, 2.0) * x


def saved(lib: Any) -> Program:
    class Scaled(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            y = lib.exp(x * 0.1)
            ctx.save_for_backward(y, w, None)
            ctx.mark = (x.shape, "sum")
            return y * w

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            y, w, nothing = ctx.saved_tensors
            if nothing is not None or ctx.mark[1] != "sum":
                raise ValueError(nothing)
            gw = (grad * y).reshape(ctx.mark[0]) if ctx.needs_input_grad[1] else None
            return grad * w * y * 0.1, gw

    return lambda p, x: Scaled.apply(p, x) + Scaled.apply(x, p) + Scaled.apply(p, p)


def two_outputs(lib: Any) -> Program:
    class Split(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            values, places = x[0] * 2, lib.argmax(x, 1)
            ctx.mark_non_differentiable(places)
            return values, x[1] * 5, places

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, nothing: Any) -> Any:
            return lib.stack([a * a, b + a])

    def run(p: Any, x: Any) -> Any:
        a, b, places = Split.apply(p * 1)
        c, _, _ = Split.apply(p + 1)
        return a * x[0], b.sum(), places + 0, c

    return run


def only_one_of_two_is_used(lib: Any) -> Program:
    two = two_outputs(lib)
    return lambda p, x: two(p, x)[1] * 1


def with_setup(lib: Any) -> Program:
    class Cube(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(x: Any, k: int) -> Any:
            return x**k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, k = inputs
            ctx.save_for_backward(x, output)
            ctx.k = k

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, out = ctx.saved_tensors
            return ctx.k * grad * out / x, None

    return lambda p, x: Cube.apply(p, 3) * x


def dirty(lib: Any) -> Program:
    class Double(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 7

    def run(p: Any, x: Any) -> Any:
        y = p * x
        z = Double.apply(y)
        return z + y

    return run


def not_materialized(lib: Any) -> Program:
    class Pair(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            if a is None:
                return b * 100
            return a if b is None else a + b

    def run(p: Any, x: Any) -> Any:
        _, b = Pair.apply(p)
        c, d = Pair.apply(p * x)
        return b * 1, c + d

    return run


def once(lib: Any) -> Program:
    class Sine(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return lib.sin(x)

        @staticmethod
        @lib.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * lib.cos(x)

    return lambda p, x: Sine.apply(p) * Sine.apply(x)


def no_gradient(lib: Any) -> Program:
    class Stop(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None, grad

    return lambda p, x: Stop.apply(p, x * 1) + Stop.apply(x, p)


def broadcast(lib: Any) -> Program:
    class AddRow(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, row: Any) -> Any:
            return x + row

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, grad.sum(0)

    return lambda p, x: AddRow.apply(x, p[0]) * x


SEEN: list[float] = []


def looks_at_data(lib: Any) -> Program:
    class Clip(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            SEEN.append(float(grad.sum()))
            return grad * 2 if x.sum() > 30 else grad * 3

    return lambda p, x: Clip.apply(p * x) * x


def reads_a_global(lib: Any) -> Program:
    scale = [2.0]

    class Scale(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            scale[0] += 1
            return grad * scale[0]

    return lambda p, x: Scale.apply(p * 2) * x


PROGRAMS: dict[str, Callable[[Any], Program]] = {
    "straight through": straight_through,
    "saved": saved,
    "two outputs": two_outputs,
    "one of two": only_one_of_two_is_used,
    "setup_context": with_setup,
    "dirty": dirty,
    "not materialized": not_materialized,
    "once": once,
    "no gradient": no_gradient,
    "broadcast": broadcast,
    "looks at data": looks_at_data,
    "reads a global": reads_a_global,
}
IN_PYTHON = {"not materialized", "looks at data", "reads a global"}


def make(lib: Any) -> Any:
    make.number += 1  # type: ignore[attr-defined]
    return arange(lib, 2, 3, grad=True), arange(lib, 2, 3) + make.number  # type: ignore[attr-defined]


def observed(name: str, lib: Any, wrap: Callable[[Program], Program]) -> Any:
    make.number = 0  # type: ignore[attr-defined]
    SEEN.clear()
    program = PROGRAMS[name](lib)
    return story(Case(lambda _, p, x: program(p, x), make, backward), lib, wrap, True), list(SEEN)


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_is_torch(name: str) -> None:
    close(list(observed(name, distcompile, lambda f: f)), list(observed(name, torch, lambda f: f)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_is_eager(name: str, backend: str) -> None:
    compiled: list[Any] = []

    def wrap(function: Program) -> Program:
        compiled.append(distcompile.compile(function, backend=backend, fullgraph=True))
        return compiled[0]  # type: ignore[no-any-return]

    close(list(observed(name, distcompile, wrap)), list(observed(name, distcompile, lambda f: f)))
    entries = compiled[0].explain().entries
    assert len(entries) == 1
    if backend == "eager":
        text = str(entries[0].graphs[0][1])
        assert ("opaque_backward" in text) == (name in IN_PYTHON)


def test_gradients_of_gradients_under_backend_eager() -> None:
    program = saved(distcompile)
    grads = []
    for function in (program, distcompile.compile(program, backend="eager", fullgraph=True)):
        p, x = arange(distcompile, 2, 3, grad=True), arange(distcompile, 2, 3)
        (first,) = distcompile.autograd.grad(function(p, x).sum(), (p,), create_graph=True)
        (first * first).sum().backward()
        grads.append(p.grad.tolist())
    close(grads[1], grads[0])


@pytest.mark.parametrize("backend", ["eager", "codegen"])
def test_a_backward_that_runs_forward_again(backend: str) -> None:
    """Checkpoints written by hand ask which of the saved tensors required a gradient."""

    class Again(distcompile.autograd.Function):
        @staticmethod
        def forward(ctx: Any, function: Any, *tensors: Any) -> Any:
            ctx.function = function
            ctx.save_for_backward(*tensors)
            with distcompile.no_grad():
                return function(*tensors)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            saved = ctx.saved_tensors
            tensors = [t.detach().requires_grad_(t.requires_grad) for t in saved]
            with distcompile.enable_grad():
                result = ctx.function(*tensors)
            result.backward(grad)
            return None, *(t.grad for t in tensors)

    def run(p: Any, x: Any) -> Any:
        return Again.apply(lambda a, b: (a * b).sin(), p + 0, x).sum()

    grads = []
    for function in (run, distcompile.compile(run, backend=backend)):
        for _ in range(2):
            p, x = arange(distcompile, 2, 3, grad=True), arange(distcompile, 2, 3)
            function(p, x).backward()
            assert x.grad is None
            grads.append(p.grad.tolist())
    for given in grads[1:]:
        close(given, grads[0])


def test_outputs_that_are_no_tensors() -> None:
    class Pair(distcompile.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, 3, None

        @staticmethod
        def backward(ctx: Any, grad: Any, *others: Any) -> Any:
            return grad * 5

    compiled = distcompile.compile(Pair.apply, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        p = distcompile.ones(2, requires_grad=True)
        result, three, nothing = compiled(p)
        result.sum().backward()
        assert (result.tolist(), three, nothing, p.grad.tolist()) == ([2.0, 2.0], 3, None, [5.0, 5.0])


def test_a_rule_that_is_only_a_name() -> None:
    with pytest.raises(GraphError, match="has no rule 'Round'"):
        rule_of({"rule": "Round"})
    assert rule_of({"rule": "history"}) is HISTORY


def test_a_forward_that_prints_breaks_the_graph_and_is_right(capsys: Any) -> None:
    class Loud(distcompile.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            print("forward")
            return y * 3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 5

    compiled = distcompile.compile(lambda p: Loud.apply(p + 1) * 2, backend="aot_eager")
    for number in range(1, 4):
        p = distcompile.ones(2, requires_grad=True)
        result = compiled(p)
        result.sum().backward()
        assert look(result, False)["value"] == [24.0, 24.0]
        assert look(p, False)["grad"] == [10.0, 10.0]
        assert capsys.readouterr().out == "forward\n", number
    assert CALLS == 3


def test_what_only_computes() -> None:
    class Context:
        pass

    ctx: Any = Context()
    limit = 3.0

    def fine(ctx: Any, g: Any) -> Any:
        return [distcompile.exp(v) * len(g.shape) for v in (g, g)]

    def helper(ctx: Any, g: Any) -> Any:
        return fine(ctx, g)[0]

    def closure(ctx: Any, g: Any) -> Any:
        return g * limit

    def prints(ctx: Any, g: Any) -> Any:
        print(g)

    def sets(ctx: Any, g: Any) -> Any:
        ctx.x = g

    assert only_computes(fine, ctx)
    assert only_computes(helper, ctx)
    assert not only_computes(closure, ctx)
    assert not only_computes(prints, ctx)
    assert not only_computes(sets, ctx)
    ctx.module = distcompile.nn.Linear(1, 1)
    assert not only_computes(fine, ctx)


# ---- breaks in a forward


class Parted(distcompile.autograd.Function):
    """A forward that a graph break parts: what comes after it is one call's own."""

    @staticmethod
    def forward(ctx: Any, x: Any, which: Any) -> Any:
        ctx.k = which.tolist()[0]
        ctx.save_for_backward(x, which)
        ctx.mark_non_differentiable(which)
        ctx.set_materialize_grads(False)
        return x * ctx.k, which

    @staticmethod
    def backward(ctx: Any, grad: Any, nothing: Any) -> Any:
        x, _ = ctx.saved_tensors
        assert nothing is None
        return grad * ctx.k + 0 * x, None


def test_what_a_forward_tells_its_context_after_a_break_is_told_at_each_call() -> None:
    def function(p: Any, which: Any) -> Any:
        return (Parted.apply(p.sin(), which)[0] * p).sum()

    compiled = distcompile.compile(function)
    for k in (2, 3, 2, 3, 3, 4, 2):
        found = []
        for call in (function, compiled):
            p = distcompile.arange(5.0).requires_grad_()
            out = call(p, distcompile.tensor([k]))
            out.backward()
            found.append((out.item(), p.grad.tolist()))
        assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
        assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)
    assert any("forward of an autograd.Function" in one.reason for one in compiled.explain().breaks)


def test_what_a_forward_saves_before_a_break_may_change_between_calls() -> None:
    class Product(distcompile.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            distcompile._dynamo.graph_break()
            return x * w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return g * w, g * x

    w = distcompile.ones(3, requires_grad=True)
    compiled = distcompile.compile(lambda x: Product.apply(x, w).sum())
    found = []
    for _ in range(3):
        compiled(distcompile.arange(3.0)).backward()
        with distcompile.no_grad():
            w.sub_(w.grad)
        found.append(w.tolist())
        w.grad = None
    assert found == [[1.0, 0.0, -1.0], [1.0, -1.0, -3.0], [1.0, -2.0, -5.0]]
    out = compiled(distcompile.arange(3.0))
    with distcompile.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        out.backward()


def test_a_backward_may_name_this_package_by_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def backward(ctx: Any, g: Any) -> Any:
        return distcompile.sin(g) + distcompile.nn.functional.relu(g)

    assert only_computes(backward, FunctionContext(()))
    monkeypatch.setattr(distcompile, "__name__", "torch")  # as python -m distcompile.as_torch has it
    monkeypatch.setattr(distcompile.sin, "__module__", "torch")
    assert only_computes(backward, FunctionContext(()))
    assert not only_computes(lambda ctx, g: pytest.approx(g), FunctionContext(()))


def test_a_backward_that_needs_data_runs_in_python_and_ends_no_graph() -> None:
    class Looks(distcompile.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 if float(g.sum()) > 0 else g * 5

    compiled = distcompile.compile(lambda x: Looks.apply(x.sin()) * 3, fullgraph=True)
    for sign, slope in ((1.0, 2.0), (-1.0, 5.0)):
        x = distcompile.zeros(3, requires_grad=True)
        (compiled(x) * sign).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [3 * slope * sign] * 3
