"""The zip file of torch.save: its records, written and read.

In: data.pkl and storages; a file. Out: a file that torch reads (uncompressed records below one folder, each at a
multiple of 64 bytes); the object in it. With mmap, storages are pages of the file, copied when written to.
"""

from __future__ import annotations

import mmap as mapping
import os
import struct
import sys
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from compiler_core.ops.registry import Array
from distcompile.errors import CheckpointError

ALIGNMENT = 64  # bytes
_LOCAL_HEADER, _EXTRA_ID = 30, 0x4246


def write_records(out: IO[bytes], name: str, pickle: bytes, storages: Mapping[str, Array]) -> None:
    """Write a file whose folder is `name`."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _write(archive, f"{name}/data.pkl", memoryview(pickle))
        _write(archive, f"{name}/byteorder", memoryview(sys.byteorder.encode()))
        for key, array in storages.items():
            _write(archive, f"{name}/data/{key}", array.view(np.uint8).data if array.size else memoryview(b""))
        _write(archive, f"{name}/version", memoryview(b"3\n"))


def _write(archive: zipfile.ZipFile, name: str, data: memoryview) -> None:
    info = zipfile.ZipInfo(name)
    assert archive.fp is not None
    large = data.nbytes >= 1 << 31
    begin = archive.fp.tell() + _LOCAL_HEADER + len(name.encode()) + 4 + (20 if large else 0)
    padding = -begin % ALIGNMENT
    info.extra = struct.pack("<HH", _EXTRA_ID, padding) + b"Z" * padding
    info.file_size = data.nbytes
    with archive.open(info, "w", force_zip64=large) as record:
        record.write(data)


class ZipReader:
    """The records of a file."""

    def __init__(self, file: IO[bytes], path: str | None) -> None:
        self.file, self.path = file, path
        try:
            self.archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise CheckpointError(f"a damaged zip file: {error}", where=path or "") from error
        self.names = set(self.archive.namelist())
        found = next((n for n in self.archive.namelist() if n.endswith("data.pkl") and n.count("/") <= 1), None)
        if found is None or f"{found[:-8]}constants.pkl" in self.names:
            raise CheckpointError(
                "a zip file that torch.save did not write" if found is None else "a TorchScript archive",
                where=path or "",
                remedy="load the state_dict of what it holds" if found else "",
            )
        self.folder = found.removesuffix("data.pkl")
        self._map: Any = None

    def record(self, name: str) -> bytes:
        """A record. Raises CheckpointError where there is none, or its checksum does not fit."""
        try:
            return self.archive.read(self.folder + name)
        except (KeyError, zipfile.BadZipFile, EOFError) as error:
            raise CheckpointError(f"a damaged file: record {name}: {error}", where=self.path or "") from error

    @property
    def byteorder(self) -> str:
        return self.record("byteorder").decode() if f"{self.folder}byteorder" in self.names else "little"

    def storage(self, key: str, nbytes: int) -> Array:
        """The bytes of a storage: u8[nbytes], an array of its own."""
        name = f"{self.folder}data/{key}"
        try:
            size = self.archive.getinfo(name).file_size
            if size < nbytes:  # before so much memory is asked for
                raise EOFError(f"{size} bytes, of {nbytes}")
            array = np.empty(nbytes, np.uint8)
            with self.archive.open(name) as record:
                _fill(record, array.data)
        except (KeyError, zipfile.BadZipFile, EOFError, ValueError) as error:
            raise CheckpointError(f"a damaged file: storage {key}: {error}", where=self.path or "") from error
        return array

    def mapped(self, key: str, nbytes: int) -> Array:
        """The bytes of a storage as pages of the file: u8[nbytes], writable, the file stays as it is."""
        info = self.archive.getinfo(f"{self.folder}data/{key}")
        if info.file_size < nbytes or info.compress_type != zipfile.ZIP_STORED:
            raise CheckpointError(f"a damaged file: storage {key} is short, or compressed", where=self.path or "")
        if self._map is None:
            self._map = mapping.mmap(self.file.fileno(), 0, access=mapping.ACCESS_COPY)
        name_length, extra_length = struct.unpack_from("<HH", self._map, info.header_offset + 26)
        begin = info.header_offset + _LOCAL_HEADER + name_length + extra_length
        array: Array = np.frombuffer(self._map, np.uint8, nbytes, begin)
        return array if array.ctypes.data % 16 == 0 else array.copy()


def _fill(record: IO[bytes], out: memoryview) -> None:
    filled = 0
    while filled < len(out):
        part = record.read(min(len(out) - filled, 1 << 24))
        if not part:
            raise EOFError("the record ends early")
        out[filled : filled + len(part)] = part
        filled += len(part)
    record.read(1)  # to the end, where the checksum is compared


def folder_name(f: Any) -> str:
    """The folder in the file: as torch, its own name without suffix."""
    name = os.path.basename(os.fspath(f)) if isinstance(f, (str, os.PathLike)) else ""
    return os.path.splitext(name)[0] or "archive"
