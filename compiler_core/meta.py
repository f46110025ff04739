"""What the compiler knows of a value without its data: shape and dtype.

In: nothing. Out: `TensorMeta`, carried by every graph node and derived by every op's `infer`.
Invariant: sizes are non-negative. A size is a Python int or, while a call's sizes are symbols, a `symbolic.size.Sym`,
which the types here leave out: code that computes with sizes is the same for both.
The device is a property of a whole graph, not of a value, so it is not part of the meta.
"""

from __future__ import annotations

import math
from typing import Any

from compiler_core.dtype import DType
from compiler_core.records import dataclass
from compiler_core.symbolic.expression import Sym, is_symbol

Size = int
Shape = tuple[Size, ...]
INTEGERS = (int, Sym)  # the classes of a size


def as_size(n: Any) -> Size:
    """A number as an int; a symbol as it is."""
    return n if is_symbol(n) else int(n)


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal, whatever the call decides: no symbol is asked, so nothing is assumed of it."""
    return hash(a) == hash(b) and a == b


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape and dtype of one array value. Prints as `f32[2, 3]`."""

    shape: Shape
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if type(other) is not TensorMeta or self.dtype != other.dtype or len(self.shape) != len(other.shape):
            return False  # tuples compare items first, and symbols ask for each
        return self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def with_shape(self, shape: Shape) -> TensorMeta:
        return TensorMeta(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorMeta:
        return TensorMeta(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype.short}[{', '.join(map(str, self.shape))}]"
