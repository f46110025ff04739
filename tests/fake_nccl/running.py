"""Streams that run: a thread each, as fast or slow as chance has it; for what must hold however ranks are skewed.

Out: `RunningDevice`, a rank's runtime with memory that others reach. A copy moves its bytes in several parts, other
streams run in between; before each piece of work a stream may sleep.
"""

from __future__ import annotations

import ctypes
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fake_nccl.memory import Machine, PeerMemory
from tests.fake_nccl.streams import HANG_S

PARTS = 3


class RunningStream:
    """Work in order, in a thread of its own. slow: the longest sleep before a piece of work, in seconds."""

    def __init__(self, seed: int, slow_s: float) -> None:
        self.random, self.slow_s = random.Random(seed), slow_s
        self.follows = self.makes = True
        self.work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def add(self, work: Callable[[], None] | None) -> None:
        self.work.put(work)

    def _run(self) -> None:
        while (work := self.work.get()) is not None:
            if self.random.random() < 0.3:
                time.sleep(self.random.random() * self.slow_s)
            if self.failed is None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - told by `synchronize`
                    self.failed = error

    def synchronize(self) -> None:
        event = threading.Event()
        self.add(event.set)
        until_s = time.perf_counter() + HANG_S
        while not event.wait(0.01):
            assert time.perf_counter() < until_s, "a stream hangs"
            if self.failed is not None:
                raise self.failed


class RunningDevice:
    """A rank's runtime. What of `Runtime` copy engines use."""

    def __init__(self, machine: Machine, rank: int, *, seed: int = 0, slow_s: float = 1e-3) -> None:
        self.index, self.slow_s = rank, slow_s
        self.random = random.Random(seed * 1000 + rank)
        self.streams: list[RunningStream] = []
        self.arrays: list[Any] = []  # held, as a pool would: streams may still use them
        self.memory = PeerMemory(machine, self, rank, self._until)
        self.memory.move = self._move_in_parts

    def _until(self, ready: Callable[[], bool], what: str) -> Callable[[], None]:
        def wait() -> None:
            until_s = time.perf_counter() + HANG_S
            while not ready():
                assert time.perf_counter() < until_s, f"{what} hangs"
                time.sleep(20e-6)

        return wait

    def _move_in_parts(self, target: int, source: int, nbytes: int) -> None:
        cuts = sorted(self.random.randrange(nbytes + 1) for _ in range(PARTS - 1))
        for start, end in zip([0, *cuts], [*cuts, nbytes]):
            ctypes.memmove(target + start, source + start, end - start)
            time.sleep(0)

    def use(self) -> None:
        return None

    def empty(self, stream: RunningStream, numel: int, dtype: np.dtype[Any]) -> Any:
        self.arrays.append(np.empty(numel, dtype))
        return self.arrays[-1]

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def run(self, stream: RunningStream, function: Callable[[], None]) -> None:
        stream.add(function)

    def fill(self, array: Any, values: Any) -> None:
        array[...] = values

    def to_host(self, array: Any) -> Any:
        return array.copy()

    def new_stream(self) -> RunningStream:
        self.streams.append(RunningStream(self.random.randrange(1 << 30), self.slow_s))
        return self.streams[-1]

    def record(self, stream: RunningStream) -> threading.Event:
        event = threading.Event()
        stream.add(event.set)
        return event

    def is_done(self, event: threading.Event) -> bool:
        return event.is_set()

    def peer_memory(self) -> PeerMemory:
        return self.memory

    def stop(self) -> None:
        for stream in self.streams:
            stream.add(None)
