"""The arena: blocks are zeroed, apart, found again by address, given back, and cost few descriptors."""

from __future__ import annotations

import gc
import os
import random

import numpy as np
import pytest

from collectives import arena
from collectives.arena import NOWHERE, Arena, address_of

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memfd is Linux's")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_random_blocks_are_zeroed_and_apart() -> None:
    memory, rng = Arena(), random.Random(0)
    held: list[np.ndarray] = []
    for step in range(2000):
        if held and rng.random() < 0.5:
            block = held.pop(rng.randrange(len(held)))
            assert (block == block[0]).all()  # nobody else wrote to it
        else:
            block = memory.allocate(rng.randrange(1, 100_000))
            assert not block.any()
            block[:] = step % 255 + 1
            held.append(block)
        del block
    del held
    gc.collect()
    memory.allocate(1)
    assert [segment.free for segment in memory.segments] == [[(4096, memory.segments[0].nbytes - 4096)]]


def test_blocks_are_found_by_address() -> None:
    memory = Arena()
    first, second = memory.allocate(5000), memory.allocate(10)
    serial, descriptor, nbytes, offset = memory.locate(address_of(second[4:]), 6)
    assert (serial, nbytes, offset) == (0, arena.FIRST_SEGMENT_NBYTES, 8192 + 4)
    os.fstat(descriptor)
    assert memory.locate(address_of(np.zeros(8)), 8) == NOWHERE
    assert first.size == 8192


def test_it_grows_by_few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "FIRST_SEGMENT_NBYTES", 1 << 16)
    before, memory = open_descriptors(), Arena()
    blocks = [memory.allocate(1 << 14) for _ in range(1000)]
    assert len(memory.segments) <= 10
    assert open_descriptors() - before <= 2 * len(memory.segments)  # ours, and the one mmap duplicates
    memory.close()
    assert blocks[-1].sum() == 0  # an array outlives the arena


def test_views_keep_their_block() -> None:
    memory = Arena()
    view = memory.allocate(4096).view(np.float32)[3:5]
    view[:] = 7
    gc.collect()
    assert not memory.allocate(4096).any()
    assert view.tolist() == [7, 7]
