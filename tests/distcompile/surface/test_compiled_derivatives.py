"""torch.func in compiled code: one graph, with the values of eager code; its own gradients; where it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.errors import GraphBreak
from compiler_core.tensor.autograd.grad_mode import taping
from distcompile.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

X = dc.tensor(np.random.default_rng(0).standard_normal((4, 3)))
W = dc.tensor(np.random.default_rng(1).standard_normal(3))


def number(v: Any) -> Any:
    return (v * v).sin().sum() * v[0]


def vector(v: Any) -> Any:
    return dc.softmax(v, 0) * v[0]


class Square(dc.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 3 * g * ctx.saved_tensors[0]


MODEL = dc.nn.Sequential(dc.nn.Linear(3, 5), dc.nn.LayerNorm(5), dc.nn.GELU(), dc.nn.Linear(5, 4)).double()
WEIGHTS = {name: p.detach() for name, p in MODEL.named_parameters()}


def of_each(x: Any) -> Any:
    def loss(weights: Any, row: Any) -> Any:
        return F.cross_entropy(functional_call(MODEL, weights, (row,)), dc.argmax(row))

    return list(vmap(grad(loss), in_dims=(None, 0))(WEIGHTS, x).values())


CASES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda x: grad(number)(x[0]),
    "grad of grad": lambda x: grad(lambda v: grad(number)(v).sum())(x[0]),
    "third": lambda x: grad(lambda v: grad(lambda u: grad(number)(u).sum())(v).sum())(x[0]),
    "vjp": lambda x: vjp(vector, x[0])[1](x[1]),
    "jvp": lambda x: jvp(vector, (x[0],), (x[1],)),
    "jacrev": lambda x: jacrev(vector)(x[0]),
    "jacrev in parts": lambda x: jacrev(vector, chunk_size=2)(x[0]),
    "jacfwd": lambda x: jacfwd(vector)(x[0]),
    "hessian": lambda x: hessian(number)(x[0]),
    "linearize": lambda x: linearize(vector, x[0])[1](x[1]),
    "vmap": lambda x: vmap(vector)(x),
    "vmap of grad": lambda x: vmap(grad(number))(x),
    "grad of vmap": lambda x: grad(lambda w: vmap(lambda row: (row * w).sin().sum())(x).sum())(x[0]),
    "grad of what is one for all": lambda x: vmap(lambda row: grad(lambda w: (row * w).sin().sum())(x[0]))(x),
    "vmap of jacrev": lambda x: vmap(jacrev(vector))(x),
    "vmap of hessian": lambda x: vmap(hessian(number))(x),
    "grad of vmap of grad": lambda x: grad(lambda w: vmap(grad(lambda r: (r * w).sin().sum()))(x).square().sum())(x[0]),
    "something from outside": lambda x: grad(lambda v: (v * W).sin().sum())(x[0]),
    "a Function": lambda x: vmap(grad(lambda v: Square.apply(v).sum() + grad(Square.apply)(v[0])))(x),
    "views": lambda x: grad(lambda v: (v[1:] * v[:-1]).reshape(-1)[0] * v.flip(0)[0])(x[0]),
    "a model for each": of_each,
}


def flat(found: Any) -> list[Any]:
    return [y for x in found for y in flat(x)] if isinstance(found, (list, tuple)) else [found]


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("name", CASES)
def test_one_graph(name: str, backend: str) -> None:
    compiled = dc.compile(CASES[name], fullgraph=True, backend=backend)
    for x in (X, X * 0.7 + 0.1):
        got, want = flat(compiled(x)), flat(CASES[name](x))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-11)
    assert len(compiled.explain().entries) == 1 or name == "a model for each"  # learns that parameters are swapped


@pytest.mark.parametrize("name", ["grad", "jacrev", "hessian", "vmap of grad", "jvp", "grad of vmap"])
def test_gradients_of_what_is_compiled(name: str) -> None:
    """The derivative is differentiated in its turn, by whoever asks outside."""
    found = []
    for function in (CASES[name], dc.compile(CASES[name], fullgraph=True)):
        x = X.clone().requires_grad_()
        sum(part.square().sum() for part in flat(function(x))).backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["leaky_relu", "relu", "elu", "hardtanh", "softplus", "gelu", "silu", "hardswish"])
@pytest.mark.parametrize("of", [lambda f: vmap(grad(f)), lambda f: grad(lambda x: vmap(f)(x).sum())])
def test_an_activation_is_not_taken_for_a_write(of: Any, name: str) -> None:
    """The gradient of straight lines is tied to its operand, as what was written over is."""
    function = of(lambda row: (getattr(F, name)(row) * row).sum())
    found = []
    for call in (function, dc.compile(function, fullgraph=True)):
        x = X.clone().requires_grad_()
        made = call(x)
        found.append([made.detach().numpy(), dc.autograd.grad(made.square().sum(), x)[0].numpy()])
    for mine, eager in zip(*found, strict=True):
        np.testing.assert_allclose(mine, eager, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("of", [grad, jacrev, jacfwd, hessian, lambda f: lambda x: dc.autograd.functional.vjp(f, x)])
def test_whole_numbers_have_no_derivative(of: Any) -> None:
    for function in (of(lambda v: (v * 2).sum()), dc.compile(of(lambda v: (v * 2).sum()), fullgraph=True)):
        with pytest.raises(RuntimeError, match="floating point and complex dtype can require"):
            function(dc.arange(3))


def test_a_parameter_behind_a_derivative() -> None:
    w = W.clone().requires_grad_()

    def penalty(x: Any) -> Any:
        return vmap(grad(lambda row: (row * w).sin().sum()))(x).square().sum()

    penalty(X).backward()
    want, w.grad = w.grad, None
    dc.compile(penalty, fullgraph=True)(X).backward()
    np.testing.assert_allclose(w.grad.numpy(), want.numpy(), rtol=1e-9)


@pytest.mark.parametrize("transform", [grad, vmap, jacrev])
def test_a_break_inside_is_one_before_the_call(transform: Any) -> None:
    def body(v: Any) -> Any:
        print(end="")
        return (v * v).sum()

    compiled = dc.compile(lambda x: transform(body)(x * 2) + 1, backend="eager")
    for x in (X, X + 1):
        np.testing.assert_allclose(compiled(x).numpy(), (transform(body)(x * 2) + 1).numpy(), rtol=1e-12)
    with pytest.raises(GraphBreak, match="print"):
        dc.compile(lambda x: transform(body)(x * 2), fullgraph=True, backend="eager")(X)
    assert taping.depth == 0


def test_a_write_with_a_history_ends_the_graph() -> None:
    def body(v: Any) -> Any:
        u = v * 2
        u[0] = v[1] * 3
        return (u * u).sum()

    want = grad(body)(X[0])
    np.testing.assert_allclose(dc.compile(lambda x: grad(body)(x[0]))(X).numpy(), want.numpy(), rtol=1e-12)
    with pytest.raises(GraphBreak, match="in place in a function that is differentiated"):
        dc.compile(lambda x: grad(body)(x[0]), fullgraph=True)(X)
