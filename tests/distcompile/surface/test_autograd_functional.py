"""torch.autograd.functional's names against torch's."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.errors import GraphBreak

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
X, Y = np.array([1.0, -2.0, 0.5]), np.array([[0.5, 1.0], [2.0, -1.0], [1.5, 3.0]])


def flat(value: Any) -> list[Any]:
    """The tensors in nested tuples, as (shape, numbers)."""
    if isinstance(value, (tuple, list)):
        return [("tuple", len(value)), *(entry for v in value for entry in flat(v))]
    return [(tuple(value.shape), value.requires_grad, np.round(value.detach().numpy(), 9).tolist())]


def both(call: Any) -> list[Any]:
    """What the call gives with torch and with ours."""
    results = []
    for library in (torch, distcompile):
        functional = importlib.import_module(f"{library.__name__}.autograd.functional")
        results.append(flat(call(library, functional, library.tensor(X), library.tensor(Y))))
    return results


CALLS = {
    "jacobian": lambda t, A, x, y: A.jacobian(lambda a: a**2 * a.sum(), x),
    "jacobian of a scalar": lambda t, A, x, y: A.jacobian(lambda a: (a**2).sum(), x),
    "jacobian of two": lambda t, A, x, y: A.jacobian(lambda a, b: a.exp() @ b, (x, y)),
    "jacobian to two": lambda t, A, x, y: A.jacobian(lambda a: (a.sin(), a.sum()), x),
    "jacobian of an unused": lambda t, A, x, y: A.jacobian(lambda a, b: a * 2, (x, y)),
    "jacobian of a constant": lambda t, A, x, y: A.jacobian(lambda a: t.ones(2), x),
    "jacobian with a history": lambda t, A, x, y: A.jacobian(lambda a: a**3, x.requires_grad_(), create_graph=True),
    "hessian": lambda t, A, x, y: A.hessian(lambda a: (a**3).sum() + a.prod(), x),
    "hessian of two": lambda t, A, x, y: A.hessian(lambda a, b: (a.exp() @ b).sum() * a[0], (x, y)),
    "vjp": lambda t, A, x, y: A.vjp(lambda a: a @ y, x, t.ones(2, dtype=t.float64)),
    "vjp of one element": lambda t, A, x, y: A.vjp(lambda a: a.sum() ** 2, x),
    "jvp": lambda t, A, x, y: A.jvp(lambda a: (a**2 @ y).tanh(), x, x + 1),
    "jvp of two": lambda t, A, x, y: A.jvp(lambda a, b: (a @ b, a.sum()), (x, y), (x, y)),
    "hvp": lambda t, A, x, y: A.hvp(lambda a: (a**3).prod(), x, x + 1),
    "vhp of two": lambda t, A, x, y: A.vhp(lambda a, b: (a @ b).pow(2).sum(), (x, y), (x, y)),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_derivatives_are_torchs(name: str) -> None:
    theirs, ours = both(CALLS[name])
    assert ours == theirs


COMPILED = [name for name in CALLS if name not in {"jacobian with a history", "jacobian of a constant"}]


@pytest.mark.parametrize("name", COMPILED)
def test_they_are_one_graph(name: str) -> None:
    expected = flat(CALLS[name](torch, torch.autograd.functional, torch.tensor(X), torch.tensor(Y)))
    A = distcompile.autograd.functional
    call = distcompile.compile(lambda x, y: CALLS[name](distcompile, A, x, y), fullgraph=True)
    assert flat(call(distcompile.tensor(X), distcompile.tensor(Y))) == expected


FORMS = {
    "rows at once": lambda A, m, x, y: A.jacobian(lambda a, b: (a.exp() @ b, m(a).sum()), (x, y), vectorize=True),
    "forward": lambda A, m, x, y: A.jacobian(
        lambda a, b: (a.exp() @ b, m(a)), (x, y), vectorize=True, strategy="forward-mode"
    ),
    "forward over reverse": lambda A, m, x, y: A.hessian(
        lambda a: (m(a) ** 4).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "jacobian": lambda A, m, x, y: A.jacobian(lambda a: m(a).tanh(), x, create_graph=True),
    "jacobian, strict": lambda A, m, x, y: A.jacobian(lambda a: m(a).tanh(), x, create_graph=True, strict=True),
    "hessian": lambda A, m, x, y: A.hessian(lambda a: m(a).tanh().sum(), x, create_graph=True),
    "hessian at once": lambda A, m, x, y: A.hessian(lambda a: m(a).tanh().sum(), x, create_graph=True, vectorize=True),
    "vjp": lambda A, m, x, y: A.vjp(lambda a: m(a).tanh(), x, x * 2, create_graph=True),
    "jvp": lambda A, m, x, y: A.jvp(lambda a: m(a).tanh(), x, x * 2, create_graph=True),
    "vhp": lambda A, m, x, y: A.vhp(lambda a: m(a).tanh().sum(), x, x * 2, create_graph=True),
    "hvp": lambda A, m, x, y: A.hvp(lambda a, b: m(a).tanh().sum() * b.sum(), (x, y), (x, y), create_graph=True),
}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("needs", [False, True], ids=["of a model's parameters", "of inputs too"])
@pytest.mark.parametrize("name", list(FORMS))
def test_what_has_a_history_goes_on(name: str, needs: bool, is_compiled: bool) -> None:
    found = []
    for library in (torch, distcompile):
        model = library.nn.Linear(3, 3).double()
        with library.no_grad():
            for p in model.parameters():
                p.copy_(library.linspace(-1, 1, p.numel(), dtype=library.float64).reshape(p.shape))
        x, y = library.tensor(X, requires_grad=needs), library.tensor(Y, requires_grad=needs)
        call = functools.partial(FORMS[name], library.autograd.functional, model)
        if is_compiled and library is distcompile:
            call = distcompile.compile(call, fullgraph=True)
        results = call(x, y)
        leaves = [v for v in library.utils._pytree.tree_leaves(results) if v.requires_grad]
        sum((v**2).sum() for v in leaves).backward() if leaves else None
        gradients = [v.grad for v in (x, y, *model.parameters())]
        found.append([flat(results), *(None if g is None else np.round(g.numpy(), 6).tolist() for g in gradients)])
    assert found[1] == found[0]


def test_a_history_that_only_the_call_knows_ends_the_graph() -> None:
    jacobian = distcompile.autograd.functional.jacobian
    call = distcompile.compile(lambda x: jacobian(lambda a: a**3, x, create_graph=True))
    assert call(distcompile.tensor(X)).requires_grad
    whole = distcompile.compile(lambda x: jacobian(lambda a: a**3, x, create_graph=True), fullgraph=True)
    with pytest.raises(GraphBreak, match="history that ends"):
        whole(distcompile.tensor(X))


REFUSED = {
    "hessian of a vector": (RuntimeError, lambda A, x: A.hessian(lambda a: a * 2, x)),
    "vjp without v": (RuntimeError, lambda A, x: A.vjp(lambda a: a * 2, x)),
    "jvp with a shorter v": (RuntimeError, lambda A, x: A.jvp(lambda a: a * 2, x, x[:2])),
    "strict": (RuntimeError, lambda A, x: A.jacobian(lambda a, b: a * 2, (x, x), strict=True)),
    "a number": (TypeError, lambda A, x: A.jacobian(lambda a: 3.0, x)),
    "a list of inputs": (TypeError, lambda A, x: A.hvp(lambda a: a.sum(), [x], x)),
    "another strategy": (AssertionError, lambda A, x: A.jacobian(lambda a: a, x, strategy="backward")),
    "forward with a history": (
        NotImplementedError,
        lambda A, x: A.jacobian(lambda a: a, x, create_graph=True, strategy="forward-mode"),
    ),
    "forward one by one": (NotImplementedError, lambda A, x: A.jacobian(lambda a: a, x, strategy="forward-mode")),
    "forward, strict": (
        RuntimeError,
        lambda A, x: A.jacobian(lambda a: a, x, strict=True, vectorize=True, strategy="forward-mode"),
    ),
    "at once, strict": (RuntimeError, lambda A, x: A.jacobian(lambda a: a, x, strict=True, vectorize=True)),
    "a linear function, strict": (RuntimeError, lambda A, x: A.hessian(lambda a: a.sum(), x, strict=True)),
    "a linear jvp, strict": (RuntimeError, lambda A, x: A.vhp(lambda a: a.sum(), x, x, strict=True)),
    "an unused input, strict": (
        RuntimeError,
        lambda A, x: A.vjp(lambda a, b: a.sum(), (x, x), strict=True),
    ),
    "two outputs": (RuntimeError, lambda A, x: A.hessian(lambda a: (a.sum(), a.sum()), x)),
    "one v for two": (RuntimeError, lambda A, x: A.vjp(lambda a: (a, a), x, x)),
}


@pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])
@pytest.mark.parametrize("name", list(REFUSED))
def test_what_torch_refuses(name: str, library: Any) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as told:
        call(importlib.import_module(f"{library.__name__}.autograd.functional"), library.tensor(X))
    if library is not torch:
        with pytest.raises(error) as theirs:
            call(torch.autograd.functional, torch.tensor(X))
        assert str(theirs.value)[:24] == str(told.value)[:24]
