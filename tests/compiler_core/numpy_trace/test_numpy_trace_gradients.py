"""`wrap_numpy`: functions written with NumPy as functions of Tensors, eager and compiled; gradients against torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as ours
from compiler_core.errors import AutogradError

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, np.dtype[Any]]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def soft(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Array, k: Array, v: Array) -> Array:
    return soft(q @ k.T / np.sqrt(q.shape[-1])) @ v


def statistics(x: Array) -> Any:
    z = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3)
    return z, np.var(x, axis=1, ddof=1), np.median(x, axis=0), np.cumsum(x, axis=0), np.linalg.norm(x, axis=1)


def shapes(x: Array) -> Any:
    joined = np.concatenate([x.T, x.T[::-1]], axis=1)
    return joined.reshape(-1)[2:], np.pad(x, 1), np.stack([x, x**2]).sum(0), x[[2, 0, 2]], np.roll(x, 1), np.tile(x, 2)


def algebra(x: Array) -> Any:
    a = x @ x.T + 3 * np.eye(len(x))
    return (
        np.linalg.inv(a),
        np.linalg.slogdet(a)[1],
        np.linalg.solve(a, x),
        np.einsum("ij,kj->ik", x, x),
        np.outer(x, x),
    )


def chosen(x: Array) -> Any:
    return np.where(x > 0, x, x**3), np.maximum(x, 0.1), np.clip(x, -1, 1), np.sort(x, axis=0), np.abs(x).max(axis=1)


def smooth(x: Array) -> Any:
    y = np.sin(x) * np.exp(-(x**2)) + np.log1p(x**2) / np.cosh(x) + np.arctan2(x, 1 + x**2) + np.hypot(x, 2.0)
    return y, np.cbrt(x + 4), np.sqrt(x**2 + 1), np.logaddexp(x, 0.0), np.trapezoid(x, axis=0), np.diff(x)


PROGRAMS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (soft, ((3, 4),)),
    (attention, ((5, 4), (6, 4), (6, 3))),
    (statistics, ((5, 3),)),
    (shapes, ((3, 4),)),
    (algebra, ((3, 4),)),
    (chosen, ((5, 3),)),
    (smooth, ((4, 3),)),
]


def total(library: Any, results: Any) -> Any:
    """One number of all results, in which each element counts differently."""
    parts = results if isinstance(results, tuple) else (results,)
    weighted = [
        (part * library.cos(library.arange(part.numel(), dtype=library.float64)).reshape(part.shape)).sum()
        for part in parts
    ]
    return sum(weighted[1:], weighted[0])


def gradients_of(function: Callable[..., Any], arrays: list[Array]) -> tuple[Any, list[Array]]:
    given = [ours.tensor(array, requires_grad=True) for array in arrays]
    results = function(*given)
    total(ours, results).backward()
    parts = results if isinstance(results, tuple) else (results,)
    return [part.detach().numpy() for part in parts], [x.grad.numpy() for x in given]  # type: ignore[union-attr]


def numerically(function: Callable[..., Any], arrays: list[Array]) -> list[Array]:
    """Central differences of the same number, by NumPy itself."""

    def number(*given: Array) -> float:
        results = function(*given)
        parts = results if isinstance(results, tuple) else (results,)
        return float(
            sum((np.asarray(p) * np.cos(np.arange(np.size(p), dtype=float)).reshape(np.shape(p))).sum() for p in parts)
        )

    found = []
    for place, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            moved = [[a.copy() for a in arrays] for _ in range(2)]
            for sign, copies in zip((1, -1), moved):
                copies[place][index] += sign * 1e-6
            slope[index] = (number(*moved[0]) - number(*moved[1])) / 2e-6
        found.append(slope)
    return found


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "codegen"])
@pytest.mark.parametrize(("function", "sizes"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_values_and_gradients(function: Callable[..., Any], sizes: Any, backend: str | None) -> None:
    """As differences of NumPy's own results say; by the tape, and compiled in one graph, at both of two calls."""
    arrays = [normal(*size, seed=k) for k, size in enumerate(sizes)]
    wrapped = ours.compiler.wrap_numpy(function)
    if backend is not None:
        wrapped = ours.compile(wrapped, backend=backend, fullgraph=True)
    expected = function(*[a.copy() for a in arrays])
    slopes = numerically(function, arrays)
    for _ in range(2):
        values, gradients = gradients_of(wrapped, arrays)
        for mine, theirs in zip(values, expected if isinstance(expected, tuple) else (expected,)):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
        for mine, theirs in zip(gradients, slopes):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def as_torch_writes(x: Any, w: Any) -> Any:
    h = x @ w
    h[0] = h[1] * 2
    h[:, 1] += torch.tanh(h[:, 0])
    h = h * torch.where(h > 0, h, 0.5)
    out = torch.zeros_like(h)
    out[::2] = h[::2]
    return out


def writes(x: Array, w: Array) -> Array:
    h = x @ w
    h[0] = h[1] * 2
    h[:, 1] += np.tanh(h[:, 0])
    h *= np.where(h > 0, h, 0.5)
    out = np.zeros_like(h)
    out[::2] = h[::2]
    return out


@pytest.mark.parametrize("backend", [None, "eager", "codegen"])
def test_gradients_through_writes_are_torchs(backend: str | None) -> None:
    arrays = [normal(4, 3), normal(3, 2, seed=1)]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    total(torch, as_torch_writes(*theirs)).backward()
    wrapped = ours.compiler.wrap_numpy(writes)
    if backend is not None:
        wrapped = ours.compile(wrapped, backend=backend, fullgraph=True)
    _, gradients = gradients_of(wrapped, arrays)
    for mine, tensor in zip(gradients, theirs):
        np.testing.assert_allclose(mine, tensor.grad.numpy(), rtol=1e-9)


def test_it_takes_and_returns_tensors_as_torchs_does() -> None:
    def function(x: Array, n: int, *, shift: Array) -> Any:
        assert isinstance(x, np.ndarray)
        assert isinstance(shift, np.ndarray)
        return {"sum": x.sum() * n, "rows": [row + shift for row in x]}, "text"

    import torch._dynamo.external_utils

    def shown(library: Any) -> Any:
        wrapped = library.compiler.wrap_numpy(function)
        results, text = wrapped(library.ones(2, 3), 4, shift=library.arange(3))
        return (
            float(results["sum"]),
            [row.tolist() for row in results["rows"]],
            [row.dtype for row in results["rows"]],
            text,
        )

    mine, theirs = shown(ours), shown(torch)
    assert mine[:2] == theirs[:2]
    assert [str(d).split(".")[-1] for d in mine[2]] == [str(d).split(".")[-1] for d in theirs[2]]
    compiled = ours.compile(ours.compiler.wrap_numpy(function), backend="eager", fullgraph=True)
    for _ in range(2):
        results, text = compiled(ours.ones(2, 3), 4, shift=ours.arange(3))
        assert (float(results["sum"]), [row.tolist() for row in results["rows"]], text) == (mine[0], mine[1], mine[3])


def test_a_function_without_a_rule() -> None:
    """Without a gradient NumPy runs it; with one it is an error by name; compiled it breaks the graph."""
    wrapped = ours.compiler.wrap_numpy(lambda x: np.unique(x) * 2)
    x = ours.tensor([3.0, 1.0, 3.0])
    assert wrapped(x).tolist() == [2, 6]
    assert ours.compile(wrapped, backend="eager")(x).tolist() == [2, 6]
    with pytest.raises(AutogradError, match="requires a gradient"):
        wrapped(x.requires_grad_())


def test_a_module_that_uses_numpy_trains() -> None:
    class Net(ours.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = ours.nn.Linear(4, 3)
            self.scale = np.array([1.0, 2.0, 3.0], np.float32)

        def forward(self, x: ours.Tensor) -> ours.Tensor:
            centred = x.numpy() - x.numpy().mean(axis=0)
            return self.linear(ours.from_numpy(centred)) * ours.from_numpy(np.sqrt(self.scale))

    ours.manual_seed(0)
    net = Net()
    compiled = ours.compile(net, backend="eager", fullgraph=True)
    x = ours.randn(5, 4)
    losses = []
    for _ in range(3):
        gradients = []
        for model in (net, compiled):
            net.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            gradients.append([p.grad.numpy().copy() for p in net.parameters()])
        for mine, theirs in zip(*gradients):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
        with ours.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        losses.append(float(loss))
    assert losses[2] < losses[0]
