"""All-reduce by copy engines, without a GPU.

Its protocol on streams that run, each in a thread as fast as chance has it (tests/fake_nccl/running.py): what depends
on a wait that is not there gives wrong numbers. Its place in the engine: test_nccl_copies_engine.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 - makes np.dtype("bfloat16") known
import numpy as np
import pytest
from copies_numbers import expected, same_bits, small, values  # noqa: F401 - small is a fixture of all tests

from collectives import host
from collectives.communicator import Communicator
from collectives.errors import TransportError
from collectives.nccl import copies, copies_opening
from collectives.nccl.copies import CopyEngines, pieces, shares, slot_nbytes
from collectives.nccl.copies_opening import REASON_NBYTES, Offer, Refused, open_copies
from collectives.threaded import run_ranks
from tests.fake_cupy import install
from tests.fake_nccl.memory import Machine
from tests.fake_nccl.running import RunningDevice
from tests.sharing import some

install()  # the stand-in that runs sums.cu
DTYPES = ("float64", "float32", "float16", "bfloat16")
RANKS = (2, 3, 4, 8)


# -- which arrays, and how they are cut


@pytest.mark.parametrize(
    ("nbytes", "taken"), [((1 << 20) - 1, False), (1 << 20, True), (64 << 20, True), ((64 << 20) + 1, False)]
)
def test_arrays_from_1_to_64_MiB_are_taken(nbytes: int, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # `small` makes the limits a test's
    assert copies.is_for_copies("float32", "avg", nbytes) == taken
    assert not copies.is_for_copies("float32", "max", nbytes)
    assert not copies.is_for_copies("int32", "sum", nbytes)


@pytest.mark.parametrize("world", [2, 3, 5, 8])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_pieces_and_shares_cover_an_array_once_and_fit_their_slots(world: int, itemsize: int) -> None:
    slot = slot_nbytes(world)
    assert slot * world <= 4096
    for count in (1, 7, 8, 9, 100, 511, 512, 513, 2048, 2049, 5000, 12345):
        at = 0
        for start, number in pieces(count, itemsize, world, slot):
            assert (start, number > 0) == (at, True)
            end = 0
            parts = shares(number, itemsize, world)
            assert len(parts) == world
            for first, elements in parts:
                assert first == end
                assert elements * itemsize <= slot
                assert elements == 0 or first * itemsize % copies.GROUP_NBYTES == 0
                end += elements
            assert end == number
            at += number
        assert at == count


# -- on streams that run


class Rank:
    """A rank of a test on running streams: copy engines that met through the host communicator."""

    def __init__(self, c: Communicator, machine: Machine, seed: int, slow_s: float) -> None:
        self.c, self.device = c, RunningDevice(machine, c.rank, seed=seed, slow_s=slow_s)
        self.stream: Any = self.device.new_stream()
        made = open_copies(self.device, self.stream, c.rank, c.world_size, c.all_gather_object)  # type: ignore[arg-type]
        assert isinstance(made, CopyEngines), made
        self.copies = made

    def reduce(self, array: Any, op: str = "sum") -> None:
        self.copies.all_reduce(array.ctypes.data, array.size, str(array.dtype), op)

    def close(self) -> None:
        self.stream.synchronize()
        self.copies.close()
        self.c.barrier()
        self.copies.free()
        self.device.stop()


def on_running(world: int, function: Callable[[Rank], Any], *, seed: int = 0, slow_s: float = 1e-3) -> list[Any]:
    """Run `function` on each rank, then close in order; nothing that no rank may do was done."""
    machine = Machine()

    def here(c: Communicator) -> Any:
        rank = Rank(c, machine, seed, slow_s)
        made = function(rank)
        rank.close()
        return made

    results = run_ranks(world, here, timeout_s=60)
    assert machine.wrong == []
    assert machine.blocks == {}
    return results


@pytest.mark.parametrize("world", RANKS)
def test_sums_and_means_have_the_bits_of_a_sum_in_rank_order(world: int) -> None:
    cases = [(dtype, op, n) for dtype in DTYPES for op in ("sum", "avg") for n in (1, 33, 512, 1000, 4097)]

    def here(rank: Rank) -> Any:
        arrays = [values(rank.c.rank, n, dtype) for dtype, op, n in cases]
        for array, (_, op, _) in zip(arrays, cases):
            rank.reduce(array, op)
        rank.stream.synchronize()
        return arrays

    for arrays in on_running(world, here, slow_s=1e-4):
        for array, (dtype, op, n) in zip(arrays, cases):
            same_bits(array, expected(world, n, dtype, op))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_array_may_lie_anywhere(dtype: str) -> None:
    def here(rank: Rank) -> Any:
        room = np.zeros(1001, dtype)
        room[1:] = values(rank.c.rank, 1000, dtype)
        rank.reduce(room[1:])
        rank.stream.synchronize()
        assert room[0] == 0
        return room[1:]

    for array in on_running(2, here):
        same_bits(array, expected(2, 1000, dtype))


@pytest.mark.parametrize("world", some([3, 2, 4], 1))
def test_rounds_back_to_back_of_ranks_that_are_skewed_are_all_right(world: int) -> None:
    rounds, n = 60, 700

    def here(rank: Rank) -> Any:
        skew = random.Random(rank.c.rank)
        arrays = [values(rank.c.rank, n + 40 * k, "float32", k) for k in range(rounds)]
        for array in arrays:
            if skew.random() < 0.3:
                time.sleep(skew.random() * 3e-3)
            rank.reduce(array)
        rank.stream.synchronize()
        return arrays

    for seed in range(2):
        for arrays in on_running(world, here, seed=seed, slow_s=2e-3):
            for k, array in enumerate(arrays):
                same_bits(array, expected(world, n + 40 * k, "float32", "sum", k))


def test_pieces_are_counted_in_a_circle() -> None:
    def here(rank: Rank) -> Any:
        first = 2**32 - 5
        rank.c.barrier()
        rank.device.memory.signal(  # as if so many pieces had been
            rank.stream, [(rank.copies.own + words + 4 * p, first) for words in (0, 256) for p in rank.copies.peers], []
        )
        rank.copies.piece = first
        rank.stream.synchronize()
        rank.c.barrier()
        arrays = [values(rank.c.rank, 1500, "float32", k) for k in range(6)]
        for array in arrays:
            rank.reduce(array)
        rank.stream.synchronize()
        assert rank.copies.piece < 100
        return arrays

    for arrays in on_running(2, here):
        for k, array in enumerate(arrays):
            same_bits(array, expected(2, 1500, "float32", "sum", k))


def ended(rank: Rank) -> None:
    """Return when what an abort lets go has come to its end on this rank."""
    until_s = time.perf_counter() + 60
    while not rank.copies.is_ended:
        assert time.perf_counter() < until_s, "never at its end"
        time.sleep(0.01)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_after_an_abort_arrays_are_right_or_nan_on_all_ranks_and_no_stream_hangs(world: int, seed: int) -> None:
    """Rank 0 gives up at any time while the last rank never comes with its last arrays."""
    rounds, n, machine = 24, 1500, Machine()

    def here(c: Communicator) -> Any:
        rank = Rank(c, machine, seed, 1e-3)
        own = random.Random(100 * seed + c.rank)
        mine = rounds - 8 if c.rank == c.world_size - 1 else rounds
        arrays = [values(c.rank, n, "float32", k) for k in range(mine)]
        for array in arrays:
            rank.reduce(array)
        if c.rank == 0:
            time.sleep(own.random() * 0.3)
            rank.copies.abort()
        else:
            time.sleep(0.4 + own.random() * 0.1)  # they hear of it
            rank.copies.abort()
        rank.stream.synchronize()
        ended(rank)
        rank.copies.close()
        rank.copies.free()  # its own block is kept
        c.barrier()
        return arrays

    sealed = 0
    for arrays in run_ranks(world, here, timeout_s=60):
        for k, array in enumerate(arrays):
            if np.isnan(array).any():
                assert np.isnan(array).all()
                sealed += 1
            else:
                same_bits(array, expected(world, n, "float32", "sum", k))
    assert sealed >= 8
    assert machine.wrong == []
    assert set(machine.maps.values()) == {0}
    assert len(machine.blocks) == world


def test_an_abort_lets_go_what_a_thread_enqueues_for_long_after_it() -> None:
    """Rank 0 is stopped in the middle of enqueuing; meanwhile rank 1's word comes, over the one that lets waits go."""
    machine, late, is_inside = Machine(), threading.Event(), threading.Event()

    def here(c: Communicator) -> None:
        rank = Rank(c, machine, 0, 0.0)
        first, second = values(c.rank, 700, "float32"), values(c.rank, 700, "float32", 1)
        if c.rank == 0:
            rank.reduce(first)
            copy = rank.device.memory.copy

            def stopped(*arguments: Any) -> None:
                is_inside.set()
                late.wait(60)
                copy(*arguments)

            rank.device.memory.copy = stopped  # type: ignore[method-assign, assignment]
            thread = threading.Thread(target=rank.reduce, args=[second])
            thread.start()
            assert is_inside.wait(60)
            rank.copies.abort()
            c.barrier()
            thread.join()
        else:
            c.barrier()
            time.sleep(0.6)
            rank.reduce(first)  # and no second one
            rank.stream.synchronize()
            late.set()
            rank.copies.abort()
        rank.stream.synchronize()
        ended(rank)
        with pytest.raises(TransportError, match="given up"):
            rank.reduce(first)

    run_ranks(2, here, timeout_s=60)
    assert machine.wrong == []


def test_nothing_is_let_go_before_all_are_told_that_it_is_wrong() -> None:
    """CUDA refuses an abort's first words. What is let go all the same would be wrong, and not sealed."""
    machine = Machine()

    def here(c: Communicator) -> Any:
        rank = Rank(c, machine, 0, 0.0)
        signal, left = rank.device.memory.signal, [3]

        def refused(stream: Any, writes: Any, waits: Any) -> None:
            if stream is rank.copies.urgent and left[0]:
                left[0] -= 1
                raise TransportError("CUDA refused cuStreamBatchMemOp")
            signal(stream, writes, waits)

        rank.device.memory.signal = refused  # type: ignore[method-assign]
        array = values(c.rank, 700, "float32")
        c.barrier()
        if c.rank == 0:
            rank.reduce(array)
            rank.copies.abort()
            rank.stream.synchronize()
            ended(rank)
        c.barrier()
        return array

    arrays = run_ranks(2, here, timeout_s=60)
    assert np.isnan(arrays[0]).all()


# -- the start


def opened(world: int, machine: Machine, monkey: Callable[[int], None] = lambda rank: None) -> list[Any]:
    def here(c: Communicator) -> Any:
        monkey(c.rank)
        device = RunningDevice(machine, c.rank)
        stream: Any = device.new_stream()
        made = open_copies(device, stream, c.rank, c.world_size, c.all_gather_object)  # type: ignore[arg-type]
        device.stop()
        return made

    return run_ranks(world, here, timeout_s=30)


@pytest.mark.parametrize("name", ["prepare", "allocate", "export", "map"])
def test_if_one_rank_cannot_none_does_and_nothing_is_kept(name: str) -> None:
    machine = Machine(faults={1: name})
    wanted = Refused(f"rank 1: RuntimeError: this GPU does not {name}", is_fault=True)
    assert opened(3, machine) == [wanted] * 3
    assert machine.wrong == []
    assert machine.blocks == {}


@pytest.mark.parametrize("what", ["bytes", "words", "late"])
def test_gpus_that_map_memory_and_do_not_reach_it_are_found_at_the_start(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Copies to a peer that arrive as something else, its words that never arrive, or arrive before the bytes."""
    machine, devices, timers = Machine(), list[RunningDevice](), list[threading.Timer]()

    def here(c: Communicator) -> Any:
        device = RunningDevice(machine, c.rank)
        devices.append(device)  # its arrays are held until the last timer is over
        stream: Any = device.new_stream()
        move, write, own = device.memory.move, device.memory._write, device.memory.allocate
        starts: list[int] = []

        def allocate(nbytes: int) -> int:
            starts.append(own(nbytes))
            return starts[0]

        def is_own(address: int) -> bool:
            return 0 <= address - starts[0] < copies.block_nbytes(c.world_size)

        def moved(target: int, source: int, nbytes: int) -> None:
            if c.rank == 1 and machine.lends(target, nbytes) and not is_own(target):
                if what == "bytes":
                    nbytes //= 2
                elif what == "late":
                    timers.append(threading.Timer(0.05, move, (target, source, nbytes)))
                    timers[-1].start()
                    return
            move(target, source, nbytes)

        def gather(row: bytes) -> list[bytes]:
            rows = c.all_gather_object(row)
            if what == "words":  # from here on a word is waited for in vain: the tries before it may take their time
                monkeypatch.setattr(copies_opening, "TRIAL_S", 0.5)
            return rows

        def written(address: int, value: int) -> Callable[[], None]:
            is_lost = what == "words" and c.rank == 1 and not is_own(address)
            return (lambda: None) if is_lost else write(address, value)

        device.memory.allocate, device.memory.move = allocate, moved  # type: ignore[method-assign]
        device.memory._write = written  # type: ignore[method-assign]
        made = open_copies(device, stream, c.rank, c.world_size, gather)  # type: ignore[arg-type]
        stream.synchronize()
        return made

    made = run_ranks(3, here, timeout_s=60)
    for device in devices:
        for stream in device.streams:
            stream.synchronize()
        device.stop()
    for timer in timers:
        timer.join()
    assert made == [made[0]] * 3
    assert isinstance(made[0], Refused)
    assert made[0].is_fault
    assert ("does not end" if what == "words" else "is wrong") in made[0].why
    assert machine.wrong == []


def test_ranks_of_two_hosts_leave_it_to_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    places = threading.local()
    monkeypatch.setattr(host, "identity", lambda: places.here)
    machine = Machine()
    made = opened(2, machine, lambda rank: setattr(places, "here", bytes([rank] * 8)))
    assert made == [Refused("the ranks are on several hosts", is_fault=False)] * 2
    assert machine.blocks == {}


def test_what_ranks_say_has_one_size_and_comes_back() -> None:
    offers = [Offer(True), Offer(False, b"12345678", 9, bytes(range(1, 65))), Offer(reason="ö" * 200)]
    mark = b"a group!"
    rows = [offer.pack(mark) for offer in offers]
    assert len({len(row) for row in rows}) == 1
    assert [Offer.unpack(row, mark) for row in rows[:2]] == [
        Offer(True, bytes(8), 0, bytes(64)),
        Offer(False, b"12345678", 9, bytes(range(1, 65))),
    ]
    assert Offer.unpack(rows[2], mark).reason == "ö" * (REASON_NBYTES // 2)
    with pytest.raises(TransportError, match="did not arrive"):
        Offer.unpack(rows[2], b"another!")
