"""torch.autograd.functional's names against torch's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import distcompile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
X, Y = np.array([1.0, -2.0, 0.5]), np.array([[0.5, 1.0], [2.0, -1.0], [1.5, 3.0]])


def flat(value: Any) -> list[Any]:
    """The tensors in nested tuples, as (shape, numbers)."""
    if isinstance(value, tuple):
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


REFUSED = {
    "hessian of a vector": (RuntimeError, lambda A, x: A.hessian(lambda a: a * 2, x)),
    "vjp without v": (RuntimeError, lambda A, x: A.vjp(lambda a: a * 2, x)),
    "jvp with a shorter v": (RuntimeError, lambda A, x: A.jvp(lambda a: a * 2, x, x[:2])),
    "strict": (RuntimeError, lambda A, x: A.jacobian(lambda a, b: a * 2, (x, x), strict=True)),
    "a number": (TypeError, lambda A, x: A.jacobian(lambda a: 3.0, x)),
}


@pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])
@pytest.mark.parametrize("name", list(REFUSED))
def test_what_torch_refuses(name: str, library: Any) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error):
        call(importlib.import_module(f"{library.__name__}.autograd.functional"), library.tensor(X))
