"""Storages: the memory that Tensors lie in, as bytes; what libraries ask to find tensors that share memory.

In: Tensors, sizes, bytes, files. Out: addresses (`data_ptr`), `UntypedStorage`, Tensors put on a storage (`set_`).
A storage is the root cell of the Tensors that lie in it. Values are shared until they are written to (`copy_` takes the
source's array), and lie as the op that made them left them; who asks for an address, or for bytes, is lent the memory
(`lent.py`). Invariant: storages have one address if and only if they are one, and are one object for as long as
somebody holds it.
Limit: a storage that Tensors lie in has the size that it has.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.device import Device, check_device, copy_of, cpu, device_of, meta
from compiler_core.dtype import DType
from compiler_core.errors import AutogradError, DTypeError, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.aliasing import contiguous_strides
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.primitives.strided import check_strided
from compiler_core.ops.registry import Array, use_trace
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import sizes
from compiler_core.tensor.memory import borrowing, shared_memory
from compiler_core.tensor.memory.cell import Cell, cell_of, memory_of
from compiler_core.tensor.memory.lent import address, borrow, lend
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.tensor import Tensor

_made: WeakValueDictionary[Cell, UntypedStorage] = WeakValueDictionary()  # root -> the storage that somebody holds


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
    """Bytes that Tensors lie in: UntypedStorage(n), UntypedStorage([1, 2, 3]), or `tensor.untyped_storage()`."""

    __slots__ = ("__weakref__", "_cell", "_grows", "filename")
    is_hpu = is_sparse = is_sparse_csr = False
    is_cuda = property(lambda self: self.device.type == "cuda")
    dtype = dt.uint8
    _cell: Cell  # the root
    _grows: bool  # whether it was made by itself, and no Tensor is all of it
    filename: str | None

    def __init__(self, size: int | Sequence[int] = 0, *, device: str | Device | None = None) -> None:
        place = cpu if device is None else check_device(device)
        data = np.zeros(size, np.uint8) if isinstance(size, int) else np.array(list(size), np.uint8)
        self._cell, self.filename, self._grows = cell_of(place.put(data)), None, True
        _made[self._cell] = self

    @classmethod
    def _of(cls, root: Cell, filename: str | None = None) -> UntypedStorage:
        """The one that is this root."""
        found = _made.get(root)
        if found is None:
            found = _made[root] = object.__new__(cls)
            found._cell, found.filename, found._grows = root, filename, False
        return found

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` of a file, read where they are first needed.

        shared: what is written goes to the file, which grows if it must. Else DomainError is raised if it is too short.
        """
        memory = borrowing.mapped(filename, shared, nbytes) if nbytes else np.empty(0, np.uint8)
        return cls._of(borrow(memory).root, os.fspath(filename))

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0, *, dtype: Any = None
    ) -> UntypedStorage:
        """A copy of the elements of a buffer. byte_order: "native", "little" or "big", as they stand there."""
        each = (dtype or dt.uint8).numpy
        given = each if byte_order == "native" else each.newbyteorder("<" if byte_order == "little" else ">")
        elements = np.frombuffer(buffer, given, count, offset).astype(each)
        return cls._of(cell_of(elements.view(np.uint8)))

    @classmethod
    def _new_shared(cls, size: int, *, device: str = "cpu") -> UntypedStorage:
        return cls(size, device=device).share_memory_()

    # ---- what it is

    @property
    def _bytes(self) -> Array:
        """u8[nbytes], on the memory."""
        return lend(self._cell).raw.reshape(-1).view(np.uint8)  # type: ignore[no-any-return]

    @property
    def __tensor__(self) -> Tensor:
        """The bytes as a Tensor."""
        return Tensor._from_cell(placed_on(self, dt.uint8, 0, (len(self),), (1,)))

    @property
    def _cdata(self) -> int:
        """A number that tells it from others that there are now."""
        return id(self._cell)

    @property
    def device(self) -> Device:
        """Where it is."""
        return meta if isinstance(self._cell.raw, MetaValue) else device_of(self._cell.raw)

    def nbytes(self) -> int:
        """How many bytes."""
        raw = self._cell.raw
        count: int = math.prod(raw.shape)
        return count * int(raw.dtype.itemsize)

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Where the bytes are; 0 if there are none."""
        return address(lend(self._cell).raw) if len(self) and self.device is not meta else 0

    def element_size(self) -> int:
        """1 byte."""
        return 1

    def type(self, dtype: Any = None, non_blocking: bool = False) -> str:
        """Its name."""
        if dtype is not None:
            raise DTypeError("a storage of bytes has no other type", got=str(dtype))
        return "torch.cuda.UntypedStorage" if self.is_cuda else "torch.storage.UntypedStorage"

    def get_device(self) -> int:
        """The number of its CUDA device; -1 on the CPU."""
        return -1 if self.device.index is None else self.device.index

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def tolist(self) -> list[int]:
        """The bytes."""
        return self._host().tolist()  # type: ignore[no-any-return]

    def _host(self) -> Array:
        return cpu.put(self._bytes)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        host = self._host()
        return host if dtype is None and not copy else host.astype(dtype or np.uint8, copy=bool(copy))

    def __getitem__(self, index: slice | int) -> Any:
        """A storage of these bytes, on the same memory; a byte, by its place."""
        found = self._bytes[index]
        return UntypedStorage._of(borrow(found).root) if isinstance(index, slice) else int(found)

    def __setitem__(self, index: slice | int, value: int) -> None:
        self._bytes[index] = value
        self._cell.stamp += 1

    def __repr__(self) -> str:
        rows = "".join(f" {byte}\n" for byte in self.tolist()) if self.device is not meta else "...\n"
        return f"{rows}[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    # ---- what is done with it

    def fill_(self, value: int) -> UntypedStorage:
        """Set each byte."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        """Copy the bytes of another storage of this size. Raises ShapeError for another size."""
        other = source.untyped()
        if len(other) != len(self):
            raise ShapeError(
                f"size does not match, self was {len(self)} bytes but src was {len(other)} bytes",
                expected=str(len(self)), got=str(len(other)),
            )  # fmt: skip
        with self.device.working():
            self._bytes[:] = self.device.put(other._bytes)
        self._cell.stamp += 1
        return self

    def clone(self) -> UntypedStorage:
        """A copy."""
        return UntypedStorage._of(cell_of(copy_of(self._cell.current())))

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        return UntypedStorage._of(copied_root(self._cell, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (self._host().tobytes(), str(self.device))

    def new(self) -> UntypedStorage:
        """An empty one, there."""
        return UntypedStorage(0, device=self.device)

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """One on that device: itself if it is there, else a copy."""
        place = check_device(device)
        return self if place is self.device else UntypedStorage._of(cell_of(place.put(self._cell.current())))

    def cpu(self) -> UntypedStorage:
        """One on the CPU."""
        return self.to(device=cpu)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """One on a CUDA device. Raises DeviceError where there is none."""
        return self.to(device="cuda" if device is None else device)

    def resizable(self) -> bool:
        """Whether its size may change: not of one that was made for a Tensor."""
        return self._grows

    def resize_(self, size: int) -> UntypedStorage:
        """Change the size; what is there stays. Raises ShapeError for one made for a Tensor that has another."""
        if size == len(self):
            return self
        if not self._grows or size < 0:
            raise ShapeError(
                "a storage that tensors lie in cannot change its size", expected=f"{len(self)} bytes", got=str(size),
                remedy="make a new tensor, and set `tensor.data` to it",
            )  # fmt: skip
        before, place = self._bytes, self.device
        after = place.zeros((size,), np.dtype(np.uint8))
        with place.working():
            after[: len(before)] = before[:size]
        self._cell.raw = after
        self._cell.stamp += 1
        return self

    def is_shared(self) -> bool:
        """Whether other processes may see it."""
        return self.is_cuda or shared_memory.is_shared(self._cell)

    def share_memory_(self) -> UntypedStorage:
        """Move it to memory that other processes may see. Returns itself."""
        if not self.is_cuda:
            shared_memory.share(self._cell)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether it lies in page-locked memory."""
        return self.device is cpu and cuda.is_pinned(self._cell.raw)

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """A copy in page-locked memory. Raises DeviceError without a device."""
        return self if self.is_pinned() else UntypedStorage._of(Cell(cuda.pinned(self._cell.current())))


def _from_bytes(data: bytes, place: str) -> UntypedStorage:
    root = cell_of(check_device(place).put(np.frombuffer(bytearray(data), np.uint8)))
    return UntypedStorage._of(root)


def copied_root(root: Cell, memo: dict[int, Any]) -> Cell:
    """A copy of a root, one for each in a `copy.deepcopy`."""
    found = memo.get(id(root))
    if found is None:
        value = root.current()
        found = memo[id(root)] = cell_of(value if isinstance(value, MetaValue) else copy_of(value))
        memo.setdefault(id(memo), []).append(root)  # so that no other gets its id meanwhile
    return found


def untyped_storage(input: Tensor) -> UntypedStorage:
    """The storage that `input` lies in, whole: what `data_ptr` is an address in."""
    root = input._cell.root
    if not isinstance(root.raw, MetaValue):
        input._own_array("untyped_storage()")
    return UntypedStorage._of(root)


# ---- Tensors on a storage


def placed_on(storage: UntypedStorage, dtype: DType, offset: int, size: Sequence[int], stride: Sequence[int]) -> Cell:
    """The cell of these elements of a storage. Raises ShapeError for such as are not there."""
    shape, strides, root = tuple(size), tuple(stride), storage._cell
    needed = (1 + offset + sum((n - 1) * step for n, step in zip(shape, strides))) * dtype.itemsize
    if storage._grows and 0 not in shape and needed > storage.nbytes():
        storage.resize_(needed)
    count = storage.nbytes() // dtype.itemsize
    check_strided("set_", count, shape, strides, offset)
    whole = (offset, strides, dtype) == (0, contiguous_strides(shape), dt.of(root.raw.dtype))
    if whole and shape == tuple(root.raw.shape):
        storage._grows = False
        return root
    with no_grad(), use_trace(None):
        flat = prims.reshape(Tensor._from_cell(root), (math.prod(root.raw.shape),))
        if flat.dtype is not dtype:
            if storage.nbytes() % dtype.itemsize:  # the bytes left over are no element's
                flat = prims.slice(flat, (0,), (count * dtype.itemsize // flat.dtype.itemsize,), (1,))
            flat = prims.bitcast(flat, dtype)
        return prims.strided(flat, shape, strides, offset)._cell  # type: ignore[no-any-return]


def set_(input: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Put `input` on the memory of a Tensor or a storage, with these sizes and strides there. Returns input.

    Without a source: on none, of size 0. Raises AutogradError for a leaf that requires a gradient, DTypeError for a
    Tensor or storage of another dtype, ShapeError for elements that are not there.
    """
    input._check_in_place()
    if input.requires_grad and not input.is_leaf:
        raise AutogradError("set_: a tensor with a history cannot be put on other memory", remedy="detach() it first")
    cell = _place_of(input, source, storage_offset, size, stride)
    input._cell, input._view = memory_of(cell), None
    input._cell.touch()
    rebound(input)
    return input


def _place_of(input: Tensor, source: Any, offset: int, size: Any, stride: Any) -> Cell:
    if source is None:
        return cell_of(input.device.zeros((0,), input.dtype.numpy))
    kind = getattr(source, "dtype", None)
    if not isinstance(source, UntypedStorage) and kind is not input.dtype:
        raise DTypeError(
            f"Could not set tensor of type {kind} to a tensor of type {input.dtype}",
            expected=input.dtype.name, got=str(kind),
        )  # fmt: skip
    if isinstance(source, Tensor) and size is None:
        return source._cell
    storage = untyped_storage(source) if isinstance(source, Tensor) else source.untyped()
    shape = (storage.nbytes() // input.dtype.itemsize - offset,) if size is None else sizes((size,))
    return placed_on(storage, input.dtype, offset, shape, contiguous_strides(shape) if stride is None else stride)


def storage_of(thing: Any) -> UntypedStorage | None:
    """The storage that `thing` is, typed or not; None for anything else."""
    found = getattr(thing, "_untyped_storage", thing)
    return found if isinstance(found, UntypedStorage) else None
