"""torch.cuda.comm: tensors among the GPUs of one process, recorded for gradients.

In: tensors, devices. Out: copies, parts, sums, a joined tensor. Each is copies from device to device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.device import Device, check_device
from compiler_core.ops import functional as F
from distcompile.errors import ArgumentError

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def broadcast(
    tensor: Any, devices: Sequence[Any] | None = None, *, out: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """The tensor on each device; or written into each of `out`."""
    if (devices is None) == (out is None):
        raise ArgumentError("Exactly one of 'devices' and 'out' must be specified")
    if out is not None:
        return tuple(one.copy_(tensor.to(one.device)) for one in out)
    return tuple(tensor.to(check_device(Device(one))) for one in devices or ())


def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[Any], buffer_size: int = 10485760) -> Any:
    """The tensors on each device: a tuple of tuples. buffer_size has no effect."""
    return tuple(tuple(broadcast(tensor, [one])[0] for tensor in tensors) for one in devices)


def reduce_add(inputs: Sequence[Any], destination: Any = None) -> Any:
    """The sum of tensors of one shape, on the destination (the current device if None)."""
    if len({tuple(one.shape) for one in inputs}) != 1:
        raise ArgumentError("reduce_add expects inputs of one shape", got=str([tuple(one.shape) for one in inputs]))
    place = check_device("cuda" if destination is None or destination == -1 else Device(destination))
    total = inputs[0].to(place)
    for one in inputs[1:]:
        total = total + one.to(place)
    return total


def reduce_add_coalesced(inputs: Sequence[Sequence[Any]], destination: Any = None, buffer_size: int = 10485760) -> Any:
    """`reduce_add` of the first of each, the second of each, and so on."""
    return tuple(reduce_add(each, destination) for each in zip(*inputs))


def scatter(
    tensor: Any,
    devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Any] | None = None,
    *,
    out: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """Parts of the tensor along `dim`, one a device, of equal or given sizes; or written into `out`."""
    if out is not None:
        parts = tensor.split([one.shape[dim] for one in out], dim)
        return tuple(one.copy_(part.to(one.device)) for one, part in zip(out, parts))
    if not devices:
        raise ArgumentError("scatter needs devices, or out=")
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(check_device(Device(one))) for part, one in zip(parts, devices))


def gather(tensors: Sequence[Any], dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """The tensors joined along `dim` on the destination (-1 or "cpu": the CPU; None: the current device)."""
    if out is not None:
        return out.copy_(F.cat([one.to(out.device) for one in tensors], dim))
    if destination in (-1, "cpu"):
        place = check_device("cpu")
    else:
        place = check_device("cuda" if destination is None else Device(destination))
    return F.cat([one.to(place) for one in tensors], dim)
