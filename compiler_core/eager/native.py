"""Libraries of kernels that Python calls with arrays, built once for a machine, loaded once a process: row kernels.

In: arrays. Out: `RowKernels`, or None where there is no compiler, or NumPy's arrays do not lie as kernels.h has it:
eager composites are then computed op by op, slower. Built at the first call that wants a kernel, never at import, which
takes a few seconds on a machine where it was never done; then it comes from the artefact cache.
Arrays are handed over as one tuple, whose objects the kernels read: an address asked of NumPy costs more than a small
kernel takes. Small calls keep the GIL; large ones let other threads run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from compiler_core import log
from compiler_core.errors import BackendError, DistCompileError, LoweringError
from compiler_core.ops.registry import Array
from compiler_core.runtime import pool
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.freed_memory import keep_freed
from compiler_core.runtime.toolchain import multiplies_bf16
from compiler_core.showing.notice import noticed

LARGE = 1 << 15  # elements of the first array, from which on a call releases the GIL
_POINTER, _DOUBLE, _INT = ctypes.py_object, ctypes.c_double, ctypes.c_int64
SIGNATURE = (_POINTER,)  # of every kernel's first argument; numbers follow
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "batch_norm": (_DOUBLE, _INT),
    "batch_norm_backward": (_INT,),
    "moved_statistics": (_DOUBLE,),
    "columns": (),
    "columns_back": (),
    "primitives_of": (_INT, _INT),
    "window_max": (),
    "window_max_backward": (),
    "dropout": (_DOUBLE, _INT, _INT),
    "dropout_backward": (_DOUBLE,),
    "cross_entropy": (_INT, _INT, _DOUBLE),
    "cross_entropy_backward": (_INT, _DOUBLE),
    "nll_loss": (_INT, _INT),
    "nll_loss_backward": (_INT,),
    "add_rows": (),
    "choose": (_INT,),
    "erf_of": (),
    "depthwise_weight": (),
    "depthwise_dilated_weight": (),
    "depthwise_input": (),
    "resample": (),
    "resample_back": (),
    "sparse_product": (),
    "sparse_sampled": (),
}
# Runs a plan of runtime/onednn.py: x, weight, out as the plan has them; its scratch memory.
_PRIMITIVES = """
EXPORT dc_primitives_of(void* arrays, int64_t plan, int64_t scratch) {
  const Tuple* t = (const Tuple*)arrays;
  if (!is_dense(t)) return -1;
  void* data[] = {at<void>(t, 0), at<void>(t, 1), at<void>(t, 2)};
  return dc_primitives((const void*)plan, (char*)scratch, data);
}
"""
# a (*batch, m, k), b (*batch, k, n), out, dense; rows of a and of b, or their columns, are dense.
_PRODUCTS_OF_BF16 = """
DC_INLINE dc_bf16_matrix matrix_of(const Array* x) {
  const int64_t row = x->strides[x->ndim - 2] / 2, column = x->strides[x->ndim - 1] / 2;
  const bool turned = column != 1 && x->shape[x->ndim - 1] != 1;
  return dc_bf16_matrix{(const dc_bf16*)x->data, turned ? column : row, turned};
}
EXPORT dc_product_of_bf16(void* arrays, int64_t scratch) {
  const Tuple* t = (const Tuple*)arrays;
  const Array *a = t->items[0], *b = t->items[1], *out = t->items[2];
  dc_bf16_axis axes[64] = {};
  const int32_t batch = a->ndim - 2;
  for (int32_t d = 0; d < batch; ++d)
    axes[d] = {a->shape[d], a->strides[d] / 2, b->strides[d] / 2, out->strides[d] / 2};
  const int64_t m = a->shape[batch], k = a->shape[batch + 1], n = b->shape[batch + 1];
  dc_bf16_gemm(matrix_of(a), matrix_of(b), (dc_bf16*)out->data, n, m, n, k, axes, batch, (char*)scratch);
  return 0;
}
"""
L = TypeVar("L", bound="EagerLibrary")
Kernel: TypeAlias = Callable[..., int]  # (arrays, *numbers) -> 0, or 1 for an index out of range


class EagerLibrary:
    """A shared object of kernels that read NumPy's arrays (arrays.h)."""

    def __init__(self, path: Path) -> None:
        self._quick, self._calls = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))

    def share_out(self) -> None:
        """Compute with the pool's threads what is shared out among them."""
        pool.give(self._calls)

    def is_as_told(self) -> bool:
        """Whether arrays lie in memory as the kernels read them."""
        function = self._quick.dc_is_as_told
        function.restype, function.argtypes = _INT, (_POINTER, _INT, _INT, _INT, _INT)
        told = []
        for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
            whole = np.zeros((3, 5), dtype)
            array = whole[:, 1:]
            told.append(function((array, None, whole), array.ctypes.data, 4, 5 * dtype.itemsize, dtype.num))
        return all(told)

    def forms(self, name: str, *arguments: Any) -> tuple[Kernel, Kernel]:
        """Function `name` of these ctypes: for small calls, and for large ones, which let other threads run."""
        forms = []
        for library in (self._quick, self._calls):
            function = getattr(library, f"dc_{name}")
            function.restype, function.argtypes = _INT, arguments
            forms.append(function)
        return forms[0], forms[1]


class RowKernels(EagerLibrary):
    """The kernels by name, as functions of a tuple of arrays (None where there is none) and numbers."""

    def named(self, name: str) -> Kernel:
        """Kernel `name` of kernels.h, planes.h or sparse.h."""
        return self._kernel(name, _SIGNATURES[name])

    def of_numbers(self, name: str, count: int) -> Kernel:
        """Kernel `name`, which takes so many floats."""
        return self._kernel(name, (_DOUBLE,) * count)

    def _kernel(self, name: str, numbers: tuple[Any, ...]) -> Kernel:
        quick, calls = self.forms(name, _POINTER, *numbers)

        def kernel(arrays: tuple[Array | None, ...], *numbers: float) -> int:
            first: Any = arrays[0]
            status = (calls if first.size > LARGE else quick)(arrays, *numbers)
            if status < 0:
                raise BackendError(f"eager kernel {name} was given an array that is not dense")
            return status

        return kernel


def source() -> str:
    """The kernels as one translation unit."""
    from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
    from compiler_core.codegen.cpp.program import POOL
    from compiler_core.ops.convolution.last import PRIMITIVES
    from compiler_core.ops.linear_algebra.gemm_bf16 import NEEDS, TEXT

    declared = libm_declarations(["exp", "log"])
    helpers = helper_text(["erf", "exp", "philox", "reduce_max", *(NEEDS if multiplies_bf16() else ())])
    texts = "".join(map(text_of, ("arrays.h", "kernels.h", "planes.h", "sparse.h")))
    products = f"{POOL}{TEXT}{_PRODUCTS_OF_BF16}" if multiplies_bf16() else ""
    return f"{TYPES}{helpers}{declared}{texts}{PRIMITIVES}{_PRIMITIVES}{products}"


def text_of(name: str) -> str:
    """A file of C++ of this folder."""
    return (Path(__file__).parent / name).read_text()


@cache
def kernels() -> RowKernels | None:
    """The library, built if need be; None where it cannot be had, which is said once."""
    keep_freed()
    library = loaded(RowKernels, "eager", source, "eager composites")
    if library is not None:
        library.share_out()
    return library


def loaded(
    kind: type[L], name: str, source: Callable[[], str], purpose: str, parts: Mapping[str, str] | None = None
) -> L | None:
    """Library `name` of this text; None, said in the log, where it cannot be built, or arrays lie otherwise.

    parts: what the text is made of, by name, if it takes long to make: the key then holds these in its place. Raises
    LoweringError where the compiler cannot make the text.
    """
    try:
        library = kind(_built(name, source, {"source": source()} if parts is None else parts))
    except LoweringError:
        raise
    except (DistCompileError, OSError) as error:
        log.emit("code", f"no kernels for {purpose}: {error}")
        return None
    return library if library.is_as_told() else None


def _built(name: str, source: Callable[[], str], parts: Mapping[str, str]) -> Path:
    from compiler_core.runtime.build import build_library
    from compiler_core.runtime.toolchain import find_toolchain

    toolchain, file = find_toolchain(), f"{name}.so"

    def build(folder: Path) -> Manifest:
        with noticed("kernels of eager code", "build"):
            build_library({name: source()}, folder / file, toolchain)
        return {}

    key = make_key({"kind": f"{name} kernels", "toolchain": toolchain.key(), **parts})
    return load_or_build(key, build).file(file)
