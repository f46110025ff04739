"""Arrays that a backward pass frees, as it frees tensors: the number of a product or quotient, which torch saves so.

In: an array that a composite makes for an op. Out: whether one is such. The tape (tensor/autograd/gone.py) asks when it
frees a node: a second backward through `x * 3` is then refused, as in torch. Other constants of composites, the count
of a mean say, stay: torch saves none there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from compiler_core.dtype import DType
from compiler_core.meta import Shape
from compiler_core.ops.primitives.creation import FULL
from compiler_core.ops.registry import Array, Value

_spent: WeakValueDictionary[int, Array] = WeakValueDictionary()  # by id


def spent(value: Value) -> Value:
    """`value`, which is freed with the node that saves it if it is an array, and not a Tensor's."""
    if type(value) is np.ndarray:
        _spent[id(value)] = value
    return value


def is_spent(array: Any) -> bool:
    """Whether it is freed so."""
    return _spent.get(id(array)) is array


def repeated(shape: Shape, number: float, dtype: DType) -> Array:
    """A number beside an array of this shape and dtype, spent; calls with one number share it."""
    return _repeated(shape, number, dtype) if number else _made(shape, number, dtype)  # 0.0 and -0.0 are equal


def _made(shape: Shape, number: float, dtype: DType) -> Array:
    constant: Array = spent(FULL.eager(np, shape=shape, value=number, dtype=dtype))
    return constant


_repeated = lru_cache(1024)(_made)
