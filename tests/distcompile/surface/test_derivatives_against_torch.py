"""torch.func's derivatives: the results, structures, histories and errors of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.func

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

V, W = np.array([0.5, -1.0, 2.0]), np.array([1.5, 0.25, -0.5])
M = np.arange(6.0).reshape(2, 3) / 4

# name -> what a library t, with f = t.func, makes of arrays
RIGHT: dict[str, Callable[[Any, Any, Callable[[Any], Any]], Any]] = {
    "grad": lambda t, f, a: f.grad(lambda x: x.sin().sum())(a(V)),
    "grad of the second": lambda t, f, a: f.grad(lambda x, y: (x * y).sum(), argnums=1)(a(V), a(W)),
    "grad of the last": lambda t, f, a: f.grad(lambda x, y: (x * y * y).sum(), argnums=-1)(a(V), a(W)),
    "grad of two": lambda t, f, a: f.grad(lambda x, y: (x * y).sum(), argnums=(1, 0))(a(V), a(W)),
    "keywords": lambda t, f, a: f.grad(lambda x, by: (x * by).sum())(a(V), by=a(W)),
    "a dict": lambda t, f, a: f.grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": a(V), "b": [a(W)]}),
    "aux": lambda t, f, a: f.grad(lambda x: ((x * x).sum(), {"twice": x * 2}), has_aux=True)(a(V)),
    "value": lambda t, f, a: f.grad_and_value(lambda x: (x * x).sum())(a(V)),
    "value and aux": lambda t, f, a: f.grad_and_value(lambda x: ((x * x).sum(), x), has_aux=True)(a(V)),
    "unused": lambda t, f, a: f.grad(lambda x, y: x.sum(), argnums=(0, 1))(a(V), a(W)),
    "constant": lambda t, f, a: f.grad(lambda x: a(W).sum())(a(V)),
    "twice": lambda t, f, a: f.grad(lambda x: f.grad(lambda y: (y**3).sum())(x).sum())(a(V)),
    "thrice": lambda t, f, a: f.grad(f.grad(f.grad(t.sin)))(a(V)[0]),
    "inner of a closure": lambda t, f, a: f.grad(lambda y: f.grad(lambda x: (x * y).prod())(a(V)).sum())(a(W)),
    "per example": lambda t, f, a: f.vmap(f.grad(lambda x, y: (x * y).sin().sum()), in_dims=(0, None))(a(M), a(V)),
    "under no_grad": lambda t, f, a: _under_no_grad(t, lambda: f.grad(lambda x: (x * x).sum())(a(V))),
    "vjp": lambda t, f, a: _pulled(f.vjp(lambda x, y: x * y, a(V), a(W)), a(W)),
    "vjp of structures": lambda t, f, a: _pulled(f.vjp(lambda x: {"s": x.sin(), "c": [x.cos()]}, a(V)),
                                                 {"s": a(W), "c": [a(V)]}),
    "vjp with aux": lambda t, f, a: (lambda r: (r[0], r[1](a(W)), r[2]))(
        f.vjp(lambda x: (x * 2, x + 1), a(V), has_aux=True)),
    "jvp": lambda t, f, a: f.jvp(lambda x, y: x.sin() * y, (a(V), a(W)), (a(W), a(V))),
    "jvp of structures": lambda t, f, a: f.jvp(lambda x: [x.exp(), (x.sum(),)], (a(V),), (a(W),)),
    "jvp with aux": lambda t, f, a: f.jvp(lambda x: (x**2, x), (a(V),), (a(W),), has_aux=True),
    "linearize": lambda t, f, a: (lambda out, push: (out, push(a(W)), push(a(V))))(*f.linearize(t.sin, a(V))),
    "jacrev": lambda t, f, a: f.jacrev(lambda x: x[:, None] * a(W) * x.sum())(a(V)),
    "jacrev of two": lambda t, f, a: f.jacrev(lambda x, y: x @ y, argnums=(0, 1))(a(M), a(V)),
    "jacrev of structures": lambda t, f, a: f.jacrev(lambda d: (d["x"] * 2, d["x"].sum()))({"x": a(V)}),
    "jacrev with aux": lambda t, f, a: f.jacrev(lambda x: (x * x, x), has_aux=True)(a(V)),
    "jacfwd": lambda t, f, a: f.jacfwd(lambda x, y: (x * y).cumsum(0), argnums=1)(a(V), a(W)),
    "hessian": lambda t, f, a: f.hessian(lambda x: (x.sin() * x.flip(0)).sum())(a(V)),
    "hessian of two": lambda t, f, a: f.hessian(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(a(V), a(W)),
    "jacobian of a gradient": lambda t, f, a: f.jacfwd(f.grad(lambda x: (x**4).sum()))(a(V)),
    "an empty result": lambda t, f, a: f.jacrev(lambda x: x[:0])(a(V)),
    "in place inside": lambda t, f, a: f.grad(lambda x: x.clone().mul_(3).sum())(a(V)),
}  # fmt: skip


def _under_no_grad(t: Any, call: Callable[[], Any]) -> Any:
    with t.no_grad():
        return call()


def _pulled(made: Any, cotangents: Any) -> Any:
    out, pull = made
    return out, pull(cotangents), pull(cotangents)


def flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: flat(value[key]) for key in value}
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *(flat(v) for v in value)]
    numbers = np.round(value.detach().numpy(), 9) + 0.0
    return [tuple(value.shape), str(value.dtype).rpartition(".")[2], value.requires_grad, numbers.tolist()]


@pytest.mark.parametrize("name", RIGHT)
def test_results_are_torchs(name: str) -> None:
    ours, theirs = (flat(RIGHT[name](t, t.func, t.tensor)) for t in (dc, torch))
    assert ours == theirs


def _outside(t: Any) -> list[Any]:
    """What is outside, and asks for gradients, gets them through the results."""
    found = []
    for make in (
        lambda w, x: t.func.grad(lambda x: (x * w).sin().sum())(x),
        lambda w, x: t.func.grad(lambda w: (x * w).sin().sum())(w),
        lambda w, x: t.func.jvp(lambda x: (x * w).sin(), (x,), (t.ones_like(x),))[1],
        lambda w, x: t.func.vjp(lambda x: (x * w).sin(), x)[1](t.ones_like(x))[0],
        lambda w, x: t.func.jacrev(lambda x: (x * w).sin())(x),
    ):
        w, x = t.tensor(W).requires_grad_(), t.tensor(V)
        made = make(w, x)
        made.sum().backward()
        found.append(flat((made, w.grad)))
    return found


def test_what_is_outside_keeps_its_history() -> None:
    assert _outside(dc) == _outside(torch)


def _ensemble(t: Any) -> Any:
    models = [t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2)).double().eval() for _ in range(3)]
    for k, model in enumerate(models):
        model.load_state_dict({n: (v + k + 1 if v.is_floating_point() else v) for n, v in model.state_dict().items()})
        for j, p in enumerate(model.parameters()):
            with t.no_grad():
                p.copy_(t.arange(p.numel()).reshape(p.shape).double() / (j + k + 2))
    parameters, buffers = t.func.stack_module_state(models)

    def call(p: Any, b: Any, x: Any) -> Any:
        return t.func.functional_call(models[0], (p, b), (x,))

    out = t.func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, t.tensor(M))
    return flat((out, sorted(parameters.items()) and [parameters[k] for k in sorted(parameters)]))


def test_ensembles_are_torchs() -> None:
    assert _ensemble(dc) == _ensemble(torch)


def test_compiled_code_calls_them() -> None:
    def step(x: Any) -> Any:
        return x + dc.func.grad(lambda y: (y**3).sum())(x)

    x = dc.tensor(V)
    np.testing.assert_allclose(dc.compile(step)(x).numpy(), step(x).numpy())


def _loss(x: Any) -> Any:
    return (x**3).sum() * x[0].sin()


def _rows(x: Any) -> Any:
    return x.sin() * x[0]


COMPILED: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "grad": lambda t: t.func.grad(_loss),
    "grad of grad": lambda t: t.func.grad(lambda x: t.func.grad(_loss)(x).sum()),
    "hessian": lambda t: t.func.hessian(_loss),
    "jacrev": lambda t: t.func.jacrev(_rows),
    "jacfwd": lambda t: t.func.jacfwd(_rows),
    "jacrev, aux": lambda t: t.func.jacrev(lambda x: (_rows(x), x.sum()), has_aux=True),
    "jacfwd of jacrev": lambda t: t.func.jacfwd(t.func.jacrev(_rows)),
    "per sample": lambda t: lambda x: t.func.vmap(t.func.grad(_loss))(x[None] * t.arange(5.0).to(x)[:, None]),
    "vmap of hessian": lambda t: lambda x: t.func.vmap(t.func.hessian(_loss))(x[None].expand(4, -1)),
    "a hessian inside": lambda t: lambda x: t.func.hessian(_loss)(x * 2) @ x,
    "jacobians inside": lambda t: lambda x: t.func.jacrev(_rows)(x).sum(0) * t.func.jacfwd(_rows)(x),
    "vjp inside": lambda t: lambda x: t.func.vjp(_rows, x)[1](x * 2)[0] + 1,
    "jvp inside": lambda t: lambda x: t.func.jvp(_rows, (x,), (x * 2,))[1] + 1,
    "linearize inside": lambda t: lambda x: t.func.linearize(_rows, x.detach())[1](x * 2) + 1,
}


@pytest.mark.parametrize("backend", ["eager", "codegen"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_they_are_torchs(name: str, requires_grad: bool, backend: str) -> None:
    """They raised an ArgumentError, or were zero of what required a gradient."""
    x, theirs = dc.tensor(V).requires_grad_(requires_grad), torch.tensor(V).requires_grad_(requires_grad)
    expected, compiled = COMPILED[name](torch)(theirs), dc.compile(COMPILED[name](dc), backend=backend)
    gradient = _gradient(expected, theirs)
    for _ in range(2):
        found = compiled(x)
        assert flat(found) == flat(expected)
        assert _gradient(found, x) == pytest.approx(gradient, rel=1e-9)


def _gradient(found: Any, x: Any) -> list[float]:
    """That of x, of the sum of squares; none where nothing depends on it."""
    first = found[0] if isinstance(found, tuple) else found
    if not first.requires_grad:
        return []
    x.grad = None
    first.square().sum().backward()
    gradient: list[float] = x.grad.tolist()
    return gradient


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "not one number": lambda t, f: f.grad(lambda x: x)(t.ones(2)),
    "no tensor": lambda t, f: f.grad(lambda x: [x.sum()])(t.ones(2)),
    "no aux": lambda t, f: f.grad(lambda x: x.sum(), has_aux=True)(t.ones(2)),
    "beyond": lambda t, f: f.grad(lambda x: x.sum(), argnums=1)(t.ones(2)),
    "twice": lambda t, f: f.grad(lambda x, y: x.sum(), argnums=(0, -2))(t.ones(2), t.ones(2)),
    "primals": lambda t, f: f.jvp(t.sin, t.ones(2), t.ones(2)),
    "structure of tangents": lambda t, f: f.jvp(t.sin, (t.ones(2),), (t.ones(2), t.ones(2))),
    "structure of cotangents": lambda t, f: f.vjp(t.sin, t.ones(2))[1]((t.ones(2), t.ones(2))),
    "integers": lambda t, f: f.grad(lambda x: x.sum())(t.ones(2, dtype=t.int64)),
    "no model": lambda t, f: f.stack_module_state([]),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_torchs(name: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        WRONG[name](torch, torch.func)
    with pytest.raises(type(theirs.value)):
        WRONG[name](dc, dc.func)
