"""Tape and engine: accumulation, retaining, differentiating twice, hooks, callbacks, whole calls as one node."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.graph.ir import GraphBuilder
from compiler_core.ops import functional as F
from compiler_core.ops.registry import use_trace
from compiler_core.tensor import Tensor
from compiler_core.tensor.autograd import backward as autograd
from compiler_core.tensor.autograd.backward import HANDLED, queue_callback, record_function
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making import creation


def leaf(*values: float) -> Tensor:
    return creation.tensor(list(values), dtype=dt.float64, requires_grad=True)


def test_gradients_accumulate_in_the_same_handle() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    first = x.grad
    (x * 3.0).sum().backward()
    assert x.grad is first
    assert first is not None
    assert first.tolist() == [5.0, 7.0]
    assert not first.requires_grad


def test_a_diamond_is_visited_once() -> None:
    x = leaf(2.0)
    y = x * 3.0
    calls: list[float] = []
    y.register_hook(lambda g: calls.append(g.item()))
    ((y * 2.0) + (y * y)).sum().backward()
    assert calls == [2.0 + 2 * 6.0]
    assert x.grad is not None
    assert x.grad.item() == 3.0 * 14.0


def test_backward_twice_needs_retain_graph() -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(AutogradError, match="a second time"):
        y.backward()


def test_backward_twice_is_fine_where_nothing_was_saved() -> None:
    x = leaf(1.0, 2.0)
    y = (x + 1.0).reshape(2, 1).sum()
    y.backward()
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


def test_no_history_no_scalar_wrong_shape() -> None:
    with pytest.raises(AutogradError, match="has no history"):
        creation.ones(1).backward()
    with pytest.raises(AutogradError, match="only for a scalar"):
        leaf(1.0, 2.0).exp().backward()
    with pytest.raises(AutogradError, match="shape"):
        leaf(1.0, 2.0).exp().backward(creation.ones(3))
    with pytest.raises(AutogradError, match="one gradient for each"):
        autograd.backward([leaf(1.0).sum()], [])
    with pytest.raises(AutogradError, match="no inputs"):
        leaf(1.0).exp().backward(inputs=[])


def test_a_given_gradient_weighs_the_outputs() -> None:
    x = leaf(1.0, 2.0)
    (x * x).backward(creation.tensor([1.0, 10.0]))  # float32: cast
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 40.0]


def test_grad_leaves_grad_alone_and_visits_only_what_is_asked_for() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    seen: list[str] = []
    h = x * 2.0
    h.register_hook(lambda g: seen.append("h"))
    y = (h * w).sum()
    (gw,) = autograd.grad(y, w, retain_graph=True)
    assert gw is not None
    assert gw.tolist() == [2.0, 4.0]
    assert w.grad is None
    assert seen == []
    gh, gx = autograd.grad(y, [h, x])
    assert gh is not None
    assert gx is not None
    assert gh.tolist() == [3.0, 4.0]
    assert gx.tolist() == [6.0, 8.0]
    assert seen == ["h"]


def test_unused_inputs() -> None:
    x, unused = leaf(1.0), leaf(1.0)
    with pytest.raises(AutogradError, match="input 0 was not used"):
        autograd.grad((x * 2.0).sum(), unused)
    assert autograd.grad((x * 2.0).sum(), unused, allow_unused=True) == (None,)
    (zero,) = autograd.grad((x * 2.0).sum(), unused, materialize_grads=True)
    assert zero is not None
    assert zero.tolist() == [0.0]


def test_torchs_arguments_of_grad() -> None:
    x = leaf(1.0, 2.0)
    (g,) = autograd.grad((x * x).sum(), x, None, None, False, True, None)  # only_inputs stands before allow_unused
    assert g is not None
    assert g.tolist() == [2.0, 4.0]
    with pytest.warns(FutureWarning, match="only_inputs means nothing"):
        autograd.grad((x * 2.0).sum(), x, only_inputs=False)
    rows = creation.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    (jacobian,) = autograd.grad(x * x, x, rows, is_grads_batched=True)
    assert jacobian is not None
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0], [2.0, 4.0]]
    with pytest.raises(AutogradError, match="a row, or more"):
        autograd.grad(x * x, x, is_grads_batched=True)


def test_backward_into_some_inputs_alone() -> None:
    x, w = leaf(2.0), leaf(3.0)
    h = x * w
    (h * h).sum().backward(inputs=[w, h])
    assert x.grad is None
    assert w.grad is not None
    assert w.grad.tolist() == [2 * 6.0 * 2.0]
    assert h.grad is not None
    assert h.grad.tolist() == [12.0]


def test_differentiating_three_times() -> None:
    x = leaf(2.0)
    y = (x * x * x * x).sum()
    for expected in (32.0, 48.0, 48.0):
        (g,) = autograd.grad(y, x, create_graph=True)
        assert g is not None
        assert g.item() == expected
        y = g.sum()


def test_create_graph_gives_gradients_with_a_history() -> None:
    x = leaf(3.0)
    (x * x).sum().backward(create_graph=True)
    assert x.grad is not None
    assert x.grad.requires_grad
    penalty = (x.grad * x.grad).sum()
    x.grad = None
    penalty.backward()
    assert x.grad is not None
    assert x.grad.item() == 8 * 3.0


def test_the_assigned_gradient_must_fit() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(AutogradError, match="shape and dtype"):
        x.grad = creation.ones(2)
    x.grad = creation.ones(2, dtype=dt.float64)
    (x * 2.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


# ---- hooks


def test_a_leaf_hook_sees_the_whole_gradient_once_and_may_replace_it() -> None:
    x = leaf(1.0)
    seen: list[float] = []

    def double(g: Tensor) -> Tensor:
        seen.append(g.item())
        return g * 2.0

    handle = x.register_hook(double)
    (x * 2.0 + x * 3.0).sum().backward()
    assert seen == [5.0]
    assert x.grad is not None
    assert x.grad.item() == 10.0
    handle.remove()
    handle.remove()
    (x * 2.0).sum().backward()
    assert x.grad.item() == 12.0


def test_hooks_run_in_order_and_as_context_managers() -> None:
    x = leaf(1.0)
    with x.register_hook(lambda g: g + 1.0):
        x.register_hook(lambda g: g * 10.0)
        (x * 1.0).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 20.0
    (x * 1.0).sum().backward()
    assert x.grad.item() == 30.0


@pytest.mark.parametrize("change", [lambda g: g.sum(), lambda g: g.to(dt.float32)])
def test_a_hook_must_keep_shape_and_dtype(change: Any) -> None:
    x = leaf(1.0, 2.0)
    h = x * 2.0
    for tensor in (x, h, F.gelu(h)):
        with tensor.register_hook(change), pytest.raises(AutogradError, match="hook changed the shape or the dtype"):
            (tensor * 2.0).sum().backward(retain_graph=True)


def test_hooks_need_a_gradient_to_wait_for() -> None:
    with pytest.raises(AutogradError, match="cannot register a hook"):
        creation.ones(2).register_hook(lambda g: None)
    with pytest.raises(AutogradError, match="leaf tensors"):
        (leaf(1.0) * 2.0).register_post_accumulate_grad_hook(lambda t: None)
    with pytest.raises(AutogradError, match="retain_grad"):
        creation.ones(2).retain_grad()


def test_a_leaf_is_finished_as_soon_as_its_last_contribution_came() -> None:
    first, last = leaf(1.0), leaf(1.0)
    order: list[str] = []
    first.register_post_accumulate_grad_hook(lambda t: order.append("first"))
    last.register_post_accumulate_grad_hook(lambda t: order.append("last"))
    h = first * 2.0
    h.register_hook(lambda g: order.append("h"))
    (h * last).sum().backward()
    assert order == ["last", "h", "first"]


def test_a_hook_after_accumulation_sees_the_sum_and_may_drop_it() -> None:
    x = leaf(1.0)
    seen: list[float] = []

    def take(t: Tensor) -> None:
        assert t is x
        assert t.grad is not None
        seen.append(t.grad.item())
        t.grad = None

    x.register_post_accumulate_grad_hook(take)
    for factor in (2.0, 3.0):
        (x * factor + x).sum().backward()
    assert seen == [3.0, 4.0]
    assert x.grad is None


def test_callbacks_run_at_the_end_of_the_pass_that_queued_them() -> None:
    x = leaf(1.0)
    order: list[str] = []

    def hook(g: Tensor) -> None:
        queue_callback(lambda: order.append("end"))
        order.append("hook")

    y = x * 2.0
    y.register_hook(hook)
    x.register_post_accumulate_grad_hook(lambda t: order.append("leaf"))
    y.sum().backward()
    assert order == ["hook", "leaf", "end"]
    with pytest.raises(AutogradError, match="outside of a backward"):
        queue_callback(lambda: None)


def test_backward_inside_a_hook() -> None:
    x, w = leaf(1.0), leaf(5.0)

    def hook(g: Tensor) -> None:
        from compiler_core.tensor.autograd.grad_mode import enable_grad

        with enable_grad():
            (w * g).sum().backward()

    y = x * 2.0
    y.register_hook(hook)
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.item() == 1.0
    assert x.grad is not None
    assert x.grad.item() == 2.0


# ---- whole calls


def test_a_recorded_call_is_one_node() -> None:
    x, w = leaf(2.0), leaf(3.0)
    product = Tensor._wrap(np.array([6.0]))
    count = Tensor._wrap(np.array([1]))
    arrived: list[Any] = []

    def backward(grads: Any) -> Any:
        arrived.append(grads)
        return [grads[0] * 3.0, grads[0] * 2.0]

    record_function("product", [x, w], [product, count], backward)
    assert product.grad_fn is not None
    assert product.grad_fn.name() == "productBackward"
    assert not count.requires_grad
    (product * product).sum().backward()
    assert len(arrived) == 1
    assert arrived[0][1] is None
    assert x.grad is not None
    assert w.grad is not None
    assert (x.grad.item(), w.grad.item()) == (36.0, 24.0)
    with pytest.raises(AutogradError, match="a second time"):
        product.sum().backward()


def test_handled_gradients_are_left_to_their_owner() -> None:
    x, w = leaf(2.0), leaf(3.0)
    finished: list[Any] = []
    w.register_post_accumulate_grad_hook(lambda t: finished.append(None if t.grad is None else t.grad.item()))
    product = Tensor._wrap(np.array([6.0]))

    def backward(grads: Any) -> Any:
        w.grad = Tensor._wrap(np.array([7.0]))
        return [None, HANDLED]

    record_function("product", [x, w], [product], backward)
    (product + w).sum().backward()  # w has a second user outside of the call
    assert x.grad is None
    assert finished == [8.0]


def test_a_compiled_backward_cannot_be_differentiated() -> None:
    x = leaf(2.0)
    y = Tensor._wrap(np.array([4.0]))
    record_function("square", [x], [y], lambda grads: [grads[0] * 4.0])
    with pytest.raises(AutogradError, match="cannot be differentiated twice"):
        autograd.grad(y.sum(), x, create_graph=True)


def test_a_wrong_number_of_gradients_is_named() -> None:
    x = leaf(2.0)
    y = Tensor._wrap(np.array([4.0]))
    record_function("square", [x], [y], lambda grads: [])
    with pytest.raises(AutogradError, match="wrong number of gradients"):
        y.sum().backward()


# ---- the rest


def test_backward_cannot_be_traced() -> None:
    y = leaf(1.0) * 2.0
    with use_trace(GraphBuilder("g")), pytest.raises(GraphBreak, match="backward"):
        y.backward()


def test_piecewise_constants_end_the_gradient() -> None:
    x = leaf(1.5)
    y = x.floor()
    assert y.requires_grad
    (y + x * 2.0).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 2.0
    y.sum().backward()
    assert x.grad.item() == 2.0


def test_threads_run_their_own_passes() -> None:
    """N ranks as N threads: each its own leaves, hooks and callbacks."""
    results: dict[int, list[float]] = {}
    barrier = threading.Barrier(4)

    def rank(number: int) -> None:
        x = leaf(float(number))
        ends: list[int] = []
        x.register_hook(lambda g: queue_callback(lambda: ends.append(number)))
        barrier.wait(60)
        for _ in range(20):
            x.grad = None
            y = x
            for _ in range(5):
                y = y * 1.5
            (y * y).sum().backward()
        assert ends == [number] * 20
        assert x.grad is not None
        results[number] = x.grad.tolist()

    threads = [threading.Thread(target=rank, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == {k: [2.0 * k * 1.5**10] for k in range(4)}


def test_a_long_chain_neither_recurses_nor_leaks() -> None:
    import weakref

    x = leaf(1.0)
    y = x
    for _ in range(20000):
        y = y + 0.0
    node = weakref.ref(y.grad_fn)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 1.0
    del y
    assert node() is None


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_have_torch_s_gradients(seed: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(0.5, 2.0, shape) for shape in ((3, 4), (4,), (3, 1), (4, 4))]
    steps = [
        lambda a, b, c, d: (a * b + c).tanh() @ d,
        lambda a, b, c, d: (a.softmax(-1) @ d.T).log().sum(0, keepdim=True) * b,
        lambda a, b, c, d: (a / c).max(dim=1).values.exp() + b.norm(),
        lambda a, b, c, d: a.transpose(0, 1)[1:3].reshape(-1)[:4] * b - d.mean(1) ** 2,
        lambda a, b, c, d: a.clamp(0.8, 1.5).cumsum(0).var(1) + c.squeeze().sqrt(),
        lambda a, b, c, d: a.masked_fill(a > 1.0, 0.0).expand(2, 3, 4).sum((0, 2)) * c.flip(0).reshape(3),
    ]
    chosen = rng.choice(len(steps), 2, replace=False)

    def run(tensor: Any) -> list[Any]:
        leaves = [tensor(a) for a in arrays]
        for x in leaves:
            x.requires_grad_()
        total = sum((steps[k](*leaves).sum() * (k + 1.0) for k in chosen), start=leaves[1].sum())
        total.backward()
        return [np.asarray(total.detach()), *(np.zeros(1) if x.grad is None else np.asarray(x.grad) for x in leaves)]

    for a, b in zip(run(torch.tensor), run(creation.tensor), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


def test_no_grad_records_nothing() -> None:
    x = leaf(1.0)
    with no_grad():
        y = F.exp(x)
    assert y.is_leaf
    assert not y.requires_grad


@pytest.mark.torch
def test_a_leaf_frozen_after_its_use_gets_no_gradient_but_its_hooks_run() -> None:
    torch = pytest.importorskip("torch")

    def run(tensor: Any) -> list[Any]:
        x, y = tensor([1.0, 2.0], requires_grad=True), tensor([3.0, 4.0], requires_grad=True)
        seen: list[str] = []
        x.register_hook(lambda grad: seen.append("gradient"))
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append("after"))
        product = (x * y).sum()
        x.requires_grad_(False)
        product.backward()
        return [x.grad, y.grad.numpy().tolist(), seen]

    assert run(creation.tensor) == run(torch.tensor) == [None, [1.0, 2.0], ["gradient", "after"]]
