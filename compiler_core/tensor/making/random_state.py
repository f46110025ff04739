"""States of random generators: torch's, counter-based ones, and one that mapped calls share; the shard of draws.

In: a seed, or the bytes of a state. Out: draws (`Draw`) as arrays, and keys u64[3] = (seed, offset, shard) of the
philox op. What each is, and who has which: random.py.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from compiler_core.config import config
from compiler_core.device import Device
from compiler_core.errors import DTypeError, RandomStateError
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.random.mersenne import Mersenne
from compiler_core.ops.registry import Array, Value


class _Shard(threading.local):
    index: int = 0
    switches: int = 0  # how often it was set


shard_mode = _Shard()


class set_shard:
    """Within the block, this thread draws the elements of shard `index` of a joint batch."""

    def __init__(self, index: int) -> None:
        self.index, self.before = index, 0

    def __enter__(self) -> None:
        self.before, shard_mode.index = shard_mode.index, self.index
        shard_mode.switches += 1

    def __exit__(self, *error: object) -> None:
        shard_mode.index = self.before
        shard_mode.switches += 1


def current_shard() -> int:
    """The shard this thread draws for."""
    return shard_mode.index


class Counter:
    """A counter-based state: draws are numbered."""

    __slots__ = ("lock", "offset", "seed")

    def __init__(self, seed: int, offset: int = 0) -> None:
        self.seed, self.offset, self.lock = seed, offset, threading.Lock()

    def reseed(self, seed: int) -> None:
        self.seed, self.offset = seed, 0

    def copy(self) -> Counter:
        return Counter(self.seed, self.offset)

    def draw(self, draw: Draw) -> Value:
        return draw.of_key(self.take_keys(1), 0)

    def take_keys(self, draws: int) -> Array:
        with self.lock:
            first, self.offset = self.offset, self.offset + draws
        return np.array((self.seed, first, shard_mode.index), np.uint64)

    def as_bytes(self) -> Array:
        return np.array((self.seed, self.offset), np.uint64).view(np.uint8)


class Torch(Mersenne):
    """Torch's state. A large draw lets other threads run, which must not draw meanwhile."""

    __slots__ = ("lock",)

    def __init__(self, seed: int) -> None:
        self.lock = threading.Lock()
        super().__init__(seed)

    def reseed(self, seed: int) -> None:
        with self.lock:
            super().reseed(seed)

    def copy(self) -> Torch:
        with self.lock:
            made = super().copy()
        made.lock = threading.Lock()
        return made

    def draw(self, draw: Draw) -> Value:
        with self.lock:
            return draw.of_torch(self)

    def rejected(self, name: str, *parameters: Array) -> Array | None:
        with self.lock:
            return super().rejected(name, *parameters)

    def take_keys(self, draws: int) -> Array:
        with self.lock:
            return np.array((self.word64(), 0, 0), np.uint64)  # whatever the shard: as torch, and eager code, draw

    def as_bytes(self) -> Array:
        with self.lock:
            return self.state.copy()


State = Counter | Torch


class Together(Torch):
    """What `size` calls that do the same draw from, one after the other: the k-th draws of all are one draw of `of`."""

    __slots__ = ("calls", "draws", "made", "of", "size")

    def __init__(self, of: Torch, size: int) -> None:
        self.of, self.size, self.state, self.lock = of, size, of.state, of.lock
        self.made: list[tuple[Draw, Any]] = []
        self.calls, self.draws = -1, 0

    def next_call(self) -> None:
        self.calls, self.draws = self.calls + 1, 0

    def draw(self, draw: Draw) -> Value:
        if self.draws == len(self.made) and not self.calls:
            self.made.append((draw, self._for_all(draw)))
        if self.draws == len(self.made) or self.made[self.draws][0] != draw:
            raise RandomStateError("examples that are mapped over draw different random numbers", got=draw.kind)
        drawn = self.made[self.draws][1][self.calls]
        self.draws += 1
        return np.asarray(drawn)

    def _for_all(self, draw: Draw) -> Any:
        if draw.kind == "permutation":
            return [self.of.draw(draw) for _ in range(self.size)]
        order = None if draw.order is None else (0, *(d + 1 for d in draw.order))
        return self.of.draw(draw._replace(shape=(self.size, *draw.shape), order=order))


def state_of_bytes(given: Array, like: State) -> State:
    """The state of like's kind that these bytes are. Raises RandomStateError, DTypeError."""
    if given.dtype != np.uint8:
        raise DTypeError("RNG state must be a torch.ByteTensor", got=str(given.dtype))
    given = np.array(given).reshape(-1)
    size = like.as_bytes().size
    if given.size != size:
        what = "CPUGeneratorImplState" if isinstance(like, Torch) else "state of a counter-based generator"
        found = f"found the input RNG state size to be {given.size}"
        raise RandomStateError(f"Expected a {what} of size {size} but {found}")
    if isinstance(like, Counter):
        return Counter(*map(int, given.view(np.uint64)))
    made = Torch(0)
    made.state[:] = given
    if not made.is_valid():
        raise RandomStateError("Invalid mt19937 state")
    return made


def new_state(device: Device, seed: int) -> State:
    return Torch(seed) if device.is_host and config.draws == "torch" else Counter(seed)
