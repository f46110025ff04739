"""Tensors on their way to another process, through a Queue, a Pipe or the arguments of a Process: the memory is shared.

In: Tensors, to multiprocessing's pickler. Out: in the other process, Tensors on the same memory, which is moved there
first (`compiler_core/tensor/memory/shared_memory.py`), as in torch: what one process writes, the others see. Two that
share a storage share it there too. Of a CUDA device, or of one that is computed from its memory (a conjugate), a copy
goes.
Invariant: the sender keeps the memory open until the receiver has it.
"""

from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError
from compiler_core.tensor.memory.copying import remade
from compiler_core.tensor.memory.lent import is_computed
from compiler_core.tensor.memory.shared_memory import attach, share
from compiler_core.tensor.memory.storage import UntypedStorage, placed_on
from compiler_core.tensor.tensor import Tensor
from distcompile.nn.parameter import Buffer, Parameter


def _reduced(tensor: Tensor) -> Any:
    """What is sent of a Tensor. Raises AutogradError for one with a history, as torch."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise AutogradError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    if not tensor.device.is_host or is_computed(tensor._cell) or not tensor.numel():
        return tensor.__reduce_ex__(2)
    cell = tensor._cell
    mapping = share(cell)
    raw = cell.root.raw
    about = (raw.shape, dt.of(raw.dtype).name, tensor.dtype, cell.offset(), tuple(tensor.shape), tensor.stride())
    return _received, (type(tensor), DupFd(mapping.descriptor), about, tensor.requires_grad, tensor.__dict__ or None)


def _received(kind: type[Tensor], descriptor: Any, about: Any, requires_grad: bool, attributes: Any) -> Tensor:
    shape, name, dtype, offset, size, stride = about
    root = attach(descriptor.detach(), shape, dt.by_name(name).numpy)
    cell = placed_on(UntypedStorage._of(root), dtype, offset, size, stride)
    made = remade(kind, cell, requires_grad)
    made.__dict__.update(attributes or {})
    return made


for _kind in (Tensor, Parameter, Buffer):
    ForkingPickler.register(_kind, _reduced)
