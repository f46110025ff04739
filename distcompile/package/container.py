"""The file of a package: a safetensors file, with a checksum and what a loader must know before it loads code.

In: names and arrays, a manifest. Out: the file; `read`: `Contents`, arrays that lie in the mapped file, checked.
Any safetensors reader opens it. Every array begins at a multiple of 64 bytes: arrays "~N" fill what is between. The
metadata has `distcompile.package`, JSON, and `crc32`: of the whole file, its own digits as zeros, but for the length.
This file imports NumPy and nothing that is slow to import: a package is loaded in a tenth of a second.
Raises: PackageError.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from distcompile.errors import PackageError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
VERSION = 2
KEY, CHECK = "distcompile.package", "crc32"
LINE = 64
_ZEROS = b"00000000"
_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
_NUMPYS = {numpy: name for name, numpy in _NAMES.items()} | {"bfloat16": "BF16"}


@dataclass(frozen=True)
class Contents:
    """data: the mapped bytes behind the header; arrays lie in it. places: name -> first byte there."""

    path: Path
    manifest: dict[str, Any]
    arrays: dict[str, Array]
    places: dict[str, int]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype that safetensors calls so."""
    if name == "BF16":
        import ml_dtypes

        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return made
    return np.dtype(_NAMES[name])


def dtype_name(dtype: np.dtype[Any]) -> str:
    """What safetensors calls a dtype. Raises PackageError for one that it does not have."""
    if dtype.name not in _NUMPYS:
        raise PackageError(f"a package cannot hold arrays of {dtype.name}")
    return _NUMPYS[dtype.name]


def placed(arrays: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, int], int]:
    """(the header's entries, name -> first byte, bytes in all) of arrays in this order."""
    entries: dict[str, Any] = {}
    places: dict[str, int] = {}
    end = 0
    for name, array in arrays.items():
        if gap := -end % LINE:
            entries[f"~{end}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [end, end + gap]}
            end += gap
        places[name] = end
        end += array.nbytes
        entries[name] = {
            "dtype": dtype_name(array.dtype),
            "shape": list(array.shape),
            "data_offsets": [places[name], end],
        }
    return entries, places, end


def write(path: Path, arrays: Mapping[str, Array], manifest: Mapping[str, Any]) -> None:
    """Write a package. The file is there whole, or not at all."""
    entries, places, nbytes = placed(arrays)
    told = {"__metadata__": {CHECK: _ZEROS.decode(), KEY: json.dumps(manifest)}, **entries}
    header = json.dumps(told, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % LINE)
    data = bytearray(nbytes)
    for name, array in arrays.items():
        data[places[name] : places[name] + array.nbytes] = np.ascontiguousarray(array).tobytes()
    check = f"{zlib.crc32(data, zlib.crc32(header)):08x}".encode()
    header = header.replace(_ZEROS, check, 1)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as out:
        for part in (len(header).to_bytes(8, "little"), header, data):
            out.write(part)
    temporary.replace(path)


def read(path: Path) -> Contents:
    """What a package holds. Raises PackageError for a file that is none, is damaged, or is of a newer format."""
    try:
        with path.open("rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise PackageError(f"{path} cannot be read", got=str(error)) from error
    length = int.from_bytes(whole[:8], "little")
    try:
        header = bytes(whole[8 : 8 + length])
        entries = json.loads(header)
        metadata = entries.pop("__metadata__")
        manifest, check = json.loads(metadata[KEY]), metadata[CHECK]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PackageError(f"{path} is no package, or a damaged one", expected="a file of aot_compile") from error
    if manifest.get("version", VERSION + 1) > VERSION:
        raise PackageError(
            f"{path} is a package of a newer format, {manifest.get('version')}",
            expected=f"{VERSION} or older",
            remedy="update distcompile, or compile it with this version",
        )
    data = whole[8 + length :]
    found = f"{zlib.crc32(data, zlib.crc32(header.replace(check.encode(), _ZEROS, 1))):08x}"
    if found != check:
        raise PackageError(f"{path} is a damaged package", expected=f"crc32 {check}", got=found)
    entries = {name: entry for name, entry in entries.items() if not name.startswith("~")}
    arrays = {name: _array(data, entry) for name, entry in entries.items()}
    return Contents(path, manifest, arrays, {name: entry["data_offsets"][0] for name, entry in entries.items()})


def _array(data: memoryview, entry: Mapping[str, Any]) -> Array:
    begin, end = entry["data_offsets"]
    made: Array = np.frombuffer(data[begin:end], numpy_dtype(entry["dtype"])).reshape(entry["shape"])
    return made
