"""Where the outputs of programs on a CUDA device lie: who shares a block of memory, and how long it lives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.config import config
from compiler_core.dtype import float32
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.runtime.cuda import blocks
from compiler_core.runtime.cuda.blocks import lay_out
from compiler_core.runtime.cuda.graphs import Replaying
from distcompile import nn
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import compiled, on_device, on_host, vector

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    """What the fake compiles must not be found by others."""
    with config.patch(use_cache=False):
        yield


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
