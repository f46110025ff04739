"""The library routines that generated code calls: GEMM of scipy-openblas32, as addresses.

In: nothing. Out: `routine_table()`: a C array of function pointers in the order of `ROUTINES`, for native calls.
Generated code is not linked against the library, so an artefact does not remember where a wheel was installed.
OpenBLAS reads OPENBLAS_NUM_THREADS or OMP_NUM_THREADS when it is loaded, which happens at the first compiled call.
NumPy brings an OpenBLAS of its own; the two share nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from compiler_core.errors import BackendError

ROUTINES: tuple[str, ...] = ("sgemm", "dgemm")  # index = place in the table


@cache
def load_openblas() -> ctypes.CDLL:
    """The OpenBLAS of the scipy-openblas32 wheel. Raises BackendError if the wheel is not installed."""
    spec = find_spec("scipy_openblas32")  # found, not imported: importing it would load the library twice over
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder, "lib").glob("libscipy_openblas*.*")):
            if path.suffix in (".so", ".dylib"):
                return ctypes.CDLL(str(path))
    raise BackendError(
        "the OpenBLAS that generated code calls is not installed",
        remedy='pip install scipy-openblas32, or compile(..., backend="aot_eager")',
    )


@cache
def _blas_addresses() -> tuple[int | None, ...]:
    library = load_openblas()
    symbols = [getattr(library, f"scipy_cblas_{name}") for name in ROUTINES]
    return tuple(ctypes.cast(symbol, ctypes.c_void_p).value for symbol in symbols)


def routine_table(more: Sequence[int] = ()) -> ctypes.Array[ctypes.c_void_p]:
    """Addresses of `ROUTINES` (CBLAS signatures, 32-bit integers), alive as long as the process, then `more`."""
    addresses = [*_blas_addresses(), *more]
    return (ctypes.c_void_p * len(addresses))(*addresses)
