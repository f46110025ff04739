"""Random state: generators of torch's numbers (mt19937) on the CPU, and of counter-based ones (Philox).

In: a seed, draws (`Draw`). Out: arrays, or keys u64[3] = (seed, offset, shard) of the philox op.
A generator of the CPU is torch's, draw for draw: its state is torch's, too. Compiled code draws from Philox by a key: a
call takes one, of which the seed is the generator's next 64 bits. A generator of a CUDA device is counter-based: so are
those of the CPU where `config.draws` is "counter", and the default one inside `counter_draws()`. Its keys have its own
seed, every draw advances `offset` by one, and a draw's bits depend on (seed, offset + stream, shard, element) alone
(ops/random/op.py): a compiled call takes one key for its n draws, stream 0..n-1, and then advances the offset by n. So
eager code draws the bits that compiled code draws, on every device.

The threads of a process draw from one default generator, as in torch; until it is seeded, it begins anywhere. But a
thread that is a rank (`is_rank`: the `threaded` transport's) has a state of its own, begun at the process's seed: the
streams of ranks must not interleave. The shard, per thread, says which part of a joint batch this rank computes (DDP
sets it): rank r of n elements draws elements r*n ... r*n + n-1 of a key.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compiler_core.breaking import breaks_graph
from compiler_core.device import Device, check_device, cpu, cuda_device
from compiler_core.errors import GraphBreak, RandomStateError
from compiler_core.location import user_location
from compiler_core.ops.batching.value import levels
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.random.mapped import draw_for
from compiler_core.ops.random.on_device import drawing
from compiler_core.ops.registry import Array, Value, current_trace
from compiler_core.tensor.making.placement import is_meta_trace
from compiler_core.tensor.making.random_state import Counter, State, Torch, new_state, set_shard, state_of_bytes
from compiler_core.tensor.memory.cell import cell_trace

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_MASK = (1 << 64) - 1
_FIRST_SEED = 67280421310721  # of a generator that was not seeded, as torch has it


class Generator:
    """A stream of random draws, as torch.Generator. Not to be shared between threads (the default one may be)."""

    _device: Device = cpu

    def __init__(self, device: str | Device = "cpu") -> None:
        self._device = check_device(device)
        self._own = new_state(self._device, _FIRST_SEED)

    @property
    def device(self) -> Device:
        """What it was made for."""
        return self._device

    def _state(self) -> State:
        return self._own

    def _put(self, state: State) -> None:
        """Go on from this state."""
        self._own = state

    def manual_seed(self, seed: int) -> Generator:
        """Start again at `seed`; negative ones count from 2^64 on. Raises RandomStateError beyond 64 bits."""
        if current_trace() is not None:
            raise GraphBreak(
                "seeding cannot be traced", where=user_location(), remedy="seed outside the compiled function"
            )
        self._state().reseed(_seed_of(seed))
        return self

    def seed(self) -> int:
        """Start again at a seed from the operating system, and return it."""
        seed = _chance()
        self.manual_seed(seed)
        return seed

    @breaks_graph("the seed is asked for")
    def initial_seed(self) -> int:
        """The seed of this stream."""
        return self._state().seed

    @property
    @breaks_graph("the number of draws is asked for")
    def offset(self) -> int:
        """The number of draws so far, of a counter-based one. Raises RandomStateError for torch's."""
        return self._counter().offset

    def draw(self, draw: Draw) -> Value:
        """The draw; under a trace the node of it, of the default generator alone."""
        every = levels()
        return draw_for(every, draw, self._draw) if every else self._draw(draw)

    def _draw(self, draw: Draw) -> Value:
        trace = current_trace()
        if trace is None:
            return self._state().draw(draw)
        if is_meta_trace():
            return MetaValue(draw.shape, draw.dtype)
        if self is default_generator and cell_trace(trace).draws_outside():
            return cell_trace(trace).outside_draw(draw)
        return draw.of_key(*self.next_key())

    def mask_or_key(self, draw: Draw) -> Value | tuple[Value, int]:
        """A mask, drawn; or, where it is drawn by a key, the key and the stream, by which whoever uses it draws it."""
        trace = current_trace()
        if levels():
            return self.draw(draw)
        if trace is None:
            state = self._state()
            return state.draw(draw) if isinstance(state, Torch) else (state.take_keys(1), 0)
        if self is default_generator and cell_trace(trace).draws_outside():
            return cell_trace(trace).outside_draw(draw)
        return self.next_key()

    def next_key(self) -> tuple[Value, int]:
        """A key and the stream of one draw; under a trace, those of the graph's rng placeholder."""
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
        """The key u64[3] that serves the next `draws` draws as streams 0 .. draws-1, and of this thread's shard."""
        return self._state().take_keys(draws)

    @breaks_graph("the state of a generator is asked for")
    def get_state(self) -> Tensor:
        """The state: u8[5056] as torch's of the CPU; of a counter-based one u8[16], seed and offset."""
        from compiler_core.tensor.tensor import Tensor

        return Tensor._wrap(self._state().as_bytes())

    @breaks_graph("the state of a generator is set")
    def set_state(self, new_state: Tensor) -> Generator:
        """Go on where `get_state` was called, here or in torch. Raises RandomStateError."""
        self._put(state_of_bytes(new_state.cpu().numpy(), self._state()))
        return self

    graphsafe_get_state, graphsafe_set_state = get_state, set_state

    @breaks_graph("the state of a generator is asked for")
    def clone_state(self) -> Generator:
        """A generator of its own that goes on where this one is."""
        made = Generator.__new__(Generator)
        made._device, made._own = self.device, self._state().copy()
        return made

    def __getstate__(self) -> tuple[Device, Array]:
        return self.device, self._state().as_bytes()

    def __setstate__(self, state: tuple[Device, Array]) -> None:
        self._device, given = state
        self._own = state_of_bytes(given, Counter(0) if given.size == Counter(0).as_bytes().size else Torch(0))

    @breaks_graph("the number of draws is asked for")
    def get_offset(self) -> int:
        """The number of draws so far, of a counter-based one. Raises RandomStateError for torch's."""
        return self._counter().offset

    @breaks_graph("the number of draws is set")
    def set_offset(self, offset: int) -> None:
        """Go on as after that many draws. Raises RandomStateError for torch's."""
        self._counter().offset = int(offset)

    def _counter(self) -> Counter:
        state = self._state()
        if isinstance(state, Counter):
            return state
        raise RandomStateError("CPU Generator does not use offset", remedy="get_state()")


def _chance() -> int:
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def _seed_of(seed: int) -> int:
    seed = int(seed)
    if not -(1 << 63) <= seed <= _MASK:
        raise RandomStateError("Overflow when unpacking long", expected="a seed of 64 bits", got=str(seed))
    return seed & _MASK


class _OfThread(threading.local):
    state: State | None = None  # of a thread that is a rank
    is_shared = False  # whether it is known to be none


class _DefaultGenerator(Generator):
    """The generator of functions that are given none: one state for the process, and one for each rank's thread."""

    def __init__(self, place: Device = cpu) -> None:
        self._device, self._thread = place, _OfThread()
        self._shared: State | None = None

    def _state(self) -> State:
        here = self._thread
        return here.state or (here.is_shared and self._shared) or self._found()

    def _found(self) -> State:
        shared = self._shared
        if shared is None:
            shared = self._shared = new_state(self._device, self._first_seed())
        if not getattr(threading.current_thread(), "is_rank", False):
            self._thread.is_shared = True
            return shared
        made = self._thread.state = type(shared)(shared.seed)
        return made

    def _first_seed(self) -> int:
        return _chance()

    def _put(self, state: State) -> None:
        if self._thread.state is None:
            self._shared = state
        else:
            self._thread.state = state

    def unlock(self) -> None:
        """In a forked child: a thread that drew in the parent is not here to let go of the state."""
        if self._shared is not None:
            self._shared.lock = threading.Lock()


default_generator = _DefaultGenerator()
os.register_at_fork(after_in_child=default_generator.unlock)


class _DefaultOfDevice(_DefaultGenerator):
    """That of a CUDA device: the CPU's where that is counter-based, so that one stream serves all."""

    def _state(self) -> State:
        of_cpu = default_generator._state()
        return of_cpu if isinstance(of_cpu, Counter) else super()._state()

    def _put(self, state: State) -> None:
        if isinstance(default_generator._state(), Counter):
            default_generator._put(state)
        else:
            super()._put(state)

    def _first_seed(self) -> int:
        return default_generator._state().seed


_of_devices: dict[int, Generator] = {}


def default_generator_of(number: int) -> Generator:
    """The default generator of a CUDA device, begun at the seed of the CPU's."""
    found = _of_devices.get(number)
    if found is None:
        found = _of_devices[number] = _DefaultOfDevice(cuda_device(number))
    return found


def generator_for(place: Device, generator: Generator | None = None) -> Generator:
    """The generator of draws for tensors of `place`: the one given, or the default one there."""
    if generator is not None:
        return generator
    return default_generator if place.index is None else default_generator_of(place.index)


def keys_for(place: str, draws: int, shard: int = 0) -> Array:
    """The key of that many draws of one call of a program on device `place`, from the default generator there."""
    with set_shard(shard):
        return generator_for(check_device(place)).take_keys(draws)


def drawing_generator(generator: Generator | None = None) -> Generator:
    """The one given, or the default one of the device that tensors are made for now."""
    if generator is not None:
        return generator
    return default_generator if drawing.of is None else default_generator_of(drawing.of)


def place_of_draws(generator: Generator | None) -> Device:
    """Where to draw what is wanted on the host, with a generator of any device."""
    return cpu if generator is None else generator.device


def manual_seed(seed: int) -> Generator:
    """Seed the default generators; in a thread that is a rank, its own."""
    default_generator.manual_seed(seed)
    for generator in _of_devices.values():
        generator.manual_seed(seed)
    return default_generator


def seed() -> int:
    """Seed the default generators from the operating system."""
    seed = default_generator.seed()
    for generator in _of_devices.values():
        generator.manual_seed(seed)
    return seed


@breaks_graph("the seed is asked for")
def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


@breaks_graph("the state of a generator is asked for")
def get_rng_state() -> Tensor:
    """The default generator's state."""
    return default_generator.get_state()


@breaks_graph("the state of a generator is set")
def set_rng_state(new_state: Tensor) -> None:
    """Restore the default generator's state."""
    default_generator.set_state(new_state)


States = list[tuple[Generator, State]]


def saved_states(devices: Iterable[int] | None = None) -> States:
    """Copies of the states of the CPU's default generator and of those of these CUDA devices (None: all in use)."""
    of_devices = _of_devices.values() if devices is None else map(default_generator_of, devices)
    return [(generator, generator._state().copy()) for generator in (default_generator, *of_devices)]


@contextmanager
def drawing_from(states: States) -> Iterator[None]:
    """Within the block, generators draw from these states on; after it, they go on where they were."""
    before = [(generator, generator._state()) for generator, _ in states]
    for generator, state in states:
        generator._put(state.copy())
    try:
        yield
    finally:
        for generator, state in before:
            generator._put(state)


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, device_type: str = "cuda", **_: object
) -> Iterator[None]:
    """Restore the states of the default generators after the block; devices: those of CUDA, by default all in use."""
    numbers = None if devices is None else [check_device(_cuda(d)).index or 0 for d in devices]
    before = _asked_for(numbers if device_type == "cuda" else ()) if enabled else []
    try:
        yield
    finally:
        if enabled:
            _put_back(before)


@breaks_graph("the states of generators are asked for")
def _asked_for(devices: Iterable[int] | None) -> States:
    return saved_states(devices)


@breaks_graph("the states of generators are set")
def _put_back(states: States) -> None:
    for generator, state in states:
        generator._put(state)


def _cuda(device: Any) -> Any:
    return f"cuda:{device}" if isinstance(device, int) else device


@contextmanager
def counter_draws() -> Iterator[None]:
    """Within the block, the default generator is counter-based: eager code draws the bits of compiled code.

    It begins at the seed of the generator that goes on after the block. In a rank's thread it is this rank's alone;
    ranks' threads that are started inside follow it.
    """
    before = default_generator._state()
    default_generator._put(Counter(before.seed))
    try:
        yield
    finally:
        default_generator._put(before)
