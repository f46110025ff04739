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


# ---- in one block


def deep(x: Any, w: Any) -> Any:
    """Layers whose results are as large as a page: their memory is the gradients'."""
    for _ in range(4):
        x = dc.tanh(dc.nn.functional.layer_norm(x @ w, (40,)))
    return x.square().sum()


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each call, how many of its inputs had to be brought into one block."""
    found: list[int] = []
    plain = CudaExecutable._stack

    def counting(self: CudaExecutable, inputs: Any, prepared: Any) -> None:
        before = list(prepared.addresses)
        plain(self, inputs, prepared)
        found.append(sum(a != b for a, b in zip(before, prepared.addresses)))

    monkeypatch.setattr(CudaExecutable, "_stack", counting)
    return found


def large(rng: Any) -> tuple[Any, Any]:
    x, w = (dc.tensor(rng.standard_normal(s).astype(np.float32), device="cuda") for s in ((64, 40), (40, 40)))
    return x.requires_grad_(), w.requires_grad_()


def test_saved_values_lie_in_one_block_in_which_the_backward_computes(
    fake_cuda: FakeCuda, rng: Any, copies: list[int]
) -> None:
    x, w = large(rng)
    deep(x, w).backward()
    wanted = grads_of(x, w)
    backend = Watched()
    compiled = dc.compile(deep, backend=backend)
    for _ in range(2):
        x.grad = w.grad = None
        compiled(x, w).backward()
        for got, want in zip(grads_of(x, w), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    forward, backward = backend.made
    assert (forward.blocks.stacks, len(backward.stack) >= 4) == (1, True)
    assert forward.blocks.sizes[0] == backward.entry.stack_nbytes
    assert copies == [0] * 4


def test_those_that_are_read_again_are_brought_into_another(fake_cuda: FakeCuda, rng: Any, copies: list[int]) -> None:
    x, w = large(rng)
    deep(x, w).backward()
    wanted = grads_of(x, w)
    x.grad = w.grad = None
    loss = dc.compile(deep, backend=Watched())(x, w)
    loss.backward(retain_graph=True)
    loss.backward()
    for got, want in zip(grads_of(x, w), wanted, strict=True):
        np.testing.assert_allclose(got, 2 * want, rtol=1e-3, atol=1e-4)
    assert [count > 0 for count in copies] == [False, True, False]


def test_a_whole_step_has_one_between_its_halves(fake_cuda: FakeCuda, rng: Any, copies: list[int]) -> None:
    x, w = large(rng)
    deep(x, w).backward()
    wanted = grads_of(x, w)
    x.grad = w.grad = None
    backend = Watched()

    def step() -> Any:
        loss = deep(x, w)
        loss.backward()
        return x.grad * 1, w.grad * 1, loss.detach()

    *found, _ = dc.compile(step, backend=backend, fullgraph=True)()
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.detach().cpu().numpy(), want, rtol=1e-3, atol=1e-4)
    assert [run.blocks.stacks for run in backend.made] == [1, 0]
    assert not any(copies)
