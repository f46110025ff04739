"""finfo and iinfo: the range and precision of a dtype, as torch gives them; and which dtype several make together.

In: dtypes, or the Python types that stand for them, tensors, numbers. Out: eps, max, min, tiny, bits; a dtype.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError

_DEFAULT = object()  # None is no dtype


class finfo:
    """Numerical limits of a floating dtype, or of a complex one's parts; without one, of the default."""

    def __init__(self, type: Any = _DEFAULT) -> None:
        dtype = (dt.get_default_dtype() if type is _DEFAULT else dt.as_dtype(type)).real
        if not dtype.is_floating_point:
            raise DTypeError("finfo is for floating and complex dtypes", got=repr(dtype), remedy="use iinfo")
        limits = dtype.limits if isinstance(dtype, dt.Format) else dtype.numpy
        info: Any = ml_dtypes.finfo(limits)  # type: ignore[no-untyped-call]
        self.bits, self.dtype = dtype.itemsize * 8, dtype.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = 1.0 if isinstance(dtype, dt.Format) else 10.0**-info.precision

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        values = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({values}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype."""

    def __init__(self, type: Any) -> None:
        dtype = dt.as_dtype(type)
        if dtype.kind not in "iu" or isinstance(dtype, dt.Format):
            raise DTypeError("iinfo is for integer dtypes", got=repr(dtype), remedy="use finfo")
        info: Any = np.iinfo(np.dtype(dtype.name))
        self.bits, self.dtype, self.min, self.max = info.bits, dtype.name, int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def promote_types(type1: dt.DType | type, type2: dt.DType | type) -> dt.DType:
    """The dtype of a sum of tensors of these two."""
    return dt.promote(dt.as_dtype(type1), dt.as_dtype(type2))


def result_type(tensor1: Any, tensor2: Any) -> dt.DType:
    """The dtype of tensor1 + tensor2: tensors or numbers."""
    return dt.promote(tensor1, tensor2)


_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def can_cast(from_: dt.DType | type, to: dt.DType | type) -> bool:
    """Whether an in-place result of dtype `from_` may be put into a tensor of dtype `to`."""
    return _KINDS[dt.as_dtype(from_).kind] <= _KINDS[dt.as_dtype(to).kind]
