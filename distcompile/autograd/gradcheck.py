"""torch.autograd.gradcheck's names: gradients of a function judged by finite differences.

In: a function of Tensors, and inputs of which some require gradients (float64 or complex128: less is too coarse). Out:
True; or GradcheckError, which names the output, the input, and both Jacobians.

    numerical    (f(x + eps) - f(x - eps)) / 2 eps for each element of each input, written into that very tensor, so
                 that a function which reads it by another name (a module's parameter) sees it, too; it is put back
    analytical   one backward for each element of each output, made twice: both must agree (`nondet_tol`)
    complex      of an input z = x + iy: d/dx + i d/dy; of an output: its real and its imaginary part, one by one
    further      a zero cotangent has a zero gradient, of the input's dtype, device and size; so has one output that
                 nobody reads beside others (`check_undefined_grad`)

Forward mode: gradcheck_forward.py. Of torch's options: `fast_mode` changes nothing, the whole Jacobian is compared; nor
do `check_batched_grad` and `check_batched_forward_grad`, for a Jacobian is computed row by row here; nor `masked`,
without sparse tensors.
Source: torch's documentation of both functions, which the tests take as judge.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import complex128, float64
from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.autograd.differences import (
    Function,
    Limits,
    as_tuple,
    compare,
    flat,
    is_checked,
    must_be_zero,
    numerical,
)
from distcompile.autograd.gradcheck_forward import check_forward
from distcompile.errors import GradcheckError

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


def gradcheck(
    func: Function,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func(*inputs)` are |a - n| <= atol + rtol |n| away from finite differences.

    inputs: a Tensor or a tuple; those that require a gradient are checked, and should be of float64 or complex128.
    Raises: GradcheckError where they are not (with raise_exception=False: returns False); ValueError if no input
    requires a gradient.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    given = as_tuple(inputs)
    limits = Limits(eps, atol, rtol, nondet_tol, check_grad_dtypes)
    try:
        with enable_grad():
            _check_inputs(given)
            if check_backward_ad:
                _check(func, given, limits, check_undefined_grad)
            if check_forward_ad:
                check_forward(func, given, limits, check_undefined_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_modes(fwd_over_rev: bool, rev_over_rev: bool, **of_rev_over_rev: bool) -> None:
    """Raises AssertionError, as torch does, if no mode is asked for, or an option of one that is not."""
    if not (fwd_over_rev or rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    for option, value in of_rev_over_rev.items():
        if value and not rev_over_rev:
            raise AssertionError(f"Setting {option}=True requires check_rev_over_rev to be True")


def _random_weights(func: Function, given: tuple[Any, ...], with_gaps: bool) -> tuple[Tensor, ...]:
    """A random tensor like each differentiable result of `func(*given)`."""
    with enable_grad():
        outputs = _differentiable(func(*given))
    return tuple(_random_like(out, with_gaps) for out in outputs)


def _gradients_of(func: Function, given: tuple[Any, ...], weights: tuple[Any, ...]) -> Function:
    """(*inputs, *weights) -> the gradients of func(*inputs), weighted; with a graph, so that they have gradients."""
    number = len(weights)

    def gradients(*arguments: Any) -> tuple[Tensor, ...]:
        args = [x._require() if is_checked(one) else x for x, one in zip(arguments, (*given, *weights))]
        xs, vs = args[: len(args) - number], args[len(args) - number :]
        wanted = [x for x in xs if is_checked(x)]
        found = grad(_differentiable(func(*xs)), wanted, vs, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradients


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func(*inputs)` for `grad_outputs` (None: random ones), as functions of both.

    Raises: as gradcheck.
    """
    _check_modes(
        check_fwd_over_rev, check_rev_over_rev,
        check_undefined_grad=check_undefined_grad, check_batched_grad=check_batched_grad,
    )  # fmt: skip
    given = as_tuple(inputs)
    weights = (
        _random_weights(func, given, gen_non_contig_grad_outputs) if grad_outputs is None else as_tuple(grad_outputs)
    )
    return gradcheck(
        _gradients_of(func, given, weights),
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )


def _check(func: Function, inputs: tuple[Any, ...], limits: Limits, undefined: bool) -> None:
    if any(out.is_complex() for out in as_tuple(func(*inputs))):
        _check_jacobians(partial(_part, func, "imag"), inputs, limits, "imaginary")
        _check_jacobians(partial(_part, func, "real"), inputs, limits, "real")
    else:
        _check_jacobians(func, inputs, limits, "")
    xs = [x for x in inputs if is_checked(x)]
    outputs = _differentiable(func(*inputs))
    if outputs:
        _check_zero_cotangents(outputs, xs)
    if undefined and len(outputs) > 1:
        for k in range(len(outputs)):
            found = _differentiable(func(*inputs))
            _check_unread(found[:k] + found[k + 1 :], xs)


def _differentiable(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(out for out in as_tuple(outputs) if out.requires_grad)


def _part(func: Function, name: str, *inputs: Any) -> tuple[Tensor, ...]:
    """The outputs, complex ones by their real or imaginary part."""
    return tuple(getattr(out, name) if out.is_complex() else out for out in as_tuple(func(*inputs)))


def _random_like(out: Tensor, strided: bool) -> Tensor:
    """Numbers in [-1, 1) of out's shape, that require a gradient. strided: every second element of memory."""
    import distcompile as dc

    shape = (*out.shape[:-1], 2 * out.shape[-1]) if strided and out.dim() else tuple(out.shape)
    kind = out.dtype if out.is_floating_point() or out.is_complex() else float64
    made = dc.rand(shape, dtype=kind, device=out.device) * 2 - (1 + 1j if kind.is_complex else 1)
    found: Tensor = made[..., ::2] if shape != tuple(out.shape) else made
    return found.detach()._require()


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    for place, x in enumerate(inputs):
        if not is_checked(x):
            continue
        if x.dtype not in (float64, complex128):
            warnings.warn(
                f"Input #{place} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )
        if any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {place}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )
    if not any(is_checked(x) for x in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


# -- Jacobians: arrays [elements of the input, elements of the output]


def _check_jacobians(func: Function, inputs: tuple[Any, ...], limits: Limits, part: str) -> None:
    """part: of complex outputs, for messages."""
    places = [place for place, x in enumerate(inputs) if is_checked(x)]
    by_input = [numerical(func, inputs, inputs[place], limits.eps) for place in places]
    outputs = as_tuple(func(*inputs))
    checked = [k for k, out in enumerate(outputs) if out.requires_grad]
    if not checked:
        must_be_zero(by_input)
    where = f"While considering the {part} part of complex outputs only, Jacobian" if part else "Jacobian"
    for number, k in enumerate(checked):
        analytical = _analytical(outputs[k], [inputs[place] for place in places], limits)
        for j, (a, by_output) in enumerate(zip(analytical, by_input, strict=True)):
            compare(a, by_output[k], limits, f"{where} mismatch for output {number} with respect to input {j}")


def _analytical(out: Tensor, xs: Sequence[Tensor], limits: Limits) -> list[Array]:
    """By input: the derivatives of `out`."""
    first, second = (_backwards(out, xs, limits) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        if not np.all(np.abs(a - b) <= limits.nondet_tol):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                f"gives different values, although analytical gradient matches numerical gradient. The tolerance for "
                f"nondeterminism was {limits.nondet_tol}."
            )
    return first


def _backwards(out: Tensor, xs: Sequence[Tensor], limits: Limits) -> list[Array]:
    rows: list[list[Array]] = [[] for _ in xs]
    for k in range(out.numel()):
        unit = out.new_zeros((out.numel(),))
        unit[k] = 1
        for x, g, found in zip(
            xs, grad(out, xs, unit.reshape(tuple(out.shape)), retain_graph=True, allow_unused=True), rows, strict=True
        ):
            if g is not None and limits.dtypes and g.dtype != x.dtype:
                raise GradcheckError("Gradient has dtype mismatch", expected=str(x.dtype), got=str(g.dtype))
            if g is not None and g.shape != x.shape:
                raise GradcheckError("Analytical gradient has incorrect size", got=str(tuple(g.shape)))
            found.append(np.zeros(x.numel()) if g is None else flat(g))
    return [np.stack(found, axis=1) if found else np.zeros((x.numel(), 0)) for x, found in zip(xs, rows, strict=True)]


# -- cotangents that are zero


def _check_zero_cotangents(outputs: Sequence[Tensor], xs: Sequence[Tensor]) -> None:
    for x, g in zip(xs, _with_zeros(outputs, xs), strict=True):
        if g is None:
            continue
        if np.any(flat(g) != 0):
            raise GradcheckError("backward not multiplied by grad_output")
        for what, have, want in (
            ("type", g.dtype, x.dtype),
            ("device", g.device, x.device),
            ("size", g.shape, x.shape),
        ):
            if have != want:
                raise GradcheckError(f"grad is incorrect {what}", expected=str(want), got=str(have))


def _check_unread(outputs: Sequence[Tensor], xs: Sequence[Tensor]) -> None:
    """outputs: all but one, which nobody reads."""
    try:
        found = _with_zeros(outputs, xs)
    except RuntimeError as error:
        raise GradcheckError("Expected backward function to handle undefined output grads") from error
    if any(g is not None and np.any(flat(g) != 0) for g in found):
        raise GradcheckError(
            "Expected all input grads to be undefined or zero when all output grads are undefined or zero"
        )


def _with_zeros(outputs: Sequence[Tensor], xs: Sequence[Tensor]) -> Sequence[Tensor | None]:
    zeros = [out.new_zeros(tuple(out.shape)) for out in outputs]
    return grad(outputs, xs, zeros, allow_unused=True, retain_graph=True)
