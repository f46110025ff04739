"""vmap in compiled code: modules and leaves in it, tensors that are kept from it; values are those of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.errors import BatchError, GraphBreak
from distcompile import nn
from distcompile.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap

X = dc.tensor(np.random.default_rng(0).standard_normal((2, 3)))
MODELS = [nn.Linear(3, 4).double() for _ in range(2)]
MODEL = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9)


def ensemble() -> Any:
    parameters, buffers = stack_module_state(MODELS)
    call = vmap(lambda p, b, x: functional_call(MODELS[0], (p, b), (x,)), in_dims=(0, 0, None))
    return call(parameters, buffers, X)


def made_inside() -> Any:
    stacked = {name: dc.stack([p.detach(), p.detach() * 2]).requires_grad_() for name, p in MODEL.named_parameters()}
    return vmap(lambda p, x: functional_call(MODEL, p, (x,)))(stacked, dc.stack([X, X]))


@pytest.mark.parametrize("program", [ensemble, made_inside])
def test_leaves_that_are_made_inside(program: Callable[[], Any]) -> None:
    compiled = dc.compile(program)
    near(compiled(), program())
    assert compiled().requires_grad  # the graph ends before: a leaf of its own takes a gradient
    with pytest.raises(GraphBreak, match="a leaf that was made in the graph"):
        dc.compile(program, fullgraph=True)()


def test_gradients_of_leaves_that_are_made_inside() -> None:
    def program(x: Any) -> Any:
        stacked, _ = stack_module_state(MODELS)
        call = vmap(lambda p: functional_call(MODELS[0], p, (x,)))
        call(stacked).pow(2).sum().backward()
        return stacked["weight"].grad

    near(dc.compile(program)(X), program(X))

    def of_rows(x: Any) -> Any:
        leaf = x.clone().requires_grad_()
        vmap(lambda row: row.sin().prod())(leaf).sum().backward()
        return leaf.grad

    near(dc.compile(of_rows)(X), of_rows(X))


def test_what_a_module_is_given_for_a_call_is_no_result() -> None:
    weights = {name: p.detach() for name, p in MODEL.named_parameters()}
    compiled = dc.compile(lambda x: vmap(lambda r: functional_call(MODEL, weights, (r,)))(x), fullgraph=True)
    near(compiled(X), MODEL(X))
    (entry,) = compiled.explain().entries
    assert len(dict(entry.graphs)["forward"].outputs) == 1
    assert all(mine is p for mine, p in zip(MODEL.parameters(), MODEL[0].parameters(), strict=False))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: vmap(MODEL)(x),
        vmap(MODEL),
        lambda x: vmap(MODEL[0])(x),
        lambda x: vmap(MODEL[0].forward)(x),
        lambda x: vmap(vmap(MODEL))(dc.stack([x, x])),
        lambda x: vmap(jacrev(MODEL))(x),
        lambda x: vmap(grad(lambda row: MODEL(row).sum()))(x),
    ],
)
def test_modules_are_mapped(program: Callable[[Any], Any]) -> None:
    compiled = dc.compile(program, fullgraph=True)
    near(compiled(X), program(X))
    before = MODEL[0].weight.detach().clone()
    with dc.no_grad():
        MODEL[0].weight.mul_(1.5)
    near(compiled(X), program(X))
    with dc.no_grad():
        MODEL[0].weight.copy_(before)


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3).double()
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        self.last = x * 2
        return self.layer(self.last).sin()


@pytest.mark.filterwarnings("ignore:.*runs eager for such calls")
@pytest.mark.filterwarnings("ignore:vmap")
def test_what_is_kept_of_one_example() -> None:
    model, kept = Keeps(), []

    def program(x: Any) -> Any:
        return vmap(lambda row: (kept.append(row * 3), model(row))[1])(x)

    want = program(X)
    compiled = dc.compile(program)
    for _ in range(3):
        near(compiled(X), want)
        assert model.last.shape == kept[-1].shape == (3,)
        assert "BatchedTensor" in repr(kept[-1])
    with pytest.raises(BatchError):
        kept[-1].tolist()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda row: row.nonzero(), "nonzero"),
        (lambda row: dc.nonzero(row, as_tuple=True)[0], "nonzero"),
        (lambda row: dc.where(row > 0)[0], "nonzero"),
        (lambda row: dc.argwhere(row), "nonzero"),
        (lambda row: row.unique(), "unique"),
        (lambda row: dc.unique_consecutive(row), "unique_consecutive"),
        (lambda row: row[row > 0], "bool mask"),
        (lambda row: row.masked_select(row > 0), "bool mask"),
        (lambda row: dc.ones(3)[row > 0], "bool mask"),
    ],
)
def test_what_is_as_long_as_the_data_says_is_refused(function: Callable[[Any], Any], text: str) -> None:
    x = dc.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]])  # as many of each example: refused all the same
    with pytest.raises(BatchError, match=text):
        vmap(function)(x)
    with pytest.raises(BatchError, match=text):
        dc.compile(lambda x: vmap(function)(x))(x)


def test_a_mask_that_is_one_for_all() -> None:
    mask = dc.tensor([True, False, True])
    near(vmap(lambda row: row[mask])(X), X[:, mask])
    near(vmap(lambda row: F.relu(row)[dc.nonzero(mask)[:, 0]])(X), F.relu(X)[:, mask])


@pytest.mark.parametrize("function", [dc.sin, lambda w: F.softmax(w, -1).sin(), lambda w: (w * w).tanh()])
def test_forward_over_reverse_over_a_map(function: Callable[[Any], Any]) -> None:
    w = dc.tensor(np.random.default_rng(1).standard_normal((2, 3)))
    t = dc.tensor(np.random.default_rng(2).standard_normal((2, 3)))

    def mapped(w: Any) -> Any:
        return (vmap(function)(w) * X).sum() + vmap(lambda row: (function(w[0]) * row).sum().sin())(X).sum()

    def whole(w: Any) -> Any:
        return (function(w) * X).sum() + (function(w[0]) * X).sum(1).sin().sum()

    near(jvp(grad(mapped), (w,), (t,))[1], jvp(grad(whole), (w,), (t,))[1])
    compiled = dc.compile(lambda w, t: jvp(grad(mapped), (w,), (t,))[1])
    near(compiled(w, t), jvp(grad(whole), (w,), (t,))[1])
