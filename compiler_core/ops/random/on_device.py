"""Random numbers made on a CUDA device: words, uniform and normal ones, each by one kernel, the CPU's bits.

In: key u64[3] on the host, shape, stream, as of the philox op (op.py); the device's number. Out: an array there.
A kernel serves once it has given the host's bits on that device; where it does not, or does not compile, or where a
stand-in has none, the numbers are made on the host and moved, which is said once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from compiler_core import cuda, log
from compiler_core.dtype import DType
from compiler_core.meta import Shape
from compiler_core.ops.random import box_muller
from compiler_core.ops.random.op import philox
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass


class _Drawing(threading.local):
    """number: that of the CUDA device that draws of this thread are made on; None: where their keys are.

    of: that of the CUDA device whose generator is drawn from; None: the CPU's.
    """

    number: int | None = None
    of: int | None = None


drawing = _Drawing()


@contextmanager
def drawing_on(number: int | None, of: int | None = None) -> Iterator[None]:
    """In this block random numbers are made on device `number`: for functions whose every step is rounded alike there.

    of: for which device they are, if another; by default the one that it is outside of the block, or `number`.
    """
    before = drawing.number, drawing.of
    drawing.number = number
    drawing.of = of if of is not None else number if number is not None else drawing.of
    try:
        yield
    finally:
        drawing.number, drawing.of = before


def philox_there(key: Array, shape: Shape, stream: int, number: int) -> Array:
    """The philox op: u32[shape]."""
    return _made_there("philox", key, shape, stream, number)


def uniform_there(key: Array, shape: Shape, stream: int, number: int) -> Array:
    """f32[shape] in [0, 1), of the upper 24 of these bits."""
    return _made_there("uniform", key, shape, stream, number)


def normal_there(key: Array, shape: Shape, stream: int, number: int, dtype: DType) -> Array:
    """Normal numbers of two words each (box_muller.py), f32 or f64."""
    return _made_there(box_muller.NORMAL[dtype].name, key, shape, stream, number)


def on_host(name: str, key: Array, shape: Shape, stream: int) -> Array:
    """The same, with NumPy."""
    first, *second = map(np.asarray, philox(np, key, (KERNELS[name].words, *shape), stream))
    if name == "philox":
        return first
    if name == "uniform":
        return np.asarray((first >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24))
    (precision,) = (p for p in box_muller.PRECISIONS if p.name == name)
    return box_muller.normal(precision, np, first, *second)


def _made_there(name: str, key: Array, shape: Shape, stream: int, number: int) -> Array:
    made: Array
    with cuda.on(number), cuda.allocating(number):
        kernel = _kernel(name) if math.prod(shape) else None
        if kernel is None:
            made = cuda.put(on_host(name, key, shape, stream), number)
        else:
            made = _filled(name, kernel, key, shape, stream)
    return made


def _filled(name: str, kernel: Any, key: Array, shape: Shape, stream: int) -> Array:
    (seed, offset, shard), n = (int(k) for k in key), math.prod(shape)
    out: Array = cuda.module().empty(shape, KERNELS[name].dtype)
    first = shard * n * KERNELS[name].words
    numbers = (seed, offset + stream, first, first + n)
    kernel(*(np.uint64(k % 2**64) for k in numbers), out)
    return out


_kernels: dict[tuple[str, int, int], Any] = {}  # by name, module (tests change it), device


def _kernel(name: str) -> Any:
    """CuPy's kernel on the current device, once it has given the host's bits; None where there is none, said once."""
    place = (name, id(cuda.module()), cuda.current())
    if place not in _kernels:
        _kernels[place] = None
        try:
            kernel = _compiled(name)
            key = np.array((2**64 - 3, 2**40 + 3, 2**33), np.uint64)
            if kernel is None:
                return None
            if (cuda.fetch(_filled(name, kernel, key, (99,), 1)) == on_host(name, key, (99,), 1)).all():
                _kernels[place] = kernel
            else:
                log.warn_once(name, "draws are made on the CPU and moved: the device's kernel gives other bits")
        except Exception as error:
            if isinstance(error, MemoryError):  # there may be some the next time
                _kernels.pop(place, None)
                raise
            log.warn_once(name, f"draws are made on the CPU and moved: their kernel does not compile: {error}")
    return _kernels[place]


def _compiled(name: str) -> Any:
    made = KERNELS[name]
    inline = "#define DC_INLINE __device__ inline\n"
    return cuda.kernel(f"distcompile_{name}", INPUTS, f"{made.dtype} out", made.text, inline + made.before)


# ---- the kernels


@dataclass(frozen=True, slots=True)
class DrawKernel:
    """words: how many random words an element takes. text: what computes `out` of element i; before: its functions."""

    dtype: str
    words: int
    text: str
    before: str


INPUTS = "uint64 seed, uint64 stream, uint64 first, uint64 second"
_PHILOX = """\
DC_INLINE unsigned dc_word(unsigned long long seed, unsigned long long stream, unsigned long long element) {
  unsigned c0 = (unsigned)element, c1 = (unsigned)(element >> 32);
  unsigned c2 = (unsigned)stream, c3 = (unsigned)(stream >> 32);
  unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
  for (int turn = 0; turn < 10; ++turn) {
    unsigned high0 = __umulhi(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u;
    unsigned high1 = __umulhi(c2, 0xCD9E8D57u), low1 = c2 * 0xCD9E8D57u;
    c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  return c0;
}
"""
_WORD = "dc_word(seed, stream, first + i)"


def _of_normals(p: box_muller.Precision, root: str) -> DrawKernel:
    text = f"out = dc_{p.name}({_WORD}, dc_word(seed, stream, second + i));"
    return DrawKernel(p.dtype.name, 2, text, _PHILOX + box_muller.c_text(p, root))


KERNELS = {
    "philox": DrawKernel("uint32", 1, f"out = {_WORD};", _PHILOX),
    "uniform": DrawKernel("float32", 1, f"out = (float)({_WORD} >> 8) * 5.9604644775390625e-8f;", _PHILOX),
    "normal32": _of_normals(box_muller.F32, "__fsqrt_rn"),
    "normal64": _of_normals(box_muller.F64, "__dsqrt_rn"),
}
