"""Finite differences of a function of Tensors: the numerical side of `gradcheck`, and what both of its modes share.

In: a function, its inputs, one of these. Out: arrays [elements of the input, elements of an output], one for each
output. An input is written to for each of its elements, and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import GradcheckError

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as equal."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    dtypes: bool  # whether a gradient must have its input's


def as_tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def is_checked(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def numerical(func: Function, inputs: tuple[Any, ...], x: Tensor, eps: float) -> list[Array]:
    """By output: the derivatives with respect to x."""
    by_real = directional(func, inputs, x, eps)
    if not x.is_complex():
        return by_real
    return [dx + 1j * dy for dx, dy in zip(by_real, directional(func, inputs, x, 1j * eps), strict=True)]


def directional(func: Function, inputs: tuple[Any, ...], x: Tensor, step: complex) -> list[Array]:
    """By output: the derivatives in the direction of `step`."""
    rows = list(_slopes(func, inputs, x, step))
    if not rows:  # an input of no elements
        return [np.zeros((0, out.numel())) for out in as_tuple(func(*inputs))]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _slopes(func: Function, inputs: tuple[Any, ...], x: Tensor, step: complex) -> Iterator[list[Array]]:
    """For each element of x: what the outputs change by, over 2 |step|, when it moves by `step`."""
    before = x.detach().clone()
    try:
        for k in range(before.numel()):
            low, high = (_moved(func, inputs, x, before, k, delta) for delta in (-step, step))
            yield [(b - a) / (2 * abs(step)) for a, b in zip(low, high, strict=True)]
    finally:
        _write(x, before)


def _moved(func: Function, inputs: tuple[Any, ...], x: Tensor, before: Tensor, k: int, delta: complex) -> list[Array]:
    there = before.reshape(-1).clone()
    there[k] = there[k] + delta
    _write(x, there.reshape(tuple(before.shape)))
    return [flat(out) for out in as_tuple(func(*inputs))]


def _write(x: Tensor, value: Tensor) -> None:
    with no_grad():
        x.data.copy_(value)


def flat(x: Tensor) -> Array:
    """On the host; in a dtype that NumPy compares."""
    array = x.detach()._array("gradcheck()").reshape(-1)
    wide: Array = array if array.dtype.kind in "fc" and array.dtype.itemsize > 2 else array.astype(np.float64)
    return wide.copy()


def compare(analytical: Array, numerical: Array, limits: Limits, what: str) -> None:
    """what: the head of the message if they are not near."""
    with np.errstate(invalid="ignore"):
        near = np.isclose(analytical, numerical, rtol=limits.rtol, atol=limits.atol).all()
    if not near:
        raise GradcheckError(f"{what},\nnumerical:{numerical}\nanalytical:{analytical}\n")


def must_be_zero(by_input: list[list[Array]]) -> None:
    """Of a function that says it has no gradients."""
    if any(n.any() for by_output in by_input for n in by_output):
        raise GradcheckError("Numerical gradient for function expected to be zero")
