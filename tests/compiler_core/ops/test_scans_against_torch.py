"""cumsum, cumprod, logcumsumexp, cummax and cummin against torch, eager and compiled: values, places, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.dtype import float32
from compiler_core.graph.ir import GraphBuilder
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule

torch = pytest.importorskip("torch")

Case = Callable[[Any, Any, int], Any]
CASES: dict[str, Case] = {
    "cumsum": lambda t, x, dim: t.cumsum(x * 2, dim),
    "cumprod": lambda t, x, dim: t.cumprod(x, dim),
    "logcumsumexp": lambda t, x, dim: t.logcumsumexp(x, dim),
    "cummax": lambda t, x, dim: t.cummax(x, dim)[0],
    "cummin": lambda t, x, dim: t.cummin(x, dim)[0],
}


def drawn(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Halves between -2 and 2: with ties, and with zeros, of which a product's gradient must know."""
    return (np.random.default_rng(0).integers(-4, 5, shape) / 2).astype(np.float32)


def both(case: Case, values: np.ndarray[Any, Any], dim: int, *, compiled: bool) -> tuple[list[Any], list[Any]]:
    """[value, gradient] of ours and of torch's."""
    found = []
    for library in (dc, torch):
        x = library.from_numpy(values.copy()).requires_grad_(True)
        function = lambda x, t=library: case(t, x, dim)  # noqa: E731
        out = (dc.compile(function, fullgraph=True) if compiled and library is dc else function)(x)
        out.backward(library.from_numpy(np.cos(np.arange(values.size)).astype(np.float32).reshape(values.shape)))
        found.append([out.detach().numpy(), x.grad.numpy()])
    return found[0], found[1]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("shape", "dim"), [((6, 19), 1), ((7, 20), 0), ((3, 5, 17), 1), ((5,), 0), ((2, 1), 1)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, shape: tuple[int, ...], dim: int, compiled: bool) -> None:
    ours, theirs = both(CASES[name], drawn(shape), dim, compiled=compiled)
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_infinities_and_nan(name: str, compiled: bool) -> None:
    inf, nan = np.inf, np.nan
    rows = [[-inf, -inf, 1, 2], [1, inf, 2, inf], [-inf, inf, 1, -inf], [1, nan, 3, nan], [-inf, -inf, -inf, -inf]]
    values = np.array(rows, np.float32)
    (mine, _), (wanted, _) = both(CASES[name], values, 1, compiled=compiled)
    np.testing.assert_allclose(mine, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_places_of_running_extremes(name: str) -> None:
    values = drawn((4, 30))
    values[1, 7::5] = np.nan
    ours = dc.compile(lambda x: getattr(dc, name)(x, 1)[1], fullgraph=True)(dc.from_numpy(values))
    np.testing.assert_array_equal(ours.numpy(), getattr(torch, name)(torch.from_numpy(values), 1)[1].numpy())


def test_sums_of_long_lines_are_exact_to_the_last_place() -> None:
    values = np.random.default_rng(0).random((2, 100_000), np.float32)
    ours = dc.compile(lambda x: x.cumsum(1), fullgraph=True)(dc.from_numpy(values)).numpy()
    np.testing.assert_allclose(ours, values.cumsum(1, dtype=np.float64), rtol=1e-7)


def test_what_is_summed_is_computed_on_the_way() -> None:
    builder = GraphBuilder("summed")
    with use_trace(builder):
        x, y = (builder.placeholder(name, TensorMeta((8, 32), float32)) for name in "xy")
        graph = builder.build([F.cumsum(F.mul(F.add(x, y), y), 1)])
    (program,) = lower_and_schedule([graph])
    assert len(program.kernels) == 1
