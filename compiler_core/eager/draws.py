"""Native steps of large draws (ops/draws.py): Philox's words as uniform floats, and what follows the logarithm.

In: f32 blocks, and for Philox the seed, the stream, and the number of the first element. Out: the blocks, overwritten.
A unit number is the upper 24 bits of word 0 of Philox4x32-10, times 2^-24: exact. Products and sums are rounded one
after the other, as NumPy's. A library of its own, of ten lines: it is built within a second, in the first large draw of
a machine, and then comes from the artefact cache. None where there is no compiler.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from compiler_core import log
from compiler_core.errors import DistCompileError
from compiler_core.ops.draws import Steps
from compiler_core.ops.registry import Array
from compiler_core.runtime.cache import Manifest, load_or_build, make_key

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
EXPORT dc_polar(int64_t n, float* out, const float* angle, float scale, float shift) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = __builtin_sqrtf(out[i] * -2.0f) * angle[i] * scale + shift;
}
"""


def source() -> str:
    """The library's one translation unit."""
    from compiler_core.codegen.cpp.helpers import TYPES, helper_text

    return f"{TYPES}{helper_text(['philox'])}{_TEXT}"


class NativeSteps:
    """See `Steps` of ops/draws.py."""

    def __init__(self, library: ctypes.CDLL) -> None:
        word, count, place, number = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
        self._uniform, self._polar = library.dc_uniform, library.dc_polar
        self._uniform.restype = self._polar.restype = None
        self._uniform.argtypes = (word, word, word, count, place, number, number)
        self._polar.argtypes = (count, place, place, number, number)

    def uniform(self, seed: int, stream: int, first: int, out: Array, scale: float, shift: float) -> None:
        self._uniform(seed, stream, first, len(out), out.ctypes.data, scale, shift)

    def polar(self, out: Array, angle: Array, scale: float, shift: float) -> None:
        self._polar(len(out), out.ctypes.data, angle.ctypes.data, scale, shift)


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
        build_library({"draws": text}, folder / _NAME, toolchain)
        return {}

    return str(load_or_build(key, build).file(_NAME))
