"""save and load of torch's files: from an object to a file that is whole or not there, and back.

In: an object, or a path or binary file. Out: a file, or the object. `map_location` says where storages go, as in torch.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeAlias

from compiler_core import cuda
from compiler_core.device import Device, check_device
from distcompile.errors import ArgumentError, CheckpointError, WeightsOnlyError
from distcompile.torch_format.legacy import load_legacy
from distcompile.torch_format.pickling import pickled
from distcompile.torch_format.storages import Storage, StorageType, is_swapped
from distcompile.torch_format.unpickling import FullUnpickler, WeightsUnpickler
from distcompile.torch_format.zip_file import ZipReader, folder_name, write_records

MapLocation: TypeAlias = "str | Device | Mapping[str, str] | Callable[[Storage, str], Storage | None] | None"
_DAMAGE = (
    EOFError,
    struct.error,
    MemoryError,
    pickle.UnpicklingError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    UnicodeDecodeError,
    ValueError,
    OverflowError,
)


def save_zip(obj: Any, out: IO[bytes], f: Any, protocol: int = 2) -> None:
    """Write `obj` as torch.save does. Raises what pickle raises for an object that it cannot take."""
    data, storages = pickled(obj, protocol)
    write_records(out, folder_name(f), data, storages)


def load_torch(
    file: IO[bytes], path: str | None, map_location: MapLocation, full: bool, mmap: bool, encoding: str
) -> Any:
    """The object in a file of torch.save. full: also what needs code (weights_only=False)."""
    located = _locator(map_location)
    start = file.read(4)
    file.seek(0)
    if start[:2] != b"PK":
        if mmap:
            raise CheckpointError("mmap needs a file of the zip format", remedy="save it again")
        return _guarded(lambda: load_legacy(file, located, full, encoding), full)
    reader = ZipReader(file, path)
    swapped = is_swapped(reader.byteorder)
    made: dict[str, Storage] = {}

    def storage_of(kind: StorageType, key: str, location: str, count: int) -> Storage:
        if key not in made:
            nbytes = count * (kind.dtype.itemsize if kind.dtype else 1)
            data = reader.mapped(key, nbytes) if mmap else reader.storage(key, nbytes)
            made[key] = located(Storage(data, nbytes, kind.dtype, swapped), location)
        return made[key]

    unpickler: Any = FullUnpickler if full else WeightsUnpickler
    return _guarded(lambda: unpickler(io.BytesIO(reader.record("data.pkl")), storage_of, encoding).load(), full)


def _guarded(read: Callable[[], Any], full: bool) -> Any:
    """What `read` gives; of a restricted unpickler, a pickle that makes no sense is named as one."""
    if full:
        return read()
    try:
        return read()
    except (WeightsOnlyError, CheckpointError):
        raise
    except _DAMAGE as error:
        raise WeightsOnlyError(f"Weights only load failed: {type(error).__name__}: {error}") from error


# ---- where storages go


def _locator(where: MapLocation) -> Callable[[Storage, str], Storage]:
    """(storage, the location it was saved from) -> the storage where it shall be."""
    if where is None:
        return _by_name
    if isinstance(where, (str, Device)):
        place = str(check_device(where))
        return lambda storage, saved: _put(storage, place)
    if isinstance(where, Mapping):
        return lambda storage, saved: _by_name(storage, str(where.get(saved, saved)))
    if not callable(where):
        raise ArgumentError("map_location is a device, a dict or a function", got=type(where).__name__)

    def asked(storage: Storage, saved: str) -> Storage:
        found = where(storage, saved)
        return _by_name(storage, saved) if found is None else found

    return asked


def _by_name(storage: Storage, location: str) -> Storage:
    kind, _, number = location.partition(":")
    if kind not in ("cpu", "meta", "cuda") or (kind == "cuda" and int(number or 0) >= cuda.device_count()):
        raise CheckpointError(
            f"Attempting to deserialize object on {location}, which is not here",
            got=cuda.why_not() if kind == "cuda" else "",
            remedy="load(..., map_location='cpu')",
        )
    return _put(storage, location)


def _put(storage: Storage, location: str) -> Storage:
    return storage.to_meta() if location == "meta" else storage.on(check_device(location))


def opened(f: Any) -> tuple[IO[bytes], str | None, bool]:
    """(a file that seeks, its path, whether it was opened here)."""
    if isinstance(f, (str, os.PathLike)):
        return open(f, "rb"), os.fspath(f), True
    if not hasattr(f, "read"):
        raise ArgumentError("load takes a path or a binary file", got=type(f).__name__)
    return io.BytesIO(f.read()), None, True
