"""Addresses of Tensors' memory, and their storage as bytes: what libraries ask to find tensors that share memory.

In: a Tensor. Out: an address (`data_ptr`), an `UntypedStorage`.
Values are shared until they are written to (`copy_` takes the source's array), and lie as the op that made them left
them; an address promises more: memory of this storage alone, in row-major order, for as long as there is the storage.
Whoever asks for one is lent the memory (`lent.py`). Invariant: storages have one address if and only if they are one.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from compiler_core.device import cpu
from compiler_core.errors import DeviceError, ShapeError
from compiler_core.ops.meta_value import MetaValue
from compiler_core.tensor.lent import address, lend
from compiler_core.tensor.tensor import Tensor


def data_ptr(input: Tensor) -> int:
    """The address of the first element: equal for handles on one storage.

    0 for a Tensor of device meta, as in torch, or without elements.
    """
    if isinstance(input._cell.root.raw, MetaValue):
        return 0
    array = input._own_array("data_ptr()")
    if not array.size:
        return 0
    root = lend(input._cell)
    return address(root.raw) + input._cell.offset() * array.itemsize


class UntypedStorage:
    """Bytes: of a Tensor's storage as they are now, or of a file. `asarray(storage, dtype=uint8)` is their Tensor."""

    def __init__(self, array: np.ndarray[Any, np.dtype[np.uint8]] | None = None) -> None:
        self._array = np.zeros(0, np.uint8) if array is None else array

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` of a file, read where they are first needed.

        Raises: DeviceError for shared=True, as nothing is written to files; ShapeError if the file is shorter.
        """
        if shared:
            raise DeviceError("a storage that writes to its file", remedy="shared=False")
        size = os.path.getsize(filename)
        if not 0 <= nbytes <= size:
            raise ShapeError(f"{filename} is shorter", expected=f"{nbytes} bytes", got=str(size))
        return cls(np.memmap(filename, np.uint8, mode="c", shape=(nbytes,)).view(np.ndarray)) if nbytes else cls()

    def __getitem__(self, index: slice | int) -> Any:
        """A storage of these bytes, on the same memory; a byte, by its place."""
        return UntypedStorage(self._array[index]) if isinstance(index, slice) else int(self._array[index])

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self._array if dtype is None else self._array.astype(dtype, copy=bool(copy))

    def data_ptr(self) -> int:
        """Where the bytes are; 0 if there are none."""
        return address(self._array) if len(self._array) else 0

    def nbytes(self) -> int:
        """How many bytes."""
        return len(self._array)

    size = nbytes

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def tolist(self) -> list[int]:
        """The bytes."""
        return list(map(int, self._array))


def untyped_storage(input: Tensor) -> UntypedStorage:
    """The storage that `input` lies in, whole: what `data_ptr` is an address in. Of device meta: no bytes."""
    root = input._cell.root
    if isinstance(root.raw, MetaValue):
        return UntypedStorage()
    input._own_array("untyped_storage()")
    return UntypedStorage(cpu.put(lend(root).raw).reshape(-1).view(np.uint8))
