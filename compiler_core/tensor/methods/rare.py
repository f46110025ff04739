"""Tensor methods that few programs use: further draws, questions with one answer here.

In: Tensors. Out: the table `RareMethods`, a base of Tensor. Nothing here is quantized, or on a device other
than the CPU, CUDA's and meta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.device import cpu
from compiler_core.errors import DeviceTypeError, DomainError, DTypeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.tensor.methods.inplace import drawing, in_place

if TYPE_CHECKING:
    from compiler_core.tensor.making.random import Generator
    from compiler_core.tensor.tensor import Tensor


def _drawn(self: Tensor, kind: str, *numbers: float, generator: Generator | None) -> Tensor:
    from compiler_core.tensor.making.filling import drawn_into

    return drawn_into(self, kind, self.dtype, *map(float, numbers), generator=generator)


def _above_0(name: str, what: str, number: float) -> float:
    if not number > 0:
        raise DomainError(f"{name} expects {what} > 0.0, but found {what}={number}")
    return number


def _cauchy(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Value:
    """Cauchy: median + sigma * tan(pi * (u - 1/2))."""
    if not self.dtype.is_floating_point:
        raise DTypeError("cauchy_ makes floating numbers", expected="a floating dtype", got=self.dtype.name)
    return _drawn(self, "cauchy", median, _above_0("cauchy_", "sigma", sigma), generator=generator)


def _exponential(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Value:
    """Exponential: -log(1 - u) / lambd."""
    if not self.dtype.is_floating_point:
        raise DTypeError("exponential_ makes floating numbers", expected="a floating dtype", got=self.dtype.name)
    return _drawn(self, "exponential", _above_0("exponential_", "lambda", lambd), generator=generator)


def _log_normal(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Value:
    """exp of a normal number with this mean and standard deviation."""
    return _drawn(self, "log_normal", mean, _above_0("log_normal_", "std", std), generator=generator)


def _geometric(self: Tensor, p: float, *, generator: Generator | None = None) -> Value:
    """The number of trials until one of probability p succeeds: 1, 2, ..."""
    if not 0 < p < 1:
        raise DomainError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return _drawn(self, "geometric", p, generator=generator)


def _float_power(self: Tensor, exponent: Any) -> Value:
    if self.dtype.name not in ("float64", "complex128"):
        what = f"the base given to float_power_ has dtype {self.dtype.name}"
        raise DTypeError(f"{what} but the operation's result requires dtype double")
    return F.pow(self, exponent)


def _apply(self: Tensor, function: Callable[[Any], Any]) -> Tensor:
    """function of each element, in place; of a tensor of the CPU."""
    return _mapped(self, "apply_", function, self)


def _map(self: Tensor, tensor: Tensor, function: Callable[[Any, Any], Any]) -> Tensor:
    """function(element, the element of `tensor` there), in place; of tensors of the CPU."""
    return _mapped(self, "map_", function, self, tensor)


def _mapped(self: Tensor, name: str, function: Callable[..., Any], *others: Tensor) -> Tensor:
    from compiler_core.tensor.making.creation import tensor as made

    if self.device is not cpu:
        raise DeviceTypeError(f"{name} is only implemented on CPU tensors")
    self._array(f"{name}()")
    columns = [F.expand(other.detach(), tuple(self.shape)).reshape(-1).tolist() for other in others]
    values = [function(*row) for row in zip(*columns, strict=True)]
    return self.copy_(made(values, dtype=self.dtype).reshape(self.shape))


def _is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return tuple(self.shape) == tuple(other.shape)


def _is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are one view of one storage."""
    mine, other = self._cell, tensor._cell
    return mine.root is other.root and (self.shape, self.stride(), mine.offset()) == (
        tensor.shape,
        tensor.stride(),
        other.offset(),
    )


def _new_empty_strided(self: Tensor, size: Any, stride: Any, **options: Any) -> Tensor:
    """`empty_strided` of this dtype on this device, unless others are given."""
    from compiler_core.tensor.memory.strided import empty_strided

    given = {name: value for name, value in options.items() if value is not None}
    return empty_strided(size, stride, **{"dtype": self.dtype, "device": self.device, **given})


def _narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`narrow`, with memory of its own."""
    return self.narrow(dim, start, length).clone()


def _prelu(self: Tensor, weight: Tensor) -> Value:
    """x where it is at least 0, else weight * x; weight: of one element, or one a channel (dim 1)."""
    need_kind("prelu", "f", self)
    if weight.numel() > 1:
        weight = weight.reshape([-1 if d == min(1, self.ndim - 1) else 1 for d in range(self.ndim)])
    return F.where(F.ge(self, 0), self, F.mul(self, weight))


def _hardshrink(self: Tensor, lambd: float = 0.5) -> Value:
    """0 where |x| <= lambd."""
    need_kind("hardshrink", "f", self)
    return F.where(F.le(F.abs(self), lambd), 0.0, self)


def _dim_order(self: Tensor) -> tuple[int, ...]:
    """The dims from the one of the largest stride to that of the smallest."""
    steps: Any = self.stride()
    return tuple(sorted(range(self.ndim), key=lambda d: (-steps[d], d)))


def _adjoint(self: Tensor) -> Value:
    """The conjugate, with the last two dims exchanged."""
    return prims.conj(F.transpose(self, -2, -1))


def _no(self: Tensor) -> bool:
    """Never, here."""
    return False


class RareMethods:
    """The table."""

    __slots__ = ()
    cauchy_, log_normal_, geometric_ = drawing(_cauchy), drawing(_log_normal), drawing(_geometric)
    exponential_ = drawing(_exponential)
    float_power_ = in_place(_float_power)
    apply_, map_ = _apply, _map
    is_same_size, is_set_to, narrow_copy, new_empty_strided = (
        _is_same_size,
        _is_set_to,
        _narrow_copy,
        _new_empty_strided,
    )
    adjoint, prelu, hardshrink, dim_order = _adjoint, _prelu, _hardshrink, _dim_order
    is_neg = _no
    is_quantized, is_nested, is_mkldnn = property(_no), property(_no), property(_no)
    is_mps, is_xpu, is_xla, is_ipu, is_vulkan, is_mtia, is_maia = (property(_no) for _ in range(7))
    name = property(lambda self: None)
