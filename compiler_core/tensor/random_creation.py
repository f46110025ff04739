"""Making random Tensors: rand, randn, randint, randperm, normal, bernoulli and their `_like` forms.

In: sizes, a generator (default: the thread's). Out: fresh leaves. Each call takes one key of the generator, so one
draw, and hands it to the function of that name in ops/composite_creation.py. So the numbers are the same eager,
compiled, on any rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.device import Device, device_of
from compiler_core.dtype import DType
from compiler_core.errors import DomainError, NoKernelError, ShapeError
from compiler_core.ops import composite_creation as creation
from compiler_core.ops import draws, prims
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.random_there import drawing_on
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value, current_trace, meta_of
from compiler_core.tensor.creation import DeviceLike, Shape, leaf, sizes
from compiler_core.tensor.placement import check_generator, creation_names, is_meta_trace
from compiler_core.tensor.random import Generator, default_generator
from compiler_core.tensor.tensor import Tensor


def _need_inexact(name: str, dtype: DType) -> None:
    if not dtype.is_inexact:
        raise NoKernelError(f"{name} makes floating numbers", expected="a floating dtype", got=dtype.name)


def uniform_value(shape: Shape, dtype: DType, generator: Generator | None = None) -> Value:
    """Uniform in [0, 1)."""
    _need_inexact("rand", dtype)
    key, stream = (generator or default_generator).next_key()
    return creation.rand(key, shape, stream=stream, dtype=dtype)


def normal_value(shape: Shape, dtype: DType, generator: Generator | None = None) -> Value:
    """Standard normal."""
    _need_inexact("randn", dtype)
    key, stream = (generator or default_generator).next_key()
    return creation.randn(key, shape, stream=stream, dtype=dtype)


def filled(
    tensor: Tensor, generator: Generator | None, *, low: float = 0.0, high: float = 1.0, std: float | None = None
) -> Tensor:
    """A draw to fill `tensor` with: uniform in [low, high), or, where std is given, low + std * standard normal."""
    check_std(std)
    key, stream = (generator or default_generator).next_key()
    scale, place = high - low if std is None else std, tensor.device
    if place.type == "cpu" and draws.is_large(key, tuple(tensor.shape), tensor.dtype):  # scaled in the same sweep
        make = draws.uniform if std is None else draws.normal
        return leaf(make(key, tuple(tensor.shape), stream, tensor.dtype, scale, low))
    with _drawing_on(place):
        unit = (creation.rand if std is None else creation.randn)(key, tensor.shape, stream=stream, dtype=tensor.dtype)
    return leaf(unit, device=place) * scale + low


def _drawing_on(place: Device) -> AbstractContextManager[None]:
    """Inside, draws outside of a trace are made on that device."""
    return drawing_on(place.index if place.type == "cuda" and current_trace() is None else None)


@creation_names
def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform in [0, 1)."""
    return leaf(uniform_value(sizes(size), dtype or dt.get_default_dtype(), generator), requires_grad, device)


@creation_names
def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal."""
    return leaf(normal_value(sizes(size), dtype or dt.get_default_dtype(), generator), requires_grad, device)


@creation_names
def rand_like(
    input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """`rand` of input's shape and dtype."""
    return rand(input.shape, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad)


@creation_names
def randn_like(
    input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """`randn` of input's shape and dtype."""
    return randn(input.shape, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad)


@creation_names
def randint(
    low: int,
    high: Any = None,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
) -> Tensor:
    """Integers in [low, high), at most 2**32 of them; `randint(high, size)` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if size is None:
        raise ShapeError("randint needs a size", expected="randint(low, high, size)")
    key, stream = (generator or default_generator).next_key()
    return leaf(creation.randint(key, low, high, tuple(size), stream=stream, dtype=dtype), False, device)


@creation_names
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """`randint` of input's shape and dtype."""
    bounds = (0, low) if high is None else (low, high)
    return randint(*bounds, input.shape, dtype=dtype or input.dtype, device=device)


@creation_names
def randperm(
    n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: DeviceLike = None
) -> Tensor:
    """A random permutation of 0..n-1: the order of n 64-bit draws."""
    if is_meta_trace():
        return Tensor._wrap(MetaValue((n,), dtype or dt.int64))
    key, stream = (generator or default_generator).next_key()
    if current_trace() is not None:
        draws = Tensor._wrap(prims.cast(prims.philox(key, (2, n), stream), dt.int64))
        signed = (draws[0] - 2**31) * 2**32 + draws[1]  # in the order of the 64 bits
        return signed.argsort(stable=True).to(dtype or dt.int64)
    draws = prims.philox(key, (2, n), stream)
    with device_of(draws).working():
        high, low = draws.astype(np.uint64)
        order = (high << np.uint64(32) | low).argsort(kind="stable").astype((dtype or dt.int64).numpy)
    return leaf(order, False, device)


def check_std(std: Any) -> None:
    """Raise DomainError if it is a number below 0, or NaN. A tensor's numbers may be a device's: they are not read."""
    if isinstance(std, int | float) and not std >= 0:
        raise DomainError("normal expects std >= 0", got=str(std))


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """mean + std * standard normal; without `size`, of the shape of the tensors given. On the device of the first."""
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    check_std(std)
    shape = tuple(size) if size is not None else np.broadcast_shapes(*(tuple(x.shape) for x in given))
    dtype = dtype or (given[0].dtype if given else dt.get_default_dtype())
    where = given[0].device if given else device
    made = randn(shape, generator=generator, dtype=dtype, device=where) * std + mean
    return made.requires_grad_() if requires_grad else made  # type: ignore[no-any-return]


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


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with probability `input`, or p, else 0: in input's dtype."""
    if p is not None:
        return input.detach().clone().bernoulli_(p, generator=generator)
    chances, meta = probabilities(input), meta_of(input)
    check_generator(generator, input.device)
    with _drawing_on(input.device):
        value = uniform_value(meta.shape, meta.dtype, generator)
    draw = leaf(value, device=input.device)
    return prims.cast(prims.lt(draw, chances), meta.dtype)  # type: ignore[no-any-return]
