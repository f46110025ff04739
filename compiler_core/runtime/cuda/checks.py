"""Checks of programs on a CUDA device (an index out of bounds), read without waiting for the device.

In: the address of a program's status word after the program was enqueued. Out: the error of a check that failed.

A copy of the word into pinned memory of the host stands in the stream behind the program. Until it has been made the
host's word is `UNKNOWN`. Words are looked at before each call of a program, and once the host has waited for a device
(`item()`, `cpu()`, `synchronize()`: cuda.waited): the error is raised there, and names the call that it is of. With
CUDA_LAUNCH_BLOCKING=1 each call waits for its own.
A thread hears of its own calls, and of those of threads that have ended.
A failed check stores nothing out of bounds, but what its program made then is not a result: nobody can see it on the
host without an error. Limits: a process that ends without waiting for the device is not told. A word says which check
failed, not the index that did: its inputs may be other ones by then, so the call cannot be looked at again.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Sequence

from compiler_core import cuda
from compiler_core.config import config
from compiler_core.errors import failed_check
from compiler_core.records import dataclass
from compiler_core.runtime.cuda import driver

UNKNOWN = -1
WORDS = 1024  # of programs that may be under way, in one page


@dataclass(frozen=True, slots=True)
class _Pending:
    """A word that was asked for. messages: of the checks; where: the call; thread: who made it."""

    word: ctypes.c_int32
    thread: threading.Thread
    stream: int
    messages: Sequence[str]
    where: str


class _Words:
    """Pinned words, each one program's until it was looked at; programs in the order in which they were enqueued."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.pending: deque[_Pending] = deque()
        self.lock = threading.Lock()

    def take(self) -> ctypes.c_int32:
        """A word that says UNKNOWN."""
        with self.lock:
            if not self.free:
                page = ctypes.c_void_p()
                driver.call("cuMemHostAlloc", ctypes.byref(page), ctypes.c_size_t(4 * WORDS), _PORTABLE)
                self.free = [(page.value or 0) + 4 * k for k in range(WORDS)]
            word = ctypes.c_int32.from_address(self.free.pop())
        word.value = UNKNOWN
        return word

    def known(self) -> list[_Pending]:
        """Those that this thread is to hear of whose words have come, which are forgotten; their words are free."""
        here = threading.current_thread()
        with self.lock:
            came = [one for one in self.pending if one.word.value != UNKNOWN and is_told(one.thread, here)]
            if came:
                gone = set(map(id, came))
                self.pending = deque(one for one in self.pending if id(one) not in gone)
        return came


def is_told(maker: threading.Thread, thread: threading.Thread) -> bool:
    """Whether `thread` hears of a call that `maker` made: its own calls, and those of threads that have ended."""
    return maker is thread or not maker.is_alive()


_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: for all contexts
_NO_VALUE = "a GPU tells that an index was out of range, not its value: the same call on the CPU names value and line"
_words = _Words()


def ask(status: int, stream: int, messages: Sequence[str], where: str) -> None:
    """Read the word at `status` behind what is in `stream`. Raises its error at once if calls are to be waited for."""
    word = _words.take()
    source, size = ctypes.c_uint64(status), ctypes.c_size_t(4)
    target = ctypes.c_void_p(ctypes.addressof(word))
    driver.call("cuMemcpyDtoHAsync_v2", target, source, size, ctypes.c_void_p(stream), where=where)
    with _words.lock:
        _words.pending.append(_Pending(word, threading.current_thread(), stream, messages, where))
    if config.cuda_blocking:
        driver.call("cuStreamSynchronize", ctypes.c_void_p(stream), where=where)
        look()


def look() -> None:
    """Raise the error of this thread's first failed check that is known by now. Waits for nothing."""
    if not _words.pending:
        return
    failed = None
    for one in _words.known():
        value = one.word.value
        with _words.lock:
            _words.free.append(ctypes.addressof(one.word))
        if value and failed is None:
            who = "" if one.thread is threading.current_thread() else f" in thread {one.thread.name}, which has ended"
            where = f"{one.where}{who} (CUDA_LAUNCH_BLOCKING=1 tells at the call)"
            failed = failed_check(one.messages[value - 1], where, _NO_VALUE)
    if failed is not None:
        raise failed


cuda.after_waits.append(look)
