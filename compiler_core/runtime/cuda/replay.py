"""Device calls that are made again: what a function launched for arrays that lie like these, without its Python.

In: a function of CuPy's arrays (a definition of eager/device/, an op's kernels), whose launches depend on how arrays
lie (dtypes, shapes, strides, starts modulo ALIGNED bytes), on what it is told, and on settings, never on elements. Out:
what it gives. The second call of a kind is noted while it is made: memory that it asks for (`empty`), kernels
(`launch`), calls of libraries (`library`), and of whose memory each pointer is. Later ones are made by native code
(again.h), which allocates, writes the pointers into the arguments, which are kept, and calls driver and libraries.
A call that reads or gives what is neither an operand nor from `empty`, as CuPy computed it, is made in full each time.
Of operands that lie in each other it counts how far they begin apart. Notes belong to a thread, a device and a stream.
Invariant: what a function that is made again writes into its operands' memory, or into that of `empty`, it writes by
`launch` and `library`; what CuPy writes there must be told (`spoil`).
Source: CUDA Driver API, cuLaunchKernel.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from compiler_core import cuda
from compiler_core.ops.on_device import MADE_AGAIN, Noted
from compiler_core.runtime.cuda import driver
from compiler_core.runtime.cuda.again import library as native

Array = Any
F = TypeVar("F", bound=Callable[..., Any])
ALIGNED = 16  # bytes
LIMIT = 1 << 12  # calls that are known of one function
VARIANTS = 32  # of those of one kind, which are looked through
Known = dict[tuple[Any, ...], Callable[..., Any]]


class Address(NamedTuple):
    """A pointer to a device's memory, as an argument. by_reference: the library is told where it is written."""

    value: int
    by_reference: bool = False


class Table(NamedTuple):
    """Pointers to a device's memory, one after another, of which the library is told where they are written."""

    values: tuple[int, ...]


class Number(int):
    """A number of 64 bits that differs from call to call: an operand, which kernels are handed as it is."""


class Workspace(NamedTuple):
    """A pointer to this thread's arena, as an argument."""

    value: int


class Handle:
    """What a library makes and is handed later in the same call: by its value, or, to write it, as `Written`."""

    def __init__(self) -> None:
        self.word = ctypes.c_void_p()


class Written(NamedTuple):
    """Where a library writes a handle."""

    handle: Handle


class Call:
    """A call of a library that was made. what: of a kernel, itself and its sizes. undo: the number of the call that is
    made if this one fails. blocks: how much memory had been asked for before."""

    def __init__(self, name: str, what: Any, args: tuple[Any, ...], blocks: int) -> None:
        self.name, self.what, self.args, self.undo, self.blocks = name, what, args, -1, blocks


class Note:
    """What a call did. made: the memory it asked for, which is held. spoilt: it did something else."""

    def __init__(self) -> None:
        self.made: list[Array] = []
        self.calls: list[Call] = []
        self.spoilt = False

    def add(self, name: str, what: Any, args: tuple[Any, ...]) -> None:
        """A call was made."""
        self.calls.append(Call(name, what, args, len(self.made)))


class _Here(threading.local):
    """A thread's note that is being made, and what its notes are known by: ids of threads come again."""

    def __init__(self) -> None:
        self.note: Note | None = None
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
    """CuPy's kernel; args: arrays, None, numbers of NumPy's, pointers as Address, and Number."""
    for arg in args:
        if type(arg) is Address or type(arg) is Number:
            function(grid, block, tuple(map(_as_numpy, args)))
            break
    else:
        function(grid, block, args)
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.add("cuLaunchKernel", (function, grid, block), args)


def _as_numpy(arg: Any) -> Any:
    return np.uint64(arg.value) if type(arg) is Address else np.uint64(arg) if type(arg) is Number else arg


def library(name: str, *args: Any) -> None:
    """A library's function, as `driver.call`; device memory as Address, Table or Workspace. Raises DeviceError."""
    driver.call(name, *map(_as_c, args))
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.add(name, None, args)


@contextmanager
def undone(name: str, *args: Any) -> Iterator[None]:
    """After the block, also if one of its calls fails, this function is called."""
    note = Noting.here.note if Noting.count else None
    first = 0 if note is None else len(note.calls)
    try:
        yield
    finally:
        library(name, *args)
    if note is not None:
        for call in note.calls[first:-1]:
            call.undo = len(note.calls) - 1


def spoil() -> None:
    """The call that is being made does what is not noted."""
    if Noting.count and Noting.here.note is not None:
        Noting.here.note.spoilt = True


def is_noting() -> bool:
    """Whether this thread notes the call that is being made."""
    return bool(Noting.count) and Noting.here.note is not None


def _as_c(arg: Any) -> Any:
    kind = type(arg)
    if kind is Table:
        return ctypes.byref((ctypes.c_void_p * len(arg.values))(*arg.values))
    if kind is Written:
        return ctypes.byref(arg.handle.word)
    if kind is Address and arg.by_reference:
        return ctypes.byref(ctypes.c_void_p(arg.value))
    return arg.word if kind is Handle else ctypes.c_void_p(arg.value) if kind in (Address, Workspace) else arg


# ---- calls that are made again


def again(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute`, a function of operands (arrays, None, what stands for arrays), of which calls are made again; itself
    where there is no compiler."""
    found = native()
    return compute if found is None else found.made(_Learner(compute), Noting, cuda.precision)


MADE_AGAIN.fill(again)
Noted.spoil = spoil


class _Learner:
    """What is asked of operands that fit no variant yet. known: False: was made once; None: was noted."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute = compute
        self.known: dict[tuple[Any, ...], bool | None] = {}
        self.is_vain = False  # the first note was of no use

    def __call__(self, made: Any, *operands: Any) -> Any:
        if self.is_vain or (Noting.count and Noting.here.note is not None) or not Noting.is_on:
            return self.compute(*operands)
        key, spans = _key(operands), _spans(operands)
        if key is not None and spans is not None:
            key = *key, *pairs_of(spans)
        found = True if key is None else self.known.get(key, True)
        if found is True and key is not None:  # the first such call
            if len(self.known) >= VARIANTS:
                self.known.clear()
                native().forget(made)  # type: ignore[union-attr]
            self.known[key] = False
        if spans is None or key is None or found is not False:
            return self.compute(*operands)
        result, variant = _noted(spans, operands, lambda: self.compute(*operands))
        if variant is not None:
            native().add(made, *variant)  # type: ignore[union-attr]
        self.is_vain = variant is None and None not in self.known.values()
        self.known[key] = None
        return result


def _key(operands: Sequence[Any]) -> tuple[Any, ...] | None:
    """What calls of a function are told apart by. None: not made again."""
    kind: Any = cuda.array_types[0]
    number = cuda.current() if cuda.lone.array is None else -1
    stream = cuda.module().cuda.get_current_stream().ptr
    signature: list[Any] = [Noting.here.token, number, stream, Noting.settings, cuda.precision.tf32]
    pointers: list[int] = []
    for x in operands:
        if type(x) is kind:
            pointer = x.data.ptr
            if number >= 0 and x.data.device_id != number:
                return None
            signature += (x.dtype, x.shape, x.strides, start_of(pointer, pointers))
            pointers.append(pointer)
        elif isinstance(x, (np.ndarray, np.generic)):
            return None
        else:
            signature.append(Number if type(x) is Number else x)
    return tuple(signature)


def start_of(pointer: int, others: list[int]) -> int:
    """Where an array begins: modulo ALIGNED, or where another does, which of them."""
    return ~others.index(pointer) if pointer in others else pointer % ALIGNED


def replayed(known: Known, told: tuple[Any, ...], operands: Sequence[Any], compute: Callable[..., Any]) -> Any:
    """`compute(*operands)`, which is a function of `operands` (arrays, None, what stands for arrays, numbers of
    NumPy's) and of what is told. known: the calls of this function so far."""
    kind: Any = cuda.array_types[0]
    key: list[Any] = [told, Noting.settings]
    given = operands
    for x in operands:
        if type(x) is kind:
            key += (x.dtype, x.shape)
        elif isinstance(x, (np.ndarray, np.generic)):
            if x.ndim:
                return compute(*operands)
            key += (x.dtype, x.tobytes())
            given = [one for one in given if one is not x]
    found = known.get(tuple(key))
    if found is None:
        if len(known) >= LIMIT:
            known.clear()
        found = known[tuple(key)] = again(compute if given is operands else _with_numbers(compute, operands))
    return found(*given)


def _with_numbers(compute: Callable[..., Any], operands: Sequence[Any]) -> Callable[..., Any]:
    """`compute` as a function of the operands that are no numbers of NumPy's."""
    numbers = [x if isinstance(x, (np.ndarray, np.generic)) else None for x in operands]

    def filled(*given: Any) -> Any:
        others = iter(given)
        return compute(*[next(others) if x is None else x for x in numbers])

    return filled


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
        return replayed(known, told, arrays, lambda *arrays: function(k, *arrays, **attrs))

    # what is made again of arrays like these: there(part): a part of the definition, on their device
    forward.prepare = lambda there, arrays: again(there(function))  # type: ignore[attr-defined]
    return forward  # type: ignore[return-value]


def replays_backward(function: F) -> F:
    """A definition's backward, (k, needs, g, out, kept, *arrays, **attrs), of which calls are made again."""
    known: Known = {}

    @functools.wraps(function)
    def backward(k: Any, needs: Sequence[bool], g: Any, out: Any, kept: Any, *arrays: Any, **attrs: Any) -> Any:
        count = len(kept)
        told = (k, *needs, count, *_told(attrs))

        def compute(g: Any, out: Any, *rest: Any) -> Any:
            return function(k, needs, g, out, rest[:count], *rest[count:], **attrs)

        return replayed(known, told, (g, out, *kept, *arrays), compute)

    backward.prepare = True  # type: ignore[attr-defined]
    return backward  # type: ignore[return-value]


# ---- notes


def _spans(operands: Sequence[Array]) -> list[tuple[int, int]] | None:
    """Where each operand's memory begins and ends, (0, 0) of what is none; None if one is empty, or goes backwards."""
    spans = []
    kind: Any = cuda.array_types[0]
    for x in operands:
        if type(x) is not kind:
            spans.append((0, 0))
            continue
        behind = x.itemsize
        for n, step in zip(x.shape, x.strides):
            if not n or step < 0:
                return None
            behind += (n - 1) * step
        spans.append((x.data.ptr, x.data.ptr + behind))
    return spans


def pairs_of(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Of each two that lie in each other, and begin at different places: which they are, and how far apart."""
    if len(spans) == 1 or (len(spans) == 2 and (spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0])):
        return []
    pairs = []
    for second, (start, end) in enumerate(spans):
        for first, (a, b) in enumerate(spans[:second]):
            if a < end and start < b and a != start:
                pairs.append((first, second, start - a))
    return pairs


def _noted(spans: list[tuple[int, int]], operands: Sequence[Array], compute: Callable[[], Any]) -> tuple[Any, Any]:
    """The result, and the variant that makes it again."""
    from compiler_core.runtime.cuda.variant import variant_of

    note = Note()
    note_here: Any = native().note  # type: ignore[union-attr]
    with Noting.lock:
        Noting.count += 1
        Noted.count = Noting.count
    Noting.here.note = note
    note_here(True)
    try:
        result = compute()
    finally:
        note_here(False)
        Noting.here.note = None
        with Noting.lock:
            Noting.count -= 1
            Noted.count = Noting.count
    if result is None or note.spoilt:
        return result, None
    try:
        return result, variant_of(note, spans, operands, result)
    except (TypeError, LookupError):
        return result, None


def launcher() -> Any:
    """The driver's cuLaunchKernel. Raises DeviceError where there is no driver."""
    return driver.function("cuLaunchKernel")
