"""Batches on their way from a worker process: small ones through its pipe, large ones through memory without a name.

In: an object in the worker. Out: the same in the loader's process. The object is pickled with its arrays apart
(protocol 5). Arrays of together more than `LARGE` bytes lie in an anonymous memory file (memfd) whose descriptor goes
through the socket: nothing to clean up after a process that was killed. Elsewhere than on Linux they go
through the pipe.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing import reduction
from typing import Any

import numpy as np

LARGE = 1 << 16  # bytes
_ALIGNMENT = 64


def send(connection: Any, number: tuple[int, int], kind: str, obj: Any) -> None:
    """Send what became of a task. number: of the pass, and of the task in it."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = [view.nbytes for view in views]
    in_memory = sum(sizes) > LARGE and hasattr(os, "memfd_create")
    connection.send((number, kind, data, sizes, in_memory))
    if in_memory:
        _send_memory(connection, views, sizes)
    else:
        for view in views:
            connection.send_bytes(view)


def receive(connection: Any) -> tuple[tuple[int, int], str, Any]:
    """What `send` sent. Raises EOFError or OSError if the worker died while it did."""
    number, kind, data, sizes, in_memory = connection.recv()
    if in_memory:
        buffers = _receive_memory(connection, sizes)
    else:
        buffers = [memoryview(bytearray(connection.recv_bytes())) for _ in sizes]
    return number, kind, pickle.loads(data, buffers=buffers)


def _places(sizes: list[int]) -> tuple[list[int], int]:
    """(where each buffer begins, bytes of all)."""
    begins, end = [], 0
    for size in sizes:
        begins.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return begins, end


def _send_memory(connection: Any, views: list[memoryview], sizes: list[int]) -> None:
    begins, end = _places(sizes)
    handle = os.memfd_create("distcompile batch")
    try:
        os.truncate(handle, end)
        for begin, view in zip(begins, views, strict=True):
            written = 0
            while written < view.nbytes:
                written += os.pwrite(handle, view[written:], begin + written)
        reduction.send_handle(connection, handle, None)
    finally:
        os.close(handle)


def _receive_memory(connection: Any, sizes: list[int]) -> list[memoryview]:
    """The buffers, copied out: a mapping would keep a descriptor open for as long as the batch lives."""
    handle = reduction.recv_handle(connection)
    begins, end = _places(sizes)
    whole = np.empty(end, np.uint8).data
    try:
        read = 0
        while read < end:
            read += os.preadv(handle, [whole[read:]], read)
    finally:
        os.close(handle)
    return [whole[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
