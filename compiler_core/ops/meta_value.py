"""A value of device "meta": shape and dtype, no data.

In: a shape and a dtype. Out: `MetaValue`, which a Tensor's cell may hold in place of an array. `bind` on one gives the
MetaValue that the op's `infer` promises, so every op, its gradient and every view runs on it by the rules of shapes.
Invariant: whoever needs its data gets NoDataError; it never becomes an array of some other numbers.
Its dtype is a DType, an array's one of NumPy's: the checks that `run_eager` remembers never mix the two.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from compiler_core.dtype import DType, of
from compiler_core.errors import NoDataError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class MetaValue:
    """Stands for an array of this shape and dtype."""

    shape: Shape
    dtype: DType
    __bind_priority__ = 0  # beside a Tensor or a node, that decides

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def copy(self) -> MetaValue:
        return self

    @staticmethod
    def no_data(what: str) -> NoDataError:
        """The error of `what`, which needs its data."""
        return no_data(what)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise no_data("this operation")

    @staticmethod
    def __bind__(op: Any, values: tuple[Any, ...], attrs: dict[str, Any]) -> MetaValue:
        return infer_value(op, values, attrs)


def infer_value(op: Any, values: Any, attrs: dict[str, Any]) -> MetaValue:
    """What `op` gives on `values`, of which any may be a MetaValue."""
    meta: TensorMeta = op.infer(*[TensorMeta(tuple(v.shape), of(v.dtype)) for v in values], **attrs)
    return MetaValue(meta.shape, meta.dtype)


def no_data(what: str) -> NoDataError:
    """The error of `what`, which needs the data of a meta tensor."""
    return NoDataError(
        f"{what} needs data: Cannot copy out of meta tensor; no data!",
        remedy="make it on the CPU (Module.to_empty(device='cpu'), load_state_dict(assign=True)), and fill it",
    )
