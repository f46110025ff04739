"""The stand-in's ndarray: a NumPy array in a box, with the methods that CuPy's class has, and no others.

In: NumPy arrays, from module.py alone. Out: `ndarray`. Operators and methods take other arrays of this class and
numbers; a NumPy array with dims (or without) is a TypeError, as in CuPy. What NumPy gives as a scalar is a 0-d array.
Memory is counted for its device from the first array on it to the last view.
"""

from __future__ import annotations

import ctypes
import math
import operator
import weakref
from typing import Any

import numpy as np

from compiler_core.runtime.cuda import replay

_IMPLICIT = "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array"


class State:
    """Of one stand-in: the current device, the bytes in use and held on each, the limit, and who allocates."""

    def __init__(self, devices: int) -> None:
        self.devices, self.current = devices, 0
        self.used = [0] * devices
        self.held = [0] * devices
        self.limit = 1 << 40  # bytes
        self.allocate: Any = self.malloc

    def malloc(self, nbytes: int) -> Block:
        """As the default pool's: memory of the current device, counted until nobody has it."""
        return Block(self, max(nbytes, 1) + 511 & ~511)


class Block:
    """A piece of memory. ptr, size: where it is, of one that was asked for itself (cuda.alloc)."""

    def __init__(self, state: State, nbytes: int) -> None:
        device = self.device = state.current
        self.ptr = self.size = 0
        self.host: Any = None
        if state.used[device] + nbytes > state.limit:
            from tests.fake_cupy.module import OutOfMemoryError

            raise OutOfMemoryError(nbytes, state.used[device], state.limit)
        state.used[device] += nbytes
        state.held[device] = max(state.held[device], state.used[device])
        weakref.finalize(self, _free, state, device, nbytes)

    def fill_with(self, host: np.ndarray[Any, Any]) -> None:
        """Its bytes are the host's."""
        self.host, self.ptr, self.size = host, int(host.__array_interface__["data"][0]), host.nbytes


class Memory:
    """What `array.data` is: an address, and the block (`mem`) that it is in. under: what keeps the bytes there."""

    under: Any = None

    def __init__(self, host: np.ndarray[Any, Any], state: State, device: int, block: Any = None) -> None:
        self.ptr, self.mem, self._host = int(host.__array_interface__["data"][0]), block, host
        self.state = state
        self.device_id = device
        self.device = DeviceOf(device)

    def __add__(self, offset: int) -> Memory:
        """As of CuPy's MemoryPointer: a place behind this one, in the same memory."""
        made = Memory(self._host, self.state, self.device_id, self.mem)
        made.ptr = self.ptr + offset
        return made

    def copy_from_device_async(self, src: Memory, size: int, stream: Any = None) -> None:
        """`size` bytes from another device's memory, dense as this one's."""
        self._host.reshape(-1).view(np.uint8)[:size] = src._host.reshape(-1).view(np.uint8)[:size]


class DeviceOf:
    """What `array.device` is."""

    def __init__(self, number: int) -> None:
        self.id = number

    def __eq__(self, other: object) -> bool:
        return getattr(other, "id", None) == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class Flags:
    """CuPy's flags: no `writeable`."""

    def __init__(self, host: np.ndarray[Any, Any], owns: bool) -> None:
        self.c_contiguous, self.f_contiguous = host.flags.c_contiguous, host.flags.f_contiguous
        self.owndata = host.flags.owndata or owns
        self.fnc, self.forc = host.flags.fnc, host.flags.forc


def host_of(value: Any) -> Any:
    """The NumPy value behind an operand. Raises TypeError for a NumPy array: nothing moves by itself."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(*map(host_of, value)) if hasattr(value, "_fields") else type(value)(map(host_of, value))
    return value


def key_of(index: Any, shape: tuple[int, ...]) -> Any:
    """An index: arrays of either kind are taken, as CuPy does, and those of whole numbers modulo the size."""
    if not isinstance(index, tuple):
        index = (index,)
    keys = tuple(i._host if isinstance(i, ndarray) else i for i in index)
    if len(keys) <= len(shape) and all(isinstance(k, np.ndarray) and k.dtype.kind in "iu" for k in keys):
        keys = tuple(k % n if n else k for k, n in zip(keys, shape))
    return keys[0] if len(keys) == 1 else keys


class WrongDeviceError(Exception):
    """Work for an array of a device that is not the current one. CuPy refuses where devices cannot reach each other.

    Where they can, it computes: on the current device, after whatever is in its stream, which is not the array's. So no
    code may count on CuPy to refuse, and the stand-in's error is one that nobody catches.
    """


def check_here(*arrays: Any) -> None:
    """Raise WrongDeviceError if one of them is on another device than the current one."""
    for a in arrays:
        if isinstance(a, ndarray) and a._device != a._state.current:
            raise WrongDeviceError(f"computed on cuda:{a._state.current}, an array of cuda:{a._device}")


def _check_told() -> None:
    """A call that will be made again by its launches alone must say where CuPy writes in place."""
    note = replay.Noting.here.note
    assert note is None or note.spoilt, "CuPy writes in place what runtime/cuda/replay.py would not make again"


class ndarray:
    """See the module's text."""

    __array_priority__ = 100
    __slots__ = ("__weakref__", "_device", "_host", "_owner", "_state", "data")

    def __init__(self, host: Any, state: Any, device: Any, owner: Any = None) -> None:
        if isinstance(host, tuple):  # as CuPy's: shape, dtype, memptr, strides
            host, state, device, owner = _placed(host, state, device, owner)
        self._host, self._state, self._device = host, state, device
        self._owner = owner if isinstance(owner, ndarray) else None
        if owner is None:
            block = state.allocate(host.nbytes)
        else:  # memory that is there: a view's, or that at a pointer
            block = getattr(owner, "data", owner)
            block = block.mem if isinstance(block, Memory) else block
        self.data = Memory(host, state, device, block)
        self.data.under = owner if isinstance(owner, Memory) else None

    def _new(self, host: Any) -> ndarray:
        """A result: a view of this memory, or memory of its own."""
        host = np.asarray(host)
        owner = self if self._owner is None else self._owner
        is_view = host.base is not None and host.size and np.may_share_memory(host, self._host)
        if host.size and not is_view:
            check_here(self)
        return ndarray(host, self._state, self._device, owner if is_view else None)

    # ---- what it is

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    strides = property(lambda self: self._host.strides)
    flags = property(lambda self: Flags(self._host, self._owner is None))
    base = property(lambda self: self._owner)
    device = property(lambda self: DeviceOf(self._device))
    T = property(lambda self: self._new(self._host.T))
    mT = property(lambda self: self._new(np.swapaxes(self._host, -1, -2)))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3}

    @property
    def real(self) -> ndarray:
        return self._new(self._host.real)

    @real.setter
    def real(self, value: Any) -> None:
        self._host.real = host_of(value)

    @property
    def imag(self) -> ndarray:
        return self._new(self._host.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        self._host.imag = host_of(value)

    # ---- to the host, only when asked

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        if out is None:
            return np.array(self._host, order=order)  # type: ignore[call-overload]
        out[...] = self._host
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError("Shape or dtype mismatch")
        self._host[...] = arr

    def __array__(self, dtype: Any = None) -> Any:
        raise TypeError(_IMPLICIT)

    def item(self) -> Any:
        return self._host.item()

    def tolist(self) -> Any:
        return self._host.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self._host.tobytes(order)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    def __index__(self) -> int:
        return operator.index(self._host)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return repr(self._host)

    def __reduce__(self) -> Any:
        return _rebuild, (self._host.copy(),)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.copy()

    # ---- NumPy's protocols, which give CuPy's functions

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tests.fake_cupy.module import current

        module: Any = current()
        for name in func.__module__.split(".")[1:]:
            module = getattr(module, name, None)
        found = getattr(module, func.__name__, None)
        return NotImplemented if found is None else found(*args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from tests.fake_cupy.module import current

        found: Any = getattr(current(), ufunc.__name__, None)
        if found is not None and method != "__call__":
            found = getattr(found, method, None)
        if found is None:
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return found(*inputs, **kwargs)

    # ---- elements

    def __getitem__(self, index: Any) -> ndarray:
        return self._new(self._host[key_of(index, self.shape)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim and not (isinstance(index, slice) and index == slice(None)):
            raise TypeError(f"Unsupported type {type(value)}")
        check_here(self, value)
        _check_told()
        self._host[key_of(index, self.shape)] = value if isinstance(value, np.ndarray) else host_of(value)

    def fill(self, value: Any) -> None:
        check_here(self)
        _check_told()
        self._host.fill(host_of(value))

    # ---- methods

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return self._new(self._host.astype(dtype, order))  # type: ignore[call-overload]

    def copy(self, order: str = "C") -> ndarray:
        """As CuPy's: on the current device, wherever the array is."""
        return ndarray(self._host.copy(order), self._state, self._state.current)  # type: ignore[call-overload]

    def view(self, dtype: Any = None) -> ndarray:
        return self._new(self._host.view() if dtype is None else self._host.view(dtype))

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> ndarray:
        return self._new(self._host.reshape(*shape, order=order))  # type: ignore[call-overload]

    def transpose(self, *axes: Any) -> ndarray:
        return self._new(self._host.transpose(*axes))

    def round(self, decimals: int = 0, out: Any = None) -> ndarray:
        return self._new(self._host.round(decimals))

    def argsort(self, axis: int = -1, kind: Any = None) -> ndarray:
        if kind not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        return self._new(self._host.argsort(axis, kind="stable"))

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self._host.sort(axis, kind="stable")


def _placed(shape: tuple[int, ...], dtype: Any, pointer: Any, strides: Any) -> tuple[Any, ...]:
    """What a box is made of for an array at a pointer (cuda.MemoryPointer), whose bytes are counted already, or not."""
    if isinstance(pointer, Memory):  # an array's
        span = (
            sum((n - 1) * step for n, step in zip(shape, strides))
            if strides
            else np.dtype(dtype).itemsize * math.prod(shape)
        )
        memory = (ctypes.c_char * (span + np.dtype(dtype).itemsize)).from_address(pointer.ptr)
        return np.ndarray(shape, dtype, memory, 0, strides), pointer.state, pointer.device_id, pointer
    mem = pointer.mem
    is_block = isinstance(mem, Block)
    memory = mem.host if is_block else (ctypes.c_char * mem.size).from_address(mem.ptr)
    host = np.ndarray(shape, dtype, memory, pointer.ptr - mem.ptr, strides)
    return host, pointer.state, mem.device if is_block else 0, mem


def _free(state: State, device: int, nbytes: int) -> None:
    state.used[device] -= nbytes


def _rebuild(host: Any) -> Any:
    from tests.fake_cupy.module import current

    return current().asarray(host)


def _method(name: str, parameters: tuple[str, ...]) -> Any:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        unknown = set(kwargs) - set(parameters)
        if unknown or len(args) > len(parameters):
            raise TypeError(f"{name}() got unexpected arguments {sorted(unknown) or args}")
        given = {k: host_of(v) for k, v in kwargs.items()}
        return self._new(getattr(self._host, name)(*map(host_of, args), **given))

    method.__name__ = name
    return method


_METHODS = {
    "all": ("axis", "out", "keepdims"), "any": ("axis", "out", "keepdims"), "argmax": ("axis", "out", "keepdims"),
    "argmin": ("axis", "out", "keepdims"), "clip": ("min", "max", "out"), "conj": (), "conjugate": (),
    "cumprod": ("axis", "dtype", "out"), "cumsum": ("axis", "dtype", "out"), "diagonal": ("offset", "axis1", "axis2"),
    "dot": ("b", "out"), "flatten": ("order",), "max": ("axis", "out", "keepdims"),
    "mean": ("axis", "dtype", "out", "keepdims"), "min": ("axis", "out", "keepdims"),
    "prod": ("axis", "dtype", "out", "keepdims"), "ravel": ("order",), "repeat": ("repeats", "axis"),
    "squeeze": ("axis",), "std": ("axis", "dtype", "out", "ddof", "keepdims"),
    "sum": ("axis", "dtype", "out", "keepdims"), "swapaxes": ("axis1", "axis2"), "take": ("indices", "axis", "out"),
    "trace": ("offset", "axis1", "axis2", "dtype", "out"), "var": ("axis", "dtype", "out", "ddof", "keepdims"),
}  # fmt: skip
for _name, _parameters in _METHODS.items():
    setattr(ndarray, _name, _method(_name, _parameters))


def _binary(name: str) -> Any:
    def forward(self: ndarray, other: Any) -> Any:
        if not isinstance(other, (ndarray, int, float, complex, np.generic)):
            if isinstance(other, np.ndarray):
                raise TypeError(f"Unsupported type {type(other)}")
            return NotImplemented
        check_here(self, other)
        return self._new(getattr(operator, name)(self._host, host_of(other)))

    def backward(self: ndarray, other: Any) -> Any:
        if not isinstance(other, (int, float, complex, np.generic)):
            return NotImplemented
        return self._new(getattr(operator, name)(other, self._host))

    def inplace(self: ndarray, other: Any) -> Any:
        check_here(self, other)
        _check_told()
        self._host = getattr(operator, f"i{name.strip('_')}")(self._host, host_of(other))
        return self

    return forward, backward, inplace


for _name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_",
              "xor"):  # fmt: skip
    for _prefix, _made in zip(("", "r", "i"), _binary(_name)):
        setattr(ndarray, f"__{_prefix}{_name.strip('_')}__", _made)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(ndarray, f"__{_name}__", _binary(_name)[0])
ndarray.__hash__ = None  # type: ignore[assignment]
for _name in ("neg", "pos", "abs", "invert"):
    _function = getattr(operator, _name)
    setattr(ndarray, f"__{_name}__", lambda self, _function=_function: self._new(_function(self._host)))
