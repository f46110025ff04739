"""The wrapped module's state across ranks: described, compared, and sent from rank 0.

In: a module and a communicator. Out: every rank has rank 0's parameters and buffers, bit for bit.
A parameter's handle stays; its cell gets the new value. Described are parameters, buffers, and the configuration of the
library's own modules (dropout p, eps, ...); attributes of the user's classes are not, as they may name the rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from collectives import Communicator
from compiler_core.capture.guards.module_protocol import unwrapped
from compiler_core.device import Device, copy_of
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.agreement import Subject, agree_on_model
from distcompile.ddp.errors import LedgerError
from distcompile.ddp.ledger import shorten
from distcompile.errors import ArgumentError
from distcompile.nn.module import Module

OWN_MODULES = "distcompile.nn."
IGNORED = "_ddp_params_and_buffers_to_ignore"  # torch's name: the names that a module wants left alone
IGNORED_TENSOR = "_ddp_ignored"  # torch's mark on each of these, for programs that ask


class Shared(NamedTuple):
    """What ranks hold alike, by name."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]


def shared_of(module: Module) -> Shared:
    """The parameters and buffers of `module`, without those that it wants left alone.

    Of the module's own ones both names are taken: "scale", and ".scale", which torch's documentation makes of it.
    """
    ignored = frozenset(name.removeprefix(".") for name in getattr(module, IGNORED, ()))
    parameters, buffers = module.named_parameters(), module.named_buffers()
    return Shared(
        {name: tensor for name, tensor in parameters if name not in ignored},
        {name: tensor for name, tensor in buffers if name not in ignored},
    )


def describe(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Subject:
    """One line for each parameter and buffer: name, shape, dtype, requires_grad."""
    lines = [f"parameter {n}: {meta_of(t)} requires_grad={t.requires_grad}" for n, t in parameters.items()]
    lines += [f"buffer {n}: {meta_of(t)}" for n, t in buffers.items()]
    return Subject("model's parameters and buffers", tuple(lines))


def configuration(module: Module) -> Subject:
    """One line for each of the library's own modules: its path, class, and how it was set up.

    Not for one whose every parameter is left alone: it may be this rank's part of something.
    """
    shared, lines = set(map(id, shared_of(module).parameters.values())), []
    for path, child in module.named_modules():
        inner = unwrapped(child)
        own = list(map(id, inner.parameters(recurse=False)))
        if own and shared.isdisjoint(own):
            continue
        if type(inner).__module__.startswith(OWN_MODULES):
            lines.append(f"module {path or '(itself)'}: {type(inner).__name__}({inner.extra_repr()})")
    return Subject("model's configuration", tuple(lines))


def check_same_model(communicator: Communicator, module: Module) -> None:
    """Raise ModelMismatchError on every rank unless all have the same names, shapes, dtypes and configuration."""
    agree_on_model(communicator, describe(*shared_of(module)))
    agree_on_model(communicator, configuration(module))


def check_devices(communicator: Communicator, tensors: Mapping[str, Tensor]) -> Device:
    """The one device of a module. Raises ArgumentError for several, and for one that the group cannot reach."""
    found: dict[str, str] = {}
    for name, tensor in tensors.items():
        if tensor.requires_grad or not found:
            found.setdefault(str(tensor.device), name)
    if len(found) > 1:
        raise ArgumentError(
            "DistributedDataParallel takes modules whose trained parameters are on one device",
            got="; ".join(f"{name!r} on {device}" for device, name in found.items()),
            remedy="module.to(device) before DistributedDataParallel(module)",
        )
    device = next(iter(tensors.values())).device if not found else Device(next(iter(found)))
    if device.is_gpu and not communicator.takes_device_arrays():
        raise ArgumentError(
            f"the module is on {device}, and the process group has no transport for tensors there",
            got=f"backend {communicator.transport!r}",
            remedy='init_process_group("nccl"), or without a backend',
        )
    return device


def broadcast_tensors(communicator: Communicator, tensors: Mapping[str, Tensor], *, root: int = 0) -> None:
    """Give every rank rank `root`'s values."""
    copies = {name: copy_of(tensor._cell.current()) for name, tensor in tensors.items()}
    works = [communicator.broadcast_async(array, root=root, label=name) for name, array in copies.items()]
    for work, (name, array) in zip(works, copies.items()):
        work.wait()
        if communicator.rank != root:
            tensors[name]._cell.write(array)


def sync_module_states(
    module: Module, process_group: Communicator, broadcast_bucket_size: int, src: int,
    params_and_buffers_to_ignore: Iterable[str], broadcast_buffers: bool = True,
) -> None:  # fmt: skip
    """Every rank has the parameters, and the buffers, of rank `src` of the group, but those ignored."""
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    ignored = set(params_and_buffers_to_ignore)
    broadcast_tensors(process_group, {name: tensor for name, tensor in named if name not in ignored}, root=src)


class Census:
    """What ranks hold alike of the module, taken anew when the module has changed."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.version = module.__tree_version__()
        self.parameters, self.buffers = shared_of(module)
        self.flags = self._flags()

    def _flags(self) -> list[object]:
        """What a plan depends on: which parameters are trained, their dtypes and the kind of device (`module.cuda()`).

        `raw`: a value that is still on its way (overlap="step") must not be waited for here.
        """
        kind = next((type(p._cell.raw) for p in self.parameters.values()), None)
        return [kind, *(p._requires_grad and p._cell.raw.dtype for p in self.parameters.values())]

    def trained(self) -> dict[str, Tensor]:
        """The parameters that require gradients."""
        return {name: p for name, p in self.parameters.items() if p._requires_grad}

    def take(self) -> bool:
        """Count again. Returns whether parameters were frozen or unfrozen since.

        Raises LedgerError if a parameter that is to be trained was added or replaced: other ranks' values differ.
        """
        version = self.module.__tree_version__()
        if version != self.version:
            self.version = version
            before = self.parameters
            self.parameters, self.buffers = shared_of(self.module)
            self._check_strangers(before)
            if list(before) != list(self.parameters):
                self.flags = []
        flags = self._flags()
        changed, self.flags = flags != self.flags, flags
        return changed

    def _check_strangers(self, before: Mapping[str, Tensor]) -> None:
        strangers = [n for n, p in self.parameters.items() if p._requires_grad and before.get(n) is not p]
        if strangers:
            self.version = -1  # so that the next forward says it again
            self.parameters = dict(before)
            raise LedgerError(
                f"parameters that would be trained but not reduced: {shorten(strangers)}",
                got="replaced or added after DistributedDataParallel was made",
                remedy="change the module first, then wrap it in DistributedDataParallel",
            )
