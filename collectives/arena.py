"""The shared memory of one rank: zeroed blocks out of a few large anonymous segments that the host's other ranks map.

In: sizes. Out: arrays of bytes that start at a page, and for any array where it lies (`Place`). A block is free again
when its array, and every view of it, is gone; its pages go back to the system then, so the next block is zeroed.
Memory is memfd, reached by peers through /proc/<pid>/fd: nothing is left behind, however a job ends. A segment is
sparse: its size is a reservation. Each new one doubles the whole, so descriptors and peers' mappings stay a handful.
In a forked child the arrays are its own: what it writes, the parent does not see. What it has not written it reads as
the parent has it by then.
Limit: Linux. First fit, in order of address; made for tens to thousands of blocks, not millions.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from bisect import insort
from collections import deque
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from collectives.call import Array
from collectives.errors import ForkedProcessError
from collectives.forked import belongs_to_rank

_BYTE = ctypes.c_char
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # of Linux
FIRST_SEGMENT_NBYTES = 64 << 20
Place = tuple[int, int, int, int]  # serial number of the segment (-1: none), file descriptor, its size, offset in it
NOWHERE: Place = (-1, 0, 0, 0)


def address_of(array: Array) -> int:
    """Where the array's data starts."""
    try:
        return ctypes.addressof(_BYTE.from_buffer(cast(Any, array)))  # a fifth of the other's time
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype that buffers do not know
        address: int = array.__array_interface__["data"][0]
        return address


@dataclass(slots=True, eq=False, weakref_slot=True)
class MemorySegment:
    """One memfd, open as long as blocks of it live. free: (offset, nbytes) of the gaps, by offset, never adjacent."""

    serial: int
    descriptor: int
    nbytes: int
    memory: mmap.mmap
    address: int
    free: list[tuple[int, int]]

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child: put a private mapping of the same memory in the place of the shared one."""
        place, anywhere = ctypes.c_void_p, ctypes.c_void_p(-1).value
        remap = ctypes.CDLL(None, use_errno=True).mmap
        remap.restype, remap.argtypes = place, (place, *(ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long))
        how = mmap.MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE
        made = remap(self.address, self.nbytes, mmap.PROT_READ | mmap.PROT_WRITE, how, self.descriptor, 0)
        if made == anywhere:
            raise OSError(ctypes.get_errno(), "mmap of a rank's memory in a forked child")

    def take(self, nbytes: int) -> int | None:
        """The offset of `nbytes` bytes that are free no longer; None if no gap is large enough."""
        for index, (offset, gap) in enumerate(self.free):
            if gap >= nbytes:
                self.free[index : index + 1] = [(offset + nbytes, gap - nbytes)] if gap > nbytes else []
                return offset
        return None

    def give_back(self, offset: int, nbytes: int) -> None:
        """Free a block: its pages read as zeros again."""
        self.memory.madvise(mmap.MADV_REMOVE, offset, nbytes)
        insort(self.free, (offset, nbytes))
        index = self.free.index((offset, nbytes))
        for left in (index, index - 1):  # the gap after it, then the one before
            if 0 <= left < len(self.free) - 1:
                (start, size), (following, more) = self.free[left], self.free[left + 1]
                if start + size == following:
                    self.free[left : left + 2] = [(start, size + more)]


class Arena:
    """This rank's segments. Use from any thread that holds the GIL."""

    def __init__(self) -> None:
        belongs_to_rank(self)
        self.segments: list[MemorySegment] = []
        self.returned: deque[tuple[MemorySegment, int, int]] = deque()  # filled by finalizers, which may run anywhere

    def allocate(self, nbytes: int) -> Array:
        """Zeroed bytes: at least `nbytes`, in whole pages."""
        while self.returned:
            owner, start, nbytes_back = self.returned.popleft()
            owner.give_back(start, nbytes_back)
        size = max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE
        for segment in self.segments:
            offset = segment.take(size)
            if offset is not None:
                return self._block(segment, offset, size)
        segment = self._grow(size)
        offset = segment.take(size)
        assert offset is not None
        return self._block(segment, offset, size)

    def locate(self, address: int, nbytes: int) -> Place:
        """Where memory of this process lies in the segments; NOWHERE if it is ordinary."""
        for segment in self.segments:
            offset = address - segment.address
            if offset >= 0 and offset + nbytes <= segment.nbytes:
                return segment.serial, segment.descriptor, segment.nbytes, offset
        return NOWHERE

    def _block(self, segment: MemorySegment, offset: int, nbytes: int) -> Array:
        block = np.frombuffer(segment.memory, np.uint8, nbytes, offset)
        weakref.finalize(block, self.returned.append, (segment, offset, nbytes)).atexit = False
        return block

    def _grow(self, nbytes: int) -> MemorySegment:
        size = max(FIRST_SEGMENT_NBYTES, sum(segment.nbytes for segment in self.segments))
        while size < nbytes:
            size *= 2
        descriptor = os.memfd_create("distcompile", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        address = address_of(np.frombuffer(memory, np.uint8))
        segment = MemorySegment(len(self.segments), descriptor, size, memory, address, [(0, size)])
        weakref.finalize(segment, os.close, descriptor).atexit = False
        belongs_to_rank(segment)
        self.segments.append(segment)
        return segment

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child: what was allocated is not reused."""
        self.segments, self.returned = [], deque()

    def close(self) -> None:
        """No array lies here any more, and nothing is allocated. The memory lives as long as its arrays."""
        self.segments.clear()
