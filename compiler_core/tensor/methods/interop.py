"""Python and NumPy see a Tensor's data: item, tolist, bool, float, numpy, `__array__`.

In: Tensors. Out: Python numbers and NumPy arrays, which share the tensor's memory (`lent.py`).
On a traced tensor each of these is a graph break that names the user's line; but tolist of a literal gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import cuda
from compiler_core.errors import AutogradError, DeviceTypeError, DomainError, DTypeError, ShapeError
from compiler_core.graph.ir import Constant
from compiler_core.ops.registry import Array, current_trace
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.memory.lent import borrow, memory
from compiler_core.tensor.size import told

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

Number = bool | int | float | complex


def _numpy(self: Tensor, *, force: bool = False) -> Array:
    """An array on this tensor's memory: what is written to one is seen by the other.

    Where gradients are on, a tensor that requires one must be detached first; one of a CUDA device is brought to the
    CPU first, or forced.
    """
    host = _host_array(self, force)
    return host.copy() if self.is_conj() else host if self.device.is_gpu else memory(self._cell)


def _host_array(self: Tensor, force: bool) -> Array:
    """The data as an array that is not to be kept. Raises for what NumPy cannot share, unless forced."""
    if self.requires_grad and is_grad_enabled() and not force:
        raise AutogradError("numpy() on a tensor that requires a gradient", remedy="use tensor.detach().numpy()")
    if not force and self.device.is_gpu:
        raise DeviceTypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    if not force and self.is_conj():
        raise DomainError(
            "Can't call numpy() on Tensor that has conjugate bit set. Use tensor.resolve_conj().numpy() instead."
        )
    return self._array("numpy()")


def _array_protocol(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
    if copy or (dtype is not None and self._cell.raw.dtype != dtype):
        return _host_array(self, False).astype(dtype or self.dtype.numpy)
    return _numpy(self)


def _cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """How CuPy, Numba and others find the memory of a tensor on a CUDA device."""
    if not self.device.is_gpu:
        raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()}")
    if self.requires_grad:
        raise AutogradError("__cuda_array_interface__ of a tensor that requires a gradient", remedy="use detach()")
    self._own_array("__cuda_array_interface__")
    shared: Any = memory(self._cell)
    return dict(shared.__cuda_array_interface__)


def _array_wrap(self: Tensor, array: Array, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What a NumPy function of this tensor gives: a Tensor, as in torch."""
    made = np.asarray(array)
    return type(self)._wrap(made) if made.base is None else type(self)._from_cell(borrow(made))


def _item(self: Tensor) -> Number:
    """The one element as a Python number."""
    return _scalar(self, "item()")


def _scalar(self: Tensor, what: str) -> Number:
    array = self._array(what)
    if array.size != 1:
        raise ShapeError(f"{what} needs a tensor with one element", expected="1 element", got=f"shape {array.shape}")
    value = array.reshape(()).item()
    if type(array) is not np.ndarray:
        cuda.waited()
    return value if isinstance(value, (bool, int, float, complex)) else float(value)  # ml_dtypes gives its own scalars


def _tolist(self: Tensor) -> Any:
    """The data as nested lists of Python numbers, or one number."""
    value = self._read()
    array = value.array if isinstance(value, Constant) else self._array("tolist()")
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    made = array.tolist()
    if type(array) is not np.ndarray:
        cuda.waited()
    return made


def _bool(self: Tensor) -> bool:
    return bool(_scalar(self, "bool()"))


def _float(self: Tensor) -> float:
    return float(_real(_scalar(self, "float()")))


def _int(self: Tensor) -> int:
    return int(_real(_scalar(self, "int()")))


def _real(number: Number) -> float:
    """number, unless it has an imaginary part. Raises DTypeError, as torch does."""
    if isinstance(number, complex):
        if number.imag:
            raise DTypeError("a complex number cannot be converted to a real one without loss", got=str(number))
        return number.real
    return number


def _complex(self: Tensor) -> complex:
    return complex(_scalar(self, "complex()"))


def _index(self: Tensor) -> int:
    value = self._cell.current() if current_trace() is None else None
    if type(value) is np.ndarray and value.size == 1 and value.dtype.kind in "iub":
        return int(value.item())
    if self.dtype.kind not in "iub":
        raise TypeError(f"only integer tensors can be used as an index, got {self.dtype}")
    return int(_scalar(self, "using it as an index").real)


def _len(self: Tensor) -> int:
    if self.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return told(self.shape[0])


def _contains(self: Tensor, element: object) -> bool:
    other = element._array("in") if hasattr(element, "_array") else element
    return bool((self._array("in") == other).any())


def _format(self: Tensor, spec: str) -> str:
    """As torch: one without dims is formatted as its number, others take no spec."""
    if self.ndim == 0 and not self.is_meta and "_from_cell" in vars(type(self)):
        return format(_scalar(self, "format()"), spec)
    if spec:
        raise TypeError(f"unsupported format string passed to {type(self).__name__}.__format__")
    return repr(self)


def _as_html(self: Tensor) -> str:
    """What a notebook shows."""
    from compiler_core.tensor.notebook import tensor_html

    return tensor_html(self)


class Interop:
    """The table of the methods above."""

    __slots__ = ()
    numpy = _numpy
    __array__ = _array_protocol
    __cuda_array_interface__ = property(_cuda_array_interface)
    __array_wrap__ = _array_wrap
    item = _item
    tolist = _tolist
    __bool__ = _bool
    __float__ = _float
    __int__ = _int
    __complex__ = _complex
    __index__ = _index
    __len__ = _len
    __contains__ = _contains
    __format__ = _format
    _repr_html_ = _as_html
