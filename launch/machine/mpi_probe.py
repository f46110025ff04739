"""Run in a process of its own: which MPI library does mpi4py load here?

In: the environment and interpreter that the ranks will have. Out: one JSON line, {"version", "library", "bin"} or
{"error"}. MPI is loaded but not initialised. mpi4py's wheels choose the library when they are imported (MPI ABI), so
only an import tells the truth; `dladdr` then says from which file the library came.
"""

from __future__ import annotations

import ctypes
import json
import sys
import sysconfig


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    )


def defining_file(extension: str, symbol: str) -> str:
    """Path of the shared object that defines `symbol` as seen from the loaded `extension`; empty if unknown."""
    address = ctypes.cast(getattr(ctypes.CDLL(extension), symbol), ctypes.c_void_p)
    info = _DlInfo()
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(info)) or not info.dli_fname:
        return ""
    return str(info.dli_fname.decode())


def probe() -> dict[str, str]:
    """Load MPI through mpi4py and describe it."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}", "interpreter": sys.executable}
    return {
        "version": MPI.Get_library_version().strip("\0 \n"),
        "library": defining_file(MPI.__file__, "MPI_Get_version"),
        "bin": sysconfig.get_path("scripts"),
    }


if __name__ == "__main__":
    print(json.dumps(probe()))
