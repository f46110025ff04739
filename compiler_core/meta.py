"""What the compiler knows of a value without its data: shape and dtype.

In: nothing. Out: `TensorMeta`, carried by every graph node and derived by every op's `infer`.
Invariant: sizes are non-negative. A size is a Python int; symbolic sizes enter here (see `symbolic/`).
The device is a property of a whole graph, not of a value, so it is not part of the meta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler_core.dtype import DType

Size = int
Shape = tuple[Size, ...]


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
