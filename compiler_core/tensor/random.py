"""Random state: generators that hand out keys of the counter-based Philox op.

In: a seed. Out: keys u64[3] = (seed, offset, shard) with the number of the draw (stream); every draw advances
`offset` by one. A draw's bits depend on (seed, offset + stream, shard, element) alone (see ops/random.py). A compiled
call takes one key for its n draws, stream 0..n-1, and then advances the offset by n: the same bits as eager.

State belongs to the thread. `default_generator` gives each thread a state of its own, begun at the seed last given to
`manual_seed` in the main thread, offset 0: the `threaded` transport runs one rank a thread, and their streams must not
interleave. `manual_seed` in another thread seeds that thread alone. The shard, also per thread, says which part of a
joint batch this rank computes (DDP sets it): rank r of n elements draws elements r*n ... r*n + n-1.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from compiler_core.breaking import breaks_graph
from compiler_core.device import Device, check_device, cpu, cuda_device
from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.ops.registry import Array, Value, current_trace
from compiler_core.tensor.cell import cell_trace
from compiler_core.tensor.placement import is_meta_trace

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_MASK = (1 << 64) - 1


class _State:
    __slots__ = ("offset", "seed")

    def __init__(self, seed: int, offset: int = 0) -> None:
        self.seed, self.offset = seed & _MASK, offset


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


class Generator:
    """A stream of random draws, as torch.Generator. Not to be shared between threads (the default one may be)."""

    _device: Device = cpu

    def __init__(self, device: str | Device = "cpu") -> None:
        self._own = _State(0)
        self._device = check_device(device)

    @property
    def device(self) -> Device:
        """What it was made for; its draws are the same on every device."""
        return self._device

    def _state(self) -> _State:
        return self._own

    def manual_seed(self, seed: int) -> Generator:
        """Start again at offset 0 of `seed`."""
        if current_trace() is not None:
            raise GraphBreak(
                "seeding cannot be traced", where=user_location(), remedy="seed outside the compiled function"
            )
        state = self._state()
        state.seed, state.offset = int(seed) & _MASK, 0
        return self

    def seed(self) -> int:
        """Start again at a seed from the operating system, and return it."""
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(seed)
        return seed

    @breaks_graph("the seed is asked for")
    def initial_seed(self) -> int:
        """The seed of this stream."""
        return self._state().seed

    @property
    @breaks_graph("the number of draws is asked for")
    def offset(self) -> int:
        """The number of draws so far."""
        return self._state().offset

    def next_key(self) -> tuple[Value, int]:
        """The key and the stream of one draw; under a trace, those of the graph's rng placeholder."""
        trace = current_trace()
        if trace is None:
            return self.take_keys(1), 0
        if not isinstance(self, _DefaultGenerator) and not is_meta_trace():
            raise GraphBreak(
                "a draw from a generator of one's own cannot be traced",
                where=user_location(),
                remedy="use the default generator",
            )
        return cell_trace(trace).next_rng()

    def take_keys(self, draws: int) -> Array:
        """The key u64[3] that serves the next `draws` draws as streams 0 .. draws-1; the offset advances past them."""
        state = self._state()
        key = np.array((state.seed, state.offset, shard_mode.index), np.uint64)
        state.offset += draws
        return key

    def give_back(self, draws: int) -> None:
        """The last `draws` that were taken are to be drawn again."""
        self._state().offset -= draws

    def get_state(self) -> Tensor:
        """The state: u8[16], seed and offset."""
        from compiler_core.tensor.tensor import Tensor

        state = self._state()
        return Tensor._wrap(np.array((state.seed, state.offset), np.uint64).view(np.uint8))

    def set_state(self, state: Tensor) -> Generator:
        """Go on where `get_state` was called."""
        own = self._state()
        own.seed, own.offset = (int(n) for n in state.cpu().numpy().copy().view(np.uint64))
        return self

    def clone_state(self) -> Generator:
        """A generator of its own that goes on where this one is."""
        made, state = Generator(self.device), self._state()
        made._own = _State(state.seed, state.offset)
        return made

    @breaks_graph("the number of draws is asked for")
    def get_offset(self) -> int:
        """The number of draws so far."""
        return self._state().offset

    def set_offset(self, offset: int) -> None:
        """Go on as after that many draws."""
        self._state().offset = int(offset)


class _DefaultGenerator(Generator):
    """The generator of functions that are given none: one state a thread."""

    def __init__(self) -> None:
        self._seed = 0
        self._threads = threading.local()

    def _state(self) -> _State:
        state: _State | None = getattr(self._threads, "state", None)
        if state is None:
            state = self._threads.state = _State(self._seed)
        return state

    def manual_seed(self, seed: int) -> Generator:
        super().manual_seed(seed)
        if threading.current_thread() is threading.main_thread():
            self._seed = int(seed) & _MASK
        return self


default_generator: Generator = _DefaultGenerator()


class _DefaultOfDevice(_DefaultGenerator):
    """The default generator under the name of a CUDA device: one state for all."""

    def __init__(self, place: Device) -> None:
        super().__init__()
        self._device = place

    def _state(self) -> _State:
        return default_generator._state()

    def manual_seed(self, seed: int) -> Generator:
        default_generator.manual_seed(seed)
        return self


def default_generator_of(number: int) -> Generator:
    """The default generator of a CUDA device."""
    return _DefaultOfDevice(cuda_device(number))


def place_of_draws(generator: Generator | None) -> Device:
    """Where to draw what is wanted on the host, with a generator of any device."""
    return cpu if generator is None else generator.device


def manual_seed(seed: int) -> Generator:
    """Seed the default generator of this thread; in the main thread, also of threads that have not drawn yet."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system."""
    return default_generator.seed()


@breaks_graph("the seed is asked for")
def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state."""
    return default_generator.get_state()


def set_rng_state(state: Tensor) -> None:
    """Restore the default generator's state."""
    default_generator.set_state(state)


@contextmanager
def fork_rng(devices: object = None, enabled: bool = True) -> Iterator[None]:
    """Restore the default generator's state after the block."""
    state = default_generator._state()
    before = (state.seed, state.offset)
    try:
        yield
    finally:
        if enabled:
            state.seed, state.offset = before
