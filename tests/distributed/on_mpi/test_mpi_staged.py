"""On MPI ranks of one host: ordinary arrays of many stages, again and again: no piece is overwritten too early."""

from __future__ import annotations

import numpy as np
import pytest
from mpi_engines import open_communicator

from collectives.native_engine import STAGE_NBYTES
from collectives.reduce import reduce_in_rank_order

pytestmark = pytest.mark.mpi(min_size=2)
FITS = STAGE_NBYTES // 4  # elements of float32


def values(rank: int, turn: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng([rank, turn]).standard_normal(count, np.float32)


@pytest.mark.parametrize("count", [1, FITS - 1, FITS, FITS + 1, 2 * FITS + 5, 3 * FITS, 7 * FITS + 3])
def test_every_kind_by_stages(count: int) -> None:
    world = open_communicator("native", timeout_s=60)
    rank, size = world.rank, world.world_size
    for turn in range(12):
        wholes = [values(r, turn, count * size) for r in range(size)]
        parts = [whole[:count] for whole in wholes]
        total = reduce_in_rank_order(parts, "sum")
        reduced, gathered, scattered = parts[rank].copy(), np.empty(count * size, np.float32), np.empty_like(parts[0])
        exchanged, sent = np.empty_like(gathered), values(0, turn + 100, count)
        received = sent.copy() if rank == 0 else np.empty_like(sent)
        works = [
            world.all_reduce_async(reduced),
            world.all_gather_async(gathered, parts[rank]),
            world.reduce_scatter_async(scattered, wholes[rank]),
            world.all_to_all_async(exchanged, wholes[rank]),
            world.broadcast_async(received, root=0),
        ]
        for work in works:
            work.wait()
        rows = [whole.reshape(size, count) for whole in wholes]
        assert np.array_equal(reduced, total)
        assert np.array_equal(gathered, np.concatenate(parts))
        assert np.array_equal(scattered, reduce_in_rank_order([row[rank] for row in rows], "sum"))
        assert np.array_equal(exchanged, np.concatenate([row[rank] for row in rows]))
        assert np.array_equal(received, sent)
        narrow = parts[rank].copy()
        world.all_reduce_async(narrow, "avg", wire="bfloat16").wait()
        rounded = reduce_in_rank_order([part.astype("bfloat16") for part in parts], "avg").astype(np.float32)
        assert np.array_equal(narrow, rounded)
        mixed = world.allocate(count, np.dtype(np.float32)) if rank == 0 else np.empty(count, np.float32)
        mixed[:] = parts[rank]
        world.all_reduce(mixed)
        assert np.array_equal(mixed, total)
    world.close()
