"""Bucket buffers: the flat arrays in which gradients live, are reduced, and are seen through `.grad`.

In: a Bucket and its parameters. Out: for each backward pass a buffer that may be written, with one view a slot.
Invariants: a buffer is 64-byte aligned and its padding stays zero; a buffer is written only while nobody else can see
it (array values are immutable for everyone else): the reference counts of the flat array and of its views say whether
somebody still holds one. If so, the next buffer of the bucket's small pool is taken, and the old one is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from collectives import Communicator
from compiler_core import dtype as dtypes
from compiler_core import log
from compiler_core.device import Device, cpu
from compiler_core.errors import DeviceError
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.plan.bucket_plan import Bucket


def allocate(bucket: Bucket, communicator: Communicator, device: Device) -> Array:
    """A flat array of zeros for `bucket`, a view of its memory's owner. Raises DeviceError."""
    dtype = dtypes.by_name(bucket.dtype).numpy
    if device.is_host:
        return communicator.allocate(bucket.numel, dtype)
    made: Array = device.xp.zeros(bucket.numel * dtype.itemsize, "uint8").view(dtype)  # a pool's memory is well aligned
    here = device_number(made)
    if here != device.index:
        raise DeviceError(
            "the module of DistributedDataParallel is not on this process's current device",
            expected=f"cuda:{here}",
            got=str(device),
            remedy="torch.cuda.set_device(local_rank) first, and module.cuda()",
        )
    return made


def device_number(array: Any) -> int:
    """The number of the GPU that an array is on."""
    return int(array.device.id)


class BucketBuffer:
    """One flat array on `device` and its views, in slot order. sent: the array as collectives take it: of reals."""

    def __init__(self, bucket: Bucket, communicator: Communicator, device: Device = cpu) -> None:
        self.flat = allocate(bucket, communicator, device)
        dtype = dtypes.by_name(bucket.dtype)
        self.sent = self.flat.view(dtype.real.numpy) if dtype.kind == "c" else self.flat
        self.views: list[Array] = [
            self.flat[slot.offset : slot.offset + slot.numel].reshape(slot.shape) for slot in bucket.slots
        ]
        self.idle_count = self._reference_count()

    def _reference_count(self) -> int:
        """References to the memory's owner (NumPy collapses chains of views onto it), to `flat`, and to the views."""
        return sys.getrefcount(self.flat.base) + sys.getrefcount(self.flat) + sum(map(sys.getrefcount, self.views))

    def is_free(self, parameters: Sequence[Tensor]) -> bool:
        """Whether only this buffer, and the parameters' own `.grad`, refer to the memory."""
        others = self._reference_count() - self.idle_count
        return others == 0 or others == self._shown(parameters)

    def is_shown_by(self, parameters: Sequence[Tensor]) -> bool:
        """Whether some parameter's `.grad` is a view of this buffer."""
        return self._shown(parameters) > 0

    def _shown(self, parameters: Sequence[Tensor]) -> int:
        """How many parameters' `.grad` is their view of this buffer."""
        grads = [parameter._grad for parameter in parameters]
        return sum(grad is not None and grad._cell.value is view for grad, view in zip(grads, self.views))


class BufferPool:
    """The buffers of one bucket: usually one; two or three if gradients are kept from step to step."""

    def __init__(self, bucket: Bucket, parameters: Sequence[Tensor], communicator: Communicator, label: str) -> None:
        self.bucket, self.parameters, self.communicator, self.label = bucket, tuple(parameters), communicator, label
        self.buffers: list[BucketBuffer] = []

    def acquire(self) -> BucketBuffer:
        """A buffer to write this pass's gradients to: the one that `.grad` shows, if it may be written."""
        if len(self.buffers) == 1 and self.buffers[0].is_free(self.parameters):
            return self.buffers[0]
        free = [buffer for buffer in self.buffers if buffer.is_free(self.parameters)]
        if free:
            chosen = next((buffer for buffer in free if buffer.is_shown_by(self.parameters)), free[0])
            if len(free) == len(self.buffers) and not self.parameters[0].device.is_host:
                self.buffers = [chosen]  # nobody keeps gradients any more: a device's memory is scarce
            return chosen
        buffer = BucketBuffer(self.bucket, self.communicator, self.parameters[0].device)
        self.buffers = [*self.buffers[-1:], buffer]  # older ones belong to whoever holds them
        log.emit("memory", f"{self.label}: new buffer of {self.bucket.nbytes} bytes")
        return buffer
