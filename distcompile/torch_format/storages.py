"""The memory that tensors of a file share, and the functions by which a file makes tensors of it.

In: bytes, and what a file says of each tensor: dtype, offset, sizes, strides. Out: Tensors. Two that share a storage
share memory here too: one is the base, the others are views of it (or handles on its cell), so a write to one is seen
by the other. Storages of device meta make meta tensors. Sizes that reach beyond their storage raise ShapeError.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core import memory_format
from compiler_core.device import Device, check_device, cpu
from compiler_core.dtype import DType
from compiler_core.memory_format import sparse_coo
from compiler_core.ops import prims
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import Array
from compiler_core.sparse.construct import sparse_compressed_tensor, sparse_coo_tensor
from compiler_core.tensor.memory.strided import as_strided
from compiler_core.tensor.memory.views import contiguous_strides
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import CheckpointError
from distcompile.nn.parameter import Parameter


@dataclass(frozen=True, slots=True)
class StorageType:
    """torch.FloatStorage and its like. dtype: of the elements; None: bytes."""

    dtype: DType | None


class Storage:
    """data: u8[nbytes], or None on device meta. swapped: whether the bytes of a number stand the other way round.

    place: the device that its tensors are made on.
    """

    def __init__(
        self, data: Array | None, nbytes: int, dtype: DType | None, swapped: bool = False, place: Device = cpu
    ) -> None:
        self.data, self.nbytes_, self.dtype, self.swapped = data, nbytes, dtype, swapped
        self.place = place
        self.bases: dict[DType, Tensor] = {}

    @property
    def device(self) -> Device:
        return Device("meta") if self.data is None else self.place

    def cpu(self) -> Storage:
        return self.on(cpu)

    def cuda(self, device: Any = None) -> Storage:
        """One whose tensors are on a CUDA device. Raises DeviceError where there is none."""
        return self.on(check_device("cuda" if device is None else device))

    def on(self, place: Device) -> Storage:
        """One whose tensors are on this device."""
        if place is self.place:
            return self
        return Storage(self.data, self.nbytes_, self.dtype, self.swapped, place)

    def to_meta(self) -> Storage:
        return Storage(None, self.nbytes_, self.dtype)

    def nbytes(self) -> int:
        return self.nbytes_

    def elements(self, dtype: DType) -> Array:
        """All of it, as one row of numbers: T[n]."""
        assert self.data is not None
        array = self.data[: self.nbytes_ // dtype.itemsize * dtype.itemsize].view(dtype.numpy)
        return array.byteswap() if self.swapped and dtype.itemsize > 1 else array

    def refresh(self) -> None:
        """Say that the bytes came in after tensors were made of them."""
        for dtype, base in self.bases.items():
            base._cell.touch()
            if self.place is not cpu:
                base._cell.raw = self.place.put(self.elements(dtype).reshape(base.shape))


def tensor_of(storage: Storage, dtype: DType, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """The tensor of these elements of a storage: a leaf."""
    shape, strides = tuple(map(int, size)), tuple(map(int, stride))
    count = math.prod(shape)
    if storage.data is None:
        return Tensor._wrap(MetaValue(shape, dtype))
    if count == 0:
        return Tensor._wrap(storage.place.put(np.empty(shape, dtype.numpy)))
    is_whole = count == storage.nbytes_ // dtype.itemsize and offset == 0 and strides == contiguous_strides(shape)
    base = storage.bases.get(dtype)
    if base is None:
        flat = storage.elements(dtype)
        base = storage.bases[dtype] = Tensor._wrap(storage.place.put(flat.reshape(shape) if is_whole else flat))
    if is_whole and tuple(base.shape) == shape:
        return base.detach()
    return as_strided(base, shape, strides, int(offset)).detach()


# ---- the functions that a file names


def _rebuild_tensor(storage: Storage, storage_offset: int, size: Any, stride: Any) -> Tensor:
    return tensor_of(storage, storage.dtype or dt.uint8, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Storage,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    tensor: Any = _rebuild_tensor(storage, storage_offset, size, stride)
    if metadata and metadata.get("conj"):
        tensor = prims.conj(tensor)
    if metadata and metadata.get("neg"):
        tensor = prims.neg(tensor)
    made: Tensor = tensor.detach()._require(bool(requires_grad))
    return made


def _rebuild_tensor_v3(
    storage: Storage,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: DType,
    metadata: Any = None,
) -> Tensor:
    return tensor_of(storage, dtype, storage_offset, size, stride)._require(bool(requires_grad))


def _rebuild_meta_tensor_no_storage(dtype: DType, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    return Tensor._wrap(MetaValue(tuple(size), dtype))._require(bool(requires_grad))


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    """Raises SparseError for parts that do not fit each other."""
    if layout is sparse_coo:
        indices, values, size, *coalesced = data
        return sparse_coo_tensor(indices, values, tuple(size), is_coalesced=bool(coalesced and coalesced[0]))
    compressed, plain, values, size = data
    return sparse_compressed_tensor(compressed, plain, values, tuple(size), layout=layout)


def _get_layout(name: str) -> Any:
    found = getattr(memory_format, name.removeprefix("torch."), None)
    if not isinstance(found, memory_format.layout):
        raise CheckpointError("a layout that does not exist", got=repr(name))
    return found


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    parameter: Parameter = Parameter(data, bool(requires_grad))
    return parameter


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Parameter:
    parameter: Parameter = Parameter(data, bool(requires_grad))
    parameter.__dict__.update(_attributes(state))
    return parameter


def _rebuild_from_type_v2(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    made = func(*args)
    made.__dict__.update(_attributes(state))
    return made


def _attributes(state: Any) -> dict[str, Any]:
    """What torch says of a tensor's attributes: a dict, or (dict, slots)."""
    found = state[0] if isinstance(state, tuple) else state
    return dict(found or {})


def is_swapped(byteorder: str) -> bool:
    """Whether numbers of a file of this byte order ("little", "big") must be turned round here."""
    return byteorder.strip() != sys.byteorder
