"""Tensors on memory of others: arrays of NumPy's, buffers, files.

In: arrays; objects with Python's buffer protocol, or DLPack's; names of files. Out: leaves that share that memory, both
ways (`lent.py`). What cannot be shared is copied where torch copies it, and else refused in torch's kinds of errors.
Under a trace, an array that the traced code does not know from outside is data: a constant of the graph.
"""

from __future__ import annotations

import os
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.device import check_device
from compiler_core.dtype import DType
from compiler_core.errors import DomainError, DTypeError, ShapeError
from compiler_core.ops.registry import Array, current_trace
from compiler_core.tensor.autograd.inference import made
from compiler_core.tensor.making.creation import DeviceLike, leaf, tensor
from compiler_core.tensor.memory.lent import borrow
from compiler_core.tensor.tensor import Tensor


def on_memory(array: Array) -> Tensor:
    """A leaf on the memory of an array."""
    return leaf(array) if current_trace() is not None else Tensor._from_cell(made(borrow(array)))


def _references(ndarray: Array) -> int:
    return getrefcount(ndarray)


_ARRAYS = {np.ndarray, np.memmap}  # of a memmap's items `astype` makes one of its class
_ALONE = _references(np.empty(1))  # of a function that was given an array which its caller does not keep


def from_numpy(ndarray: Array) -> Tensor:
    """A Tensor on the memory of an array: what is written to one is seen by the other.

    One that the caller does not keep (`from_numpy(x.astype(...))`) is the Tensor's own: who has its address alone does
    not see what is written later.
    Raises: DTypeError for what is no array, or of a dtype that there is not; ShapeError for negative strides.
    """
    if type(ndarray) in _ARRAYS and getrefcount(ndarray) == _ALONE and current_trace() is None:
        flags, kind = ndarray.flags, ndarray.dtype
        if flags.owndata and flags.carray and kind.isnative and not getweakrefcount(ndarray):
            dt.of(kind)
            return Tensor._wrap(np.asarray(ndarray))
    held: Tensor | None = getattr(ndarray, "__tensor__", None)  # of an array that is traced
    if held is not None:
        return held
    if not isinstance(ndarray, np.ndarray):
        raise DTypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return on_memory(ndarray)


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d Tensor on the memory of a buffer (bytes, bytearray, memoryview).

    count: how many elements, -1 for all that are left. offset: bytes to leave out at the start.
    Raises: ShapeError if the buffer is empty, or holds no such elements.
    """
    size, each = memoryview(buffer).nbytes, dtype.itemsize
    if offset < 0 or offset >= size:
        raise ShapeError("offset lies outside of the buffer", expected=f"0 <= offset < {size}", got=str(offset))
    if count == 0 or count < -1 or (count > 0 and offset + count * each > size):
        raise ShapeError(f"the buffer has not that many elements after byte {offset}",
                         expected=f"-1, or 1 <= count <= {(size - offset) // each}", got=str(count))  # fmt: skip
    if count < 0 and (size - offset) % each:
        raise ShapeError("the buffer is no whole number of elements", expected=f"a multiple of {each} bytes",
                         got=f"{size - offset} bytes after byte {offset}")  # fmt: skip
    made = on_memory(np.frombuffer(buffer, dtype.numpy, count, offset))
    return made._require() if requires_grad else made


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a Tensor: on its memory if it is a Tensor, an array, a buffer or of DLPack, unless copy=True.

    copy: True for always, False for never, None for where dtype or device demand it. requires_grad: as `obj` does if
    None. A buffer is read as elements of dtype, the default dtype if not given. Raises ShapeError for copy=False where
    it cannot share.
    """
    shared = _shared(obj, dtype)
    if shared is None:
        if copy is False:
            raise ShapeError("can't alias arbitrary sequence into a tensor.", got=type(obj).__name__)
        return tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    place = shared.device if device is None else check_device(device)
    if copy is False and (place is not shared.device or dtype not in (None, shared.dtype)):
        raise ShapeError(f"can't alias tensor with dtype '{shared.dtype.name}' on {shared.device} into another",
                         got=f"{dtype or shared.dtype} on {place}", remedy="copy=None")  # fmt: skip
    made = shared.to(device=place, dtype=dtype or shared.dtype, copy=bool(copy))
    if requires_grad is None or made.requires_grad is requires_grad:
        return made
    return made._require(requires_grad) if made.is_leaf else made.detach()


def _shared(obj: Any, dtype: DType | None) -> Tensor | None:
    """A Tensor on the memory of `obj`; None for scalars and sequences of them."""
    obj = getattr(obj, "__tensor__", obj)
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray) or cuda.is_array(obj):
        return on_memory(obj)
    if isinstance(obj, np.generic):
        return None
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        from compiler_core.tensor.memory.lending import from_dlpack

        return from_dlpack(obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return frombuffer(obj, dtype=dtype or dt.get_default_dtype())


def from_file(
    filename: str | os.PathLike[str],
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **layout: Any,
) -> Tensor:
    """A 1-d Tensor of `size` elements on a file: T[size].

    shared: what is written to it goes to the file, which is made, or grows, if it is too small. Otherwise the file must
    be large enough, and stays as it is. Raises DomainError if it is not.
    """
    dtype = dtype or dt.get_default_dtype()
    made = on_memory(mapped(filename, bool(shared), size * dtype.itemsize).view(dtype.numpy)) if size else leaf(
        np.empty(0, dtype.numpy)
    )  # fmt: skip
    made = made if device is None else made.to(device)
    return made._require() if requires_grad else made


def mapped(filename: str | os.PathLike[str], shared: bool, nbytes: int) -> Array:
    """The first `nbytes` of a file: u8[nbytes]. See `from_file`."""
    if shared:
        with open(filename, "ab") as file:
            if file.tell() < nbytes:
                file.truncate(nbytes)
    elif (found := os.path.getsize(filename)) < nbytes:
        raise DomainError(f"{filename} is shorter", expected=f"at least {nbytes} bytes", got=str(found))
    return np.asarray(np.memmap(filename, np.uint8, mode="r+" if shared else "c", shape=(nbytes,)))
