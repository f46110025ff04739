"""torch's old tensor types: torch.FloatTensor, LongTensor, BoolTensor, ...: names for annotations, tests and making.

In: `FloatTensor(2, 3)`, `FloatTensor([1.0])`, `isinstance(x, FloatTensor)`, `x.type(FloatTensor)`. Out: Tensors of that
dtype; a class of its own there is not: every Tensor has the one class.
"""

from __future__ import annotations

from typing import Any

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.tensor.creation import empty, tensor
from compiler_core.tensor.tensor import Tensor


class TensorType(type):
    """The class of the types below: they make Tensors, and a Tensor of their dtype is an instance of them."""

    dtype: DType

    def __call__(cls, *data: Any) -> Tensor:
        if not data or all(isinstance(n, int) for n in data):
            return empty(*(data or (0,)), dtype=cls.dtype)
        return tensor(data[0], dtype=cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype


class FloatTensor(metaclass=TensorType):
    """float32."""

    dtype = dt.float32


class DoubleTensor(metaclass=TensorType):
    """float64."""

    dtype = dt.float64


class HalfTensor(metaclass=TensorType):
    """float16."""

    dtype = dt.float16


class BFloat16Tensor(metaclass=TensorType):
    """bfloat16."""

    dtype = dt.bfloat16


class LongTensor(metaclass=TensorType):
    """int64."""

    dtype = dt.int64


class IntTensor(metaclass=TensorType):
    """int32."""

    dtype = dt.int32


class ShortTensor(metaclass=TensorType):
    """int16."""

    dtype = dt.int16


class CharTensor(metaclass=TensorType):
    """int8."""

    dtype = dt.int8


class ByteTensor(metaclass=TensorType):
    """uint8."""

    dtype = dt.uint8


class BoolTensor(metaclass=TensorType):
    """bool."""

    dtype = dt.bool_
