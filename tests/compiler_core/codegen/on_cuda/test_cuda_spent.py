"""Saved values whose memory the backward on a device takes over: when it may, and that results do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.runtime.cuda.executable import CudaExecutable
from tests.fake_cuda import FakeCuda

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]


class Watched(CudaBackend):
    """Keeps the executables."""

    def __init__(self) -> None:
        super().__init__(90)
        self.made: list[CudaExecutable] = []

    def compile(self, graphs: Any, name: str) -> list[CudaExecutable]:
        made = super().compile(graphs, name)
        self.made += made
        return made


def loss_of(x: Any, w: Any) -> Any:
    """A product that the gradient of the loss reads once, element by element: its memory is the gradient's."""
    return dc.tanh(x @ w).sum()


def leaves(rng: Any) -> tuple[Any, Any]:
    x, w = (dc.tensor(rng.standard_normal(s).astype(np.float32), device="cuda") for s in ((12, 8), (8, 20)))
    return x.requires_grad_(), w.requires_grad_()


def grads_of(x: Any, w: Any) -> list[Any]:
    return [leaf.grad.cpu().numpy().copy() for leaf in (x, w)]


def eager(rng: Any, function: Callable[..., Any] = loss_of) -> tuple[Any, Any, list[Any]]:
    x, w = leaves(rng)
    function(x, w).backward()
    found = grads_of(x, w)
    x.grad = w.grad = None
    return x, w, found


def test_the_backward_takes_over_what_only_it_reads(fake_cuda: FakeCuda, rng: Any) -> None:
    backend = Watched()
    x, w, wanted = eager(rng)
    dc.compile(loss_of, backend=backend)(x, w).backward()
    forward, backward = backend.made
    assert forward.spends == ()
    (place,) = backward.spends
    assert backward.entry.inputs[place].shape == (12, 20)
    for got, want in zip(grads_of(x, w), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_graph_that_is_retained_keeps_its_values(fake_cuda: FakeCuda, rng: Any) -> None:
    x, w, wanted = eager(rng)
    loss = dc.compile(loss_of, backend=Watched())(x, w)
    for times in (1, 2):
        loss.backward(retain_graph=True)
        for got, want in zip(grads_of(x, w), wanted, strict=True):
            np.testing.assert_allclose(got, times * want, rtol=1e-4, atol=1e-5)
    loss.backward()
    for got, want in zip(grads_of(x, w), wanted, strict=True):
        np.testing.assert_allclose(got, 3 * want, rtol=1e-4, atol=1e-5)


def test_outputs_that_are_differentiated_one_after_the_other(fake_cuda: FakeCuda, rng: Any) -> None:
    def two(x: Any, w: Any) -> Any:
        h = dc.tanh(x @ w)
        return h.sum(), (h * h).sum()

    x, w, wanted = eager(rng, lambda x, w: sum(two(x, w)))
    first, second = dc.compile(two, backend=Watched())(x, w)
    first.backward(retain_graph=True)
    second.backward()
    for got, want in zip(grads_of(x, w), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_the_caller_got_is_never_written_over(fake_cuda: FakeCuda, rng: Any) -> None:
    def shown(x: Any, w: Any) -> Any:
        product = x @ w
        return dc.tanh(product).sum(), product

    x, w, wanted = eager(rng, lambda x, w: shown(x, w)[0])
    loss, product = dc.compile(shown, backend=Watched())(x, w)
    before = product.detach().cpu().numpy().copy()
    loss.backward()
    np.testing.assert_array_equal(product.detach().cpu().numpy(), before)
    for got, want in zip(grads_of(x, w), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
