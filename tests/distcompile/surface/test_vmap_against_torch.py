"""torch.func.vmap: the results, gradients and errors of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.func

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X, Y, CUBE = np.arange(6.0).reshape(2, 3), np.array([[0.5, -1, 2], [1, 0, -3.0]]), np.arange(24.0).reshape(4, 2, 3)


def add_one(x: Any) -> Any:
    x.add_(1)
    return x


def inside(d: Any) -> Any:
    return {"s": d["a"] + d["b"], "l": [d["a"].sum()]}


# name -> vmap and arguments of a library t
RIGHT: dict[str, Callable[[Any, Callable[..., Any], Any], Any]] = {
    "sin": lambda t, vmap, a: vmap(t.sin)(a(X)),
    "two arguments": lambda t, vmap, a: vmap(t.dot)(a(X), a(Y)),
    "in_dims": lambda t, vmap, a: vmap(t.dot, in_dims=(1, 0))(a(X.T.copy()), a(Y)),
    "negative": lambda t, vmap, a: vmap(t.sum, in_dims=-1, out_dims=-1)(a(X)),
    "one for all": lambda t, vmap, a: vmap(t.mul, in_dims=(0, None))(a(X), a(Y[0])),
    "a number for all": lambda t, vmap, a: vmap(t.mul, in_dims=(0, None))(a(X), 3.0),
    "keywords are not mapped": lambda t, vmap, a: vmap(lambda x, y: x + y)(a(X), y=a(Y)),
    "out_dims": lambda t, vmap, a: vmap(lambda x: (x, x.sum()), out_dims=(1, 0))(a(X)),
    "out_dims of all": lambda t, vmap, a: vmap(lambda x: (x, x * 2), out_dims=1)(a(X)),
    "one that is not mapped": lambda t, vmap, a: vmap(lambda x: (x, t.ones(2)), out_dims=(0, None))(a(X)),
    "structures": lambda t, vmap, a: vmap(
        lambda d: {"s": d["a"] + d["b"], "l": [d["a"].sum()]}, in_dims=({"a": 0, "b": None},)
    )({"a": a(X), "b": a(Y[0])}),
    "an inner structure ends early": lambda t, vmap, a: vmap(lambda p, x: p[0] * x + p[1], in_dims=(None, 0))(
        (a(Y[0]), a(Y[1])), a(X)
    ),
    "nested": lambda t, vmap, a: vmap(vmap(t.dot), in_dims=(1, 1))(a(CUBE), a(CUBE)),
    "nested, another order": lambda t, vmap, a: vmap(vmap(lambda x, y: x - y, in_dims=(0, None)), in_dims=(None, 0))(
        a(X), a(Y)
    ),
    "matrices": lambda t, vmap, a: vmap(lambda m: t.softmax(m @ m.T, 1))(a(CUBE)),
    "rows of numbers": lambda t, vmap, a: vmap(t.func.grad(lambda x: t.softmax(x, 0) + t.log_softmax(x, -1)))(a(Y[0])),
    "a constant": lambda t, vmap, a: vmap(lambda x: t.ones(2))(a(X)),
    "in place": lambda t, vmap, a: vmap(add_one)(a(X).clone()),
    "chunks": lambda t, vmap, a: vmap(t.cos, chunk_size=1)(a(X)),
    "where": lambda t, vmap, a: vmap(lambda x: t.where(x > 1, x, -x))(a(X)),
    "integers": lambda t, vmap, a: vmap(lambda i: i * 2)(t.arange(3)),
    "indices": lambda t, vmap, a: vmap(lambda i: a(Y)[i])(t.tensor([1, 0, 1])),
}


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [(key, flat(value[key])) for key in sorted(value)]
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *(flat(v) for v in value)]
    return [tuple(value.shape), str(value.dtype).rpartition(".")[2], np.round(value.detach().numpy(), 9).tolist()]


@pytest.mark.parametrize("name", RIGHT)
def test_results_are_torchs(name: str) -> None:
    ours, theirs = (
        flat(RIGHT[name](t, vmap, lambda v, t=t: t.tensor(v)))
        for t, vmap in ((dc, dc.func.vmap), (torch, torch.func.vmap))
    )
    assert ours == theirs


def test_gradients_are_torchs() -> None:
    found = []
    for t, vmap in ((dc, dc.func.vmap), (torch, torch.func.vmap)):
        x, w = t.tensor(X).requires_grad_(), t.tensor(Y[0]).requires_grad_()
        (vmap(lambda row, w=w, t=t: t.tanh(row * w).sum())(x) ** 2).sum().backward()
        found.append((x.grad.numpy(), w.grad.numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def tied(torch: Any, w: Any, x: Any) -> Any:
    """One weight in two products, the second by its transpose."""
    return (torch.tanh(x @ w.T) @ w).pow(2).sum()


def of_a_step(torch: Any) -> Any:
    """The gradient of a weight after one step for each task (MAML), and of the steps themselves."""
    w = torch.sin(torch.arange(12, dtype=torch.float64)).view(3, 4).requires_grad_()
    x = torch.cos(torch.arange(40, dtype=torch.float64)).view(2, 5, 4)

    def task(x: Any) -> Any:
        step = torch.func.grad(lambda w: tied(torch, w, x))(w)
        return tied(torch, w - 0.01 * step, x) + step.sum()

    torch.vmap(task)(x).mean().backward()
    return w.grad


def test_a_gradient_through_gradients_of_each_example() -> None:
    """A weight that is read again by the inner derivative: what comes from there is summed already, the rest is not."""
    np.testing.assert_allclose(of_a_step(dc).numpy(), of_a_step(torch).numpy(), rtol=1e-9)


def test_gradients_of_each_example() -> None:
    """A Jacobian row by row, as in torch's documentation."""
    x = dc.tensor(X[0]).requires_grad_()
    y = x**2
    rows = dc.func.vmap(lambda v: dc.autograd.grad(y, x, v, retain_graph=True))(dc.eye(3, dtype=dc.float64))
    np.testing.assert_array_equal(rows[0].numpy(), np.diag(2 * X[0]))


def test_it_compiles() -> None:
    def function(x: Any) -> Any:
        return dc.func.vmap(lambda row: dc.softmax(row, 0) * 2, randomness="different")(x).sum(0)

    x = dc.tensor(X)
    np.testing.assert_allclose(
        dc.compile(function, backend="aot_eager", fullgraph=True)(x).numpy(), function(x).numpy(), rtol=1e-12
    )


@pytest.mark.parametrize("randomness", ["different", "error", "same"])
def test_every_row_is_seen_where_its_graph_breaks(randomness: str) -> None:
    """The number of a row was read unseen: from the fourth on rows were the third."""

    def function(row: Any) -> Any:
        print(end="")
        return dc.softmax(row, 0) * 2

    mapped = dc.func.vmap(function, randomness=randomness)
    compiled = dc.compile(lambda x: mapped(x * 1), backend="eager")
    x = dc.arange(18.0, dtype=dc.float64).reshape(6, 3).sin()
    for _ in range(2):
        np.testing.assert_allclose(compiled(x).numpy(), mapped(x).numpy(), rtol=1e-12)


WRONG: dict[str, Callable[[Any, Callable[..., Any], Any], Any]] = {
    "in_dims of a wrong kind": lambda t, vmap, x: vmap(t.sin, in_dims="a")(x),
    "in_dims None": lambda t, vmap, x: vmap(t.add, in_dims=None)(x, x),
    "no inputs": lambda t, vmap, x: vmap(t.sin)(),
    "in_dims of another length": lambda t, vmap, x: vmap(t.add, in_dims=(0,))(x, x),
    "in_dims of text": lambda t, vmap, x: vmap(t.add, in_dims=(0, "b"))(x, x),
    "over a number": lambda t, vmap, x: vmap(t.add)(x, 3),
    "dim out of range": lambda t, vmap, x: vmap(t.sin, in_dims=2)(x),
    "of a 0-d tensor": lambda t, vmap, x: vmap(t.sin)(x.sum()),
    "sizes": lambda t, vmap, x: vmap(t.add)(x, t.ones(3, 3)),
    "nothing is mapped": lambda t, vmap, x: vmap(t.add, in_dims=(None, None))(x, x),
    "a number returned": lambda t, vmap, x: vmap(lambda x: (x, 3))(x),
    "None returned": lambda t, vmap, x: vmap(lambda x: None)(x),
    "randomness": lambda t, vmap, x: vmap(lambda x: x + t.randn(3))(x),
    "a wrong randomness": lambda t, vmap, x: vmap(lambda x: x, randomness="a")(x),
    "chunks of 0": lambda t, vmap, x: vmap(lambda x: x, chunk_size=0)(x),
    "out_dims None of what is mapped": lambda t, vmap, x: vmap(lambda x: x, out_dims=None)(x),
    "too many out_dims": lambda t, vmap, x: vmap(lambda x: x, out_dims=(0, 0))(x),
    "too few out_dims": lambda t, vmap, x: vmap(lambda x: (x, x), out_dims=(0,))(x),
    "out_dims of text": lambda t, vmap, x: vmap(lambda x: x, out_dims="a")(x),
    "out_dims out of range": lambda t, vmap, x: vmap(lambda x: x, out_dims=3)(x),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_torchs(name: str) -> None:
    found = []
    for t, vmap in ((torch, torch.func.vmap), (dc, dc.func.vmap)):
        with pytest.raises((ValueError, RuntimeError, IndexError)) as raised:
            WRONG[name](t, vmap, t.tensor(X))
        found.append(raised)
    assert found[1].errisinstance(next(k for k in (ValueError, IndexError, RuntimeError) if found[0].errisinstance(k)))
    if name != "out_dims out of range":
        assert str(found[1].value).startswith(
            str(found[0].value).partition(" in_dims has")[0].partition(" out_dims has")[0][:90]
        )


def test_draws() -> None:
    x = dc.zeros(3, 4)
    dc.manual_seed(0)
    before = dc.get_rng_state()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        dc.func.vmap(lambda row: row + dc.rand(4))(x)
    assert bool((dc.get_rng_state() == before).all())
    same = dc.func.vmap(lambda row: row + dc.rand(4), randomness="same")(x)
    assert bool((same == same[0]).all())
    other = dc.func.vmap(lambda row: row + dc.rand(4), randomness="different")(x)
    assert len({tuple(row) for row in other.tolist()}) == 3


def test_of_no_example_there_is_an_empty_batch() -> None:
    found = dc.func.vmap(lambda x: (x @ x, x.sum(), x.softmax(0)))(dc.zeros(0, 3))
    assert [tuple(x.shape) for x in found] == [(0,), (0,), (0, 3)]
