"""What draws fill: tensors in place, fresh ones like others, masks; in which order, within which bounds.

In: tensors, a generator (default: that of the tensor's device), numbers. Out: values of one draw each, made by
`Generator.draw`. Torch fills memory in its order, so the numbers of a tensor that is not contiguous depend on its
strides.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import DomainError
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.random.on_device import drawing_on
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value, current_trace, meta_of
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.making.placement import check_generator
from compiler_core.tensor.making.random import Generator, drawing_generator, generator_for
from compiler_core.tensor.memory.cell import cell_trace
from compiler_core.tensor.memory.layout import order_for
from compiler_core.tensor.tensor import Tensor

_KINDS = {"uniform": "fc", "normal": "fc", "log_normal": "f"}  # of dtypes; others refuse by themselves, or take all
Order = tuple[int, ...] | None  # dims, the slowest first; None: as they are


def drawn(
    kind: str, shape: Shape, dtype: DType, *numbers: Any, generator: Generator | None = None, order: Order = None
) -> Value:
    """A value of one draw, by the generator, or the default one of the device that tensors are made for now."""
    return drawing_generator(generator).draw(Draw(kind, shape, dtype, numbers, order))


def drawn_into(tensor: Tensor, draw: str, dtype: DType, *numbers: Any, generator: Generator | None = None) -> Tensor:
    """A draw of `dtype` to put in tensor's place: in the order of its memory, on its device."""
    if draw in _KINDS:
        need_kind(f"{draw}_", _KINDS[draw], tensor)
    order, dense = order_of(tensor)
    place = tensor.device
    if tensor.is_meta:
        return Tensor._wrap(MetaValue(tuple(tensor.shape), dtype))
    check_generator(generator, place)
    with drawing_for(place):
        made = Draw(draw, tuple(tensor.shape), dtype, numbers, order, dense)
        return leaf(generator_for(place, generator).draw(made), device=place)


def order_of(tensor: Tensor) -> tuple[Order, bool]:
    """(the order in which tensor's memory is filled; whether it is contiguous)."""
    if not _draws_in_order(tensor) or tensor.is_contiguous():
        return None, True
    return _order(tensor.stride()), False


def _draws_in_order(tensor: Tensor) -> bool:
    """Whether what is drawn for it depends on its strides: torch's numbers do, in graphs too; those of a key do not."""
    if tensor.is_meta or tensor.is_cuda:
        return False
    trace = current_trace()
    return trace is None or cell_trace(trace).draws_outside()


def _order(steps: Any) -> Order:
    order = sorted(range(len(steps)), key=lambda d: -steps[d])
    return None if order == list(range(len(steps))) else tuple(order)


def order_like(tensor: Tensor, memory_format: Any = None) -> Order:
    """The order of a fresh tensor like this one, as its strides say, or as that memory format does."""
    if not _draws_in_order(tensor):
        return None
    order = order_for(tensor._cell, memory_format)
    return None if order == tuple(range(len(order))) else order


def drawn_like(
    kind: str, input: Tensor, numbers: tuple[Any, ...], dtype: DType, generator: Generator | None, memory_format: Any
) -> Value:
    """A draw for a fresh tensor like this one, in the order of its memory unless a memory format says otherwise."""
    order = order_like(input, memory_format)
    return drawing_generator(generator).draw(Draw(kind, tuple(input.shape), dtype, numbers, order, order is None))


def exponential_like(input: Tensor, generator: Generator | None) -> Tensor:
    """Exponential numbers of rate 1, of input's shape and dtype, in the order of its memory."""
    with drawing_for(input.device):
        return leaf(drawn_like("exponential", input, (1.0,), input.dtype, generator, None), device=input.device)


def drawing_for(place: Device) -> AbstractContextManager[None]:
    """Inside, draws outside of a trace are made on that device."""
    return drawing_on(place.index if place.is_gpu and current_trace() is None else None)


def below(self: Tensor, p: Tensor, generator: Generator | None, order: Order) -> Tensor:
    """1 where a uniform number is below p, f[*], else 0, in self's dtype and shape, drawn in that order of memory."""
    chances = probabilities(p)
    place, wide = self.device, dt.float64 if p.dtype is dt.float64 else dt.float32
    check_generator(generator, place)
    with drawing_for(place):
        draw = Draw("uniform", tuple(meta_of(self).shape), wide, (0.0, 1.0), order)
        unit = leaf(generator_for(place, generator).draw(draw), device=place)
    return prims.cast(unit < chances.to(wide), self.dtype)  # type: ignore[no-any-return]


def probabilities(p: Any) -> Any:
    """p, a tensor or a number; those outside [0, 1] are refused, as is NaN."""
    if isinstance(p, Tensor):
        need_kind("bernoulli", "f", p)
        inside = prims.bitwise_and(prims.ge(p, prims.full_like(p, 0)), prims.le(p, prims.full_like(p, 1)))
        message = "Expected p_in >= 0 && p_in <= 1 to be true, but got false"
        return prims.require(p.detach(), prims.logical_not(inside), "value", message)
    if not 0 <= p <= 1:
        raise DomainError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return p


def kept_by_dropout(place: Device, shape: Sequence[int], p: float, order: Order = None) -> Any:
    """What dropout by p keeps: `rng` of ops' `dropout`."""
    return generator_for(place).mask_or_key(Draw("bernoulli", tuple(shape), dt.bool_, (1.0 - p,), order))


def check_std(std: Any) -> None:
    """Raise DomainError if it is a number below 0, or NaN. A tensor's numbers may be a device's: they are not read."""
    if isinstance(std, int | float) and not std >= 0:
        raise DomainError(f"normal expects std >= 0.0, but found std {std}")


# ---- whole numbers

_EXACT_BITS = {dt.float64: 53, dt.float32: 24, dt.float16: 11, dt.bfloat16: 8}  # whole numbers that a float holds


def random_integers(self: Tensor, low: Any, high: Any, generator: Generator | None) -> Tensor:
    """Whole numbers for `random_`: see there. Raises DomainError for bounds that are none, or beyond the dtype's."""
    bits, dtype = _EXACT_BITS.get(self.dtype), self.dtype
    most = 1 << bits if bits else _range_of(dtype)[1]
    if low is None:
        bounds, is_wide = (0, most + 1), dtype.itemsize == 8
    elif high is None and low == -(1 << 63):
        bounds, is_wide = (low, 1 << 63), True
    else:
        bounds, is_wide = whole_range(low, most + 1 if high is None else high, dtype), None
    return drawn_into(self, "integers", dtype, *bounds, is_wide, generator=generator)


def whole_range(low: Any, high: Any, dtype: DType) -> tuple[int, int]:
    """The bounds [low, high), as this dtype rounds them. Raises DomainError."""
    low, high = int(low), int(high)
    if low >= high:
        raise DomainError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype in _EXACT_BITS:
        return _rounded_range(low, high, dtype)
    least, most = _range_of(dtype)
    for name, number in (("from", low), ("to - 1", high - 1)):
        if not least <= number <= most:
            what = f"{name} is out of bounds for {dtype.name}"
            raise DomainError(what, expected=f"{least} to {most}", got=str(number))
    return low, high


def _range_of(dtype: DType) -> tuple[int, int]:
    kind: Any = dtype.numpy
    return (0, 1) if dtype is dt.bool_ else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))


def _rounded_range(low: int, high: int, dtype: DType) -> tuple[int, int]:
    """Of a floating dtype, which may round `low` up to itself only, and `high - 1` not up to `high`."""
    bits, real = _EXACT_BITS[dtype], dtype.numpy.type
    above, below = int(real(low + 1)), int(real(high - 1))
    if above < low:
        low = above + (1 << (abs(low + 1).bit_length() - bits))
    if below >= high:
        high = below - (1 << (abs(high - 1).bit_length() - bits))
    if max(-low, high - 1) > 1 << bits:
        warnings.warn(f"a bound is out of [-(2^{bits}), 2^{bits}]: {dtype.name} holds only whole numbers between them",
                      stacklevel=4)  # fmt: skip
    return low, high
