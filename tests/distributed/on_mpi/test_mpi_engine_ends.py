"""On MPI ranks: the native engine's ends: giving up, what MPI may still write after a failure, waits that overlap."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from mpi_engines import everyone_is_here, open_communicator

from collectives.errors import CollectiveError, RankFailedError
from collectives.native_engine import NativeEngine
from collectives.native_work import NativeWork
from collectives.over_mpi.transport import MpiCommunicator

pytestmark = pytest.mark.mpi(min_size=2)
NATIVE = pytest.mark.parametrize("engine", ["native", "native messages"])


def open_native(engine: str, timeout_s: float) -> tuple[MpiCommunicator, NativeEngine]:
    world = open_communicator(engine, timeout_s=timeout_s)
    assert isinstance(world, MpiCommunicator)
    assert isinstance(world.engine, NativeEngine)
    world.barrier()
    return world, world.engine


@NATIVE
def test_a_rank_that_gives_up_waits_for_nobody(engine: str) -> None:
    world, native = open_native(engine, timeout_s=30)
    if world.rank == 0:
        work = world.all_reduce_async(np.ones(10))
        while "waiting for rank" not in work.phase:
            time.sleep(0.001)
        time.sleep(0.05)  # the engine's thread sleeps by now
        native.give_up(RankFailedError("told so by somebody"))
        with pytest.raises(RankFailedError, match="told so"):
            work.wait(60.0)
    everyone_is_here()  # none but rank 0 before this
    world.close()


def test_arrays_of_failed_messages_live_on() -> None:
    world, native = open_native("native messages", timeout_s=30)
    array = np.ones(16 << 20, np.float32)
    alive = weakref.ref(array)
    work = world.all_reduce_async(array)
    while work.phase != "moving data" and not work.is_done():
        pass
    native.give_up(RankFailedError("told so by somebody"))
    with pytest.raises(CollectiveError):
        work.wait()
    del work, array
    world.close()
    del world, native
    gc.collect()
    assert alive() is not None


@NATIVE
def test_a_wait_that_gives_up_leaves_the_other_awake(engine: str) -> None:
    world, native = open_native(engine, timeout_s=30)
    work = world.all_reduce_async(np.ones(10), held=True)
    assert isinstance(work, NativeWork)
    took_s: list[float] = []

    def wait() -> None:
        began_s = time.perf_counter()
        assert native.wait(work.pointer, 100.0)
        took_s.append(time.perf_counter() - began_s)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    assert not native.wait(work.pointer, 0.1)
    work.release()
    thread.join()
    assert took_s[0] < 50
    world.close()
