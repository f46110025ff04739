"""Gradient clipping, by total norm or by value.

In: parameters with gradients. Out: new values in the gradients' cells; the norm before clipping.
The norm of all gradients is the norm of their norms; squares are summed in each gradient's dtype (float32 for 16 bits),
the total in float64. Gradients that are already small enough are left untouched: nothing is written for a coefficient
of 1 (torch multiplies by 1, to the same numbers; so do graphs, by tensor operations). Gradients that are still on
their way are waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from compiler_core.cuda import lone
from compiler_core.dtype import float32, of, promote
from compiler_core.errors import LayoutError
from compiler_core.log import warn_once
from compiler_core.ops import prims
from compiler_core.ops.composites.movement import stack
from compiler_core.ops.registry import Array, current_trace
from compiler_core.overrides.state import other_layouts
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.memory.cell import DeviceCell
from compiler_core.tensor.memory.fence import are_travelling
from compiler_core.tensor.memory.ownership import destination, destinations
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import GradientNormError

Tensors = Tensor | Iterable[Tensor]


def _all(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(parameters: Tensors) -> list[Tensor]:
    return _dense([grad for tensor in _all(parameters) if (grad := tensor.grad) is not None])


def _dense(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, none of which is sparse. Raises LayoutError, as torch's functions do."""
    if not {*map(type, tensors)}.isdisjoint(other_layouts):
        raise LayoutError(
            "clipping is not there for sparse gradients", remedy="clip the others, and scale grad._values() of these"
        )
    return tensors


def _by_operations(tensors: Iterable[Tensor]) -> bool:
    """Whether it is done by tensor operations: in a graph, and on a device, where nobody waits for the norm then."""
    return current_trace() is not None or any(tensor.is_cuda for tensor in tensors)


def _norm(array: Array, p: float) -> float:
    if array.size == 0:
        return 0.0
    compute = of(array.dtype).compute.numpy
    flat = np.ravel(array).astype(compute, copy=False)
    if p == 2.0:
        return math.sqrt(float(np.dot(flat, flat)))
    return float(np.linalg.norm(flat, p))


def _total(arrays: list[Array], norm_type: float, error_if_nonfinite: bool) -> float:
    norms = [_norm(array, norm_type) for array in arrays]
    total = float(np.linalg.norm(np.array(norms, np.float64), norm_type)) if norms else 0.0
    if error_if_nonfinite and not math.isfinite(total):
        raise _nonfinite(norm_type)
    return total


def _nonfinite(norm_type: float) -> GradientNormError:
    return GradientNormError(
        f"The total norm of order {norm_type} for gradients is non-finite, so it cannot be clipped.",
        remedy="to clip by the non-finite norm anyway, set error_if_nonfinite=False",
    )


def _traced_norm(tensors: list[Tensor], p: float, error_if_nonfinite: bool) -> Tensor:
    """The same by tensor operations, as in a graph."""
    if not tensors:
        return Tensor._wrap(np.zeros((), np.float32))
    dtype = promote(*dict.fromkeys([tensor.dtype for tensor in tensors]))
    place = tensors[0].device
    with no_grad():
        at_once = _norm_there(tensors) if p == 2.0 and not error_if_nonfinite else None
        if at_once is not None:
            return at_once.to(dtype)
        norms: Any = stack([_vector_norm(tensor.to(tensor.dtype.compute), p).to(place) for tensor in tensors])
        total: Tensor = _vector_norm(norms, p).to(dtype)
    if error_if_nonfinite and current_trace() is not None:  # the graph fails, and the call runs plainly
        not_finite = total.isfinite().logical_not()
        return prims.require(total, not_finite, "autograd", _nonfinite(p).what)  # type: ignore[no-any-return]
    if error_if_nonfinite and not total.isfinite():
        raise _nonfinite(p)
    return total


def _norm_there(tensors: list[Tensor]) -> Tensor | None:
    """The Euclidean norm of arrays of one CUDA device, by a kernel for each; None where there is none."""
    if current_trace() is not None or not tensors[0].is_cuda:
        return None
    from compiler_core.eager.device.several import norm

    total = norm([_held(tensor) for tensor in tensors])
    return None if total is None else Tensor._wrap(total)


def _held(tensor: Tensor) -> Any:
    """The array that it shows, where nobody traces."""
    cell: Any = tensor._cell
    return cell.raw if type(cell) is DeviceCell else tensor._read()


def _vector_norm(tensor: Any, p: float) -> Any:
    if math.isinf(p):
        return tensor.abs().max() if p > 0 else tensor.abs().min()
    if p == 0:
        return (tensor != 0).sum().to(tensor.dtype)
    return tensor.square().sum().sqrt() if p == 2.0 else tensor.abs().pow(p).sum().pow(1.0 / p)


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """f[]: the norm of all tensors taken as one vector. Raises GradientNormError for a non-finite one, if asked to."""
    given = _dense(_all(tensors))
    if _by_operations(given):
        return _traced_norm(given, norm_type, error_if_nonfinite)
    arrays = [tensor._read() for tensor in given]
    total = _total(arrays, float(norm_type), error_if_nonfinite)
    dtype = promote(*(of(array.dtype) for array in arrays)).numpy if arrays else np.dtype(np.float32)
    return Tensor._wrap(np.array(total, dtype))


def _are_plain(tensors: list[Tensor]) -> bool:
    """Whether they are float32 arrays of one CUDA device, that nobody traces or differentiates: a call each will do."""
    if current_trace() is None and all(map(_is_usual, tensors)):
        return True
    place = tensors[0].device
    return (
        current_trace() is None
        and place.is_gpu
        and all(type(t) is Tensor and t.device is place and t.dtype is float32 and not t.requires_grad for t in tensors)
    )


def _is_usual(tensor: Tensor) -> bool:
    """Whether it is float32 of the lone CUDA device, all of its memory, without a history."""
    cell: Any = tensor._cell
    is_there = type(tensor) is Tensor and type(cell) is DeviceCell and type(cell.raw) is lone.array
    return is_there and cell.raw.dtype == _F32 and tensor._node is None and not tensor._requires_grad


_F32 = np.dtype(np.float32)


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor | float, foreach: bool | None = None
) -> None:
    """Scale the gradients by max_norm/total_norm where that is below 1."""
    if _by_operations(_gradients(parameters := _all(parameters))):
        scale: Any = max_norm / (total_norm + 1e-6)
        scale = scale.clamp(max=1.0) if isinstance(scale, Tensor) else min(scale, 1.0)
        with no_grad():
            gradients = _gradients(parameters)
            if isinstance(scale, Tensor) and _are_plain([scale, *gradients]) and _scale_there(gradients, scale):
                return
            for grad in gradients:
                grad.mul_(scale.to(grad) if isinstance(scale, Tensor) else scale)
        return
    coefficient = float(max_norm) / (float(total_norm) + 1e-6)
    if coefficient >= 1:
        return
    with np.errstate(invalid="ignore"):  # infinity times zero, after a norm that is infinite: NaN, as in torch
        for grad in _gradients(parameters):
            _apply(grad, lambda array, out: np.multiply(array, array.dtype.type(coefficient), out=out))


def _scale_there(gradients: list[Tensor], factor: Tensor) -> bool:
    """Scale them by a kernel for all. False if there is none, or if some share memory; then nothing is written."""
    from compiler_core.eager.device.several import are_apart, scale

    with factor.device.working():
        values = [_held(grad) for grad in gradients]
        if not are_apart(values):  # which is scaled for each that shows it
            return False
        del values  # or nobody is their sole owner
        places: list[Any] = destinations([grad._cell for grad in gradients])
        for grad, place in zip(gradients, places):
            if place is not (value := _held(grad)):
                place[...] = value
            del value
        if not scale(places, factor._read()):
            return False
        for grad, place in zip(gradients, places):
            grad._cell.write(place)
    return True


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients so that their total norm is at most max_norm. Returns the norm before, f[].

    Raises: GradientNormError for a non-finite norm, if `error_if_nonfinite`.
    """
    tensors = _all(parameters)
    gradients = _gradients(tensors)
    if are_travelling([gradient._cell for gradient in gradients]):
        warn_once(
            "clip_grad_norm_: waits",
            "the total norm needs all gradients, so clip_grad_norm_ waits for them here: with it, communication is "
            'hidden behind the backward only, as with overlap="backward"',
        )
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(tensors, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value]."""
    if _by_operations(_gradients(parameters := _all(parameters))):
        with no_grad():
            for grad in _gradients(parameters):
                grad.clamp_(-clip_value, clip_value)
        return
    for grad in _gradients(parameters):
        _apply(grad, lambda array, out: np.clip(array, -clip_value, clip_value, out=out))


def _apply(grad: Tensor, pointwise: Callable[[Array, Array], Array]) -> None:
    """Give `grad` the value pointwise(its value), written over it if nobody else sees it."""
    with grad.device.working():
        place = destination(grad._cell)
        grad._cell.write(pointwise(grad._read(), place))
