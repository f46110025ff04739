"""Writing the pickle of a file, under torch's names, so that torch reads it.

In: an object. Out: pickle bytes (protocol 2), and the storages that its tensors lie in, each once. A view is written as
sizes, strides and offset in its base's storage, so tensors that share memory share it when loaded. What is no tensor is
pickled as Python does it.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from typing import Any, ClassVar, NoReturn

import numpy as np

from compiler_core.device import Device, cpu, device_of
from compiler_core.dtype import DType, of
from compiler_core.memory_format import layout
from compiler_core.ops.registry import Array
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.memory.cell import Cell, ViewCell
from compiler_core.tensor.memory.views import contiguous_strides
from compiler_core.tensor.tensor import Size, Tensor
from distcompile.nn.lazy import is_lazy
from distcompile.nn.parameter import Parameter
from distcompile.nn.state import StateDict
from distcompile.torch_format.names import STORAGE_TYPES

_STORAGE_NAMES = {dtype: name for name, dtype in STORAGE_TYPES.items()}


class Name:
    """A name of torch, as it stands in the pickle. Nothing calls it: it is what the reader will call."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> NoReturn:
        raise AssertionError(f"{self.module}.{self.name} is a name in a file")


class StorageRef:
    """Where a pickle refers to a storage. location: the device that it was on."""

    def __init__(self, key: str, array: Array, location: str) -> None:
        self.key, self.array, self.dtype, self.location = key, array, of(array.dtype), location

    def persistent_id(self) -> tuple[Any, ...]:
        name = _STORAGE_NAMES.get(self.dtype)
        kind = Name("torch", name) if name else Name("torch.storage", "UntypedStorage")
        return "storage", kind, self.key, self.location, self.array.size if name else self.array.nbytes


class TorchPickler(pickle._Pickler):
    """storages: key -> the array whose bytes the file must hold."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def __init__(self, file: io.BytesIO, protocol: int = 2) -> None:
        super().__init__(file, protocol=protocol)
        self.storages: dict[str, Array] = {}
        self._refs: dict[tuple[int, str], StorageRef] = {}
        self._kept: list[Any] = []  # so that no id() is given twice
        self._names: dict[tuple[str, str], Name] = {}

    def persistent_id(self, obj: Any) -> Any:
        return obj.persistent_id() if isinstance(obj, StorageRef) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor) and not is_lazy(obj):
            return self._reduced(obj)
        if type(obj) is StateDict:  # torch's is an OrderedDict with an attribute
            return OrderedDict, (), {"_metadata": obj._metadata}, None, iter(obj.items())
        if isinstance(obj, Size):
            return self._name("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Device):
            return self._name("torch", "device"), (str(obj),)
        if isinstance(obj, layout):
            return self._name("torch.serialization", "_get_layout"), (f"torch.{obj.name}",)
        return NotImplemented

    def _name(self, module: str, name: str) -> Name:
        """One object a name, so that the pickle's memo finds it again."""
        return self._names.setdefault((module, name), Name(module, name))

    def save_name(self, obj: Name) -> None:
        self._global(obj, obj.module, obj.name)

    def save_dtype(self, obj: DType) -> None:
        self._global(obj, "torch", obj.name)

    def _global(self, obj: Any, module: str, name: str) -> None:
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

    # ---- tensors

    def _reduced(self, tensor: Tensor) -> tuple[Any, ...]:
        attributes = dict(tensor.__dict__)
        if isinstance(tensor, Parameter):
            data: tuple[Any, ...] = (tensor.detach(), tensor.requires_grad, OrderedDict())
            if not attributes:
                return self._name("torch._utils", "_rebuild_parameter"), data
            return self._name("torch._utils", "_rebuild_parameter_with_state"), (*data, attributes)
        rebuild, args = self._plain(tensor)
        attributes.pop("persistent", None)  # of a Buffer, which its module knows too
        if not attributes:
            return rebuild, args
        from_type = self._name("torch._tensor", "_rebuild_from_type_v2")
        return from_type, (rebuild, self._name("torch", "Tensor"), args, attributes)

    def _plain(self, tensor: Tensor) -> tuple[Name, tuple[Any, ...]]:
        if isinstance(tensor, SparseTensor):
            return self._name("torch._utils", "_rebuild_sparse_tensor"), (tensor.layout, _parts(tensor))
        if tensor.is_meta:
            facts = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad)
            return self._name("torch._utils", "_rebuild_meta_tensor_no_storage"), facts
        ref, offset, strides = self._place(tensor)
        where: tuple[Any, ...] = (ref, offset, tuple(tensor.shape), strides, tensor.requires_grad, OrderedDict())
        if ref.dtype in _STORAGE_NAMES:
            return self._name("torch._utils", "_rebuild_tensor_v2"), where
        return self._name("torch._utils", "_rebuild_tensor_v3"), (*where, tensor.dtype)

    def _place(self, tensor: Tensor) -> tuple[StorageRef, int, tuple[int, ...]]:
        """(storage, offset, strides): in the storage of its root, or, of what is no plain view, in its own."""
        cell, array = tensor._cell, tensor._own_array("save")
        root = cell.root
        if _shows_root(cell):
            return self._ref(root, root.current()), cell.offset(), tuple(cell.strides())
        return self._ref(cell, array), 0, contiguous_strides(tuple(array.shape))

    def _ref(self, owner: Cell, array: Array) -> StorageRef:
        place = (id(owner), array.dtype.name)
        if place not in self._refs:
            self._kept.append(owner)
            key = str(len(self.storages))
            self.storages[key] = np.ascontiguousarray(cpu.put(array)).reshape(-1)
            self._refs[place] = StorageRef(key, self.storages[key], str(device_of(array)))
        return self._refs[place]


TorchPickler.dispatch[Name] = TorchPickler.save_name
TorchPickler.dispatch[DType] = TorchPickler.save_dtype


def _parts(tensor: SparseTensor) -> tuple[Any, ...]:
    """What torch's file keeps of a sparse tensor: dense tensors, its size, and of COO whether it is coalesced."""
    pattern, values = tensor.pattern, tensor.sparse.values
    coalesced = (pattern.coalesced or pattern.said,) if pattern.is_coo else ()
    return (*pattern.indices, values, Size(pattern.shape), *coalesced)


def _shows_root(cell: Cell) -> bool:
    """Whether a cell shows numbers of its root as they are: every step to it is a view by strides."""
    root, inner = cell.root, cell
    while isinstance(inner, ViewCell):
        if inner.op.name == "conj" or of(inner.current().dtype) is not of(root.current().dtype):
            return False
        inner = inner.base
    shape, strides = cell.current().shape, cell.strides()
    if 0 in shape:
        return cell is root
    last = cell.offset() + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return bool(last < math.prod(root.current().shape))


def pickled(obj: Any, protocol: int = 2) -> tuple[bytes, dict[str, Array]]:
    """(data.pkl, key -> storage) of an object."""
    file = io.BytesIO()
    pickler = TorchPickler(file, protocol)
    pickler.dump(obj)
    return file.getvalue(), pickler.storages
