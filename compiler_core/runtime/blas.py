"""The routines of scipy-openblas32 that generated code calls (CBLAS and LAPACKE, 32-bit integers), as addresses.

In: names of symbols. Out: `routine_table()`: a C array of function pointers in their order, for native calls.
Generated code is not linked against the library, so an artefact does not remember where a wheel was installed.
It runs in the thread that calls it: generated code shares products out among the threads of runtime/pool.py itself.
NumPy brings an OpenBLAS of its own; the two share nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from compiler_core.errors import BackendError


@cache
def load_openblas() -> ctypes.CDLL:
    """The OpenBLAS of the scipy-openblas32 wheel. Raises BackendError if the wheel is not installed."""
    spec = find_spec("scipy_openblas32")  # found, not imported: importing it would load the library twice over
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder, "lib").glob("libscipy_openblas*.*")):
            if path.suffix in (".so", ".dylib"):
                library = ctypes.CDLL(str(path))
                library.scipy_openblas_set_num_threads(1)
                return library
    raise BackendError(
        "the OpenBLAS that generated code calls is not installed",
        remedy='pip install scipy-openblas32, or compile(..., backend="aot_eager")',
    )


@cache
def address_of(name: str) -> int:
    """The address of a routine of the library, by its CBLAS or LAPACKE name. Raises BackendError if there is none."""
    symbol = getattr(load_openblas(), f"scipy_{name}", None)
    if symbol is None:
        raise BackendError(f"the OpenBLAS at hand has no {name}", remedy="pip install --upgrade scipy-openblas32")
    return ctypes.cast(symbol, ctypes.c_void_p).value or 0


def routine_table(symbols: Sequence[str], more: Sequence[int], *, before: int) -> ctypes.Array[ctypes.c_void_p]:
    """The address `before`, then those of `symbols`, then `more`: an entry point is given the second place as `lib`."""
    addresses = [before, *map(address_of, symbols), *more]
    return (ctypes.c_void_p * len(addresses))(*addresses)
