"""Sees the calls that a program makes of this package, and when they begin and end, on the host and on the device.

In: a thread in which `CallWatch` is started. Out: records (records.py). Python's profiling hook (`sys.setprofile`)
tells of calls; one counts if it enters the package from outside of it, or if a layer calls a function of
`nn.functional`. What only asks (shapes, dtypes, parameters) does not. Blocks of `record_function` are told directly.
With a device, an event is recorded in the current stream at both ends. Watching costs about a microsecond a Python
call, and ten a call that counts where a device is watched; nothing is measured outside.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

from compiler_core import cuda
from compiler_core.tensor.tensor import Tensor
from distcompile.profiler.records import FunctionEvent

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = tuple(f"{_ROOT}{os.sep}{name}{os.sep}" for name in ("compiler_core", "distcompile", "collectives"))
_LAYERS = f"{_ROOT}{os.sep}distcompile{os.sep}nn{os.sep}"
_FUNCTIONS = f"{_LAYERS}functional"
_SELF = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ASKS_OVERRIDES = f"{_ROOT}{os.sep}compiler_core{os.sep}overrides{os.sep}"  # stands between a call and what it calls
_ASKING_NAMES = """
shape dtype device ndim requires_grad grad size dim numel stride is_cuda is_cpu data grad_fn is_leaf layout nbytes
parameters named_parameters buffers named_buffers modules named_modules children train eval is_available method
device_count is_tensor is_floating_point register_buffer register_parameter extra_repr state_dict is_grad_enabled
"""
_DUNDER_NAMES = """
__call__ __add__ __radd__ __iadd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __matmul__ __getitem__ __setitem__
__neg__ __pow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __float__
"""
_GENERATED = "<frozen distcompile"  # files of what checks guards and hands on results
_LIBRARIES = (f"cupy{os.sep}", f"numpy{os.sep}")  # which ask this package for memory, or for arrays
_ASKING, _DUNDERS = frozenset(_ASKING_NAMES.split()), frozenset(_DUNDER_NAMES.split())
_OUTSIDE, _ASKED, _COUNTS, _INNER = range(4)


def _kind(code: CodeType) -> int:
    """What a call of this code is: of others, of ours but not of interest, of interest, of interest from layers too."""
    path, name = code.co_filename, code.co_name
    if path.startswith(_GENERATED) or any(library in path for library in _LIBRARIES):
        return _ASKED
    if not path.startswith(_OURS):
        return _OUTSIDE
    if path.startswith((_SELF, _ASKS_OVERRIDES)) or name in _ASKING:
        return _ASKED
    if name == "<module>" or (name.startswith("_") and name not in _DUNDERS):
        return _ASKED
    return _INNER if path.startswith(_FUNCTIONS) else _COUNTS


class _Open:
    """A call that has begun."""

    __slots__ = ("begun", "event", "frame", "inside", "record")

    def __init__(self, record: FunctionEvent, frame: FrameType | None, event: Any) -> None:
        self.record, self.frame, self.event = record, frame, event
        self.inside: list[FunctionEvent] = []


class CallWatch:
    """Watches the thread that starts it. device: whether to measure there too; shapes: of the calls' tensors."""

    def __init__(self, device: bool, shapes: bool) -> None:
        self.device = device and cuda.device_count() > 0
        self.shapes = shapes
        self.records: list[FunctionEvent] = []
        self._marks: list[tuple[FunctionEvent, FunctionEvent | None, Any, Any]] = []
        self._open: list[_Open] = []
        self._kinds: dict[CodeType, int] = {}
        self._base: Any = None
        self._base_us = 0.0
        self._before: Any = None
        self._thread = threading.get_ident()

    def start(self) -> None:
        """Watch from now on."""
        if self.device:
            self._base = self._mark()
            self._base.synchronize()
        self._base_us = _now_us()
        self._before = sys.getprofile()
        current.watch = self
        sys.setprofile(self._hook)

    def stop(self) -> None:
        """Watch no more; device times are read."""
        sys.setprofile(self._before)
        current.watch = None
        while self._open:
            self.end()
        if not self.device:
            return
        if self._marks:
            self._marks[-1][3].synchronize()
            cuda.module().cuda.Device().synchronize()
        elapsed = cuda.module().cuda.get_elapsed_time
        for record, outer, first, last in self._marks:
            record.device_time_total = 1e3 * elapsed(first, last)
            record.device_start_us = self._base_us + 1e3 * elapsed(self._base, first)
            if outer is not None:
                outer.inner_device += record.device_time_total
        self._marks.clear()

    def begin(self, name: str, frame: FrameType | None = None, shapes: list[Any] | None = None) -> None:
        """A call, or a block, begins."""
        record = FunctionEvent(name, 0.0, thread=self._thread, input_shapes=shapes or [], is_top=not self._open)
        self.records.append(record)
        self._open.append(_Open(record, frame, self._mark() if self.device else None))
        record.start_us = _now_us()

    def end(self) -> None:
        """What began last ends."""
        now = _now_us()
        done = self._open.pop()
        done.record.cpu_time_total = now - done.record.start_us
        outer = self._open[-1].record if self._open else None
        if outer is not None:
            outer.inner_cpu += done.record.cpu_time_total
        if self.device:
            self._marks.append((done.record, outer, done.event, self._mark()))

    def _mark(self) -> Any:
        event = cuda.module().cuda.Event()
        event.record()
        return event

    def _hook(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if self._counts(frame):
                self.begin(_name(frame), frame, _shapes(frame) if self.shapes else None)
        elif event == "return" and self._open and self._open[-1].frame is frame:
            self.end()

    def _counts(self, frame: FrameType) -> bool:
        kind = self._kind_of(frame.f_code)
        if kind in (_OUTSIDE, _ASKED):
            return False
        back = frame.f_back
        while back is not None and back.f_code.co_filename.startswith(_ASKS_OVERRIDES):
            back = back.f_back
        if back is None or self._kind_of(back.f_code) == _OUTSIDE:
            return True
        path = back.f_code.co_filename
        return kind == _INNER and path.startswith(_LAYERS) and not path.startswith(_FUNCTIONS)

    def _kind_of(self, code: CodeType) -> int:
        found = self._kinds.get(code)
        if found is None:
            found = self._kinds[code] = _kind(code)
        return found


class _Current(threading.local):
    watch: CallWatch | None = None


current = _Current()


def _now_us() -> float:
    return time.perf_counter_ns() / 1e3


def _name(frame: FrameType) -> str:
    """What a user calls the call: a layer, an optimizer's step, a function."""
    name, known = frame.f_code.co_name, frame.f_locals
    owner = known.get("self")
    if name in ("step", "hooked") and hasattr(owner, "param_groups"):
        return f"Optimizer.step#{type(owner).__name__}.step"
    if frame.f_code.co_freevars and name != "__call__":
        return _wrapped(frame) or name
    if name == "__call__" and owner is not None:
        kind = type(owner)
        original = getattr(owner, "_orig_mod", None)
        is_layer = original is None and hasattr(kind, "named_parameters")
        what = type(original).__name__ if original is not None else getattr(owner, "__name__", kind.__name__)
        return f"nn.Module: {kind.__name__}" if is_layer else f"compiled: {what}"
    if name == "zero_grad" and hasattr(owner, "param_groups"):
        return f"Optimizer.zero_grad#{type(owner).__name__}.zero_grad"
    return name.strip("_") if name.startswith("__") else name


def _wrapped(frame: FrameType) -> str:
    """The name of the function that a wrapper has closed over, or of the op."""
    for name in frame.f_code.co_freevars:
        inner: Any = frame.f_locals.get(name)
        while hasattr(inner, "__wrapped__") and not hasattr(inner, "__signature__"):  # conv2d has one: no conv_nd
            inner = inner.__wrapped__
        found = getattr(inner, "__name__", None) or getattr(inner, "name", None)
        if not isinstance(found, str) or not found.isidentifier() or found.startswith("_") or isinstance(inner, type):
            continue
        if "<locals>" not in getattr(inner, "__qualname__", ""):  # another wrapper
            rank = frame.f_locals.get("rank")  # of a family of ops/ranks.py: conv2d was called
            return found if rank is None else found.replace("_nd", f"{rank}d")
    return ""


def _shapes(frame: FrameType) -> list[Any]:
    """Of the tensors among the call's arguments, in order."""
    code, known = frame.f_code, frame.f_locals
    count = code.co_argcount + bool(code.co_flags & 4)
    found: list[Any] = []
    for name in code.co_varnames[:count]:
        value = known.get(name)
        parts = value if isinstance(value, tuple) else (value,)
        found += [list(part.shape) for part in parts if isinstance(part, Tensor)]
    return found
