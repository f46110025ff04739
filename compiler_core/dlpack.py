"""DLPack: arrays lent to other libraries, and theirs taken, without a copy.

In: an array of NumPy's or CuPy's; a capsule, or an object with `__dlpack__`. Out: a capsule; an array on their memory.
The structures are those of DLPack 1.0 (dmlc.github.io/dlpack), written and read with ctypes, so that bfloat16 goes
through, which NumPy's own do not know. What is lent is kept until the borrower calls the deleter; memory that may only
be read is marked so for a borrower that knows such marks (`max_version` of at least 1).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core import cuda

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13
_READ_ONLY, _COPIED = 1, 2
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_NAMES, _VERSIONED = b"dltensor", b"dltensor_versioned"
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Place(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("place", _Place), ("ndim", ctypes.c_int32), ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", _Deleter),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_python = ctypes.PyDLL(None)
_capsule_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _python))
_USED = {_NAMES: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}

lent: dict[int, tuple[Any, ...]] = {}  # by the address of a structure: who owns the memory, and the structure's parts


def _returned(address: int) -> None:
    lent.pop(address, None)


def _ended(capsule: int) -> None:
    """A capsule ends: what nobody has taken is given back."""
    for name in (_NAMES, _VERSIONED):
        if _is_valid(capsule, name):
            lent.pop(_pointer_of(capsule, name), None)


_give_back, _end_capsule = _Deleter(_returned), _Deleter(_ended)  # of the C language; never freed
_immortal = [ctypes.pythonapi.Py_IncRef(ctypes.py_object(one)) for one in (_give_back, _end_capsule)]


# ---- lending


def place_of(array: Any) -> tuple[int, int]:
    """(kind, number) of the device, in DLPack's numbers."""
    return (CUDA, array.data.device_id) if cuda.is_array(array) else (CPU, 0)


def is_writeable(array: Any) -> bool:
    """Whether a borrower may write to an array."""
    return cuda.is_array(array) or bool(array.flags.writeable)


def lend(array: Any, owner: Any, versioned: bool, is_copy: bool = False) -> Any:
    """A capsule of the array. owner: what is kept with it. is_copy: it is the borrower's alone."""
    managed = _ManagedVersioned() if versioned else _Managed()
    sizes = (ctypes.c_int64 * (2 * array.ndim))(*array.shape, *(step // array.itemsize for step in array.strides))
    tensor = managed.tensor
    tensor.data = array.data.ptr if cuda.is_array(array) else array.__array_interface__["data"][0]
    tensor.place.kind, tensor.place.number = place_of(array)
    tensor.ndim, tensor.type = array.ndim, _type_of(array.dtype)
    step = ctypes.sizeof(ctypes.c_int64) * array.ndim
    first = ctypes.addressof(sizes)
    tensor.shape = ctypes.cast(first, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(first + step, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _give_back
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = 1, 0
        managed.flags = _COPIED if is_copy else 0 if is_writeable(array) else _READ_ONLY
    address = ctypes.addressof(managed)
    lent[address] = (owner, array, managed, sizes)
    name = _VERSIONED if versioned else _NAMES
    return _capsule_of(address, name, ctypes.cast(_end_capsule, ctypes.c_void_p))


def _type_of(dtype: Any) -> _Type:
    if dtype == ml_dtypes.bfloat16:
        return _Type(_BFLOAT, 16, 1)
    if dtype.kind not in _KINDS:
        raise BufferError(f"DLPack has no dtype {dtype}")
    return _Type(_KINDS[dtype.kind], 8 * dtype.itemsize, 1)


# ---- borrowing


def owner_of(capsule: Any) -> Any:
    """Who lent a capsule, if it is one of ours; None otherwise."""
    for name in (_NAMES, _VERSIONED):
        if _is_valid(id(capsule), name):
            return lent.get(_pointer_of(id(capsule), name), (None,))[0]
    return None


def borrow(capsule: Any) -> Any:
    """The array that a capsule is of; the capsule is used up. Raises BufferError for one that cannot be taken."""
    name = next((name for name in (_NAMES, _VERSIONED) if _is_valid(id(capsule), name)), None)
    if name is None:
        raise BufferError("no DLPack capsule, or one that was taken before: a capsule can be taken once")
    kind = _Managed if name == _NAMES else _ManagedVersioned
    address = _pointer_of(id(capsule), name)
    managed: Any = ctypes.cast(address, ctypes.POINTER(kind)).contents
    if isinstance(managed, _ManagedVersioned) and managed.major > 1:
        raise BufferError(f"DLPack of version {managed.major} is not known here")
    tensor = managed.tensor
    dtype, shape = _dtype_of(tensor.type), tuple(tensor.shape[: tensor.ndim])
    dense = [math.prod(shape[k + 1 :]) for k in range(tensor.ndim)]
    steps = tensor.strides[: tensor.ndim] if tensor.strides else dense
    strides = tuple(step * dtype.itemsize for step in steps)
    if tensor.place.kind not in (CPU, PINNED, CUDA, MANAGED):
        raise BufferError(f"DLPack's device kind {tensor.place.kind} is not here")
    borrowed = _Borrowed(address, managed)
    _rename(capsule, _USED[name])
    on_host = tensor.place.kind in (CPU, PINNED)
    at = (tensor.data or 0) + tensor.byte_offset
    if on_host:
        return _on_host(at, shape, dtype, strides, borrowed)
    return _on_device(at, shape, dtype, strides, borrowed, tensor.place.number)


class _Borrowed:
    """Memory of another library: given back when nothing here refers to it any more."""

    def __init__(self, address: int, managed: Any) -> None:
        self.address, self.managed = address, managed
        if managed.deleter:
            weakref.finalize(self, managed.deleter, address)


def _span(shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> tuple[int, int]:
    """(lowest, highest + 1) byte, from the first element's, of an array that has elements."""
    reach = [(n - 1) * step for n, step in zip(shape, strides)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + dtype.itemsize


def _on_host(at: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], borrowed: _Borrowed) -> Any:
    if not math.prod(shape):
        return np.empty(shape, dtype)
    low, high = _span(shape, dtype, strides)
    memory = (ctypes.c_char * (high - low)).from_address(at + low)
    memory.owner = borrowed  # type: ignore[attr-defined]
    return np.ndarray(shape, dtype, memory, -low, strides)  # type: ignore[arg-type]


def _on_device(
    at: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], borrowed: _Borrowed, number: int
) -> Any:
    cupy = cuda.module(f"cuda:{number}")
    if not math.prod(shape):
        with cuda.on(number):
            return cupy.empty(shape, dtype)
    low, high = _span(shape, dtype, strides)
    memory = cupy.cuda.UnownedMemory(at + low, high - low, borrowed, number)
    with cuda.on(number):
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, -low), strides)


def _dtype_of(kind: _Type) -> Any:
    if kind.lanes != 1 or kind.bits % 8:
        raise BufferError(f"DLPack's dtype of {kind.bits} bits in {kind.lanes} lanes is not known here")
    if kind.code == _BFLOAT and kind.bits == 16:
        return np.dtype(ml_dtypes.bfloat16)
    letter = next((letter for letter, code in _KINDS.items() if code == kind.code), None)
    if letter is None:
        raise BufferError(f"DLPack's dtype code {kind.code} is not known here")
    return np.dtype(f"{letter}{kind.bits // 8}")
