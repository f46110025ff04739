"""Memory that ranks share, on streams that are functions in a queue: what copy engines need of a GPU.

In: a runtime whose streams take work (lazy ones of streams.py, or running ones of running.py). Out: `PeerMemory`; what
it lends and takes back is kept account of in the machine that all ranks share: memory that is given back while another
rank maps it, or that is used when it was given back, is an AssertionError.
Ranks are threads, so that a mapped block has one address for all. The kernels are the real ones, run on the host.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectives.nccl.peer_memory import HANDLE_NBYTES, Share, SumKernels, Word
from tests.fake_cupy import install
from tests.fake_nccl.streams import Until

CIRCLE = 1 << 32
_compiling = threading.Lock()


@dataclass
class Machine:
    """One host's GPUs. faults: by rank, the function of its memory that fails. wrong: what no rank may do."""

    faults: dict[int, str] = field(default_factory=dict)
    blocks: dict[int, tuple[int, Any]] = field(default_factory=dict)  # by address: its size, what keeps it
    freed: list[Any] = field(default_factory=list)  # what kept blocks that are gone: a use is wrong, no crash
    maps: dict[int, int] = field(default_factory=dict)  # by address: how often it is mapped
    wrong: list[str] = field(default_factory=list)
    log: list[tuple[int, str]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def lends(self, address: int, nbytes: int) -> bool:
        return any(start <= address and address + nbytes <= start + size for start, (size, _) in self.blocks.items())


def word_at(address: int) -> Any:
    return ctypes.c_uint32.from_address(address)


class PeerMemory:
    """That of one rank. wait: makes work that is done when a function says so."""

    def __init__(
        self, machine: Machine, runtime: Any, rank: int, wait: Callable[[Callable[[], bool], str], Any] | None = None
    ) -> None:
        self.machine, self.runtime, self.rank = machine, runtime, rank
        self.wait = wait or (lambda ready, what: Until(runtime, ready, what))
        self.kernels: SumKernels | None = None
        self.move: Callable[[int, int, int], Any] = ctypes.memmove

    def _begin(self, name: str) -> None:
        with self.machine.lock:
            self.machine.log.append((self.rank, name))
        if self.machine.faults.get(self.rank) == name:
            raise RuntimeError(f"this GPU does not {name}")

    def prepare(self, world_size: int) -> None:
        self._begin("prepare")
        with _compiling:
            self.kernels = SumKernels(install(), world_size)

    def urgent_stream(self) -> Any:
        return self.runtime.new_stream()

    def allocate(self, nbytes: int) -> int:
        self._begin("allocate")
        # of mapped pages those that nobody touches take no memory
        kept = (ctypes.c_char * (nbytes + 256)).from_buffer(mmap.mmap(-1, nbytes + 256))
        address = -(-ctypes.addressof(kept) // 256) * 256
        with self.machine.lock:
            self.machine.blocks[address] = nbytes, kept
            self.machine.maps[address] = 0
        return address

    def free(self, address: int) -> None:
        self._begin("free")
        with self.machine.lock:
            if self.machine.maps[address]:
                self.machine.wrong.append(f"rank {self.rank} frees a block that others map")
            self.machine.freed.append(self.machine.blocks.pop(address))

    def export(self, address: int) -> bytes:
        self._begin("export")
        return address.to_bytes(HANDLE_NBYTES, "little")

    def map(self, handle: bytes) -> int:
        self._begin("map")
        address = int.from_bytes(handle, "little")
        with self.machine.lock:
            self.machine.maps[address] += 1
        return address

    def unmap(self, address: int) -> None:
        self._begin("unmap")
        with self.machine.lock:
            self.machine.maps[address] -= 1

    def copy(self, stream: Any, target: int, source: int, nbytes: int) -> None:
        assert nbytes > 0
        assert stream.follows or stream.makes, "a copy that waits for nothing that was computed"

        def move() -> None:
            if not (self.machine.lends(target, nbytes) or self.machine.lends(source, nbytes)):
                self.machine.wrong.append(f"rank {self.rank} copies from and to memory that nobody lends")
            self.move(target, source, nbytes)

        stream.add(move)

    def signal(self, stream: Any, writes: Sequence[Word], waits: Sequence[Word]) -> None:
        for address, value in writes:
            stream.add(self._write(address, value))
        for address, value in waits:
            what = f"rank {self.rank}, until a word is {value},"
            stream.add(self.wait(lambda a=address, v=value: (word_at(a).value - v) % CIRCLE < CIRCLE // 2, what))

    def _write(self, address: int, value: int) -> Callable[[], None]:
        assert 0 <= value < CIRCLE

        def write() -> None:
            if self.machine.lends(address, 4):
                word_at(address).value = value
            else:
                self.machine.wrong.append(f"rank {self.rank} writes a word into memory that was given back")

        return write

    def add_up(self, stream: Any, share: Share) -> None:
        kernels = self.kernels
        assert kernels is not None
        stream.add(lambda: kernels.add_up(share))

    def seal(self, stream: Any, failed: int, result: int, nbytes: int) -> None:
        kernels = self.kernels
        assert kernels is not None
        stream.add(lambda: kernels.seal(failed, result, nbytes))
