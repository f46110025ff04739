"""The forward mode of `gradcheck`: the tangents of a function's outputs against finite differences.

In: a function and its inputs, as `gradcheck` has them. Out: nothing, or GradcheckError. Method: one call inside a dual
level for each element of each input; along the imaginary axis, too, where the input is complex. The function must use
the inputs that it is given. With `check_undefined_grad` an input without a tangent counts as one whose tangent is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.forward import duals
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.autograd.differences import (
    Function,
    Limits,
    as_tuple,
    compare,
    directional,
    flat,
    is_checked,
    must_be_zero,
)
from distcompile.errors import GradcheckError

Inputs = tuple[Any, ...]


def check_forward(func: Function, inputs: Inputs, limits: Limits, undefined: bool) -> None:
    """See the head of this file."""
    places = [place for place, x in enumerate(inputs) if is_checked(x)]
    if any(inputs[place].is_complex() for place in places):
        _check_along(func, inputs, [place for place in places if inputs[place].is_complex()], limits, 1j)
    _check_along(func, inputs, places, limits, 1)
    if undefined:
        _check_undefined(func, inputs, places)


def _check_along(func: Function, inputs: Inputs, places: list[int], limits: Limits, unit: complex) -> None:
    """unit: the direction that elements move in."""
    outputs = as_tuple(func(*inputs))
    kept = [k for k, out in enumerate(outputs) if out.requires_grad]
    by_input = [directional(func, inputs, inputs[place], unit * limits.eps) for place in places]
    if not kept:
        must_be_zero(by_input)
    for j, (place, by_output) in enumerate(zip(places, by_input, strict=True)):
        pushed, where = _pushed(func, inputs, place, unit, outputs, limits), _where(inputs[place], unit)
        for number, k in enumerate(kept):
            compare(pushed[k], by_output[k], limits, f"{where} mismatch for output {number} with respect to input {j}")


def _where(x: Tensor, unit: complex) -> str:
    part = "imaginary" if unit == 1j else "real"
    prefix = f"While considering the {part} part of complex inputs only, " if x.is_complex() else ""
    return f"{prefix}Jacobian computed with forward mode"


def _pushed(
    func: Function, inputs: Inputs, place: int, unit: complex, outputs: tuple[Any, ...], limits: Limits
) -> list[Array]:
    """By output: the derivatives in the input at this place."""
    size = inputs[place].numel()
    found = [np.zeros((size, out.numel()), complex if out.is_complex() else float) for out in outputs]
    zeros = {k: x.detach().new_zeros(tuple(x.shape)) for k, x in enumerate(inputs) if is_checked(x)}
    for element in range(size):
        one = zeros[place].reshape(-1).clone()
        one[element] = unit
        for rows, (value, tangent) in zip(
            found, _push(func, inputs, {**zeros, place: one.reshape(tuple(inputs[place].shape))}), strict=True
        ):
            if tangent is None:
                continue
            if limits.dtypes and value.is_complex() != tangent.is_complex():
                raise GradcheckError("Forward AD gradient has dtype mismatch.")
            rows[element] = flat(tangent)
    return found


def _push(func: Function, inputs: Inputs, tangents: dict[int, Tensor]) -> list[tuple[Tensor, Tensor | None]]:
    """(value, tangent) of each output. tangents: by place; the other inputs have none."""
    with duals.pushing():
        given = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
        called = func(*(duals.make_dual(x, tangents[k]) if k in tangents else x for k, x in enumerate(given)))
        return [duals.unpack_dual(out) for out in as_tuple(called)]


def _check_undefined(func: Function, inputs: Inputs, places: list[int]) -> None:
    import distcompile as dc

    weights = {k: dc.rand_like(inputs[k].detach()) for k in places}
    for place in places:
        zeros = _push(func, inputs, {**weights, place: weights[place] * 0})
        without = _push(func, inputs, {k: w for k, w in weights.items() if k != place})
        for k, ((_, a), (_, b)) in enumerate(zip(zeros, without, strict=True)):
            if a is not None and b is not None and not dc.allclose(a, b):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index: {k} when input: {place} has an undefined "
                    f"tangent value. Got: {a} but expected: {b}"
                )
