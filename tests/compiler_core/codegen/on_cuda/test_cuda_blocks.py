"""Where the outputs of programs on a CUDA device lie: who shares a block of memory, and how long it lives."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.dtype import float32
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.runtime.cuda import blocks
from compiler_core.runtime.cuda.blocks import lay_out
from compiler_core.runtime.cuda.executable import COMINGS
from compiler_core.runtime.cuda.graphs import Replaying
from distcompile import nn
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import compiled, on_device, on_host, vector

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]


def _metas(*nbytes: int) -> list[TensorMeta]:
    return [TensorMeta((n // 4,), float32) for n in nbytes]


def test_small_outputs_of_a_group_share_a_block_and_others_have_their_own() -> None:
    made = lay_out(_metas(4, 600, blocks.SMALL + 4, 8, 0, 12), [[1, 2, 3], [4, 5]])
    assert made.sizes == (1536, 512, 4, blocks.SMALL + 4)
    assert made.places == ((2, 0), (0, 0), (3, 0), (0, 1024), (1, 0), (1, 0))
    assert lay_out(_metas(4, 8)).sizes == (4, 8)
    assert lay_out([]) == lay_out([], [[]])


def test_a_shared_block_does_not_grow_without_end() -> None:
    many = lay_out(_metas(*[blocks.SMALL] * 20), [range(20)])
    assert many.sizes == (blocks.SHARED, blocks.SHARED, 4 * blocks.SMALL)
    assert many.places[8] == (1, 0)


@pytest.mark.parametrize("replayed", [False, True])
def test_outputs_that_share_memory_are_arrays_as_others_are(fake_cuda: FakeCuda, replayed: bool) -> None:
    program = compiled(lambda x: (prims.neg(x), prims.exp(x), prims.mul(x, x)), vector(6))
    run: Any = Replaying(program) if replayed else program
    run.hold_together([[1, 2]])
    x, place = on_device(np.arange(6, dtype=np.float32)), on_device(np.zeros(6, np.float32))
    run([x])  # the arena is made
    for outs in (None, [None] * 3, [None, place, None], None, None):
        before = cuda.memory_of(0)[0]
        negative, power, square = run([x], outs)
        assert square.flags.c_contiguous
        assert square.flags.owndata
        assert square.data.mem is (power.data.mem if outs is None or outs[1] is None else square.data.mem)
        assert square.data.mem is not negative.data.mem
        np.testing.assert_allclose(on_host(power), np.exp(np.arange(6)), rtol=1e-6)
        assert on_host(square).tolist() == [k * k for k in range(6)]
        assert (power is place) is (outs is not None and outs[1] is place)
        if not replayed:
            del negative, power
            assert cuda.memory_of(0)[0] - before == 1024  # the block that `square` is in, whole
            del square
            assert cuda.memory_of(0)[0] == before


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.down(dc.tanh(self.norm(self.up(x))))


def test_a_result_that_is_kept_keeps_nothing_else(fake_cuda: FakeCuda) -> None:
    """Losses in a list, say: what only the backward reads lies elsewhere, and goes when that has run."""
    dc.manual_seed(0)
    net = _Net().cuda()
    run, x = dc.compile(net), dc.randn(3, 4, device="cuda")
    losses, used = [], []
    for _ in range(4):
        losses.append(run(x))
        losses[-1].sum().backward()
        net.zero_grad()
        used.append(dc.cuda.memory_allocated())
    (mean, variance, count) = (buffer._cell.raw.data.mem for buffer in net.norm.buffers())
    assert mean is variance is count
    assert mean is not losses[-1]._cell.raw.data.mem
    assert [after - before for before, after in pairwise(used[1:])] == [512, 512]


def test_an_array_that_comes_again_is_looked_at_twice_and_another_anew(fake_cuda: FakeCuda) -> None:
    program: Any = compiled(lambda x, y: (prims.sub(x, y),), vector(6), vector(6))
    run = program.run if isinstance(program, Replaying) else program
    kept, values = on_device(np.arange(6, dtype=np.float32)), np.ones(6, np.float32)
    for turn in range(5):
        given = on_device(values * turn)
        (out,) = program([kept, given])
        assert on_host(out).tolist() == [k - turn for k in range(6)]
    assert run._known.strangers([kept, given]) == [1]
    other = on_device(np.full(6, 7, np.float32))
    (out,) = program([other, given])
    assert on_host(out).tolist() == [3.0] * 6
    for wrong, error in ((np.zeros(6, np.float64), DTypeError), (np.zeros(7, np.float32), ShapeError)):
        with pytest.raises(error, match="input 0"):
            program([on_device(wrong), given])
    alive = weakref.ref(kept)
    del kept
    gc.collect()
    assert alive() is None


def test_an_array_with_the_id_of_one_that_ended_is_a_stranger(fake_cuda: FakeCuda) -> None:
    program: Any = compiled(lambda x: (prims.neg(x),), vector(6))
    run = program.run if isinstance(program, Replaying) else program
    ids = set()
    for turn in range(3 * COMINGS):
        given = on_device(np.full(6, turn, np.float32))
        ids.add(id(given))
        for _ in range(3):
            (out,) = program([given])
            assert on_host(out).tolist() == [-turn] * 6
        known = turn < COMINGS
        assert (run._known.strangers([given]) == []) == known
        del given, out
        assert run._known._ids == [0]
    assert len(ids) < 3 * COMINGS, "this Python never gives an id twice: nothing was shown"


class _Pool:
    """A pool that gives numbers, and knows how much it gave. beside: one that has taken what this one lacks, until it
    is freed. limit: what its owner set."""

    def __init__(self) -> None:
        self.given = self.asked = self.limit = 0
        self.beside: _Pool | None = None

    def malloc(self, nbytes: int) -> int:
        if nbytes > 1 << 20 or (self.beside is not None and self.beside.given):
            raise MemoryError
        self.given += -(-nbytes // 512) * 512
        return nbytes

    def used_bytes(self) -> int:
        self.asked += 1
        return self.given

    def total_bytes(self) -> int:
        return self.given

    def get_limit(self) -> int:
        return self.limit

    def free_all_blocks(self) -> None:
        self.given = 0


def test_memory_that_is_given_out_together_counts_as_if_it_were_one_by_one(fake_cuda: FakeCuda) -> None:
    memory = cuda._Memory(cuda.module())
    pool = memory.pool = _Pool()
    assert memory.allocate_all([1, 513, 0]) == [1, 513, 0]
    assert memory.most[cuda.current()] == pool.given == 1536
    assert memory.allocate(5) == 5
    assert (memory.most[cuda.current()], pool.asked) == (2048, 2)
    pool.given = 0
    memory.bound[cuda.current()] = 0
    memory.allocate_all([512, 512])
    assert pool.asked == 2, "there can be no new maximum"
    with pytest.raises(MemoryError):
        memory.allocate_all([512, 1 << 21])


def test_each_of_two_pools_gives_way_to_the_other(fake_cuda: FakeCuda) -> None:
    memory = cuda._Memory(cuda.module())
    pool, apart = memory.pool, memory.apart = _Pool(), _Pool()
    assert memory.allocate_apart(4096) == 4096
    assert (pool.given, apart.given, memory.in_use(), memory.held()) == (0, 4096, 4096, 4096)
    pool.beside = apart
    assert memory.allocate(512) == 512
    assert (pool.given, apart.given) == (512, 0)
    pool.beside, apart.beside = None, pool
    assert memory.allocate_apart(1024) == 1024
    assert (pool.given, apart.given) == (0, 1024)
    with pytest.raises(MemoryError):
        memory.allocate_apart(1 << 21)
    pool.limit = 1 << 20
    memory.allocate_apart(2048)
    assert (pool.given, apart.given) == (2048, 1024), "a limit is one pool's"
