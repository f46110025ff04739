"""Operators whose kernels need data, in compiled functions, the same program for both: results, gradients, what is
written, how often kernels run. Calls change values, not shapes: after the first nothing is captured anew."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture import CompiledFunction
from compiler_core.errors import GraphError
from compiler_core.ops import program_operator

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RUNS: list[str] = []  # a word for each run of a kernel


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return np.round(value.detach().numpy() * 1, 4).tolist() if hasattr(value, "detach") else value


def vector(t: Any, turn: int, requires_grad: bool = True) -> Any:
    return t.tensor([-1.3 * turn, 0.25, 2.75 + turn], requires_grad=requires_grad)


def grouped(t: Any) -> tuple[Any, Any]:
    """Products of groups of rows, whose ends are data; the gradient is an operator, too."""

    @t.library.custom_op("whole_programs::grouped", mutates_args=())
    def op(x: t.Tensor, w: t.Tensor, ends: t.Tensor) -> t.Tensor:
        RUNS.append("forward")
        out, start = t.zeros(x.size(0), w.size(2)), 0
        for i, end in enumerate(ends.tolist()):
            if start < end:
                t.mm(x[start:end], w[i], out=out[start:end])
            start = end
        return out

    op.register_fake(lambda x, w, ends: t.empty(x.size(0), w.size(2)))

    @t.library.custom_op("whole_programs::grouped_backward", mutates_args=())
    def back(x: t.Tensor, w: t.Tensor, ends: t.Tensor, g: t.Tensor) -> tuple[t.Tensor, t.Tensor]:
        RUNS.append("backward")
        gx, gw, start = t.zeros_like(x), t.zeros_like(w), 0
        for i, end in enumerate(ends.tolist()):
            gx[start:end], gw[i] = g[start:end] @ w[i].T, x[start:end].T @ g[start:end]
            start = end
        return gx, gw

    back.register_fake(lambda x, w, ends, g: (t.empty_like(x), t.empty_like(w)))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.ends = inputs[2]

    op.register_autograd(lambda ctx, g: (*back(*ctx.saved_tensors, ctx.ends, g), None), setup_context=keep)

    def call(turn: int) -> Any:
        x, w = (t.arange(n, dtype=t.float32).requires_grad_() for n in (8.0, 12.0))
        return x, w, t.tensor([turn, 3, 4])

    return lambda x, w, ends: op(x.reshape(4, 2).sin(), w.reshape(3, 2, 2) * 2, ends).relu() * 3, call


def simple(t: Any, name: str, kernel: Callable[..., Any], factor: Any = None, fake: bool = True) -> Any:
    """An operator (Tensor x) -> Tensor; factor(x): what a gradient is multiplied by."""
    op = t.library.custom_op(f"whole_programs::{name}", kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    if fake:
        op.register_fake(lambda x: t.empty_like(x))
    if factor is not None:
        op.register_autograd(
            lambda ctx, g: g * factor(ctx.saved_tensors[0]),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        )
    return op


def counted(t: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        RUNS.append("run")
        return kernel(x)

    return run


def item(t: Any) -> tuple[Any, Any]:
    op = simple(t, "item", counted(t, lambda x: x * x.sum().item()), lambda x: x * 2)
    return lambda x: op(x * 2) + op(x).cos(), lambda turn: (vector(t, turn),)


def branch(t: Any) -> tuple[Any, Any]:
    op = simple(t, "branch", counted(t, lambda x: x * 2 if x.sum() > 5 else x - 1), lambda x: x + 7)
    return lambda x: op(x).sin(), lambda turn: (vector(t, turn),)


def numpy_inside(t: Any) -> tuple[Any, Any]:
    def kernel(x: Any) -> Any:
        RUNS.append("run")
        return t.from_numpy(np.array(sorted(x.numpy().tolist()), np.float32))

    op = simple(t, "numpy", kernel, lambda x: x)
    return lambda x: op(x * 3) * 2, lambda turn: (vector(t, turn),)


def without_fake(t: Any) -> tuple[Any, Any]:
    op = simple(t, "bare", counted(t, lambda x: x * float(x.max())), lambda x: x * 3, fake=False)
    return lambda x: op(x + 1) * 2, lambda turn: (vector(t, turn),)


def sizes_of_data(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::positive", mutates_args=())
    def op(x: t.Tensor) -> t.Tensor:
        RUNS.append("run")
        return t.tensor([value for value in x.tolist() if value > 0])

    return lambda x: op(x * 2) + 1, lambda turn: (vector(t, turn, False),)


def written(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::scaled_", mutates_args=("x",))
    def op(x: t.Tensor, by: t.Tensor) -> None:
        RUNS.append("run")
        x.mul_(by.item())

    def program(x: Any, by: Any) -> Any:
        before = x * 1
        op(x, by)
        op(x[1:], by)
        return before + 100 * x

    return program, lambda turn: (vector(t, turn, False), t.tensor(2.0 + turn))


def written_and_given(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::popped", mutates_args=("x",))
    def op(x: t.Tensor, y: t.Tensor) -> tuple[t.Tensor, t.Tensor]:
        RUNS.append("run")
        x[0] = float(y.sum())
        return x * 2, (y > y.mean().item())

    op.register_fake(lambda x, y: (t.empty_like(x), t.empty_like(y, dtype=t.bool)))
    return lambda x, y: (*op(x, y + 1), x + 1), lambda turn: (vector(t, turn, False), vector(t, turn, False))


def kinds(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::kinds", mutates_args=())
    def op(x: t.Tensor) -> tuple[t.Tensor, t.Tensor, t.Tensor]:
        RUNS.append("run")
        order = sorted(range(len(x)), key=lambda k: -float(x[k]))
        return x[order], t.tensor(order), t.tensor([float(x[k]) > 0 for k in order])

    op.register_fake(lambda x: (t.empty_like(x), x.new_empty(len(x), dtype=t.int64), t.empty(3, dtype=t.bool)))

    def program(x: Any) -> Any:
        values, order, positive = op(x * 2)
        return values + 1, order * 2, ~positive, t.where(positive, values, order)

    return program, lambda turn: (vector(t, turn, False),)


def lists(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::lists", mutates_args=())
    def op(xs: list[t.Tensor], by: list[float], bias: t.Tensor | None = None) -> list[t.Tensor]:
        RUNS.append("run")
        total = sum(float(x.sum()) for x in xs)
        return [x * w + total + (0 if bias is None else bias) for x, w in zip(xs, by)]

    op.register_fake(lambda xs, by, bias=None: [t.empty_like(x) for x in xs])
    op.register_autograd(lambda ctx, grads: ([g * 3 for g in grads], None, grads[0]))

    def program(x: Any) -> Any:
        return op([x, x * 2], [2.0, 3.0], x.detach())[1] + op([x], [1.5], x * 2)[0]

    return program, lambda turn: (vector(t, turn),)


def arguments(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::arguments", mutates_args=())
    def op(x: t.Tensor, n: int, p: float, how: str, to: t.dtype, flag: bool = True) -> t.Tensor:
        RUNS.append("run")
        return (x * n + min(p, 4.0) * len(how) * float(x[0]) * flag).to(to)

    op.register_fake(lambda x, n, p, how, to, flag=True: t.empty_like(x, dtype=to))
    return (
        lambda x: op(x, 3, float("inf"), "a'\"b", t.float64) + op(x, 1, 0.5, "", t.float64, False),
        lambda turn: (vector(t, turn, False),),
    )


def numbers_that_change(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::changing", mutates_args=())
    def op(x: t.Tensor, n: int) -> t.Tensor:
        RUNS.append("run")
        return x * n * float(x[0])

    op.register_fake(lambda x, n: t.empty_like(x))
    return lambda x, n: op(x, n) + n, lambda turn: (vector(t, turn, False), 3 + turn)


def shapes_that_change(t: Any) -> tuple[Any, Any]:
    op = simple(t, "shapes", counted(t, lambda x: x * float(x[0])), lambda x: x)
    return lambda x: op(x * 2).sum(), lambda turn: (t.arange(1.0, 4.0 + turn).requires_grad_(),)


def in_a_module_function(t: Any) -> tuple[Any, Any]:
    """Called by an autograd.Function's forward and backward."""
    op = simple(t, "inner", counted(t, lambda x: x * float(x.abs().max())))

    class Inner(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return op(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return op(g + ctx.saved_tensors[0])

    return lambda x: Inner.apply(x * 2).sin(), lambda turn: (vector(t, turn),)


def without_rule(t: Any) -> tuple[Any, Any]:
    op = simple(t, "ruleless", counted(t, lambda x: x * float(x[1])))
    return lambda x: op(x) + 1, lambda turn: (vector(t, turn, False),)


def no_tensors(t: Any) -> tuple[Any, Any]:
    @t.library.custom_op("whole_programs::made", mutates_args=(), device_types="cpu")
    def op(n: int, device: t.device) -> t.Tensor:
        RUNS.append("run")
        made = t.ones(n)
        return made * made.sum().item()

    op.register_fake(lambda n, device: t.empty(n))
    return lambda x: op(3, t.device("cpu")) + x, lambda turn: (vector(t, turn),)


def by_library(t: Any) -> tuple[Any, Any]:
    """torch.library.define and impl, with a rule."""
    space = "whole_library" if t is dc else "whole_library_"
    t.library.define(f"{space}::looked", "(Tensor x, *, float by=2.0) -> Tensor")

    def kernel(x: Any, by: float = 2.0) -> Any:
        RUNS.append("run")
        return x * by if bool((x > 3).any()) else x + by

    t.library.impl(f"{space}::looked", "cpu", kernel)
    t.library.register_fake(f"{space}::looked", lambda x, by=2.0: t.empty_like(x))
    t.library.register_autograd(f"{space}::looked", lambda ctx, g: g * 5)
    op = getattr(t.ops, space).looked
    return lambda x: op(x, by=4.0) * op(x * 2), lambda turn: (vector(t, turn),)


def rows_of(t: Any) -> tuple[Any, Any]:
    """Handed and giving views and transposed memory."""
    op = simple(t, "views", counted(t, lambda x: x.clone() * float(x.reshape(-1)[0] + 1)), lambda x: x)

    def program(x: Any) -> Any:
        wide = x.reshape(1, 3).expand(2, 3) * 1
        return op(wide.t().contiguous())[1:] + op(wide[:, 1:]).t().sum()

    return program, lambda turn: (vector(t, turn),)


PROGRAMS = (grouped, item, branch, numpy_inside, without_fake, sizes_of_data, written, written_and_given, kinds, lists,
            arguments, numbers_that_change, shapes_that_change, in_a_module_function, without_rule, no_tensors,
            by_library, rows_of)  # fmt: skip
BETWEEN = (without_fake, sizes_of_data)
CHANGING = (numbers_that_change, shapes_that_change)


def found(t: Any, program: Callable[..., Any], call: Callable[[int], Any]) -> list[Any]:
    """What turns give: results, arguments afterwards, gradients, and the runs of kernels."""
    told = []
    for turn in (1, 0, 2, 1):
        given, before = call(turn), len(RUNS)
        result = program(*given)
        leaves = [one for one in given if getattr(one, "requires_grad", False)]
        wanted = [one for one in (result if isinstance(result, tuple) else (result,)) if one.requires_grad]
        if wanted:
            sum(one.sum() for one in wanted).backward()
        told.append(plain([result, list(given), [leaf.grad for leaf in leaves], RUNS[before:]]))
    return told


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_compiled_operators_that_need_data_do_what_torchs_do(make: Any) -> None:
    program, call = make(torch)
    torch._dynamo.reset()
    eager = found(torch, program, call)
    if make not in BETWEEN:  # torch refuses to compile these: they have no fake
        assert found(torch, torch.compile(program, backend="aot_eager", fullgraph=True), call) == eager
    program, call = make(dc)
    assert found(dc, program, call) == eager
    compiled = dc.compile(program, fullgraph=make not in BETWEEN)
    assert isinstance(compiled, CompiledFunction)
    assert found(dc, compiled, call) == eager
    if make not in CHANGING:
        graphs = compiled.explain().entries
        assert len(graphs) == (1 if make not in BETWEEN else 2), graphs


def test_operators_that_need_data_go_over_a_batch_as_torchs_do() -> None:
    def program(t: Any) -> Any:
        op = simple(t, "mapped", lambda x: x * float(x[0]), lambda x: x)
        op.register_vmap(lambda info, in_dims, x: (op(x.reshape(-1)).reshape(x.shape), 0))
        return lambda x: t.vmap(lambda row: op(row) + 1)(x)

    rows = np.arange(1.0, 7.0).reshape(2, 3).astype(np.float32)
    theirs, ours = program(torch), program(dc)
    x, y = torch.tensor(rows, requires_grad=True), dc.tensor(rows, requires_grad=True)
    theirs(x).sum().backward()
    compiled = dc.compile(ours)(y)
    compiled.sum().backward()
    assert plain(compiled) == plain(theirs(x))
    assert plain(y.grad) == plain(x.grad)


def test_without_a_rule_of_its_own_each_example_of_a_batch_is_a_run() -> None:
    op = simple(dc, "each", lambda x: x * float(x[0]))
    found = dc.compile(lambda x: dc.vmap(lambda row: op(row) + 1)(x))(dc.arange(6.0).reshape(2, 3) + 1)
    assert found.tolist() == [[2.0, 3.0, 4.0], [17.0, 21.0, 25.0]]


def test_what_a_kernel_gives_is_held_to_what_its_fake_tells() -> None:
    for name, kernel in {
        "longer": lambda x: dc.ones(4) * float(x[0]),
        "other": lambda x: (x * float(x[0])).double(),
    }.items():
        op = simple(dc, name, kernel)
        with pytest.raises(GraphError, match=f"{name} gives other results than its fake tells"):
            dc.compile(lambda x, op=op: op(x * 2) + 1)(dc.ones(3))


def test_a_kernel_that_keeps_an_argument_is_told_so() -> None:
    kept: list[Any] = []

    def kernel(x: Any) -> Any:
        kept.append(x[1:])
        return x * float(x[0])

    op = simple(dc, "keeps", kernel)
    compiled = dc.compile(lambda x: op(x * 2) + 1)
    with pytest.raises(GraphError, match="keeps an argument beyond its call"):
        compiled(dc.ones(3))
    kept.clear()
    simple(dc, "keeps", lambda x: x * float(x[0]))


def test_runs_leave_no_garbage_that_has_to_be_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    program, call = grouped(dc)
    compiled = dc.compile(program, fullgraph=True)
    compiled(*call(1)).sum().backward()
    collected: list[int] = []
    monkeypatch.setattr(program_operator.gc, "collect", lambda *given: collected.append(1))
    compiled(*call(2)).sum().backward()
    assert collected == []


def test_a_rule_that_calls_an_operator_is_of_the_graph() -> None:
    """No cut of the backward: whose operator is one op, too."""
    op = simple(dc, "looked_at", lambda x: x * float(x[0]))

    def backward(ctx: Any, g: Any) -> Any:
        return dc.ops.whole_programs.looked_at(g)

    op.register_autograd(backward)
    compiled = dc.compile(lambda x: op(x.sin()).cos(), fullgraph=True)
    x, y = (dc.tensor([0.5, 1.0]).requires_grad_() for _ in range(2))
    compiled(x).sum().backward()
    op(y.sin()).cos().sum().backward()
    assert x.grad is not None
    dc.testing.assert_close(x.grad, y.grad)
    (entry,) = compiled.explain().entries  # type: ignore[attr-defined]
    (found,) = (graph for kind, graph in entry.graphs if kind == "backward")
    assert [call.op.name for call in found.calls].count("program_operator") == 1


def test_what_is_registered_later_runs_whole_too() -> None:
    op = simple(dc, "later", lambda x: x * float(x[0]))
    compiled = dc.compile(lambda x: op(x) * 2, fullgraph=True)
    assert compiled(dc.full((1,), 3.0)).item() == 18.0
    op.register_kernel("cpu", lambda x: x + float(x[0]))
    assert compiled(dc.full((1,), 3.0)).item() == 12.0


def test_an_error_of_a_kernel_is_the_programs() -> None:
    def kernel(x: Any) -> Any:
        if float(x[0]) > 5:
            raise ValueError("too large")
        return x * 1

    op = simple(dc, "raises", kernel)
    compiled = dc.compile(lambda x: op(x) * 2)
    assert compiled(dc.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="too large"):
        compiled(dc.full((2,), 6.0))
    assert compiled(dc.ones(2)).tolist() == [2.0, 2.0]
