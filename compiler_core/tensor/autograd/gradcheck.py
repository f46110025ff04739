"""gradcheck: is a function's backward the derivative of its forward? As torch.autograd.gradcheck and gradgradcheck.

In: a function of Tensors, float64 or complex128 inputs. Out: True, or AutogradError that names the input, the element,
and both numbers. Method: central differences, (f(x + eps) - f(x - eps)) / (2 eps), of a random projection of the
outputs (a scalar, the real part where outputs are complex, so that one backward pass gives the whole analytic
gradient); of a complex input in both directions, d/d real + i d/d imag. The error of the difference is O(eps^2) +
O(1e-16 / eps): 1e-6 suits float64, and no narrower dtype is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError, DTypeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd import backward as autograd
from compiler_core.tensor.autograd.grad_mode import enable_grad, no_grad
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.tensor import Tensor

Function = Callable[..., Any]


def gradcheck(
    func: Function,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether the gradients of `func` at `inputs` (f64 or c128, where required) are its central differences.

    Raises AutogradError at the first that is not, unless raise_exception is False; DTypeError for narrower inputs.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [k for k, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    for k in checked:
        if given[k].dtype not in (dt.float64, dt.complex128):
            raise DTypeError(f"gradcheck: input {k} is {given[k].dtype}", expected="float64 or complex128")
    weights = _weights(func, given)
    analytic = _analytic(func, given, checked, weights)
    for k, gradient in zip(checked, analytic, strict=True):
        numeric = _numeric(func, given, k, weights, eps)
        wrong = ~np.isclose(gradient, numeric, rtol, atol)
        if wrong.any():
            if not raise_exception:
                return False
            raise _mismatch(k, gradient, numeric, wrong)
    return True


def gradgradcheck(func: Function, inputs: Tensor | Sequence[Any], **tolerances: Any) -> bool:
    """gradcheck of func's gradient: whether backward can itself be differentiated. Tolerances as gradcheck's."""
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [k for k, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    weights = _weights(func, given)

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        with enable_grad():
            own = [_leaf(x) if k in checked and not x.requires_grad else x for k, x in enumerate(args)]
            total = _projected(func(*own), weights)
            wanted = [own[k] for k in checked]
            found = autograd.grad(total, wanted, create_graph=True, allow_unused=True)
        return tuple(prims.full_like(x, 0.0) if g is None else g for g, x in zip(found, wanted, strict=True))

    return gradcheck(gradient, given, **tolerances)


def _leaf(x: Tensor) -> Tensor:
    return leaf(x._array("gradcheck").copy()).to(x.device)._require()


def _outputs(result: Any) -> list[Tensor]:
    """The floating and complex Tensors among what a function returned."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [r for r in results if isinstance(r, Tensor) and r.dtype.is_inexact]


def _weights(func: Function, inputs: Sequence[Any]) -> list[Tensor]:
    """One random weight for each element of each output; the same at every call."""
    rng = np.random.default_rng(0)
    with no_grad():
        return [leaf(_drawn(rng, y)).to(y.device) for y in _outputs(func(*inputs))]


def _drawn(rng: np.random.Generator, output: Tensor) -> Array:
    weights = rng.uniform(0.5, 1.5, tuple(output.shape))
    if output.dtype.is_complex:
        weights = weights + 1j * rng.uniform(0.5, 1.5, tuple(output.shape))
    return np.asarray(weights)


def _projected(result: Any, weights: Sequence[Tensor]) -> Tensor:
    """The weighted sum of all outputs, or its real part: f64[]."""
    terms = [F.sum(F.mul(y, w)) for y, w in zip(_outputs(result), weights, strict=True)]
    terms = [prims.real(t) if t.dtype.is_complex else t for t in terms]
    total = terms[0]
    for term in terms[1:]:
        total = F.add(total, term)
    return total  # type: ignore[no-any-return]


def _analytic(func: Function, inputs: Sequence[Any], checked: Sequence[int], weights: Sequence[Tensor]) -> list[Array]:
    with enable_grad():
        total = _projected(func(*inputs), weights)
        wanted = [inputs[k] for k in checked]
        grads = autograd.grad(total, wanted, allow_unused=True)
    return [
        np.zeros(x.shape, x.dtype.numpy) if g is None else g._array("gradcheck")
        for g, x in zip(grads, wanted, strict=True)
    ]


def _numeric(func: Function, inputs: Sequence[Any], k: int, weights: Sequence[Tensor], eps: float) -> Array:
    """Central differences with respect to input k: f64 or c128[its shape]."""
    start = inputs[k]._array("gradcheck")
    result: Array = np.zeros_like(start)
    for place in np.ndindex(start.shape):
        for direction in (1, 1j) if start.dtype.kind == "c" else (1,):
            high, low = (_value_at(func, inputs, k, place, step * direction, weights) for step in (eps, -eps))
            result[place] += direction * (high - low) / (2 * eps)
    return result


def _value_at(
    func: Function, inputs: Sequence[Any], k: int, place: tuple[int, ...], step: complex, weights: Sequence[Tensor]
) -> float:
    moved = inputs[k]._array("gradcheck").copy()
    moved[place] += step
    changed = [*inputs[:k], leaf(moved).to(inputs[k].device), *inputs[k + 1 :]]
    with no_grad():
        return float(_projected(func(*changed), weights))


def _mismatch(k: int, analytic: Array, numeric: Array, wrong: Array) -> AutogradError:
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    return AutogradError(
        f"gradcheck: the gradient of input {k} is wrong in {int(wrong.sum())} of {wrong.size} elements, e.g. {place}",
        expected=f"{numeric[place]:.9g} by central differences",
        got=f"{analytic[place]:.9g} by backward",
        remedy="look at the vjp of the ops that the function uses, or at a kink within eps of the point",
    )
