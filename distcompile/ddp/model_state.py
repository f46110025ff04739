"""The wrapped module's state across ranks: described, compared, and sent from rank 0.

In: a module and a communicator. Out: every rank has rank 0's parameters and buffers, bit for bit.
A parameter's handle stays; its cell gets the new value. Buffers are sent before a training forward, those only that
some rank has written since the last time (one small reduction tells which).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collectives import Communicator
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.agreement import Subject, agree_on_model
from distcompile.nn.module import Module


def describe(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Subject:
    """One line for each parameter and buffer: name, shape, dtype, requires_grad."""
    lines = [f"parameter {n}: {meta_of(t)} requires_grad={t.requires_grad}" for n, t in parameters.items()]
    lines += [f"buffer {n}: {meta_of(t)}" for n, t in buffers.items()]
    return Subject("model's parameters and buffers", tuple(lines))


def check_same_model(
    communicator: Communicator, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
) -> None:
    """Raise ModelMismatchError on every rank unless all have the same names, shapes and dtypes."""
    agree_on_model(communicator, describe(parameters, buffers))


def broadcast_tensors(communicator: Communicator, tensors: Mapping[str, Tensor], *, root: int = 0) -> None:
    """Give every rank rank `root`'s values."""
    copies = {name: np.array(tensor._cell.current(), order="C") for name, tensor in tensors.items()}
    works = [communicator.broadcast_async(array, root=root, label=name) for name, array in copies.items()]
    for work, (name, array) in zip(works, copies.items()):
        work.wait()
        if communicator.rank != root:
            tensors[name]._cell.write(array)


class Census:
    """The module's buffers, and its parameters that DDP does not reduce; taken anew when the module has changed."""

    def __init__(self, reduced: Mapping[str, Tensor]) -> None:
        self.reduced = set(map(id, reduced.values()))
        self.version = -1
        self.buffers: dict[str, Tensor] = {}
        self.others: dict[str, Tensor] = {}

    def take(self, module: Module) -> None:
        """Count again, if anything in `module` was replaced, added, removed or switched since."""
        version = module.__tree_version__()
        if version != self.version:
            self.version = version
            self.buffers = dict(module.named_buffers())
            self.others = {name: p for name, p in module.named_parameters() if id(p) not in self.reduced}


class BufferSync:
    """Sends one rank's buffers to the others when some rank has changed them."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.seen: dict[str, tuple[int, int]] = {}  # name -> identity and version of the cell that was last sent

    def run(self, buffers: Mapping[str, Tensor], *, root: int = 0) -> None:
        """Collective. Must be given the same names on every rank."""
        changed = np.array([self.seen.get(n) != _stamp(t) for n, t in buffers.items()], np.uint8)
        self.communicator.all_reduce(changed, "max", label="changed buffers")
        broadcast_tensors(self.communicator, {n: t for (n, t), c in zip(buffers.items(), changed) if c}, root=root)
        self.seen = {n: _stamp(t) for n, t in buffers.items()}


def _stamp(tensor: Tensor) -> tuple[int, int]:
    return id(tensor._cell.root), tensor._version
