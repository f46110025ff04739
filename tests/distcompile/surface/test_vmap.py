"""vmap: gradients of each example, nesting, levels that have ended, writes, errors, draws, and that rules are used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.errors import BatchError
from compiler_core.log import forget_warnings
from compiler_core.ops.batching import running, value
from compiler_core.ops.registry import OPS, bind
from distcompile.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap

X = dc.tensor(np.random.default_rng(0).standard_normal((4, 3)))


def near(got: Any, want: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=rtol, atol=rtol)


def by_loop(function: Callable[..., Any], dims: tuple[int | None, ...], *args: Any) -> Any:
    """The meaning of vmap: a call for each example."""
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    parts = [[a if d is None else a.select(d, k) for a, d in zip(args, dims, strict=True)] for k in range(size)]
    rows = [function(*part) for part in parts]
    return [dc.stack(column) for column in zip(*rows, strict=True)] if isinstance(rows[0], tuple) else dc.stack(rows)


class Mlp(dc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = dc.nn.Linear(3, 8), dc.nn.LayerNorm(8), dc.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.b(F.gelu(self.norm(self.a(x))))


class Cnn(dc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = dc.nn.Conv2d(1, 4, 3), dc.nn.GroupNorm(2, 4), dc.nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.out(F.max_pool2d(F.relu(self.norm(self.conv(x[None]))), 2).flatten(1))[0]


class Block(dc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = dc.nn.Embedding(7, 8), dc.nn.LayerNorm(8)
        self.qkv, self.out = dc.nn.Linear(8, 24), dc.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        q, k, v = (t.reshape(1, 6, 2, 4).transpose(1, 2) for t in self.qkv(self.norm(self.words(x)))[None].split(8, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(6, 8)
        return self.out(attended).mean(0)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "mlp": (Mlp, lambda: dc.randn(4, 3)),
    "cnn": (Cnn, lambda: dc.randn(4, 1, 6, 6)),
    "block": (Block, lambda: dc.randint(0, 7, (4, 6))),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_each_example_are_by_rule(name: str) -> None:
    """No op runs once for each example, and the number of ops does not grow with the batch."""
    dc.manual_seed(0)
    make, draw = MODELS[name]
    model = make()
    weights = {key: p.detach() for key, p in model.named_parameters()}
    x, y = draw(), dc.tensor([1, 4, 0, 2])

    def loss(given: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(functional_call(model, given, (x,)), y)

    counts = []
    plain = running.run_batched

    def counted(*args: Any) -> Any:
        counts[-1] += 1
        return plain(*args)

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        patch.setattr(running, "run_batched", counted)
        for size in (2, 4):
            counts.append(0)
            found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x[:size], y[:size])
    assert counts[0] == counts[1]
    rows = [grad(loss)(weights, x[k], y[k]) for k in range(4)]
    for key, got in found.items():
        near(got, dc.stack([row[key] for row in rows]))


def test_gradients_through_a_map_that_has_ended() -> None:
    """Of what is one for all examples the gradients of all are summed; inside they are each example's."""
    w, x = dc.tensor([1.0, -2.0, 0.5], dtype=dc.float64), X

    def total(w: Any) -> Any:
        return vmap(lambda row: (row * w).sin().sum() + (w * w)[0])(x).sum()

    near(grad(total)(w), grad(lambda w: (x * w).sin().sum() + 4 * w[0] ** 2)(w))
    inner = vmap(lambda row: grad(lambda v: (row * v).sin().sum())(w))(x)
    near(inner, x * (x * w).cos())
    twice = grad(lambda w: vmap(grad(lambda row: (row * w).sin().sum()))(x).sum())(w)
    near(twice, grad(lambda w: (w * (x * w).cos()).sum())(w))
    leaf = w.clone().requires_grad_()
    total(leaf).backward()
    near(leaf.grad, grad(total)(w))


def test_nested_maps_and_gradients() -> None:
    a, b = X, dc.tensor(np.random.default_rng(1).standard_normal((5, 3)))
    pairs = vmap(lambda row: vmap(lambda other: grad(lambda r: (r * other).tanh().sum())(row))(b))(a)
    want = b[None] * (1 - (a[:, None] * b[None]).tanh() ** 2)
    near(pairs, want)
    near(vmap(vmap(dc.dot, in_dims=(None, 0)), in_dims=(0, None))(a, b), a @ b.T)
    near(vmap(vmap(lambda v: v.cumsum(0), in_dims=1, out_dims=1))(dc.stack([a, a])), dc.stack([a, a]).cumsum(1))


def test_forward_mode_and_jacobians() -> None:
    near(vmap(lambda row: jvp(dc.sin, (row,), (row,))[1])(X), X.cos() * X)
    near(jvp(lambda x: vmap(lambda row: row.sin() * row[0])(x), (X,), (X,))[1],
         by_loop(lambda row: jvp(lambda r: r.sin() * r[0], (row,), (row,))[1], (0,), X))  # fmt: skip
    near(vmap(jacrev(lambda r: r.sin() * r[0]))(X), by_loop(jacrev(lambda r: r.sin() * r[0]), (0,), X))


def test_an_ensemble() -> None:
    models = [Mlp() for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = Mlp()
    x = dc.randn(6, 3)

    def call(p: Any, b: Any, x: Any) -> Any:
        return functional_call(base, (p, b), (x,))

    near(vmap(call, in_dims=(0, 0, None))(parameters, buffers, x), dc.stack([m(x) for m in models]))
    vmap(call, in_dims=(0, 0, None))(parameters, buffers, x).sum().backward()
    for m in models:
        m(x).sum().backward()
    near(parameters["a.weight"].grad, dc.stack([m.a.weight.grad for m in models]))


@pytest.mark.parametrize("chunk", [1, 3, 4, 9])
def test_chunks(chunk: int) -> None:
    found = vmap(lambda x, y: (x + y, x.sum()), in_dims=(0, None), out_dims=(1, 0), chunk_size=chunk)(X, X[0])
    near(found[0], (X + X[0]).T)
    near(found[1], X.sum(1))


def test_writes() -> None:
    x = X.clone()

    def double(row: Any) -> Any:
        row[1:].mul_(2)
        fresh = dc.zeros_like(row)
        fresh[0] = row[2]
        return fresh

    near(vmap(double)(x)[:, 0], 2 * X[:, 2])
    near(x[:, 1:], 2 * X[:, 1:])
    kept = dc.zeros(3, dtype=dc.float64)
    with pytest.raises(BatchError, match="inplace arithmetic"):
        vmap(lambda row: kept.add_(row))(X)
    assert not kept.any()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda row: row * row.sum().item(), "item"),
        (lambda row: row if row.sum() > 0 else -row, "data-dependent control flow"),
        (lambda row: row.tolist() and row, "tolist"),
        (lambda row: dc.tensor(row.numpy()), "numpy"),
        (lambda row: row[row > 0], "indexing by a bool mask"),
        (lambda row: dc.nonzero(row > 0.3), "dynamic shape"),
    ],
)
@pytest.mark.filterwarnings("ignore:vmap")
def test_what_reads_data_is_refused(function: Any, text: str) -> None:
    with pytest.raises(BatchError, match=text):
        vmap(function)(X)
    assert value.levels() == ()


def test_draws() -> None:
    x = dc.zeros(3, 4)
    noisy = vmap(lambda row: F.dropout(row + 1, 0.5) + dc.randn(4), randomness="different")(x)
    assert len({tuple(row) for row in noisy.tolist()}) == 3
    same = vmap(lambda row: row + dc.randn(4), randomness="same")(x)
    assert len({tuple(row) for row in same.tolist()}) == 1
    inner = vmap(lambda a: vmap(lambda row: row + dc.rand(4), randomness="same")(x), randomness="different")(x)
    assert bool((inner[:, 0] == inner[:, 1]).all())
    assert len({tuple(row) for row in inner[:, 0].tolist()}) == 3
    orders = vmap(lambda row: dc.randperm(4) + row, randomness="different")(x)
    assert bool((orders.sort(1).values == dc.arange(4)).all())


def test_an_op_without_a_rule_is_named_once() -> None:
    op = replace(OPS["sin"], name="own_sine", vmap=None)
    x = dc.randn(2, 5, 3)
    forget_warnings()
    with pytest.warns(UserWarning, match="own_sine") as said:
        found = [vmap(lambda row: bind(op, row))(x) for _ in range(2)]
    assert len([w for w in said if "own_sine" in str(w.message)]) == 1
    near(found[0], x.sin())


class Cube(dc.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Flat(Cube):
    """By a rule of its own, which needs NumPy in the forward."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Any) -> Any:
        return dc.tensor(x.detach().numpy() ** 3)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        assert info.batch_size == 4
        assert in_dims == (0,)
        return Flat.apply(x), 0


@pytest.mark.parametrize("function", [Cube, Flat])
def test_functions_with_a_backward_of_their_own(function: Any) -> None:
    w = dc.tensor(2.0, dtype=dc.float64, requires_grad=True)
    near(vmap(function.apply)(X), X**3)
    near(vmap(grad(lambda row: function.apply(row * 2).sum()))(X), 24 * X**2)
    vmap(lambda row: function.apply(row * w).sum())(X).sum().backward()
    near(w.grad, (3 * X**3 * 4).sum())


def test_a_compiled_function_is_mapped() -> None:
    compiled = dc.compile(lambda row: (row * 2).sin().sum(), backend="eager")
    near(vmap(compiled)(X), (X * 2).sin().sum(1))
    near(vmap(grad(compiled))(X), 2 * (X * 2).cos())
    compiled_map = dc.compile(vmap(lambda row: F.softmax(row, 0) * row.sum()), backend="eager", fullgraph=True)
    near(compiled_map(X), F.softmax(X, 1) * X.sum(1, keepdim=True))
