"""Memory that other processes see: `Tensor.share_memory_`.

In: root cells. Out: the same cells, on memory that is mapped from a file without a name, so that children that are
forked see it too, and others that are handed the file's descriptor (`distcompile/multiprocessing.py`). What is written
there, by whichever process, is written in place (`lent.py`); nothing keeps two writers apart, as in torch.
Limit: memory that was lent before is left to those who have it: they see nothing of what is written from then on.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.lent import lend, storage_on
from compiler_core.tensor.tensor import Tensor


@dataclass(eq=False, slots=True, weakref_slot=True)
class Mapping:
    """The file behind shared memory. descriptor: open as long as this is."""

    descriptor: int
    memory: Any  # the mmap

    def __del__(self) -> None:
        os.close(self.descriptor)


_mappings: WeakKeyDictionary[Cell, Mapping] = WeakKeyDictionary()  # of roots
_roots: WeakValueDictionary[tuple[Any, ...], Cell] = WeakValueDictionary()  # by file, shape and dtype


def is_shared(root: Cell) -> bool:
    """Whether a root lies in memory that other processes may see."""
    return root in _mappings


def is_shared_tensor(input: Tensor) -> bool:
    """Whether other processes may see its memory, as they may that of a CUDA device."""
    return input.is_cuda or is_shared(input._cell.root)


def share_memory_(input: Tensor) -> Tensor:
    """Move the storage that `input` lies in to memory that other processes see, unless it is on a CUDA device."""
    if not input.is_cuda and not input.is_meta:
        share(input._cell)
    return input


def share(cell: Cell) -> Mapping:
    """Have the root of `cell` lie there. Returns the file behind it."""
    root = cell.root
    if root not in _mappings:
        before = lend(root).raw
        mapping, array = _mapped(_nameless(max(before.nbytes, 1)), before.shape, before.dtype)
        np.copyto(array, before)
        root.raw = array
        root.stamp += 1  # views that were taken show other memory
        _keep(root, mapping)
    return _mappings[root]


def attach(descriptor: int, shape: tuple[int, ...], dtype: Any) -> Cell:
    """The root on the memory of a file that another process shares; descriptor: this process's own from now on."""
    key = (*_identity(descriptor), shape, dtype)
    found = _roots.get(key)
    if found is not None:
        os.close(descriptor)
        return found
    mapping, array = _mapped(descriptor, shape, dtype)
    root = storage_on(array)
    _keep(root, mapping)
    return root


def _keep(root: Cell, mapping: Mapping) -> None:
    _mappings[root] = mapping
    _roots[*_identity(mapping.descriptor), root.raw.shape, root.raw.dtype] = root


def _identity(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def _nameless(nbytes: int) -> int:
    """The descriptor of a file of this size that has no name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("distcompile")
    else:
        descriptor, path = tempfile.mkstemp(prefix="distcompile-shared-")
        os.unlink(path)
    os.ftruncate(descriptor, nbytes)
    return descriptor


def _mapped(descriptor: int, shape: tuple[int, ...], dtype: Any) -> tuple[Mapping, Array]:
    memory = mmap.mmap(descriptor, 0)
    count = int(np.prod(shape, dtype=np.int64))
    return Mapping(descriptor, memory), np.frombuffer(memory, dtype, count).reshape(shape)
