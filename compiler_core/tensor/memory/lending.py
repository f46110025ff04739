"""DLPack of Tensors: `__dlpack__`, `__dlpack_device__`, `from_dlpack`, `to_dlpack`.

In: Tensors without a gradient to record; capsules, and objects of other libraries. Out: capsules; Tensors on the other
library's memory. What is written on one side is seen on the other (`lent.py`).
From a Tensor, or a capsule made of one: a handle on the same memory, as `detach()` gives. Streams: the work that
makes a lent tensor is waited for by the stream that the borrower names, not by the host; a borrowed one is asked for
with our current stream, so that its library waits likewise.
"""

from __future__ import annotations

from typing import Any

from compiler_core import cuda, dlpack
from compiler_core.device import check_device, copy_of
from compiler_core.tensor.memory.lent import borrow, memory
from compiler_core.tensor.tensor import Tensor

_LEGACY, _PER_THREAD = 1, 2  # CUDA's default streams in the protocol; -1: do not wait


def to_device_number(tensor: Tensor) -> tuple[int, int]:
    """`__dlpack_device__`: (kind, number): (1, 0) the CPU, (2, n) a CUDA device."""
    return dlpack.place_of(tensor._own_array("__dlpack_device__"))


def lend(
    tensor: Tensor,
    *,
    stream: Any = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """`__dlpack__`: a capsule. stream: CUDA's handle of the one that will read it; -1, or None on the CPU: no waiting.

    Raises BufferError for a tensor that requires a gradient, another device, or copy=False where a copy is needed.
    """
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    tensor._own_array("__dlpack__")
    array: Any = memory(tensor._cell)
    if dl_device is not None and tuple(dl_device) != dlpack.place_of(array):
        raise BufferError(f"the tensor is on {tensor.device}: move it with .to() before it is handed on")
    versioned = max_version is not None and max_version[0] >= 1
    is_copy = bool(copy) or not (versioned or dlpack.is_writeable(array))
    if copy is False and is_copy:
        raise BufferError("copy=False: this memory may only be read, which the borrower does not know of (DLPack 1.0)")
    array = copy_of(array) if is_copy else array
    if cuda.is_array(array):
        _wait(array.data.device_id, stream)
    return dlpack.lend(array, tensor, versioned, is_copy)


def _wait(number: int, stream: Any) -> None:
    """The stream that will read waits for what is in the current one."""
    if stream == -1:
        return
    if stream == 0:
        raise BufferError("stream=0 is ambiguous: 1 is the default stream, 2 the one of each thread")
    streams = cuda.module().cuda
    with cuda.on(number):
        ours = streams.get_current_stream()
        pointer = {None: 0, _LEGACY: 0, _PER_THREAD: 2}.get(stream, stream)
        if pointer != ours.ptr:
            streams.ExternalStream(pointer, number).wait_event(ours.record())


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of the tensor, for one library to take."""
    return lend(tensor)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor of another library's array, or of a capsule, on its memory, unless a copy is asked for, or a device."""
    made = _taken(ext_tensor)
    if device is not None and (place := check_device(device)) is not made.device:
        if copy is False:
            raise BufferError(f"a tensor of {made.device} goes to {place} by a copy alone")
        return made.to(place)
    return made.clone() if copy else made


def _taken(thing: Any) -> Tensor:
    if isinstance(thing, Tensor):
        return thing.detach()
    capsule = _capsule(thing) if hasattr(thing, "__dlpack__") else thing
    owner = dlpack.owner_of(capsule)
    if isinstance(owner, Tensor):
        dlpack.borrow(capsule)
        return owner.detach()
    return Tensor._from_cell(borrow(dlpack.borrow(capsule)))


def _capsule(thing: Any) -> Any:
    """Asked for with the stream that we read it on, and for read-only memory where the lender knows that."""
    kind, number = (int(part) for part in thing.__dlpack_device__())
    options: dict[str, Any] = {}
    if kind in (dlpack.CUDA, dlpack.MANAGED):
        pointer = cuda.stream_of(cuda.check_number(number)).ptr
        options["stream"] = pointer if pointer else _LEGACY
    try:
        return thing.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        return thing.__dlpack__(**options)
