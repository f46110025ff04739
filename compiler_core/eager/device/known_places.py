"""Index tensors on the one CUDA device whose places are known to lie in range: tables of relative positions.

In: the cell of an index that is not written meanwhile, and a size. Out: whether all its places lie in [0, size), as a
test on the device has said by now. The second question asks for the test, and the host waits for nothing: until the
answer is there, and where it is no, the caller tests each call, wraps negative places, and raises what is to be raised.
An answer holds for that memory as it was: a write raises the cell's stamp. Memory that others write is never known.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from compiler_core import cuda
from compiler_core.eager.device.checks import words_here
from compiler_core.ops.indexing.op import KNOWN_THERE
from compiler_core.records import dataclass

MOST = 64  # tests that may be under way
RIGHT = 1


@dataclass(slots=True, eq=False)
class _Asked:
    """A cell's, as it was at this stamp. of: CuPy's module. word: to which the answer comes; -1: nobody asked yet, for
    an index that is used once is not worth it. said: the answer; None: it has not come."""

    of: Any
    stamp: int
    size: int
    word: int = -1
    said: bool | None = None


_asked: WeakKeyDictionary[Any, _Asked] = WeakKeyDictionary()
_waiting: list[_Asked] = []


def are_known(cell: Any, size: int) -> bool:
    """Whether all places in `cell`, an int64 DeviceCell that is not empty, are known to lie in [0, size)."""
    found = _asked.get(cell)
    if found is None or found.stamp != cell.stamp or found.size != size or found.of is not cuda.module():
        _asked[cell] = _Asked(cuda.module(), cell.stamp, size)
        return False
    if found.said is None:
        words = words_here()
        if words.are_right():
            with words.lock:
                _hear(words)
                if found.word < 0 and len(_waiting) < MOST and words.free:
                    _ask(words, found, cell.raw)
    return found.said is True


def _hear(words: Any) -> None:
    """Note the answers that have come."""
    for one in _waiting[:]:
        if one.of is not cuda.module():  # that CuPy is gone
            _waiting.remove(one)
        elif words.values[one.word, 0]:
            one.said = bool(words.values[one.word, 0] == RIGHT)
            _waiting.remove(one)
            words.free.append(one.word)


def _ask(words: Any, asked: _Asked, index: Any) -> None:
    if not cuda.module().cuda.get_current_stream().is_capturing():
        asked.word = words.free.pop()
        words.launch(asked.word, index, asked.size, 0)
        _waiting.append(asked)


KNOWN_THERE.fill(are_known)
