"""torch.autograd.graph: nodes, hooks on them and on what is saved: what is called, with what, and the gradients."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.autograd.graph
import distcompile.nn.functional

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

A, B = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, 1.0, 2.0], np.float32)


class Case:
    """Leaves and a log, for a library."""

    def __init__(self, t: Any) -> None:
        self.t, self.g, self.log = t, t.autograd.graph, []
        self.a, self.b = (t.tensor(x, requires_grad=True) for x in (A, B))
        self.c = self.b * 2

    def note(self, *what: Any) -> None:
        self.log.append(plain(what))

    def function(self) -> Any:
        case = self

        class Scale(self.t.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, by: float) -> Any:
                ctx.save_for_backward(x)
                ctx.by = by
                return x * by, x + 1

            @staticmethod
            def backward(ctx: Any, g: Any, h: Any) -> Any:
                (x,) = ctx.saved_tensors
                case.note("saved", x)
                return g * ctx.by + h * 0, None

        return Scale


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        return (np.asarray(value.detach()) + 0.0).round(4).tolist()
    return value


def packing(case: Case, compute: Callable[[Case], Any]) -> Any:
    """What is packed (its history, whether it is a leaf itself), and first and second derivatives."""

    def pack(x: Any) -> Any:
        case.note("pack", x, type(x.grad_fn).__name__, x is case.a, case.t.is_grad_enabled())
        return x

    def unpack(x: Any) -> Any:
        case.note("unpack", case.t.is_grad_enabled())
        return x

    with case.g.saved_tensors_hooks(pack, unpack):
        y = compute(case)
    case.log.sort(key=str)
    (first,) = case.t.autograd.grad(y.sum(), case.a, create_graph=True)
    second = case.t.autograd.grad(first.sum(), case.a, allow_unused=True) if first.requires_grad else None
    return type(y.grad_fn).__name__, first, second


SAVING: dict[str, Callable[[Case], Any]] = {
    "mul": lambda k: k.a * k.c,
    "mul by itself": lambda k: k.a * k.a,
    "mul by a constant": lambda k: k.a * k.t.ones(3),
    "mul by a number": lambda k: k.a * 3,
    "exp": lambda k: k.a.exp(),
    "sum": lambda k: k.a.sum(),
    "sigmoid": lambda k: k.c.sigmoid() + k.a,
    "sin": lambda k: k.a.sin(),
    "log": lambda k: k.a.log(),
    "sqrt": lambda k: k.a.sqrt(),
    "tanh": lambda k: k.a.tanh(),
    "neg": lambda k: -k.a,
    "add": lambda k: k.a + k.c,
    "where": lambda k: k.t.where(k.a > 1, k.a, k.c),
    "maximum": lambda k: k.t.maximum(k.a, k.c),
}


def node(k: Case) -> Any:
    y = k.a * k.c
    fn = y.grad_fn
    leaf, other = (step[0] for step in fn.next_functions)
    again = (k.a * 2).grad_fn.next_functions[0][0]
    return (
        *(fn.name(), fn is y.grad_fn, isinstance(fn, k.g.Node), fn.metadata, type(leaf).__name__, leaf.name()),
        *(leaf.variable is k.a, leaf.next_functions, leaf is again, other is k.c.grad_fn),
        *(k.g.get_gradient_edge(k.a).node is leaf, k.g.get_gradient_edge(y).node is fn),
        *((y + 1).grad_fn.next_functions[1], repr(fn)[:12], k.a.grad_fn),
    )  # fmt: skip


def node_hooks(k: Case) -> Any:
    y = k.a * k.c
    handle = y.grad_fn.register_hook(lambda inputs, outputs: k.note("after", inputs, outputs))
    y.grad_fn.register_prehook(lambda outputs: k.note("before", outputs))
    y.register_hook(lambda grad: k.note("tensor", grad))
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()


def node_hooks_replace(k: Case) -> Any:
    y = k.a * k.c
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 10,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1, inputs[1]))
    y.sum().backward()


def leaf_hooks(k: Case) -> Any:
    place = k.g.get_gradient_edge(k.a).node
    place.register_hook(lambda inputs, outputs: k.note("after", inputs, outputs))
    place.register_prehook(lambda outputs: k.note("before", outputs))
    k.a.register_hook(lambda grad: k.note("tensor", grad))
    k.a.register_post_accumulate_grad_hook(lambda leaf: k.note("accumulated", leaf.grad))
    (k.a * 3).sum().backward()
    k.t.autograd.grad((k.a * 2).sum(), k.a)


def accumulators_of_parameters(k: Case) -> Any:
    """How data-parallel wrappers find where a parameter's gradient ends."""
    p = k.t.nn.Parameter(k.t.ones(2, 2))
    place = p.expand_as(p).grad_fn.next_functions[0][0]
    place.register_hook(lambda *_: k.note("there"))
    (p * 2).sum().backward()
    return place.variable is p


def a_function(k: Case) -> Any:
    with k.g.saved_tensors_hooks(lambda x: (k.note("pack", x), x)[1], lambda x: (k.note("unpack"), x)[1]):
        r, q = k.function().apply(k.a, 3.0)
    fn = r.grad_fn
    (r + q).sum().backward()
    return fn.name(), fn.by, r.output_nr, q.output_nr, fn is q.grad_fn, len(fn.next_functions), isinstance(fn, k.g.Node)


def edges(k: Case) -> Any:
    y = k.a * k.c
    place = k.g.get_gradient_edge(y)
    at = k.t.autograd.grad(y.sum(), place, retain_graph=True)
    through = k.t.autograd.grad(k.g.get_gradient_edge(y * 2), k.a, grad_outputs=k.t.ones(3), retain_graph=True)
    k.t.autograd.backward(place, k.t.ones(3))
    return at, through, place.output_nr


def many(k: Case) -> Any:
    x, y = k.a * k.c, k.a * k.c
    handle = k.g.register_multi_grad_hook((k.a, k.b, x, y), lambda grads: k.note([g is not None for g in grads]))
    x.sum().backward(retain_graph=True)
    x.sum().backward(inputs=(k.a,), retain_graph=True)
    (x + y).sum().backward(retain_graph=True)
    handle.remove()
    x.sum().backward(retain_graph=True)
    k.g.register_multi_grad_hook((k.a, x), lambda grad: k.note("first", grad), mode="any")
    x.sum().backward(retain_graph=True)
    x.sum().backward()


def mutation(k: Case) -> Any:
    with k.g.allow_mutation_on_saved_tensors():
        x = k.a.clone()
        y = (x**2).sum()
        x.sin_()
        y.backward()
    return x


def on_cpu(k: Case) -> Any:
    with k.g.save_on_cpu(pin_memory=True):
        y = (k.a * k.c).cos().sum()
    y.backward()


def half(k: Case) -> Any:
    """Activations kept in 16 bits; of a slope that is 0 they leave noise, so of weights alone."""
    k.t.manual_seed(0)
    weight = k.t.tensor(np.outer(A, B), requires_grad=True)
    with k.g.saved_tensors_hooks(lambda x: x.detach().half(), lambda x: x.float()):
        y = k.t.nn.functional.gelu(k.t.nn.functional.layer_norm(k.a.detach()[None] @ weight, (3,))).sum()
    y.backward()
    return np.asarray(weight.grad).round(1).tolist()


def written(k: Case) -> Any:
    x = k.a * 1
    y = x * x
    k.g.increment_version(x)
    return raised(lambda: y.sum().backward()), x._version


CASES = [
    node,
    node_hooks,
    node_hooks_replace,
    leaf_hooks,
    accumulators_of_parameters,
    a_function,
    edges,
    many,
    mutation,
]
CASES += [on_cpu, half, written]


def raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return "nothing"


def errors(k: Case) -> list[str]:
    def nested() -> None:
        with k.g.allow_mutation_on_saved_tensors(), k.g.allow_mutation_on_saved_tensors():
            pass

    def forbidden() -> None:
        with k.g.disable_saved_tensors_hooks("none here"), k.g.saved_tensors_hooks(plain, plain):
            pass

    def no_tensor() -> None:
        with k.g.saved_tensors_hooks(lambda x: x, lambda x: 3):
            y = k.a.exp()
        y.sum().backward()

    def too_few() -> None:
        y = k.a * k.c
        y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0],))
        y.sum().backward()

    def twice() -> None:
        with k.g.saved_tensors_hooks(lambda x: x, lambda x: x):
            y = k.a.exp().sum()
        y.backward()
        y.backward()

    def outside() -> None:
        with k.g.allow_mutation_on_saved_tensors():
            y = (k.a.clone() ** 2).sum()
        y.backward()

    def mode() -> None:
        k.g.register_multi_grad_hook((k.a,), print, mode="some")

    return [raised(call) for call in (nested, forbidden, no_tensor, too_few, twice, outside, mode)]


@pytest.mark.parametrize("name", SAVING)
def test_what_is_saved_is_torchs(name: str) -> None:
    theirs, ours = Case(torch), Case(dc)
    assert plain(packing(ours, SAVING[name])) == plain(packing(theirs, SAVING[name]))
    assert ours.log == theirs.log


@pytest.mark.parametrize("case", CASES)
def test_the_graph_is_torchs(case: Callable[[Case], Any]) -> None:
    theirs, ours = Case(torch), Case(dc)
    assert plain(case(ours)) == plain(case(theirs))
    assert ours.log == theirs.log
    assert [None if x.grad is None else plain(x.grad) for x in (ours.a, ours.b)] == [
        None if x.grad is None else plain(x.grad) for x in (theirs.a, theirs.b)
    ]


def test_errors_are_torchs() -> None:
    assert errors(Case(dc)) == errors(Case(torch))


def test_what_is_packed_away_is_not_kept_alive() -> None:
    """Neither by a node nor by a compiled call: what only the backward needs is gone once it is packed."""
    leaf, kept = dc.ones(4, requires_grad=True), []

    def pack(x: Any) -> Any:
        kept.append(x.numpy().copy() if not x.requires_grad else x.detach().numpy().copy())
        return len(kept) - 1

    for call in (lambda x: x.exp().sin(), dc.compile(lambda x: x.exp().sin(), backend="aot_eager")):
        call(leaf * 2)  # what the first call of compiled code keeps is not what is looked at
        leaf.grad = None
        with distcompile.autograd.graph.saved_tensors_hooks(pack, lambda number: dc.tensor(kept[number])):
            middle = leaf * 2
            cell = weakref.ref(middle._cell)
            y = call(middle).sum()
        del middle
        gc.collect()
        assert cell() is None
        y.backward()
        assert np.allclose(leaf.grad.numpy(), 2 * np.exp(2.0) * np.cos(np.exp(2.0)))


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_a_square_is_packed_as_often_as_torchs(backend: str | None) -> None:
    """Twice by a tape, which saves each operand; once by a compiled graph, of which it is one saved value."""

    def packs(k: Case) -> int:
        run = (lambda x: x * x) if backend is None else k.t.compile(lambda x: x * x, backend=backend)
        with k.g.saved_tensors_hooks(lambda x: k.note("pack") or x, lambda x: x):
            run(k.a)
        return len(k.log)

    assert packs(Case(dc)) == packs(Case(torch)) == (1 if backend == "aot_eager" else 2)


def test_a_compiled_call_is_packed() -> None:
    seen: list[tuple[int, ...]] = []

    def pack(x: Any) -> Any:
        seen.append(tuple(x.shape))
        return x

    for backend in ("aot_eager", "codegen"):
        leaf = dc.ones(4, requires_grad=True)
        run = dc.compile(lambda x: (x.exp() * x).sin().sum(), backend=backend)
        for _ in range(2):
            seen.clear()
            with distcompile.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                y = run(leaf)
            assert seen
            leaf.grad = None
            y.backward()
        expected = leaf.detach().requires_grad_()
        (expected.exp() * expected).sin().sum().backward()
        assert dc.allclose(leaf.grad, expected.grad)
