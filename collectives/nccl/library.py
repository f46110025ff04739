"""libnccl by ctypes: the few functions that collectives need, from the wheel, the system, or what CuPy has loaded.

In: device addresses, counts, streams as integers. Out: calls enqueued; or `NcclError`, with NCCL's own words.
CuPy's binding says less of an error, and waits for peers when a communicator is collected as garbage; hence our own
(docs/explanation/decisions.md). Only functions that NCCL has kept since 2.14 are used, and no structure of its, so that
any later library will do.
Source: nccl.h; docs.nvidia.com/deeplearning/nccl, "Communicators" and "Fault tolerance".
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from collectives.errors import NcclError, NcclNotFoundError

ID_NBYTES = 128
SUCCESS, IN_PROGRESS = 0, 7
DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
OLDEST = 21400  # 2.14: groups of sends, bfloat16, averages, abort from another thread


class _Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * ID_NBYTES),)


_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(_I),),
    "ncclGetUniqueId": (ctypes.POINTER(_Id),),
    "ncclCommInitRank": (ctypes.POINTER(_P), _I, _Id, _I),
    "ncclCommAbort": (_P,),
    "ncclCommGetAsyncError": (_P, ctypes.POINTER(_I)),
    "ncclAllReduce": (_P, _P, _N, _I, _I, _P, _P),
    "ncclReduce": (_P, _P, _N, _I, _I, _I, _P, _P),
    "ncclBroadcast": (_P, _P, _N, _I, _I, _P, _P),
    "ncclAllGather": (_P, _P, _N, _I, _P, _P),
    "ncclReduceScatter": (_P, _P, _N, _I, _I, _P, _P),
    "ncclSend": (_P, _N, _I, _I, _P, _P),
    "ncclRecv": (_P, _N, _I, _I, _P, _P),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}


class NcclLibrary(Protocol):
    """What is used of NCCL. Addresses, communicators and streams are integers; dtypes and ops as in the tables above.

    Each call but `async_error` and `version` raises NcclError if NCCL refuses.
    """

    def version(self) -> int: ...
    def unique_id(self) -> bytes: ...
    def init(self, world_size: int, unique_id: bytes, rank: int) -> int: ...
    def abort(self, comm: int) -> None: ...
    def async_error(self, comm: int) -> str: ...
    def all_reduce(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None: ...
    def reduce(
        self, source: int, target: int, count: int, dtype: int, op: int, root: int, comm: int, stream: int
    ) -> None: ...
    def broadcast(
        self, source: int, target: int, count: int, dtype: int, root: int, comm: int, stream: int
    ) -> None: ...
    def all_gather(self, source: int, target: int, count: int, dtype: int, comm: int, stream: int) -> None: ...
    def reduce_scatter(
        self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int
    ) -> None: ...
    def send(self, source: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None: ...
    def receive(self, target: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None: ...
    def group_start(self) -> None: ...
    def group_end(self) -> None: ...


class Nccl:
    """The loaded library."""

    def __init__(self, path: str) -> None:
        self.path, self._library = path, ctypes.CDLL(path)
        for name, arguments in _ARGUMENTS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, _I
        self._library.ncclGetErrorString.argtypes = (_I,)
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._last_error = getattr(self._library, "ncclGetLastError", None)
        if self._last_error is not None:
            self._last_error.argtypes, self._last_error.restype = (_P,), ctypes.c_char_p
        if self.version() < OLDEST:
            raise NcclNotFoundError("NCCL is too old", where=path, expected="2.14 or later", got=str(self.version()))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code not in (SUCCESS, IN_PROGRESS):
            raise NcclError(f"NCCL refused {name}", got=self._text(code), remedy="NCCL_DEBUG=INFO makes NCCL say more")

    def _text(self, code: int, comm: int | None = None) -> str:
        said = self._library.ncclGetErrorString(code) or b""
        more = b"" if self._last_error is None else self._last_error(comm) or b""
        return "; ".join(part.decode(errors="replace").strip() for part in (said, more) if part)

    def version(self) -> int:
        """As 22809 for 2.28.9."""
        found = _I()
        self._library.ncclGetVersion(ctypes.byref(found))
        return found.value

    def unique_id(self) -> bytes:
        made = _Id()
        self._call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(ctypes.string_at(ctypes.byref(made), ID_NBYTES))

    def init(self, world_size: int, unique_id: bytes, rank: int) -> int:
        """This rank's communicator, on the thread's current device. Waits for all ranks."""
        comm, name = _P(), _Id.from_buffer_copy(unique_id)
        self._call("ncclCommInitRank", ctypes.byref(comm), world_size, name, rank)
        return comm.value or 0

    def abort(self, comm: int) -> None:
        """End what is in flight on this rank, and free the communicator. Waits for nobody."""
        self._library.ncclCommAbort(comm)

    def async_error(self, comm: int) -> str:
        """What went wrong behind our back; empty if nothing did."""
        code = _I()
        self._library.ncclCommGetAsyncError(comm, ctypes.byref(code))
        return "" if code.value in (SUCCESS, IN_PROGRESS) else self._text(code.value, comm)

    def all_reduce(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
        self._call("ncclAllReduce", source, target, count, dtype, op, comm, stream)

    def reduce(
        self, source: int, target: int, count: int, dtype: int, op: int, root: int, comm: int, stream: int
    ) -> None:
        self._call("ncclReduce", source, target, count, dtype, op, root, comm, stream)

    def broadcast(self, source: int, target: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._call("ncclBroadcast", source, target, count, dtype, root, comm, stream)

    def all_gather(self, source: int, target: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._call("ncclAllGather", source, target, count, dtype, comm, stream)

    def reduce_scatter(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
        self._call("ncclReduceScatter", source, target, count, dtype, op, comm, stream)

    def send(self, source: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._call("ncclSend", source, count, dtype, peer, comm, stream)

    def receive(self, target: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._call("ncclRecv", target, count, dtype, peer, comm, stream)

    def group_start(self) -> None:
        self._call("ncclGroupStart")

    def group_end(self) -> None:
        self._call("ncclGroupEnd")


def _paths() -> Iterator[str]:
    """Where NCCL may be: in a wheel (the one CuPy and torch load), else wherever the loader looks."""
    spec = find_spec("nvidia")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        path = Path(folder) / "nccl" / "lib" / "libnccl.so.2"
        if path.exists():
            yield str(path)
    yield "libnccl.so.2"


@cache
def load() -> Nccl:
    """NCCL. Raises NcclNotFoundError, which says where it was looked for."""
    tried = []
    for path in _paths():
        try:
            return Nccl(path)
        except (OSError, AttributeError) as error:
            tried.append(f"{path}: {error}")
    raise NcclNotFoundError(
        "NCCL was not found", got="; ".join(tried), remedy='pip install "distcompile[cuda]", or nvidia-nccl-cu13'
    )


def is_there() -> bool:
    """Whether CuPy is installed and a GPU is visible here. Nothing is loaded."""
    if find_spec("cupy") is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
