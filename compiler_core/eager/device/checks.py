"""Indices that lie on a CUDA device, tested there: the host does not wait for what the test says.

In: an index array of a device. Out: IndexError_, which names the op, the index and the line of the call, once the
answer has come: at the next test, or once the host waits for a device (`item()`, `cpu()`, `synchronize()`), as the
checks of compiled programs do (runtime/cuda/checks.py). With CUDA_LAUNCH_BLOCKING=1 each call waits for its own.
A kernel writes its answer into pinned memory of the host, two words: 1 for right, 2 for wrong, with the index behind
it; 0 until then. A word belongs to one test until it was looked at. What an op makes of a wrong index is not a result,
but nothing is read or written out of bounds: CuPy takes indices modulo the size. A thread hears of its own tests.
Where there is no kernel, or a stream is being captured into a CUDA graph, which would write the words again and again,
`ask` says so, and the caller tests and waits.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from compiler_core import cuda, log
from compiler_core.config import config
from compiler_core.eager.device.kernels import I64, MOST, U64, dense, kernels
from compiler_core.errors import IndexError_
from compiler_core.location import user_location
from compiler_core.ops.indexing.op import TEST_THERE
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.runtime.cuda.checks import is_told

WORDS = 1024  # of tests that may be under way
FEW = 1 << 13  # indices that one block tests
_NO_INDEX = 0  # of what is never wrong
_WRONG = 2


@dataclass(frozen=True, slots=True)
class _Test:
    """One that was asked for. word: its number; where: the call; thread: who made it; stream: where it runs."""

    word: int
    thread: threading.Thread
    stream: Any
    op: str
    size: int
    where: str


class _Words:
    """The pinned words of one CuPy, and whether its kernel writes there what it should (None: not tried)."""

    def __init__(self) -> None:
        self.memory = cuda.module().cuda.alloc_pinned_memory(16 * WORDS)
        self.values: Any = np.frombuffer(self.memory, np.int64, 2 * WORDS).reshape(WORDS, 2)
        self.free = list(range(WORDS))
        self.pending: deque[_Test] = deque()
        self.lock = threading.Lock()
        self.works: bool | None = None

    def launch(self, word: int, index: Array, size: int, ignored: int) -> None:
        """Test on the current device; the answer comes to `word`."""
        found = kernels(np.dtype(np.float32))
        assert found is not None
        self.values[word] = 0
        address = U64(self.values.ctypes.data + 16 * word)
        given, limits = dense(index.astype(np.int64, copy=False)), (I64(size), I64(ignored))
        if index.size <= FEW:
            found.block("check_index", given, I64(index.size), *limits, address)
            return
        blocks = min(-(-index.size // FEW), MOST)
        places = cuda.module().empty((blocks,), np.int64)
        found.block("find_wrong", given, I64(index.size), *limits, places, grid=(blocks,))
        found.block("tell_wrong", given, places, I64(blocks), address)

    def are_right(self) -> bool:
        """Whether the kernel writes there what it should, tried out at the first question."""
        if self.works is None:
            with self.lock:
                self.works = self.try_out() if self.works is None else self.works
        return self.works

    def try_out(self) -> bool:
        """Whether the kernel tells right from wrong, which takes one wait."""
        if kernels(np.dtype(np.float32)) is None:
            return False
        try:
            index = cuda.module().asarray(np.array([3, 0, 5, 4, -1] * 70))
            many = cuda.module().asarray(np.arange(3 * FEW + 5))
            tests = ((index, 6, -1), (index, 6, 0), (index, 5, -1), (many, 3 * FEW + 5, 0), (many, 2 * FEW, 0))
            for word, test in enumerate(tests):
                self.launch(word, *test)
            index.get()
            said = [tuple(map(int, row)) for row in self.values[: len(tests)]]
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            said = [(0, 0)]
        right = said == [(1, 0), (_WRONG, -1), (_WRONG, 5), (1, 0), (_WRONG, 2 * FEW)]
        if not right:
            log.warn_once("eager checks", f"each index on a CUDA device is waited for: its test says {said}")
        return right


_words: dict[int, _Words] = {}  # by the id of CuPy's module


def words_here() -> _Words:
    """The words of CuPy as it is loaded."""
    key = id(cuda.module())
    if key not in _words:
        _words[key] = _Words()
    return _words[key]


def ask(op: str, index: Any, size: int, ignored: int = _NO_INDEX) -> bool:
    """Test that `index`, not empty, lies in [0, size) or is `ignored`. False: this cannot be done here.

    Raises IndexError_ of a test, of this one or before, whose answer is there. size: > 0.
    """
    number: int = index.data.device_id
    with cuda.on(number):
        stream, words = cuda.module().cuda.get_current_stream(), words_here()
        if stream.is_capturing():
            return False
        if not words.are_right():
            return False
        if not words.free:
            stream.synchronize()
            look()
        with words.lock:
            if not words.free:
                return False
            word = words.free.pop()
        words.launch(word, index, size, ignored)
        test = _Test(word, threading.current_thread(), stream, op, size, user_location())
        with words.lock:
            words.pending.append(test)
        if config.cuda_blocking:
            stream.synchronize()
    look(test)
    return True


def look(newest: _Test | None = None) -> None:
    """Raise the error of this thread's first test that is known by now to have failed. Waits for nothing."""
    words = _words.get(id(cuda.module())) if _words and cuda.is_loaded() else None
    if words is None or not words.pending:
        return
    here, failed = threading.current_thread(), None
    with words.lock:
        came = [test for test in words.pending if words.values[test.word, 0] and is_told(test.thread, here)]
        for test in came:
            words.pending.remove(test)
            if words.values[test.word, 0] == _WRONG and failed is None:
                failed = test, int(words.values[test.word, 1])
            words.free.append(test.word)
    if failed is not None:
        raise _error(*failed, failed[0] is newest)


def _error(test: _Test, index: int, at_once: bool) -> IndexError_:
    later = "" if at_once else " (CUDA_LAUNCH_BLOCKING=1 tells at the call)"
    return IndexError_(
        f"{test.op}: index {index} is out of range",
        where=f"{test.where}{later}",
        expected=f"0 <= index < {test.size}",
        got=str(index),
    )


cuda.after_waits.append(look)


TEST_THERE.fill(ask)
