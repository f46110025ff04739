"""Making random Tensors: rand, randn, randint, randperm, normal, bernoulli and their `_like` forms.

In: sizes, a generator (default: that of the device). Out: fresh leaves, or `out`, filled in place. Each call makes one
draw of the generator (filling.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import NoKernelError, ShapeError
from compiler_core.meta import Shape
from compiler_core.ops.random.composite import Draw
from compiler_core.tensor.making.creation import DeviceLike, leaf, sizes
from compiler_core.tensor.making.filling import (
    below,
    check_std,
    drawing_for,
    drawn,
    drawn_like,
    probabilities,
    whole_range,
)
from compiler_core.tensor.making.placement import check_generator, creation_names
from compiler_core.tensor.making.random import Generator, generator_for
from compiler_core.tensor.tensor import Tensor


def _inexact(name: str, dtype: DType | None) -> DType:
    """The dtype to make floating numbers of. Raises DTypeError."""
    dtype = dtype or dt.get_default_dtype()
    if not dtype.is_inexact:
        raise NoKernelError(f"{name} makes floating numbers", expected="a floating dtype", got=dtype.name)
    return dtype


@creation_names
def rand(
    *size: Any,
    out: Tensor | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform in [0, 1)."""
    if out is not None:
        return _fitted(out, sizes(size)).uniform_(generator=generator)
    made = drawn("uniform", sizes(size), _inexact("rand", dtype), 0.0, 1.0, generator=generator)
    return leaf(made, requires_grad, device)


@creation_names
def randn(
    *size: Any,
    out: Tensor | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal."""
    if out is not None:
        return _fitted(out, sizes(size)).normal_(generator=generator)
    made = drawn("normal", sizes(size), _inexact("randn", dtype), 0.0, 1.0, generator=generator)
    return leaf(made, requires_grad, device)


@creation_names
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`rand` of input's shape and dtype, in the order of its memory."""
    dtype = _inexact("rand_like", dtype or input.dtype)
    return leaf(drawn_like("uniform", input, (0.0, 1.0), dtype, generator, memory_format), requires_grad, device)


@creation_names
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randn` of input's shape and dtype, in the order of its memory."""
    dtype = _inexact("randn_like", dtype or input.dtype)
    return leaf(drawn_like("normal", input, (0.0, 1.0), dtype, generator, memory_format), requires_grad, device)


@creation_names
def randint(
    low: Any = None,
    high: Any = None,
    size: Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high); `randint(high, size)` starts at 0. Raises DomainError for an empty range."""
    if size is None and high is not None:
        low, high, size = 0, low, high
    if size is None:
        raise ShapeError("randint needs a size", expected="randint(low, high, size)")
    if out is not None:
        return _fitted(out, sizes((size,))).random_(low or 0, high, generator=generator)
    dtype = dtype or dt.int64
    made = drawn("integers", sizes((size,)), dtype, *whole_range(low or 0, high, dtype), None, generator=generator)
    return leaf(made, requires_grad, device)


@creation_names
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randint` of input's shape and dtype, in the order of its memory."""
    dtype = dtype or input.dtype
    bounds = whole_range(*((0, low) if high is None else (low, high)), dtype)
    made = drawn_like("integers", input, (*bounds, None), dtype, generator, memory_format)
    return leaf(made, requires_grad, device)


@creation_names
def randperm(
    n: int,
    *,
    out: Tensor | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A random permutation of 0..n-1. Raises NoKernelError for bool."""
    if dtype is dt.bool_:
        raise NoKernelError("\"randperm\" not implemented for 'bool'")
    if out is not None:
        return _fitted(out, sizes((n,))).copy_(randperm(n, generator=generator, device=out.device))
    return leaf(drawn("permutation", sizes((n,)), dtype or dt.int64, generator=generator), requires_grad, device)


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """mean + std * standard normal; without `size`, of the shape of the tensors given. On the device of the first."""
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    check_std(std)
    if out is not None:
        return _normal_into(out, mean, std, size, given, generator)
    if not given:
        made = _normal_of(float(mean), float(std), size or (), generator=generator, dtype=dtype, device=device)
    else:
        shape = tuple(size) if size is not None else np.broadcast_shapes(*(tuple(x.shape) for x in given))
        scale = 1.0 if isinstance(std, Tensor) else float(std)
        place, dtype = given[0].device, dtype or given[0].dtype
        made = _normal_of(0.0, scale, shape, generator=generator, dtype=dtype, device=place)
        made = (made * std if isinstance(std, Tensor) else made) + mean
    return made._require() if requires_grad else made


def _normal_into(
    out: Tensor, mean: Any, std: Any, size: Any, given: list[Tensor], generator: Generator | None
) -> Tensor:
    shape = sizes((size,)) if not given else np.broadcast_shapes(*(tuple(x.shape) for x in given))
    _fitted(out, shape)
    if not given:
        return out.normal_(mean, std, generator=generator)
    out.normal_(0.0, 1.0 if isinstance(std, Tensor) else std, generator=generator)
    return (out.mul_(std) if isinstance(std, Tensor) else out).add_(mean)


def _fitted(out: Tensor, shape: Shape) -> Tensor:
    """`out`, resized."""
    return out if tuple(out.shape) == tuple(shape) else out.resize_(tuple(shape))


@creation_names
def _normal_of(
    mean: float,
    std: float,
    size: Any,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
) -> Tensor:
    return leaf(
        drawn("normal", sizes((size,)), _inexact("normal", dtype), mean, std, generator=generator), False, device
    )


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """1 with probability `input` (or p everywhere), else 0, in input's dtype."""
    if out is not None:
        _fitted(out, tuple(input.shape))
        return out.bernoulli_(input if p is None else p, generator=generator)
    if p is not None:
        check_generator(generator, input.device)
        with drawing_for(input.device):
            source = generator_for(input.device, generator)
            made = source.draw(Draw("bernoulli", tuple(input.shape), input.dtype, (probabilities(p),)))
        return leaf(made, device=input.device)
    return below(input.detach(), input, generator, order=None)
