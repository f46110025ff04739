"""Native steps of large draws (ops/random/draws.py): Philox's words as uniform floats, and as normal ones.

In: a block, the seed, the stream, and the numbers of the first elements. Out: the block, overwritten.
A unit number is the upper 24 bits of word 0 of Philox4x32-10, times 2^-24: exact. Products and sums are rounded one
after the other, as NumPy's. A library of its own, of some lines: it is built within a second, in the first large draw
of a machine, and then comes from the artefact cache. None where there is no compiler.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from compiler_core import log
from compiler_core.errors import DistCompileError
from compiler_core.ops.random.draws import NATIVE, Steps
from compiler_core.ops.registry import Array
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.showing.notice import noticed

_NAME = "draws.so"
_TEXT = """\
#define EXPORT extern "C" __attribute__((visibility("default"))) void
DC_INLINE float unit(uint64_t seed, uint64_t stream, uint64_t element) {
  return (float)(int32_t)(dc_philox(seed, stream, element) >> 8) * 0x1p-24f;
}
EXPORT dc_uniform(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float* out, float scale, float shift) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = unit(seed, stream, first + (uint64_t)i) * scale + shift;
}
"""
_NORMAL = """\
EXPORT dc_draw_BITS(uint64_t seed, uint64_t stream, uint64_t first, uint64_t second, int64_t n, REAL* out, REAL scale,
                    REAL shift) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t a = dc_philox(seed, stream, first + (uint64_t)i), b = dc_philox(seed, stream, second + (uint64_t)i);
    out[i] = dc_BITS(a, b) * scale + shift;
  }
}
"""


def source() -> str:
    """The library's one translation unit."""
    from compiler_core.codegen.cpp.helpers import TYPES, helper_text

    reals = {"normal32": "float", "normal64": "double"}
    normal = [_NORMAL.replace("BITS", name).replace("REAL", real) for name, real in reals.items()]
    return "".join([TYPES, helper_text(["philox", *reals]), _TEXT, *normal])


class NativeSteps:
    """See `Steps` of ops/random/draws.py."""

    def __init__(self, library: ctypes.CDLL) -> None:
        word, count, place, number = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
        self._uniform, normals = library.dc_uniform, (library.dc_draw_normal32, library.dc_draw_normal64)
        self._uniform.restype = None
        self._uniform.argtypes = (word, word, word, count, place, number, number)
        self._normal = {4: normals[0], 8: normals[1]}
        for function, real in zip(normals, (ctypes.c_float, ctypes.c_double)):
            function.restype = None
            function.argtypes = (word, word, word, word, count, place, real, real)

    def uniform(self, seed: int, stream: int, first: int, out: Array, scale: float, shift: float) -> None:
        self._uniform(seed, stream, first, len(out), out.ctypes.data, scale, shift)

    def normal(self, seed: int, stream: int, first: int, second: int, out: Array, scale: float, shift: float) -> None:
        self._normal[out.itemsize](seed, stream, first, second, len(out), out.ctypes.data, scale, shift)


def native_steps() -> Steps | None:
    """The routines, built if need be; None where they cannot be had, which is said in the log."""
    try:
        return NativeSteps(ctypes.CDLL(_built()))
    except (DistCompileError, OSError) as error:
        log.emit("code", f"no native code for draws: {error}")
        return None


def _built() -> str:
    from compiler_core.runtime.build import build_library
    from compiler_core.runtime.toolchain import find_toolchain

    toolchain, text = find_toolchain(), source()
    key = make_key({"kind": "draws", "toolchain": toolchain.key(), "source": text})

    def build(folder: Path) -> Manifest:
        with noticed("random numbers", "build"):
            build_library({"draws": text}, folder / _NAME, toolchain)
        return {}

    return str(load_or_build(key, build).file(_NAME))


NATIVE.fill(native_steps)
