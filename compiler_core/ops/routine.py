"""A library routine as one block: what it accepts, what it costs, its NumPy definition, and how native code calls it.

In: an op's definition. Out: `Routine`, which stands as the op's `lower` rule. Two kinds:

    C call       `native` says which symbols of which library are called, and how
    call back    native code takes the GIL and calls the NumPy definition; `why` says why (`explain` repeats it)

A call back is never a graph break: what stands before and after it is still one native program. To declare one, give
the op `lower=call_back("my_op", _eager_my_op, why="...")`: nothing else is needed. Invariants: an operand is read
through its views where `accepts` takes the strides, else from a contiguous copy; the result is contiguous; a routine
writes its result only, and keeps no address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from compiler_core.dtype import DType
from compiler_core.meta import Shape, TensorMeta

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Strided:
    """How an array lies in memory. strides: in elements, none negative; 0 repeats one element."""

    dtype: DType
    shape: Shape
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        return TensorMeta(self.shape, self.dtype).numel

    @property
    def span(self) -> int:
        """Elements from the first to the last, both included."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + 1 if self.numel else 0


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """One library routine, whole.

    define(out, *operands, **attrs): writes `out`; arrays lie as `accepts` allows. The definition of all other forms.
    accepts(layout): whether an operand may lie so. flops(*operand metas, **attrs): floating-point operations.
    why: why native code calls back into NumPy.
    """

    name: str
    define: Callable[..., None]
    why: str
    accepts: Callable[[Strided], bool]
    flops: Callable[..., int]


ROUTINES: dict[str, Routine] = {}  # by name: what texts and artefacts refer to


def call_back(
    name: str,
    eager: Callable[..., Array],
    why: str,
    *,
    accepts: Callable[[Strided], bool] = lambda layout: True,
    flops: Callable[..., int] = lambda *metas, **attrs: 0,
) -> Routine:
    """The routine that calls the definition `eager(xp, *arrays, **attrs)` of op `name` back, any strides by default."""

    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        with np.errstate(all="ignore"):
            out[...] = eager(np, *operands, **attrs)

    routine = Routine(name, define, why, accepts, flops)
    ROUTINES[name] = routine
    return routine
