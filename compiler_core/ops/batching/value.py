"""Values that stand for a batch: what a Tensor's cell holds while a function of one example is mapped over many.

In: a value whose first dim is the batch, and the `Level` it belongs to: one call of vmap. Out: `Batched`, of the shape
of one example. `bind` on one applies the op's `vmap` rule to what it holds, and so works on arrays, graph nodes and
values of outer levels alike (running.py). The tape, views and writes see single examples: they need no rules.
Invariants: the batch dim is in front. Of nested values the one of the level with the highest number is outside, so two
values of several levels always agree on the order. Whoever needs a Batched value's data gets BatchError.
Source: functorch's BatchedTensor, JAX's BatchTrace.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NoReturn

from compiler_core.errors import BatchError
from compiler_core.meta import Shape
from compiler_core.records import dataclass

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One call of vmap. size: of its batch. randomness: what draws give: "error", "different" or "same"."""

    size: int
    randomness: str = "error"
    number: int = field(default_factory=_numbers.__next__)


class _Thread(threading.local):
    levels: tuple[Level, ...] = ()


_thread = _Thread()


def levels() -> tuple[Level, ...]:
    """Those whose functions this thread is running, the innermost last."""
    return _thread.levels


def set_levels(these: tuple[Level, ...]) -> None:
    """Those are running in this thread from now on."""
    _thread.levels = these


class running:
    """Inside, the functions of `levels` run, the innermost last."""

    __slots__ = ("before", "levels")

    def __init__(self, *levels: Level) -> None:
        self.levels = levels

    def __enter__(self) -> None:
        self.before = _thread.levels
        _thread.levels = (*self.before, *self.levels)

    def __exit__(self, *error: object) -> None:
        _thread.levels = self.before


def as_running(value: Any) -> running:
    """Inside, the levels of `value` count as running, also if they have ended: gradients are each example's own."""
    return running(*(level for level in reversed(levels_of(value)) if level not in _thread.levels))


class Batched:
    """A value for each example of `level`: value[k] is that of example k."""

    __slots__ = ("dtype", "level", "shape", "value")
    __bind_priority__ = 1.5  # beside a graph node, that is operand; beside a Tensor, that decides

    def __init__(self, value: Any, level: Level) -> None:
        self.value, self.level = value, level
        self.shape: Shape = tuple(value.shape)[1:]
        self.dtype = value.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of all examples."""
        return getattr(self.value, "nbytes", 0)

    def copy(self) -> Batched:
        """A value of its own."""
        return Batched(self.value.copy(), self.level)

    def transpose(self, dims: Sequence[int]) -> Batched:
        """As an array's."""
        return Batched(self.value.transpose((0, *(d + 1 for d in dims))), self.level)

    @staticmethod
    def no_data(what: str) -> BatchError:
        """The error of `what`, which needs a number where there is one for each example."""
        return needs_data(what)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise needs_data("this operation")

    @staticmethod
    def __bind__(op: Any, values: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        from compiler_core.ops.batching.running import run_batched

        return run_batched(op, values, attrs)


def needs_data(what: str) -> BatchError:
    """The error of `what`, which needs a number where there is one for each example."""
    if what.startswith(("bool(", "the truth")):
        why = "It looks like you're attempting to use a Tensor in some data-dependent control flow."
        remedy = "choose with torch.where(condition, a, b), which computes both"
    else:
        why = f"It looks like you're calling {what} on a Tensor. We don't support vmap over calling {what} on a Tensor,"
        why += " please try to rewrite what you're doing with other operations."
        remedy = "return the tensor from the mapped function, and read it there"
    return BatchError(f"vmap: {why}", remedy=remedy)


def held(value: Any) -> Any:
    """The array, node or other value for all examples of all levels."""
    while type(value) is Batched:
        value = value.value
    return value


def levels_of(value: Any) -> tuple[Level, ...]:
    """The levels of a value, the outermost wrapper first."""
    found = []
    while type(value) is Batched:
        found.append(value.level)
        value = value.value
    return tuple(found)
