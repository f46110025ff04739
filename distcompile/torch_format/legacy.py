"""Files of torch before 1.6 (and of `_use_new_zipfile_serialization=False`): pickles one after the other.

In: a file: magic number, version, system, the object with references to storages, the keys of the storages, then each
storage's number of elements and bytes. Out: the object. The storages' bytes come last, so tensors are made of empty
memory first, and filled.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from distcompile.errors import CheckpointError, EmptyFileError, NoCheckpointError
from distcompile.torch_format.storages import Storage, StorageType
from distcompile.torch_format.unpickling import FullUnpickler, WeightsUnpickler

MAGIC = 0x1950A86A20F9469CFC6C
Located = Callable[[Storage, str], Storage]


def load_legacy(file: IO[bytes], located: Located, full: bool, encoding: str) -> Any:
    """The object in such a file. Raises CheckpointError for another file."""
    unpickler: Any = FullUnpickler if full else WeightsUnpickler
    storages: dict[str, Storage] = {}
    placed: dict[str, Storage] = {}  # the same where they shall be

    def storage_of(kind: StorageType, key: str, location: str, count: int) -> Storage:
        if key not in storages:
            nbytes = count * (kind.dtype.itemsize if kind.dtype else 1)
            storages[key] = Storage(np.zeros(nbytes, np.uint8), nbytes, kind.dtype)
            placed[key] = located(storages[key], location)
        return placed[key]

    def read() -> Any:
        return unpickler(file, storage_of, encoding).load()

    if not file.read(1):
        raise EmptyFileError("the file is empty")
    file.seek(-1, io.SEEK_CUR)
    try:
        magic = read()
    except (pickle.UnpicklingError, CheckpointError, EOFError, KeyError, IndexError, ValueError) as error:
        raise NoCheckpointError("neither a file of torch.save nor a safetensors file") from error
    if magic != MAGIC:
        raise NoCheckpointError("a pickle that torch.save did not write", remedy="read it with pickle, if you trust it")
    read(), read()  # version, system
    found = read()
    for key in read():
        _fill(file, storages[str(key)])
        placed[str(key)].refresh()
    return found


def _fill(file: IO[bytes], storage: Storage) -> None:
    (count,) = struct.unpack("<q", file.read(8))
    size = storage.dtype.itemsize if storage.dtype else 1
    data = file.read(count * size)
    if storage.data is None or len(data) != storage.nbytes_:
        raise CheckpointError("a damaged file: a storage is short", expected=str(storage.nbytes_), got=str(len(data)))
    storage.data[:] = np.frombuffer(data, np.uint8)
