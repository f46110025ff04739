"""Counter-based generators: states, threads, shards, and the counter that makes N draws of a graph N draws of eager."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from collectives.threaded import RankThread
from compiler_core.errors import GraphBreak
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.making import random as state
from compiler_core.tensor.making import random_creation as rc
from compiler_core.tensor.making.random import Generator, default_generator, manual_seed
from compiler_core.tensor.making.random_state import current_shard, set_shard
from tests.compiler_core.tensor.test_traced_tensors import LiftingTrace

pytestmark = pytest.mark.usefixtures("counter_draws")


def test_keys_are_seed_offset_shard() -> None:
    g = Generator().manual_seed(11)
    assert [g.next_key()[0].tolist() for _ in range(2)] == [[11, 0, 0], [11, 1, 0]]
    with set_shard(3):
        key, stream = g.next_key()
    assert (key.tolist(), stream) == ([11, 2, 3], 0)
    assert current_shard() == 0


def test_streams_of_one_key_are_the_draws_that_eager_makes() -> None:
    g = Generator().manual_seed(12)
    eager = [rc.rand(5, generator=g).numpy() for _ in range(3)]
    key = g.manual_seed(12).take_keys(3)
    assert g.offset == 3
    for stream, expected in enumerate(eager):
        np.testing.assert_array_equal(F.rand(key, (5,), stream=stream), expected)


def test_shards_are_parts_of_one_draw() -> None:
    """Rank r of two draws the r-th half of what one rank draws for the joined batch."""
    g = Generator()

    def draw(shard: int, n: int) -> list[int]:
        with set_shard(shard):
            key, stream = g.manual_seed(1).next_key()
        return prims.philox(key, (n,), stream).tolist()  # type: ignore[no-any-return]

    assert draw(0, 4) + draw(1, 4) == draw(0, 8)


def test_states_are_saved_and_restored() -> None:
    manual_seed(20)
    rc.rand(2)
    saved = state.get_rng_state()
    first = rc.randn(3).tolist()
    state.set_rng_state(saved)
    assert rc.randn(3).tolist() == first
    with state.fork_rng():
        manual_seed(99)
        rc.rand(1)
    assert (default_generator.initial_seed(), default_generator.offset) == (20, 2)
    assert state.seed() == state.initial_seed()
    other = Generator().set_state(saved)
    assert (other.initial_seed(), other.offset) == (20, 1)


def test_every_rank_s_thread_has_its_own_stream_of_the_default_generator() -> None:
    """Ranks as threads must draw what they would draw as processes, however they interleave."""
    manual_seed(30)
    alone = [rc.rand(4).tolist() for _ in range(10)]
    results: dict[int, list[list[float]]] = {}
    barrier = threading.Barrier(3)

    def rank(number: int) -> None:
        if number == 2:
            manual_seed(31)
        barrier.wait(60)
        results[number] = [rc.rand(4).tolist() for _ in range(10)]

    manual_seed(30)
    rc.rand(1)  # the main thread's offset is its own
    threads = [RankThread(target=rank, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results[0] == alone
    assert results[2] != alone
    assert default_generator.initial_seed() == 30
    assert default_generator.offset == 1


def test_the_grad_mode_the_shard_and_the_trace_are_the_thread_s() -> None:
    from compiler_core.ops.registry import current_trace
    from compiler_core.tensor.autograd.grad_mode import is_grad_enabled, no_grad

    seen: list[tuple[bool, int, object]] = []
    with no_grad(), set_shard(5), use_trace(LiftingTrace()):
        t = threading.Thread(target=lambda: seen.append((is_grad_enabled(), current_shard(), current_trace())))
        t.start()
        t.join(60)
    assert seen == [(True, 0, None)]


def test_under_a_trace_draws_come_from_the_trace() -> None:
    before = default_generator.offset
    with use_trace(LiftingTrace()):
        assert [default_generator.next_key()[1] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(GraphBreak, match="generator of one's own"):
            Generator().next_key()
    assert default_generator.offset == before
