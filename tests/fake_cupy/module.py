"""The stand-in's module: CuPy's functions with their parameters, on boxed arrays; `cupy.cuda`; the memory pool.

In: signatures.txt, one function a line as CuPy 14.2 declares it (a bare name: a ufunc). Out: `install()`, a module.
A function takes arrays of array.py and numbers, calls NumPy's of its name, and gives such arrays, 0-d ones included.
"""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.fake_cupy.array import DeviceOf, State, check_here, host_of, key_of, ndarray
from tests.fake_cupy.raw import RawModule

_TEXT = Path(__file__).with_name("signatures.txt").read_text().splitlines()
_PLAIN_NAMES = """
bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 dtype finfo iinfo
newaxis inf nan pi e generic number integer floating inexact complexfloating issubdtype promote_types broadcast_shapes
can_cast isscalar ndindex intp s_ index_exp signedinteger
"""
_SCATTERS = {  # dtypes that atomics exist for: cupy/_core/_routines_indexing.pyx
    "add": "iIlqLQefd", "subtract": "iI", "maximum": "iIlqLQfd", "minimum": "iIlqLQfd", "bitwise_and": "iIlqLQ",
    "bitwise_or": "iIlqLQ", "bitwise_xor": "iIlqLQ",
}  # fmt: skip
_current: list[types.ModuleType] = []


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime's."""


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory's."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


def current() -> types.ModuleType:
    """The stand-in that was made last."""
    return _current[-1]


class _Boxes:
    """Puts NumPy's results into boxes of the current device."""

    def __init__(self, state: State) -> None:
        self.state = state

    def device_of(self, args: Any) -> int:
        for a in args:
            if isinstance(a, ndarray):
                return a._device
            if isinstance(a, (list, tuple)) and any(isinstance(x, ndarray) for x in a):
                return self.device_of(a)
        return self.state.current

    def box(self, value: Any, args: Any) -> Any:
        if isinstance(value, tuple):
            boxed = [self.box(v, args) for v in value]
            return type(value)(*boxed) if hasattr(value, "_fields") else tuple(boxed)
        if isinstance(value, list):
            return [self.box(v, args) for v in value]
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        host = np.asarray(value)
        for a in args:
            if isinstance(a, ndarray):
                return a._new(host if a._device == self.device_of(args) else host.copy())
        return ndarray(host if host.flags.owndata else np.array(host), self.state, self.device_of(args))


class ufunc:
    """An elementwise function: positional operands, `out`, `dtype`, `casting`; no `where`."""

    def __init__(self, boxes: _Boxes, function: np.ufunc) -> None:
        self._boxes, self._function = boxes, function
        self.__name__ = function.__name__
        self.nin, self.nout = function.nin, function.nout

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        check_here(*args, out)
        given = {} if dtype is None else {"dtype": dtype}
        *args, out = (*args[: self.nin], args[self.nin] if len(args) > self.nin else out)
        hosts = list(map(host_of, args))
        if out is None:
            return self._boxes.box(self._function(*hosts, casting=casting, **given), args)
        self._function(*hosts, out=host_of(out), casting=casting, **given)
        return out

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        if self.__name__ not in _SCATTERS:
            raise NotImplementedError(f"`{self.__name__}.at` is not supported yet")
        if a.dtype.char not in _SCATTERS[self.__name__]:
            raise TypeError(f"cupy.{self.__name__}.at does not support {a.dtype}")
        self._function.at(a._host, key_of(indices, a.shape), host_of(b))

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        return self._boxes.box(self._function.outer(host_of(a), host_of(b), **kwargs), (a, b))

    def _reducing(self, method: str, a: Any, axis: Any, dtype: Any) -> Any:
        if self.__name__ not in ("add", "multiply"):
            raise NotImplementedError(f"`{self.__name__}.{method}` is not supported yet")
        return self._boxes.box(getattr(self._function, method)(host_of(a), axis=axis, dtype=dtype), (a,))

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None) -> Any:
        return self._reducing("reduce", array, axis, dtype)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None) -> Any:
        return self._reducing("accumulate", array, axis, dtype)


def _signature(parameters: str) -> inspect.Signature:
    made: dict[str, Any] = {}
    exec(f"def f({parameters}): ...", {"numpy": np, "cupy": np, "_NoValue": None}, made)
    return inspect.signature(made["f"])


def _function(boxes: _Boxes, name: str, parameters: str) -> Any:
    """CuPy's function: its parameters, NumPy's numbers."""
    signature: list[inspect.Signature] = []
    target: Any = np
    for part in name.split("."):
        target = getattr(target, part)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not signature:
            signature.append(_signature(parameters))
        signature[0].bind(*args, **kwargs)
        if name in ("argsort", "sort") and kwargs.get("kind") not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        flat = (*args, *kwargs.values())
        out = kwargs.get("out")
        check_here(out)
        if name == "take":  # indices are taken modulo the size, as CuPy's are
            kwargs = {**kwargs, "mode": "wrap"}
        result = target(*map(host_of, args), **{k: host_of(v) for k, v in kwargs.items()})
        return out if out is not None else boxes.box(result, flat)

    call.__name__ = name
    return call


class _Grid:
    """mgrid and ogrid."""

    def __init__(self, boxes: _Boxes, grid: Any) -> None:
        self._boxes, self._grid = boxes, grid

    def __getitem__(self, key: Any) -> Any:
        made = self._grid[key]
        return [self._boxes.box(g, ()) for g in made] if isinstance(made, (tuple, list)) else self._boxes.box(made, ())


def _creation(module: types.ModuleType, boxes: _Boxes) -> None:
    """array, asarray, asnumpy, ascontiguousarray: where NumPy's memory goes in and comes out."""

    def array(
        obj: Any, dtype: Any = None, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0,
        blocking: bool = False,
    ) -> ndarray:  # fmt: skip
        host = obj._host if isinstance(obj, ndarray) else _unboxed(obj)
        made = np.array(host, dtype, order="C" if order == "K" and not isinstance(obj, ndarray) else order,
                        ndmin=ndmin)  # type: ignore[call-overload]  # fmt: skip
        if made.dtype.kind in "OUSMm":
            raise ValueError(f"Unsupported dtype {made.dtype}")
        return ndarray(made, boxes.state, boxes.state.current)

    def asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> ndarray:
        fits = isinstance(a, ndarray) and (dtype is None or a.dtype == np.dtype(dtype))
        fits = fits and a._device == boxes.state.current
        return a if fits else array(a, dtype, order=order or "K")

    def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
        made = asarray(a, dtype)
        return made if made.flags.c_contiguous else made.copy()

    def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
        return a.get(order=order, out=out) if isinstance(a, ndarray) else np.asarray(a)

    vars(module).update(array=array, asarray=asarray, ascontiguousarray=ascontiguousarray, asnumpy=asnumpy)


def _as_float32(result: Any) -> Any:
    """CuPy has no `where` of bfloat16: it takes the one of float32."""
    return result.astype(np.float32) if getattr(result, "dtype", None) == ml_dtypes.bfloat16 else result


def _unboxed(obj: Any) -> Any:
    return type(obj)(map(_unboxed, obj)) if isinstance(obj, (list, tuple)) else (
        obj._host if isinstance(obj, ndarray) else obj
    )  # fmt: skip


def install(devices: int = 2) -> types.ModuleType:
    """A stand-in with that many devices."""
    from tests.fake_cupy import cuda

    module: Any = types.ModuleType("cupy")
    state = State(devices)
    boxes = _Boxes(state)
    for name in _PLAIN_NAMES.split():
        setattr(module, name, getattr(np, name))
    for part in ("linalg", "fft"):
        setattr(module, part, types.ModuleType(f"cupy.{part}"))
    module.linalg.LinAlgError = np.linalg.LinAlgError
    tricks = np.lib.stride_tricks
    module.lib = types.SimpleNamespace(
        stride_tricks=types.SimpleNamespace(
            # refers to the memory, and not to x: so does CuPy's
            as_strided=lambda x, shape=None, strides=None: ndarray(
                tricks.as_strided(x._host, shape, strides), x._state, x._device
            ),
            sliding_window_view=lambda x, window_shape, axis=None, *, subok=False, writeable=False: x._new(
                tricks.sliding_window_view(x._host, window_shape, axis)
            ),
        )
    )
    for line in _TEXT:
        name, _, parameters = line.partition("(")
        owner, _, short = name.rpartition(".")
        made: Any = _function(boxes, name, parameters[:-1]) if parameters else ufunc(boxes, getattr(np, name))
        setattr(getattr(module, owner) if owner else module, short, made)
    module.ndarray, module.ufunc, module.ogrid, module.mgrid = (
        ndarray, ufunc, _Grid(boxes, np.ogrid), _Grid(boxes, np.mgrid),
    )  # fmt: skip
    module.einsum = _function(boxes, "einsum", "*operands, **kwargs")
    module.broadcast_to = lambda array, shape: array._new(np.broadcast_to(array._host, shape))
    module.__version__ = "14.2.0"
    where = module.where
    module.where = lambda condition, x=None, y=None: _as_float32(where(condition, x, y))
    _creation(module, boxes)
    module.get_array_module = lambda *args: module if any(isinstance(a, ndarray) for a in args) else np
    module.cuda = cuda.install(state)
    module.RawModule = RawModule
    module.get_default_memory_pool = lambda: module.cuda.pool
    module.get_default_pinned_memory_pool = lambda: module.cuda.pinned_pool
    module.is_available = lambda: devices > 0
    module.state, module.DeviceOf = state, DeviceOf
    _current.append(module)
    return module  # type: ignore[no-any-return]
