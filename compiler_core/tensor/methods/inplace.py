"""In-place methods: a function of the present value, assigned back; and those of them that are no function's twin.

In: a function over values. Out: a method that computes it on a snapshot (so that the gradient rule keeps the old
value, free of charge) and assigns the result to the tensor, and so to all that share its memory. Shape stays, dtype
stays (see Tensor._assign). Errors as in torch: on a leaf that requires a gradient, on an expanded view, on a result
of a higher kind of dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.forward import level
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import is_scalar, plain
from compiler_core.ops.meta_value import no_data
from compiler_core.ops.on_device import COUNTED
from compiler_core.ops.refusals import check_fits
from compiler_core.ops.registry import Value, current_trace, meta_of
from compiler_core.tensor.autograd.grad_mode import Inference
from compiler_core.tensor.autograd.inference import has_no_version
from compiler_core.tensor.making.placement import on_meta
from compiler_core.tensor.memory.cell import DeviceCell, alone
from compiler_core.tensor.memory.journal import note_change
from compiler_core.tensor.memory.overlap import check_apart
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.memory.writing import note_move, note_rebinding, over
from compiler_core.tensor.methods.indexing import index_put
from compiler_core.tensor.straight import array_of

if TYPE_CHECKING:
    from compiler_core.tensor.making.random import Generator
    from compiler_core.tensor.tensor import Tensor

P = ParamSpec("P")
_NOBODY = nullcontext()


def in_place(function: Callable[Concatenate[Any, P], Value]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """The method that puts `function(self, ...)` in self's place and returns self."""
    is_of_parts = getattr(function, "__name__", "").startswith(("index_", "scatter", "masked_"))

    def method(self: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        self._check_in_place()
        if args:
            check_apart(self, args)
        with alone(self._cell) if is_of_parts else _NOBODY:
            self._assign(function(self._snapshot(), *args, **kwargs))
        return self

    method.__doc__ = f"{getattr(function, '__name__', 'the function')}, in place."
    method.__name__ = f"{getattr(function, '__name__', 'method')}_"
    return method


def drawing(function: Callable[Concatenate[Any, P], Value]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """As `_overwriting`, of a function that draws for the tensor itself, whose memory says in which order."""

    def method(self: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        self._check_in_place()
        value = function(self, *args, **kwargs)
        self._assign(value if self._view is not None else over(self, value))
        return self

    method.__doc__ = f"{getattr(function, '__name__', 'the function')}, in place."
    method.__name__ = f"{getattr(function, '__name__', 'method')}_"
    return method


def _overwriting(function: Callable[Concatenate[Any, P], Value]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """As `in_place`, of a function that does not depend on self's value: what self was gets zeros for a gradient."""

    def method(self: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        self._check_in_place()
        if args:
            check_apart(self, args)
        value = function(self._snapshot(), *args, **kwargs)
        self._assign(value if self._view is not None else over(self, value))
        return self

    method.__doc__ = f"{getattr(function, '__name__', 'the function')}, in place."
    method.__name__ = f"{getattr(function, '__name__', 'method')}_"
    return method


def counted(self: Tensor) -> bool:
    """Whether `self.add_(1)` was done: of a plain int64 on the lone device, as norms count their batches."""
    cell = self._cell
    if type(cell) is not DeviceCell or self._view is not None or (Inference.in_use and has_no_version(cell)):
        return False
    value = array_of(self)
    if value is None or value.dtype != np.int64:
        return False
    more = COUNTED.get()(value, 1)
    cell.write(value + 1 if more is None else more)
    return True


# ---- what has no function of its own


def _copy(self: Tensor, src: Any, non_blocking: bool = False) -> Value:
    """Copy `src`, broadcast and cast, into self."""
    from compiler_core.tensor.making.creation import as_tensor

    source = as_tensor(src)
    if source.is_meta and not self.is_meta:
        raise no_data("copying a tensor of device meta to the CPU")
    source = on_meta(source) if self.is_meta else source
    dtype = dt.of(self.dtype)
    source = source if source.dtype is dtype else prims.cast(source, dtype)
    return F.expand(source, meta_of(self).shape)


def _filled(self: Tensor, value: Any) -> Value:
    if not is_scalar(value):
        return _copy(self, value)
    check_fits(self.dtype, value)
    return type(self)._wrap(prims.full_like(self, plain(value)))


def at_least(self: Tensor, min: Any) -> Value:
    """clamp with a lower bound alone."""
    return F.clamp(self, min=min)


def at_most(self: Tensor, max: Any) -> Value:
    """clamp with an upper bound alone."""
    return F.clamp(self, max=max)


def _zeros(self: Tensor) -> Value:
    return _filled(self, 0)


def _drawn(self: Tensor, kind: str, *numbers: Any, generator: Generator | None) -> Tensor:
    from compiler_core.tensor.making.filling import drawn_into

    return drawn_into(self, kind, self.dtype, *map(float, numbers), generator=generator)


def _uniform(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Value:
    """Uniform in [a, b)."""
    if a > b:
        raise ShapeError("uniform_ expects a range", expected="from <= to", got=f"from={a}, to={b}")
    return _drawn(self, "uniform", a, b, generator=generator)


def _normal(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Value:
    """Normal with this mean and standard deviation; a complex number's parts, each with half of the variance."""
    from compiler_core.tensor.making.filling import check_std

    check_std(std)
    return _drawn(self, "normal", mean, std, generator=generator)


def _bernoulli(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Value:
    """1 with probability p, a number or of every element its own, else 0."""
    from compiler_core.tensor.dropping import by_chance
    from compiler_core.tensor.making import filling as made

    if hasattr(p, "shape") and hasattr(p, "_cell"):
        return made.below(self, p, generator, made.order_of(self)[0])
    chance = float(made.probabilities(p))
    quick = by_chance(self, chance, generator)
    return _drawn(self, "bernoulli", chance, generator=generator) if quick is None else quick


def _random(self: Tensor, *bounds: Any, to: Any = None, generator: Generator | None = None) -> Value:
    """Integers in [from, to), of `random_(from, to)`, from 0 of `random_(to)`; else what the dtype holds."""
    from compiler_core.tensor.making.filling import random_integers

    if to is not None:
        bounds = (*bounds, to)
    low, high = bounds if len(bounds) == 2 else (0, *bounds) if bounds else (None, None)
    return random_integers(self, low, high, generator)


def _derived(name: str, file: str = "methods.derived") -> Callable[..., Value]:
    """The function `name` of a file of compiler_core/tensor, which needs Tensor itself: loaded at its first use."""

    def function(self: Tensor, *args: Any, **kwargs: Any) -> Value:
        return getattr(import_module(f"compiler_core.tensor.{file}"), name)(self, *args, **kwargs)

    function.__name__ = name
    return function


# ---- what changes the handle, not the values


def handle_in_place(function: Callable[..., Value]) -> Callable[..., Tensor]:
    """The method that makes self the view `function(self, ...)` of what it was."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self._check_in_place()
        note_move(self)
        before = type(self)._from_cell(self._cell, self._node)
        before._view = self._view
        if level.on:
            level.carry(self, before)
        view: Tensor = function(before, *args, **kwargs)
        note_change(self, "_cell", "_node", "_view")
        self._cell, self._node, self._view = view._cell, view._node, view._view
        if level.on:
            level.carry(view, self)
        rebound(self)
        return self

    method.__doc__ = f"{getattr(function, '__name__', 'the view')}, in place."
    return method


def _detach_in_place(self: Tensor) -> Tensor:
    """Forget the history: this tensor becomes a leaf."""
    note_rebinding(self)
    note_change(self, "_cell", "_node", "_view", "_requires_grad")
    if current_trace() is not None and not self._cell.is_external:
        self._cell = self.detach()._cell
    self._node = self._view = None
    self._requires_grad = False
    rebound(self)
    return self


class InPlaceMethods:
    """Those that are no twin of a function of torch_table.py."""

    __slots__ = ()

    copy_, fill_, zero_ = _overwriting(_copy), _overwriting(_filled), in_place(_zeros)
    clamp_min_, clamp_max_ = in_place(at_least), in_place(at_most)
    index_put_, fill_diagonal_ = in_place(index_put), in_place(_derived("fill_diagonal"))
    detach_ = _detach_in_place
    as_strided_, resize_, resize_as_ = (
        handle_in_place(_derived(name, "memory.strided")) for name in ("as_strided", "resized", "resized_as")
    )
    uniform_, normal_, bernoulli_, random_ = drawing(_uniform), drawing(_normal), drawing(_bernoulli), drawing(_random)
