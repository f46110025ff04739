"""Transforms of what is not written with plain operations: recurrent layers, custom Functions and operators, compiled
functions, ranges between mapped ends; and what a transformed function may not do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import AutogradError
from distcompile import nn
from distcompile.func import (
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

X = dc.tensor(np.random.default_rng(0).standard_normal((4, 3)))
SEQUENCES = dc.tensor(np.random.default_rng(1).standard_normal((3, 5, 2, 3)).astype(np.float32))


def flat(value: Any) -> list[Any]:
    return [leaf.detach().numpy() for leaf in dc.utils._pytree.tree_leaves(value)]


def same(got: Any, want: Any, atol: float = 1e-9) -> None:
    for a, b in zip(flat(got), flat(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol)


def by_loop(function: Callable[..., Any], batch: Any) -> Any:
    rows = [function(row) for row in batch]
    return dc.utils._pytree.tree_map(lambda *parts: dc.stack(parts), *rows)


# ---- recurrent layers


def layer(kind: str, **options: Any) -> Any:
    dc.manual_seed(0)
    return getattr(nn, kind)(3, 4, **options)


LAYERS = [
    ("LSTM", {}),
    ("LSTM", {"bidirectional": True, "num_layers": 2}),
    ("GRU", {"bidirectional": True}),
    ("GRU", {"batch_first": True}),
    ("RNN", {"nonlinearity": "relu"}),
]


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_recurrent_layers_are_mapped_by_rule(kind: str, options: dict[str, Any], is_compiled: bool) -> None:
    model = layer(kind, **options)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: Any, x: Any) -> Any:
        return (functional_call(model, weights, (x,))[0] ** 2).sum()

    for function in (lambda x: model(x)[0], grad(lambda x: loss(weights, x)), lambda x: grad(loss)(weights, x)):
        mapped = vmap(function)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what has no rule says so
            got = (dc.compile(mapped, fullgraph=True) if is_compiled else mapped)(SEQUENCES)
        same(got, by_loop(function, SEQUENCES), 1e-4)


def test_sequences_of_several_lengths_are_mapped() -> None:
    model = layer("LSTM", bidirectional=True)

    def function(x: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
        return nn.utils.rnn.pad_packed_sequence(model(packed)[0])[0]

    same(vmap(function)(SEQUENCES), by_loop(function, SEQUENCES), 1e-5)
    same(vmap(jacrev(function))(SEQUENCES[:2]), by_loop(jacrev(function), SEQUENCES[:2]), 1e-5)


def test_an_ensemble_of_recurrent_layers() -> None:
    models = [nn.GRU(3, 4) for _ in range(3)]
    weights, buffers = stack_module_state(models)
    call = vmap(lambda w, b: functional_call(models[0], (w, b), (SEQUENCES[0],))[0])
    same(call(weights, buffers), dc.stack([model(SEQUENCES[0])[0] for model in models]), 1e-5)


# ---- what a transformed function may not do

ASKING: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda x: vmap(lambda a: a.clone().requires_grad_())(x),
    "vmap, of another tensor": lambda x: vmap(lambda a: dc.zeros(3).requires_grad_() + a)(x),
    "vmap, no longer": lambda x: vmap(lambda a: a.clone().requires_grad_(False))(x),
    "grad": lambda x: grad(lambda a: (a.clone().requires_grad_() * 2).sum())(x),
    "jvp": lambda x: jvp(lambda a: a.clone().requires_grad_() * 2, (x,), (x,)),
    "jacrev": lambda x: jacrev(lambda a: a.clone().requires_grad_() * 2)(x),
}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", list(ASKING))
def test_a_transformed_function_may_not_ask_for_gradients(name: str, is_compiled: bool) -> None:
    call = dc.compile(ASKING[name]) if is_compiled else ASKING[name]
    with pytest.raises(AutogradError, match="inside of a function being transformed"):
        call(X)
    assert X.clone().requires_grad_().requires_grad  # and afterwards it may


@pytest.mark.torch
@pytest.mark.parametrize("name", ["vmap", "vmap, no longer", "grad"])
def test_torch_refuses_it_too(name: str) -> None:
    torch = pytest.importorskip("torch")
    calls = {
        "vmap": lambda x: torch.vmap(lambda a: a.clone().requires_grad_())(x),
        "vmap, no longer": lambda x: torch.vmap(lambda a: a.clone().requires_grad_(False))(x),
        "grad": lambda x: torch.func.grad(lambda a: (a.clone().requires_grad_() * 2).sum())(x),
    }
    with pytest.raises(RuntimeError, match="inside of a function being transformed"):
        calls[name](torch.ones(4, 3))


# ---- ranges

RANGES: dict[str, Callable[[Any, Any], Any]] = {
    "linspace": lambda t, x: t.vmap(lambda a, b: t.linspace(a, b, 5))(x[:, 0], x[:, 1]),
    "linspace of one": lambda t, x: t.vmap(lambda a: t.linspace(a, 3.0, 5))(x[:, 0]),
    "linspace of whole numbers": lambda t, x: t.vmap(lambda a: t.linspace(a, 30, 4, dtype=t.int64))(x[:, 0] * 10),
    "linspace of a step": lambda t, x: t.vmap(lambda a, b: t.linspace(a, b, 1))(x[:, 0], x[:, 1]),
    "logspace": lambda t, x: t.vmap(lambda a, b: t.logspace(a, b, 5))(x[:, 0], x[:, 1]),
    "not mapped": lambda t, x: t.linspace(x[0, 0], x[0, 1], 6),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", list(RANGES))
def test_ranges_between_ends_of_each_example(name: str) -> None:
    torch = pytest.importorskip("torch")
    expected = RANGES[name](torch, torch.tensor(X.numpy())).numpy()
    for call in (RANGES[name], dc.compile(RANGES[name], fullgraph=True)):
        np.testing.assert_allclose(call(dc, X).numpy(), expected, rtol=1e-5)


# ---- Functions, operators, compiled functions


class Square(dc.autograd.Function):
    """x * x, and 3 x."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x * x, 3 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * g + 3 * h


def squared(a: Any) -> Any:
    x, y = Square.apply(a)
    return (x * y).sum()


def test_a_step_with_a_mapped_function_is_one_graph() -> None:
    model = nn.Linear(3, 2).double()

    def step(x: Any) -> Any:
        model.zero_grad()
        vmap(lambda a: squared(model(a)))(x).sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = step(X)
    same(dc.compile(step, fullgraph=True)(X), expected)
    nested = lambda x: vmap(vmap(lambda a: squared(model(a))))(dc.stack([x, x * 2]))  # noqa: E731
    same(dc.compile(nested, fullgraph=True)(X), nested(X))


@dc.library.custom_op("transforms_of_others::sine", mutates_args=())
def sine(x: dc.Tensor) -> dc.Tensor:
    return x.clone().sin()


sine.register_fake(lambda x: dc.empty_like(x))
sine.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@dc.compiler.allow_in_graph
def allowed(x: Any) -> Any:
    return x.sin()


PLAIN: dict[str, Callable[..., Any]] = {
    "an operator": sine,
    "allowed in the graph": allowed,
    "compiled": dc.compile(lambda x: x.sin()),
}
TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: grad(lambda a: (f(a) ** 2).sum())(x),
    "grad of grad": lambda f, x: grad(lambda a: (grad(lambda b: (f(b) ** 2).sum())(a) ** 2).sum())(x),
    "vmap": lambda f, x: vmap(f)(x),
    "vmap of grad": lambda f, x: vmap(grad(lambda a: (f(a) ** 2).sum()))(x),
    "vjp": lambda f, x: vjp(f, x)[1](x),
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "jacrev": lambda f, x: jacrev(f)(x[0]),
    "jacfwd": lambda f, x: jacfwd(f)(x[0]),
    "hessian": lambda f, x: hessian(lambda a: (f(a) ** 2).sum())(x[0]),
    "linearize": lambda f, x: linearize(f, x)[1](x),
    "autograd.functional": lambda f, x: dc.autograd.functional.jacobian(f, x[0], vectorize=True),
}


@pytest.mark.parametrize("of", list(PLAIN))
@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_transforms_of(name: str, of: str) -> None:
    expected = TRANSFORMS[name](dc.sin, X)
    same(TRANSFORMS[name](PLAIN[of], X), expected)
    same(dc.compile(lambda x: TRANSFORMS[name](PLAIN[of], x), fullgraph=True)(X), expected)
