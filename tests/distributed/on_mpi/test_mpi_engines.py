"""On MPI ranks: which engine runs, what becomes of a rank that cannot build it; the native one needs no GIL."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from mpi_engines import open_communicator

from collectives import Communicator
from collectives.errors import SlowEngineWarning
from collectives.native_engine import NativeEngine
from collectives.over_mpi.library import load_mpi
from collectives.over_mpi.thread_engine import ThreadEngine
from collectives.over_mpi.transport import MpiCommunicator
from distcompile.engine_build import build_engine

pytestmark = pytest.mark.mpi(min_size=2)


def no_compiler(sources: Mapping[str, str]) -> Path:
    raise RuntimeError("no C++ compiler here")


def check_it_works(world: Communicator) -> None:
    array = world.allocate(100, np.dtype(np.float32))
    array[:] = 1
    world.all_reduce(array)
    assert (array == world.world_size).all()


def test_one_rank_without_a_compiler_makes_all_use_the_python_thread() -> None:
    rank = load_mpi().COMM_WORLD.Get_rank()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world = MpiCommunicator(timeout_s=60, build=no_compiler if rank == 1 else build_engine)
    said = [str(w.message) for w in caught if w.category is SlowEngineWarning]
    assert len(said) == (rank == 1)
    assert all("rank(s) [1]" in text and "no C++ compiler here" in text for text in said)
    assert isinstance(world.engine, ThreadEngine)
    check_it_works(world)
    world.close()


@pytest.mark.parametrize("engine", ["native", "native messages"])
def test_the_native_engine_finishes_while_python_never_lets_go(engine: str) -> None:
    world = open_communicator(engine)
    assert isinstance(world, MpiCommunicator)
    assert isinstance(world.engine, NativeEngine)
    arrays = [np.ones(256, np.float32) for _ in range(8)]
    before = sys.getswitchinterval()
    world.barrier()
    sys.setswitchinterval(1000.0)  # no other Python thread runs while this one computes
    try:
        works = [world.all_reduce_async(array) for array in arrays]
        deadline_s = time.perf_counter() + 30
        while not works[-1].is_done() and time.perf_counter() < deadline_s:
            pass
        assert works[-1].is_done()
    finally:
        sys.setswitchinterval(before)
    for work in works:
        work.wait()
    assert all((array == world.world_size).all() for array in arrays)
    world.close()
