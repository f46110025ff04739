"""The libraries that a package's native code calls, opened when first needed.

Out: `LIBRARIES`: name -> what opens it. Raises PackageError where its wheel, a dependency of distcompile, is missing.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from distcompile.errors import PackageError


def _openblas() -> ctypes.CDLL:
    library = _library("scipy-openblas32", _wheel_files("scipy_openblas32"))
    library.scipy_openblas_set_num_threads(1)
    return library


def _onednn() -> ctypes.CDLL:
    places = [Path(sys.prefix, "lib", "libdnnl.so.3"), *_recorded("onednn-cpu-gomp", "libdnnl.so.3")]
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return _library("onednn-cpu-gomp", places)
    os.environ["GOMP_SPINCOUNT"] = "10000"  # libgomp reads it when it is loaded: its threads soon sleep
    try:
        return _library("onednn-cpu-gomp", places)
    finally:
        del os.environ["GOMP_SPINCOUNT"]


LIBRARIES = {"openblas": _openblas, "onednn": _onednn}


def _wheel_files(module: str) -> list[Path]:
    spec = find_spec(module)
    folders = spec.submodule_search_locations if spec is not None else None
    return [path for folder in folders or () for path in sorted(Path(folder, "lib").glob("lib*openblas*.*"))]


def _recorded(wheel: str, name: str) -> list[Path]:
    """Where a wheel's record says that a file is."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        return [Path(str(entry.locate())) for entry in files(wheel) or [] if entry.name == name]
    except PackageNotFoundError:
        return []


def _library(wheel: str, places: Sequence[Path]) -> ctypes.CDLL:
    for path in places:
        if path.suffix in (".so", ".dylib", ".3") and path.exists():
            return ctypes.CDLL(str(path))
    what = f"the package calls the library of {wheel}, which is not installed"
    raise PackageError(what, remedy=f"pip install {wheel}")
