"""autograd.Function: torch's protocol, judged by torch and by gradcheck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError
from compiler_core.ops.registry import use_trace
from compiler_core.tensor import Tensor
from compiler_core.tensor.autograd import backward as autograd
from compiler_core.tensor.autograd.function import Function
from compiler_core.tensor.autograd.gradcheck import gradcheck, gradgradcheck
from compiler_core.tensor.making import creation
from tests.compiler_core.tensor.test_traced_tensors import LiftingTrace


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3.0 * x * x


class Divide(Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor, places: int) -> tuple[Tensor, Tensor, int]:
        quotient = (a / b).floor()
        return quotient, a - quotient * b, places

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.needed = ctx.needs_input_grad
        ctx.quotient = output[0].detach()
        ctx.mark_non_differentiable(output[0])

    @staticmethod
    def backward(ctx: Any, g_quotient: Tensor, g_rest: Tensor, g_places: None) -> tuple[Any, ...]:
        assert g_quotient.sum().item() == 0.0
        return g_rest, -g_rest * ctx.quotient, None


def leaf(*values: float) -> Tensor:
    return creation.tensor(list(values), dtype=dt.float64, requires_grad=True)


def test_gradients_and_their_gradients() -> None:
    assert gradcheck(Cube.apply, leaf(1.0, -2.0, 0.5))
    assert gradgradcheck(Cube.apply, leaf(1.0, -2.0, 0.5))


def test_several_outputs_and_arguments_that_are_no_tensors() -> None:
    a, b = leaf(7.0), leaf(2.0)
    quotient, rest, places = Divide.apply(a, b, 3)
    assert (quotient.item(), rest.item(), places) == (3.0, 1.0, 3)
    assert not quotient.requires_grad
    rest.sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert (a.grad.item(), b.grad.item()) == (1.0, -3.0)


def test_nothing_is_recorded_where_nothing_is_needed() -> None:
    assert not Cube.apply(creation.ones(2)).requires_grad


def test_an_argument_that_is_returned_gets_a_handle_of_its_own() -> None:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 5.0

    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 5.0


def test_a_saved_tensor_that_was_written_to() -> None:
    x = leaf(1.0) * 1.0
    y = Cube.apply(x)
    x.add_(1.0)
    with pytest.raises(AutogradError, match="saved tensor 0 was changed in place"):
        y.sum().backward()


def test_missing_gradients_may_stay_none() -> None:
    seen: list[Any] = []

    class Pair(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(False)
            return x * 1.0, x * 2.0

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append((a, b))
            return b * 2.0

    x = leaf(1.0)
    Pair.apply(x)[1].sum().backward()
    assert seen[0][0] is None
    assert x.grad is not None


def test_a_rule_of_one_s_own_is_traced() -> None:
    trace = LiftingTrace()
    with use_trace(trace):
        made = Cube.apply(leaf(1.0))
    assert made.requires_grad
    assert any(call.op.name == "custom_gradient" for call in trace.build([made._cell.raw]).calls)


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_an_unfinished_function(method: str) -> None:
    with pytest.raises(NotImplementedError, match=method):
        getattr(Function, method)(None)


def test_gradcheck_names_what_is_wrong() -> None:
    class Wrong(Cube):
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * creation.tensor([3.0, 12.0, 1.0], dtype=dt.float64)

    x = leaf(1.0, 2.0, 1.0)
    with pytest.raises(AutogradError, match=r"input 0 is wrong in 1 of 3 elements, e\.g\. \(2,\)"):
        gradcheck(Wrong.apply, x)
    assert not gradcheck(Wrong.apply, x, raise_exception=False)
    with pytest.raises(TypeError, match="float32"):
        gradcheck(Cube.apply, creation.ones(2, requires_grad=True))


def test_gradcheck_of_many_inputs_and_outputs() -> None:
    def several(a: Tensor, n: int, b: Tensor) -> Any:
        return (a @ b).tanh() * n, [b.sum(0)], a.argmax()

    rng = np.random.default_rng(0)
    a, b = (creation.tensor(rng.uniform(-1, 1, s), requires_grad=True) for s in ((2, 3), (3, 2)))
    assert gradcheck(lambda a, n, b: several(a, n, b)[0], [a, 3, b])
    assert gradgradcheck(lambda a, n, b: several(a, n, b)[0], [a, 3, b])
    (zero,) = autograd.grad(a.sum(), b, materialize_grads=True)
    assert zero is not None
    assert zero.sum().item() == 0.0


@pytest.mark.torch
def test_the_same_class_under_torch() -> None:
    torch = pytest.importorskip("torch")

    def define(base: Any) -> Any:
        class Scale(base):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any, w: Any, power: int) -> Any:
                ctx.save_for_backward(x, w)
                ctx.power = power
                return w * x**power

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, w = ctx.saved_tensors
                return (
                    g * w * ctx.power * x ** (ctx.power - 1),
                    g * x**ctx.power if ctx.needs_input_grad[1] else None,
                    None,
                )

        return Scale

    def run(tensor: Any, base: Any) -> list[Any]:
        x, w = tensor(np.array([1.0, 2.0])), tensor(np.array([3.0, 4.0]))
        x.requires_grad_()
        w.requires_grad_()
        y = define(base).apply(x * 1.0, w, 3)
        (y * y).sum().backward()
        return [np.asarray(a.detach()) for a in (y, x.grad, w.grad)]

    for a, b in zip(run(torch.tensor, torch.autograd.Function), run(creation.tensor, Function), strict=True):
        np.testing.assert_allclose(b, a)
