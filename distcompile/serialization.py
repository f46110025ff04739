"""save and load: torch's files (any name), or safetensors (a name that ends so).

In: any object with Tensors in it (torch's format: torch_format/); for safetensors state dicts, or any nesting of dict,
list, tuple, Tensor, str, int, float, bool, None. Out: one file that torch, or any safetensors reader, opens. `load`
sees what a file is by its first bytes. In a safetensors file tensors are stored under their dotted path in the nesting;
the nesting itself is JSON in the file's metadata, under "distcompile".

Loading runs no code: a safetensors file holds none, and of torch's only tensors and containers are read unless
weights_only=False. Files are written to a temporary name, flushed to the disk and then put in place, so that neither a
reader nor a crash ever sees half of one; of a safetensors file `load` compares a SHA-256 of tensors and nesting.
Tensors that are one (tied weights) are stored once and loaded as one tensor each time they occur.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from compiler_core import dtype as dt
from compiler_core.device import Device
from compiler_core.ops.registry import Array
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, CheckpointError, CheckpointWriteError, NotSupportedError

File: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
FILE_LIKE: TypeAlias = str | os.PathLike[str] | IO[bytes]
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | Device | str | dict[str, str] | None
KEY = "distcompile"
DIGEST_KEY = "distcompile.sha256"

_SAFE_NAMES = {
    "C64": dt.complex64, "F64": dt.float64, "F32": dt.float32, "F16": dt.float16, "BF16": dt.bfloat16,
    "I64": dt.int64, "I32": dt.int32, "I16": dt.int16, "I8": dt.int8,
    "U64": dt.uint64, "U32": dt.uint32, "U16": dt.uint16, "U8": dt.uint8,
    "BOOL": dt.bool_,
}  # fmt: skip


def save(
    obj: Any,
    f: File,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write `obj`, anything with Tensors in it, to a path or binary file.

    As torch.save; to a path that ends in .safetensors, as such a file. A file at a path is there whole, or not at all.

    Args:
        f: a path, or a binary file that can be written to.
        pickle_protocol: pickle's, in torch's format. pickle_module: without effect.

    Raises: what pickle raises for an object that it cannot take; CheckpointError for one that a safetensors file cannot
    hold; CheckpointWriteError where the disk is full; NotSupportedError for the format before torch 1.6.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> torch.save({"weight": torch.ones(2), "epoch": 3}, file)
        >>> _ = file.seek(0)
        >>> torch.load(file)
        {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    if not _use_new_zipfile_serialization:
        raise NotSupportedError("files of torch before 1.6 are read, not written", remedy="leave the argument out")
    if isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(".safetensors"):
        save_safetensors(obj, f)
        return
    from distcompile.torch_format.files import save_zip

    if isinstance(f, (str, os.PathLike)):
        with _put_in_place(Path(f)) as out:
            save_zip(obj, out, f, pickle_protocol)
    else:
        whole = io.BytesIO()  # a stream need not seek, and gets all or nothing
        save_zip(obj, whole, f, pickle_protocol)
        f.write(whole.getvalue())


def load(
    f: File,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    encoding: str = "utf-8",
) -> Any:
    """Read what `save` or torch.save wrote; what a file is shows in its first bytes.

    Args:
        f: a path, or a binary file that can be read and sought in.
        map_location: where tensors go: a device, a dict from the device they were saved on, or a function (storage,
            device) -> storage or None.
        weights_only: tensors, containers and plain values alone, and what `serialization.add_safe_globals` allows;
            False imports and runs what the file says.
        pickle_module: CheckpointError with weights_only, else without effect.
        mmap: tensors are pages of the file; f must be a path.

    Raises: WeightsOnlyError (a pickle.UnpicklingError), which names what the file asks for; CheckpointError for a file
    that is none of these, or damaged.

    Example: see `save`.
    """
    from distcompile.torch_format.files import load_torch, opened

    if weights_only and pickle_module is not None:
        raise CheckpointError("Can not safely load weights when explicit picking module is specified",
                              remedy="weights_only=False, if you trust the file")  # fmt: skip
    file, path, _ = opened(f)
    if mmap and path is None:
        raise ArgumentError("f must be a file path in order to use the mmap argument")
    with file:
        start = file.read(9)
        file.seek(0)
        if start[8:9] == b"{" and start[:2] != b"PK":
            return _loaded(file)
        return load_torch(file, path, map_location, weights_only is False, bool(mmap), encoding)


def save_safetensors(obj: Any, f: File) -> None:
    """Write `obj` as a safetensors file. Raises CheckpointError for an object that such a file cannot hold."""
    packer = _Packer()
    structure = json.dumps(packer.pack(obj, ()))
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in packer.tensors.items()}
    write_tensors(f, arrays, {KEY: structure, DIGEST_KEY: digest_of(structure, arrays)})


def _loaded(f: IO[bytes]) -> Any:
    """What `save_safetensors` wrote.

    Raises: CheckpointError for a file that is not a safetensors file, that `save` did not write, or that is damaged.
    """
    tensors, metadata = read_tensors(f)
    if KEY not in metadata:
        raise CheckpointError(
            "this safetensors file was not written by distcompile.save", remedy="read its tensors with load_file"
        )
    arrays = {name: tensor._array("load") for name, tensor in tensors.items()}
    if metadata.get(DIGEST_KEY, "") not in ("", digest_of(metadata[KEY], arrays)):
        raise CheckpointError("a damaged file: its contents are not what was saved", expected="the SHA-256 it carries")
    return _unpack(json.loads(metadata[KEY]), tensors)


def save_file(tensors: Mapping[str, Tensor], filename: File, metadata: Mapping[str, str] | None = None) -> None:
    """Write a flat dict of tensors as a plain safetensors file."""
    arrays = {name: _array(tensor, name) for name, tensor in tensors.items()}
    write_tensors(filename, arrays, dict(metadata or {}))


def load_file(filename: File, device: object = None) -> dict[str, Tensor]:
    """The tensors of any safetensors file. Raises CheckpointError if it is none."""
    return read_tensors(filename)[0]


# --- structure --------------------------------------------------------------------------------------------------------


class _Packer:
    """Turns an object into JSON, collecting its tensors under their paths."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self._name_of: dict[int, str] = {}  # id of a stored array -> its name

    def pack(self, obj: Any, path: tuple[str, ...]) -> Any:
        if obj is None or isinstance(obj, (bool, int, float, str)):
            return {"value": obj}
        if isinstance(obj, Tensor):
            return {"tensor": self._store(obj, path), "parameter": type(obj) is not Tensor}
        if isinstance(obj, dt.DType):
            return {"dtype": obj.name}
        if isinstance(obj, Mapping):
            kind = "ordered" if isinstance(obj, OrderedDict) else "dict"
            return {kind: [[self._key(key, path), self.pack(v, (*path, str(key)))] for key, v in obj.items()]}
        if isinstance(obj, (list, tuple)):
            kind = "list" if isinstance(obj, list) else "tuple"
            return {kind: [self.pack(value, (*path, str(i))) for i, value in enumerate(obj)]}
        raise CheckpointError(
            f"a checkpoint cannot hold an object of type {type(obj).__name__}",
            where=".".join(path),
            expected="dict, list, tuple, Tensor, str, int, float, bool, None",
            remedy="save the numbers it is made of",
        )

    def _key(self, key: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise CheckpointError(f"dict keys are str or int, got {key!r}", where=".".join(path))
        return key

    def _store(self, tensor: Tensor, path: tuple[str, ...]) -> str:
        array = tensor._array("save")
        if id(array) not in self._name_of:
            name = ".".join(path) or "tensor"
            while name in self.tensors:
                name += "_"
            self.tensors[name] = array
            self._name_of[id(array)] = name
        return self._name_of[id(array)]


def _unpack(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    (kind, content), *_ = node.items()
    if kind == "value":
        return content
    if kind == "tensor":
        return tensors[content]
    if kind == "dtype":
        return dt.by_name(content)
    if kind in ("dict", "ordered"):
        pairs = ((key, _unpack(value, tensors)) for key, value in content)
        return dict(pairs) if kind == "dict" else OrderedDict(pairs)
    if kind in ("list", "tuple"):
        values = [_unpack(value, tensors) for value in content]
        return values if kind == "list" else tuple(values)
    raise CheckpointError(f"unknown entry {kind!r} in the checkpoint's structure", remedy="update distcompile")


def digest_of(structure: str, arrays: Mapping[str, Array]) -> str:
    """SHA-256 of the nesting and of every tensor's name, dtype, shape and bytes."""
    found = hashlib.sha256(structure.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.name} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


# --- files ------------------------------------------------------------------------------------------------------------


def _array(tensor: Any, name: str) -> Array:
    if not isinstance(tensor, Tensor):
        raise CheckpointError(f"save_file takes tensors only, got {type(tensor).__name__}", where=name)
    return tensor._array("save_file")


def write_tensors(f: File, arrays: Mapping[str, Array], metadata: dict[str, str]) -> None:
    import safetensors

    for name, array in arrays.items():
        if array.dtype == np.complex128:
            raise CheckpointError(
                f"tensor {name} is complex128, which safetensors cannot hold",
                remedy="save view_as_real of it, or complex64",
            )
    kept = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    data = safetensors.serialize(
        {
            name: safetensors.TensorSpec(
                dtype=dt.of(array.dtype).name, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes
            )
            for name, array in kept.items()
        },
        metadata=metadata,
    )
    if not isinstance(f, (str, os.PathLike)):
        f.write(data)
        return
    with _put_in_place(Path(f)) as out:
        out.write(data)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def _put_in_place(path: Path) -> Iterator[IO[bytes]]:
    """A file that has the name `path` once the block is left, complete and on the disk; after an error, none.

    A link is followed. A device or a pipe is written to. Raises CheckpointWriteError where there is no room.
    """
    target = path.resolve()
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as out:
                yield out
            return
        with _under_another_name(target) as out:
            yield out
        _flush_folder(target.parent)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise CheckpointWriteError(
            f"{path} could not be written: {os.strerror(error.errno)}",
            errno=error.errno,
            remedy="make room, or save elsewhere; a file of that name is as it was before",
        ) from error


@contextmanager
def _under_another_name(target: Path) -> Iterator[IO[bytes]]:
    """A new file beside `target`, with the rights that any new file has, which takes its place after the block."""
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _flush_folder(folder: Path) -> None:
    """Have the file's new name on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_tensors(f: File) -> tuple[dict[str, Tensor], dict[str, str]]:
    import safetensors

    data = Path(f).read_bytes() if isinstance(f, (str, os.PathLike)) else f.read()
    if data[:2] == b"PK":
        raise CheckpointError(
            "this is a zip file, as torch.save writes it, not a safetensors file", remedy="read it with load"
        )
    try:
        entries: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"not a safetensors file, or a damaged one: {error}") from error
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: _tensor(name, entry) for name, entry in entries}, header.get("__metadata__", {})


def _tensor(name: str, entry: Mapping[str, Any]) -> Tensor:
    if entry["dtype"] not in _SAFE_NAMES:
        raise CheckpointError(f"tensor {name} has the dtype {entry['dtype']}, which does not exist here")
    numpy = _SAFE_NAMES[entry["dtype"]].numpy
    return leaf(np.frombuffer(bytearray(entry["data"]), numpy).reshape(entry["shape"]))


def __getattr__(name: str) -> Any:
    """torch.serialization's names for what files may hold."""
    if name in ("add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"):
        from distcompile.torch_format import names

        return getattr(names, name)
    raise AttributeError(f"module 'distcompile.serialization' has no attribute {name!r}")
