"""Device calls that are made again: what a function launched for arrays that lie like these, without its Python.

In: a function of CuPy's arrays (a definition of eager/device/, an op's kernels), whose launches depend on how arrays
lie (dtypes, shapes, strides, starts modulo ALIGNED bytes), on what it is told, and on settings, never on elements. Out:
what it gives. The second call of a kind is noted while it is made: memory that it asks for (`empty`), kernels
(`launch`), calls of libraries (`library`, `action`), and of whose memory each pointer is. Later ones allocate, write
the pointers into the arguments, which are kept, and call the driver.
A call that reads or gives what is neither an operand nor from `empty`, as CuPy computed it, is made in full each time;
so is one whose operands lie in each other. Notes belong to a thread, a device and a stream.
Invariant: what a function that is made again writes into its operands' memory, or into that of `empty`, it writes by
`launch`, `library` and `action`; what CuPy writes there must be told (`spoil`).
Source: CUDA Driver API, cuLaunchKernel.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from compiler_core import cuda
from compiler_core.runtime.cuda import context, driver

Array = Any
F = TypeVar("F", bound=Callable[..., Any])
ALIGNED = 16  # bytes
LIMIT = 1 << 12  # calls that are known of one function
_UNIT = 512  # bytes, of which pieces of a block are multiples
Known = dict[tuple[Any, ...], "Replay | bool | None"]  # False: was made once; None: cannot be made again
_Call = tuple[str, Any, tuple[Any, ...]]  # a name, the function (or what it is made of), its arguments


class Address(NamedTuple):
    """A pointer to a device's memory, as an argument. by_reference: the library is told where it is written."""

    value: int
    by_reference: bool = False


class Workspace(NamedTuple):
    """A pointer to this thread's arena, as an argument."""

    value: int


class _Note:
    """What a call did. made: the memory it asked for. spoilt: it did something else."""

    def __init__(self) -> None:
        self.made: list[Array] = []
        self.calls: list[_Call] = []
        self.spoilt = False


class _Here(threading.local):
    """A thread's note that is being made, and what its notes are known by: ids of threads come again."""

    def __init__(self) -> None:
        self.note: _Note | None = None
        self.token = object()


class Noting:
    """Who notes: count of threads; nobody is told otherwise. is_on: whether calls are made again at all. settings: is
    counted up when a setting changes by which functions launch other things."""

    count = 0
    is_on = True
    settings = 0
    here = _Here()
    lock = threading.Lock()


# ---- what functions do


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """New memory on the current device, as CuPy's array."""
    made: Any = cuda.module().empty(shape, dtype)
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.made.append(made)
    return made  # type: ignore[no-any-return]


def launch(function: Any, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
    """CuPy's kernel; args: arrays, None, numbers of NumPy's, and pointers as Address."""
    for arg in args:
        if type(arg) is Address:
            function(grid, block, tuple([np.uint64(a.value) if type(a) is Address else a for a in args]))
            break
    else:
        function(grid, block, args)
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.calls.append(("cuLaunchKernel", (function, grid, block), args))


def library(name: str, *args: Any) -> None:
    """A library's function, as `driver.call`; device memory as Address or Workspace. Raises DeviceError."""
    driver.call(name, *map(_as_c, args))
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.calls.append((name, None, args))


def action(make: Callable[[Any], Callable[[], None]], pointers: Sequence[int]) -> None:
    """`make(words)()`; words: the pointers, as an array of C, which is written anew before each later call."""
    make((ctypes.c_void_p * len(pointers))(*pointers))()
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.calls.append(("", make, tuple(map(Address, pointers))))


def spoil() -> None:
    """The call that is being made does what is not noted."""
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.spoilt = True


def _as_c(arg: Any) -> Any:
    if type(arg) is Address and arg.by_reference:
        return ctypes.byref(ctypes.c_void_p(arg.value))
    return ctypes.c_void_p(arg.value) if type(arg) in (Address, Workspace) else arg


# ---- calls that are made again


class Replay(NamedTuple):
    """A call, to be made again. run: of the operands that are arrays, and their addresses, gives the result; raises
    DeviceError, MemoryError. held: where the arguments lie that it hands over."""

    run: Callable[[list[Array], list[int]], Any]
    held: list[Any]


def _parted(result: Any, arrays: list[Array]) -> Any:
    """The result with its arrays by number, which are put on the list. Raises TypeError for other things."""
    if result is None:
        return None
    if type(result) is cuda.array_types[0]:
        arrays.append(result)
        return len(arrays) - 1
    if type(result) not in (list, tuple):
        raise TypeError
    return type(result)([_parted(part, arrays) for part in result])


def replayed(known: Known, told: tuple[Any, ...], operands: Sequence[Any], compute: Callable[[], Any]) -> Any:
    """`compute()`, which is a function of `operands` (arrays, None, what stands for arrays, numbers of NumPy's) and of
    what is told. known: the calls of this function so far."""
    if (Noting.count and Noting.here.note is not None) or not Noting.is_on:
        return compute()
    given: list[Array] = []
    pointers: list[int] = []
    key = _key(told, operands, given, pointers)
    if key is None:
        return compute()
    found = known.get(key, True)
    if found.__class__ is Replay:
        return found.run(given, pointers)
    if found is True:  # the first such call
        if len(known) >= LIMIT:
            known.clear()
        known[key] = False
    spans = _spans(given) if found is False else None
    if spans is None:
        return compute()
    result, known[key] = _noted(spans, given, compute)
    return result


def _key(
    told: tuple[Any, ...], operands: Sequence[Any], given: list[Array], pointers: list[int]
) -> tuple[Any, ...] | None:
    """What calls are told apart by; the arrays and their addresses are put on the lists. None: not made again."""
    kind: Any = cuda.array_types[0]
    number = cuda.current() if cuda.lone.array is None else -1
    stream = cuda.module().cuda.get_current_stream().ptr
    signature: list[Any] = [told, Noting.here.token, number, stream, Noting.settings, cuda.precision.tf32]
    for x in operands:
        if type(x) is kind:
            data = x.data
            pointer = data.ptr
            if number >= 0 and data.device_id != number:
                return None
            start = ~pointers.index(pointer) if pointer in pointers else pointer % ALIGNED
            signature += (x.dtype, x.shape, x.strides, start)
            given.append(x)
            pointers.append(pointer)
        elif isinstance(x, (np.ndarray, np.generic)):
            if x.ndim:
                return None
            signature += (x.dtype, x.tobytes())
        else:
            signature.append(x)
    return tuple(signature)


def _told(attrs: dict[str, Any]) -> Iterable[Any]:
    """Attributes, told apart by their names and values; 0.0 and -0.0 are equal, and are not one value."""
    values = attrs.values()
    return (*attrs, *([value or str(value) for value in values] if 0 in values else values))


def replays(function: F) -> F:
    """A definition's forward, (k, *arrays, **attrs), of which calls are made again."""
    known: Known = {}

    @functools.wraps(function)
    def forward(k: Any, *arrays: Any, **attrs: Any) -> Any:
        told = (k, *_told(attrs)) if attrs else (k,)
        return replayed(known, told, arrays, lambda: function(k, *arrays, **attrs))

    return forward  # type: ignore[return-value]


def replays_backward(function: F) -> F:
    """A definition's backward, (k, needs, g, out, kept, *arrays, **attrs), of which calls are made again."""
    known: Known = {}

    @functools.wraps(function)
    def backward(k: Any, needs: Sequence[bool], g: Any, out: Any, kept: Any, *arrays: Any, **attrs: Any) -> Any:
        told = (k, *needs, len(kept), *_told(attrs))
        operands = (g, out, *kept, *arrays)
        return replayed(known, told, operands, lambda: function(k, needs, g, out, kept, *arrays, **attrs))

    return backward  # type: ignore[return-value]


# ---- notes


def _spans(given: Sequence[Array]) -> list[tuple[int, int]] | None:
    """Where each operand's memory begins and ends; None if some lie in each other, and are not the same."""
    spans = []
    for x in given:
        if not x.size or min(x.strides, default=0) < 0:
            return None
        behind = sum((n - 1) * step for n, step in zip(x.shape, x.strides)) + x.itemsize
        spans.append((x.data.ptr, x.data.ptr + behind))
    apart = sorted(set(spans))
    return None if any(a[1] > b[0] for a, b in itertools.pairwise(apart)) else spans


def _noted(spans: list[tuple[int, int]], given: list[Array], compute: Callable[[], Any]) -> tuple[Any, Replay | None]:
    """The result, and how it is made again."""
    note = _Note()
    with Noting.lock:
        Noting.count += 1
    Noting.here.note = note
    try:
        result = compute()
    finally:
        Noting.here.note = None
        with Noting.lock:
            Noting.count -= 1
    if result is None or note.spoilt:
        return result, None
    try:
        return result, _Maker(note, spans, given, result).made()
    except (TypeError, LookupError):
        return result, None


class _Maker:
    """What makes a Replay of a note. Raises LookupError for memory that is not known, TypeError for other results."""

    def __init__(self, note: _Note, spans: list[tuple[int, int]], given: list[Array], result: Any) -> None:
        self.note, self.given, self.results = note, given, list[Array]()
        self.form = _parted(result, self.results)
        blocks = [(x.data.ptr, x.data.ptr + max(x.nbytes, 1)) for x in note.made]
        own = {number for number, (a, b) in enumerate(blocks) if any(a <= x.data.ptr < b for x in self.results)}
        self.nbytes = [note.made[number].nbytes for number in sorted(own)]
        self.ranges: list[tuple[int, int, int, int]] = []  # from, to, source, offset there
        self.ranges += [(a, b, number, 0) for number, (a, b) in enumerate(spans)]
        self.ranges += [(*blocks[one], len(given) + place, 0) for place, one in enumerate(sorted(own))]
        behind = 0
        for number, (a, b) in enumerate(blocks):
            if number not in own:
                self.ranges.append((a, b, len(given) + len(own), behind))
                behind += -(-(b - a) // _UNIT) * _UNIT
        if behind:
            self.nbytes.append(behind)
        self.sources: list[tuple[int, int]] = []
        self.held: list[Any] = []

    def _where(self, pointer: int) -> tuple[int, int]:
        for start, end, source, offset in self.ranges:
            if start <= pointer < end:
                return source, offset + pointer - start
        raise LookupError

    def made(self) -> Replay:
        for _, _, args in self.note.calls:
            for arg in args:
                self._see(arg)
        words = (ctypes.c_uint64 * len(self.sources))()
        places = iter(range(len(self.sources)))
        calls = [self._call(call, words, places) for call in self.note.calls]
        text = "\n    ".join(["def run(given, at):", *self._lines([name for name, *_ in calls])])
        known = {
            **{"words": words, "alloc": cuda.module().cuda.alloc, "kind": cuda.array_types[0]},
            **{"handle": context.eager_blas_handle, "arena": context.eager_workspace, "failure": driver.failure},
            **{f"call{k}": function for k, (_, function, _) in enumerate(calls)},
            **{f"args{k}": args for k, (_, _, args) in enumerate(calls)},
            **{f"out{k}": (x.shape, x.dtype, x.strides) for k, x in enumerate(self.results)},
        }
        exec(compile(text, "<a call that is made again>", "exec"), known)
        return Replay(known["run"], self.held)

    def _lines(self, names: list[str]) -> Iterator[str]:
        """What is done, as Python: memory, the words that point to it, the calls, and the arrays of the result."""
        own = len(self.given)
        for number, nbytes in enumerate(self.nbytes):
            yield f"block{number} = alloc({nbytes})"
        if any(name.startswith("cublas") for name in names):
            yield "handle()"  # which is told the stream
        behind = own + len(self.nbytes)
        for word, (source, offset) in enumerate(self.sources):
            at = f"at[{source}]" if source < own else "arena()" if source == behind else f"block{source - own}.ptr"
            yield f"words[{word}] = {at}{f' + {offset}' if offset else ''}"
        for number, name in enumerate(names):
            yield f"code = call{number}(*args{number})"
            yield f"if code: raise failure({name!r}, code)"
        yield f"return {self._told(self.form)}"

    def _told(self, form: Any) -> str:
        """A part of the result, as Python."""
        if form is None:
            return "None"
        if type(form) is int:
            return self._array(form)
        parts = "".join(f"{self._told(part)}, " for part in form)
        return f"[{parts}]" if type(form) is list else f"({parts})"

    def _array(self, number: int) -> str:
        x, own = self.results[number], len(self.given)
        for place, operand in enumerate(self.given):
            if operand is x:
                return f"given[{place}]"
        source, offset = self._where(x.data.ptr)
        at = f"given[{source}].data" if source < own else f"block{source - own}"
        strides = "" if x.flags.c_contiguous else f", out{number}[2]"
        return f"kind(out{number}[0], out{number}[1], {at}{f' + {offset}' if offset else ''}{strides})"

    def _see(self, arg: Any) -> None:
        """Note of whose memory a pointer is."""
        kind: Any = cuda.array_types[0]
        if type(arg) is Workspace:
            self.sources.append((len(self.given) + len(self.nbytes), 0))
        elif type(arg) is Address:
            self.sources.append(self._where(arg.value))
        elif type(arg) is kind:
            self.sources.append(self._where(arg.data.ptr))

    def _call(self, call: _Call, words: Any, places: Any) -> _Call:
        name, what, args = call
        if name == "cuLaunchKernel":
            function, grid, block = what
            return name, launcher(), self._launch(function, grid, block, args, words, places)
        if not name:
            first, *_ = [next(places) for _ in args]
            return name, what((ctypes.c_void_p * len(args)).from_buffer(words, first * _WORD)), ()
        told = []
        for arg in args:
            if type(arg) in (Address, Workspace):
                word = ctypes.c_void_p.from_buffer(words, next(places) * _WORD)
                arg = ctypes.byref(word) if type(arg) is Address and arg.by_reference else word
            told.append(arg)
        return name, driver.function(name), tuple(told)

    def _launch(self, function: Any, grid: Any, block: Any, args: Any, words: Any, places: Any) -> tuple[Any, ...]:
        """The driver's arguments."""
        at = []
        for arg in args:
            if type(arg) is Address or type(arg) is cuda.array_types[0]:
                at.append(ctypes.addressof(words) + next(places) * _WORD)
                continue
            constant = np.array(np.uint64(0) if arg is None else arg)
            self.held.append(constant)
            at.append(constant.ctypes.data)
        stream = cuda.module().cuda.get_current_stream().ptr
        sizes = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3], 0)
        pointers = (ctypes.c_void_p * len(at))(*at)
        return ctypes.c_void_p(function.kernel.ptr), *sizes, ctypes.c_void_p(stream), pointers, None


_WORD = 8  # bytes


def launcher() -> Any:
    """The driver's cuLaunchKernel. Raises DeviceError where there is no driver."""
    return driver.function("cuLaunchKernel")
