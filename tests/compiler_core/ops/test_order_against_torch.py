"""sort, argsort, topk, kthvalue and medians against torch: values, places, gradients; eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda t, x: t.sort(x, dim=1, stable=True),
    "sort descending": lambda t, x: t.sort(x, 0, True),
    "argsort": lambda t, x: t.argsort(x, dim=0, descending=True),
    "msort": lambda t, x: t.msort(x),
    "topk": lambda t, x: x.topk(2),
    "topk smallest": lambda t, x: t.topk(x, 2, 0, largest=False),
    "kthvalue": lambda t, x: t.kthvalue(x, 2, 0, keepdim=True),
    "median": lambda t, x: t.median(x),
    "median dim": lambda t, x: x.median(1),
    "nanmedian": lambda t, x: t.nanmedian(x),
    "nanmedian dim": lambda t, x: t.nanmedian(x, 1, True),
    "0-d": lambda t, x: t.sort(x[0, 0]),
}


def results(library: Any, array: Any, call: Callable[[Any, Any], Any], wrap: Callable[..., Any]) -> list[Any]:
    """Results and gradient."""
    x = library.tensor(array, requires_grad=True)
    got = wrap(lambda x: call(library, x))(x)
    got = [*got] if isinstance(got, tuple) else [got]
    if got[0].requires_grad:
        (got[0] * library.tensor(np.arange(1.0, got[0].numel() + 1).reshape(tuple(got[0].shape)))).sum().backward()
    return [*(a.detach().numpy() for a in got), None if x.grad is None else x.grad.numpy()]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("what", CALLS)
def test_order(what: str, compiled: bool) -> None:
    array = np.random.default_rng(3).permutation(15).reshape(3, 5).astype(np.float64)
    array[1, 2] = np.nan
    wrap = (lambda f: dc.compile(f, fullgraph=True)) if compiled else lambda f: f
    for got, want in zip(results(dc, array, CALLS[what], wrap), results(torch, array, CALLS[what], lambda f: f)):
        np.testing.assert_array_equal(got, want)


def test_an_even_gradient_for_equal_elements() -> None:
    array = np.array([2.0, 1.0, 2.0, 3.0, 2.0])
    for got, want in zip(*(results(t, array, CALLS["median"], lambda f: f) for t in (dc, torch))):
        np.testing.assert_array_equal(got, want)
