"""gradcheck and gradgradcheck: the same verdict as torch's on functions with right and with wrong gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LIBRARIES = (torch, dc)
X = np.array([[0.3, -1.2, 0.8], [1.7, 0.4, -0.6]])
Y = np.array([[1.5, 0.7, 2.1], [0.9, 1.1, 0.2]])
Z = np.array([0.5 + 1.2j, -0.7 + 0.3j])


def custom(t: Any, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """A Function of one tensor, which it saves."""

    class Made(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(*ctx.saved_tensors, *gradients)

    return Made.apply


def flaky(t: Any) -> Any:
    calls = []

    def backward(x: Any, g: Any) -> Any:
        calls.append(1)
        return g * (2 * x + 1e-7 * len(calls))

    return custom(t, lambda x: x * x, backward)


class Two:
    """x -> (x², x³), whose backward takes what may be None."""

    def __init__(self, t: Any, *, handles: bool) -> None:
        class Made(t.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.set_materialize_grads(False)
                ctx.save_for_backward(x)
                return x * x, x * x * x

            @staticmethod
            def backward(ctx: Any, g: Any, h: Any) -> Any:
                (x,) = ctx.saved_tensors
                if handles:
                    found = 0 * x if g is None else 2 * x * g
                    return found if h is None else found + 3 * x * x * h
                if g is None or h is None:
                    raise RuntimeError("None is not handled")
                return 2 * x * g + 3 * x * x * h

        self.apply = Made.apply


# name -> (the function of the library, which arrays it takes)
FIRST: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "sin": (lambda t: t.sin, (X,)),
    "exp of a scalar": (lambda t: t.exp, (np.array(0.3),)),
    "product": (lambda t: lambda x, y: x * y, (X, Y)),
    "matmul": (lambda t: lambda x, y: x @ y.T, (X, Y)),
    "softmax": (lambda t: lambda x: t.softmax(x, 1), (X,)),
    "layer norm": (lambda t: lambda x: t.nn.functional.layer_norm(x, (3,)), (X,)),
    "several outputs": (lambda t: lambda x, y: (x.sum(), y.prod(1), x * y), (X, Y)),
    "a constant output beside": (lambda t: lambda x: (x * 2, x.detach().round()), (X,)),
    "an unused input": (lambda t: lambda x, y: x * 2, (X, Y)),
    "no gradient at all, constant": (lambda t: lambda x: x.detach() * 0, (X,)),
    "no gradient at all, not constant": (lambda t: lambda x: x.detach() * 2, (X,)),
    "part of the gradient missing": (lambda t: lambda x: x * x.detach(), (X,)),
    "a kink at one": (lambda t: lambda x: t.relu(x), (np.zeros(2),)),
    "kinks elsewhere": (lambda t: lambda x: t.relu(x), (X,)),
    "steps": (lambda t: lambda x: x.round(), (X,)),
    "cumsum and gather": (lambda t: lambda x: x.cumsum(1)[:, [0, 2]], (X,)),
    "scatter": (lambda t: lambda x, y: t.zeros(2, 3, dtype=t.float64).index_add(1, t.tensor([0, 0, 2]), x * y), (X, Y)),
    "log of a negative": (lambda t: lambda x: t.log(x), (X,)),
    "right Function": (lambda t: custom(t, lambda x: x * x, lambda x, g: 2 * x * g), (X,)),
    "wrong factor": (lambda t: custom(t, lambda x: x * x, lambda x, g: x * g), (X,)),
    "wrong sign": (lambda t: custom(t, lambda x: x.sin(), lambda x, g: -x.cos() * g), (X,)),
    "slightly wrong": (lambda t: custom(t, lambda x: x.exp(), lambda x, g: x.exp() * g * 1.01), (X,)),
    "wrong within the limit": (lambda t: custom(t, lambda x: x.exp(), lambda x, g: x.exp() * g * 1.0001), (X,)),
    "not times the cotangent": (lambda t: custom(t, lambda x: x.exp(), lambda x, g: x.exp()), (np.array([0.4]),)),
    "no gradient given": (lambda t: custom(t, lambda x: x * 2, lambda x, g: None), (X,)),
    "not the same twice": (flaky, (X,)),
    "None handled": (lambda t: Two(t, handles=True).apply, (X,)),
    "None not handled": (lambda t: Two(t, handles=False).apply, (X,)),
    "complex to real": (lambda t: lambda z: (z * z.conj()).real.sum(), (Z,)),
    "complex to complex": (lambda t: lambda z: z * z + z.conj(), (Z,)),
    "real to complex": (lambda t: lambda x: t.complex(x, x * x), (X,)),
    "complex, a part missing": (lambda t: lambda z: z * z.detach(), (Z,)),
    "complex, wrong": (lambda t: custom(t, lambda z: z * z, lambda z, g: g * 2 * z), (Z,)),
}


def verdict(t: Any, name: str, cases: Any = FIRST, **options: Any) -> str:
    make, arrays = cases[name]
    inputs = tuple(t.tensor(array).requires_grad_() for array in arrays)
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = str(t.autograd.gradcheck(make(t), inputs, **options))
        except RuntimeError as raised:
            error, found = raised, str(raised).partition("numerical:")[0].partition(", i.e.")[0].strip()
    if type(error).__name__ == "GradcheckError":  # else the function's own
        assert t.autograd.gradcheck(make(t), inputs, raise_exception=False, **options) is False
    for x, array in zip(inputs, arrays, strict=True):
        np.testing.assert_array_equal(x.detach().numpy(), array)
        assert x.grad is None
    return f"{type(error).__name__} {found}"


@pytest.mark.parametrize("name", FIRST)
def test_the_verdict_is_torchs(name: str) -> None:
    theirs, ours = (verdict(t, name) for t in LIBRARIES)
    assert ours.startswith(theirs[:80])


@pytest.mark.parametrize("options", [{"fast_mode": True}, {"check_undefined_grad": False}, {"nondet_tol": 1e-5}])
@pytest.mark.parametrize("name", ["product", "wrong factor", "None not handled", "not the same twice", "steps"])
def test_options(name: str, options: dict[str, Any]) -> None:
    theirs, ours = (verdict(t, name, **options) for t in LIBRARIES)
    assert ours.split()[0] == theirs.split()[0]


def wrong_twice(t: Any) -> Any:
    """Its gradient is right, the gradient of that is not."""
    return custom(t, lambda x: x * x * x, lambda x, g: 3 * (x * x).detach() * g)


SECOND: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "sin": (lambda t: t.sin, (X,)),
    "product": (lambda t: lambda x, y: x * x * y, (X, Y)),
    "softmax": (lambda t: lambda x: t.softmax(x, 1), (X,)),
    "linear": (lambda t: lambda x: x * 2, (X,)),
    "two outputs": (lambda t: lambda x: (x.exp(), x.sum()), (X,)),
    "complex": (lambda t: lambda z: z * z * z.conj(), (Z,)),
    "right Function": (lambda t: custom(t, lambda x: x**3, lambda x, g: 3 * x * x * g), (X,)),
    "wrong the second time": (wrong_twice, (X,)),
    "not differentiable twice": (lambda t: custom(t, lambda x: x**3, lambda x, g: (3 * x * x * g).detach()), (X,)),
}


@pytest.mark.parametrize("name", SECOND)
def test_gradients_of_gradients(name: str) -> None:
    make, arrays = SECOND[name]
    found = []
    for t in LIBRARIES:
        inputs = tuple(t.tensor(array).requires_grad_() for array in arrays)
        found.append(t.autograd.gradgradcheck(make(t), inputs, raise_exception=False))
        if not found[-1]:
            with pytest.raises(RuntimeError, match=r"Jacobian mismatch|expected to be zero"):
                t.autograd.gradgradcheck(make(t), inputs)
    assert found[0] == found[1] == (name not in ("wrong the second time", "not differentiable twice"))


def test_cotangents_that_are_given_and_lie_apart() -> None:
    for t in LIBRARIES:
        x = t.tensor(X).requires_grad_()
        assert t.autograd.gradgradcheck(lambda x: x**3, x, t.tensor(Y).requires_grad_())
        assert t.autograd.gradgradcheck(lambda x: x**3, (x,), gen_non_contig_grad_outputs=True)


def test_what_it_refuses() -> None:
    for t in LIBRARIES:
        check = t.autograd.gradcheck
        with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
            check(lambda x: x, (t.ones(2, dtype=t.float64),))
        with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward_ad"):
            check(lambda x: x, t.ones(2).requires_grad_(), check_backward_ad=False)
        with pytest.raises(AssertionError, match="check_fwd_over_rev or check_rev_over_rev"):
            t.autograd.gradgradcheck(lambda x: x, t.ones(2).requires_grad_(), check_rev_over_rev=False)
        with pytest.raises(AssertionError, match="check_undefined_grad=True requires check_rev_over_rev"):
            t.autograd.gradgradcheck(lambda x: x, t.ones(2), check_fwd_over_rev=True, check_rev_over_rev=False)
        with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
            check(lambda x: x * 2, t.ones(2).requires_grad_(), raise_exception=False)
        x = t.ones(2, 1, dtype=t.float64).expand(2, 3).requires_grad_()
        with pytest.raises(RuntimeError, match="1th input has a dimension with stride 0"):
            check(lambda a, x: x * a, (t.ones(1, dtype=t.float64), x))
        with pytest.raises(AssertionError, match="requires check_forward_ad to be True"):
            check(lambda x: x, t.ones(2).requires_grad_(), check_batched_forward_grad=True)


def pushed(t: Any, forward: Callable[..., Any], jvp: Callable[..., Any]) -> Any:
    """A Function of one tensor with forward mode alone."""

    class Made(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_forward(x)
            return forward(x)

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return jvp(*ctx.saved_tensors, tangent)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    return Made.apply


# in torch what detaches is found out: a tangent that is lost is not the numerical one
FORWARD: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    **{name: made for name, made in FIRST.items() if "Function" not in name and "custom" not in name},
    "jvp": (lambda t: pushed(t, lambda x: x * x, lambda x, v: 2 * x * v), (X,)),
    "jvp with a wrong factor": (lambda t: pushed(t, lambda x: x * x, lambda x, v: x * v), (X,)),
    "jvp of a complex": (lambda t: pushed(t, lambda z: z * z, lambda z, v: 2 * z * v), (Z,)),
    "jvp of a complex, conjugated": (lambda t: pushed(t, lambda z: z * z, lambda z, v: 2 * z * v.conj()), (Z,)),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_verdicts_are_torchs(name: str) -> None:
    theirs, ours = (verdict(t, name, FORWARD, check_forward_ad=True, check_backward_ad=False) for t in LIBRARIES)
    assert ours.startswith(theirs[:80])


@pytest.mark.parametrize("name", SECOND)
def test_forward_over_reverse(name: str) -> None:
    make, arrays = SECOND[name]
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": False, "check_undefined_grad": False}
    found: list[Any] = []
    for t in LIBRARIES:
        inputs = tuple(t.tensor(array).requires_grad_() for array in arrays)
        try:
            found.append(t.autograd.gradgradcheck(make(t), inputs, raise_exception=False, **options))
        except (RuntimeError, NotImplementedError) as error:
            found.append(str(error)[:60])
    assert found[0] == found[1]
    assert found[0] is True or "Function" in name or "the second time" in name or "twice" in name


def test_a_module_reads_its_parameters_by_another_name() -> None:
    for t in LIBRARIES:
        net, x = t.nn.Linear(3, 2).double(), t.tensor(X)
        before = [p.detach().numpy().copy() for p in net.parameters()]
        assert t.autograd.gradcheck(lambda *_, net=net, x=x: net(x).tanh(), tuple(net.parameters()))
        for p, values in zip(net.parameters(), before, strict=True):
            np.testing.assert_array_equal(p.detach().numpy(), values)


def test_an_input_of_no_elements() -> None:
    """torch's own stumbles over it."""
    assert dc.autograd.gradcheck(lambda x: x * 3, dc.zeros(0, 2, dtype=dc.float64).requires_grad_())


def test_names_are_where_torch_has_them() -> None:
    from distcompile.autograd.gradcheck import GradcheckError, gradcheck

    assert dc.autograd.gradcheck is gradcheck
    assert issubclass(GradcheckError, RuntimeError)
