"""All-reduce by copy engines in its place in the engine, on lazy streams (tests/fake_nccl/streams.py)."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 - makes np.dtype("bfloat16") known
import numpy as np
import pytest
from copies_numbers import expected, same_bits, small, values  # noqa: F401 - small is a fixture of all tests

from collectives.errors import CollectiveError, CollectiveTimeoutError, CopyEnginesWarning
from collectives.nccl import copies
from collectives.nccl.communicator import NcclCommunicator
from collectives.nccl.copies_opening import REHEARSALS
from collectives.nccl.moves import Moves
from tests.fake_cupy import install
from tests.fake_nccl import Fabric, nccl_ranks

cp: Any = install()
DTYPES = ("float64", "float32", "float16", "bfloat16")


def on_device(array: np.ndarray[Any, Any]) -> Any:
    return cp.asarray(array)


def copied(c: NcclCommunicator) -> int:
    """How many pieces this rank's copy engines have done, after those of the start."""
    assert c.engine is not None
    assert c.engine.moves is not None
    assert c.engine.moves.copies is not None
    return c.engine.moves.copies.piece - REHEARSALS


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_large_sums_of_floats_are_copied_and_all_else_is_nccls(world: int) -> None:
    def here(c: NcclCommunicator) -> Any:
        made = []
        for dtype in DTYPES:
            for op in ("sum", "avg", "max"):
                array = on_device(values(c.rank, 100, dtype))
                c.all_reduce(array, op)
                made.append(array.get())
        whole, few = on_device(np.arange(100)), on_device(np.ones(3, np.float32))
        c.all_reduce(whole)
        c.all_reduce(few)
        calls = c.engine.library.calls  # type: ignore[union-attr]
        assert calls.count("all_reduce") == (6 if world > 1 else 14)
        if world > 1:
            assert copied(c) == 8
        return made

    for arrays in nccl_ranks(world, here):
        for k, array in enumerate(arrays):
            dtype, op = DTYPES[k // 3], ("sum", "avg", "max")[k % 3]
            same_bits(array, expected(world, 100, dtype, op))


@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("wire", ["bfloat16", "float16"])
def test_a_sum_that_travels_as_a_16_bit_float_is_copied_too(wire: Any, op: Any) -> None:
    def here(c: NcclCommunicator) -> tuple[Any, Any]:
        row = np.linspace(0.1, 3, 300, dtype=np.float32) * (c.rank + 1)
        plain, array = row.copy(), on_device(row)
        c.all_reduce(plain, op, wire=wire)
        c.all_reduce(array, op, wire=wire)
        assert copied(c) == 1
        return plain, array.get()

    for plain, array in nccl_ranks(2, here):
        np.testing.assert_array_equal(plain, array)


def test_they_are_in_order_with_what_computes_and_with_nccl() -> None:
    def here(c: NcclCommunicator) -> Any:
        array, gathered = on_device(np.full(2000, c.rank + 1.0)), on_device(np.zeros(4000))
        works = []
        for _ in range(3):
            works.append(c.all_reduce_async(array))
            works.append(c.all_gather_async(gathered, array))
            works[-1].wait()
            array += c.rank
        c.all_reduce(array)
        return array.get(), gathered.get(), copied(c)

    for array, gathered, number in nccl_ranks(2, here):
        at = [1.0, 2.0]
        for _ in range(3):
            at = [sum(at), sum(at)]
            rows = list(at)
            at = [at[0], at[1] + 1]
        assert set(array.tolist()) == {sum(at)}
        assert gathered.reshape(2, -1)[:, 0].tolist() == rows
        assert number == 16


def test_a_rank_that_looks_at_nothing_keeps_nobody_waiting() -> None:
    def here(c: NcclCommunicator) -> Any:
        array = on_device(np.ones(200))
        work = c.all_reduce_async(array)
        if c.rank == 1:
            return c.host.all_gather_object(None)
        work.synchronize()  # type: ignore[attr-defined]
        c.host.all_gather_object(None)
        return array.get().tolist()

    assert nccl_ranks(2, here)[0] == [2.0] * 200


@pytest.mark.parametrize("name", ["export", "map"])
def test_a_rank_that_cannot_is_told_once_and_nccl_does_all(name: str) -> None:
    fabric = Fabric(3)
    fabric.machine.faults[2] = name

    def here(c: NcclCommunicator) -> Any:
        array = on_device(values(c.rank, 1000, "float32"))
        c.all_reduce(array)
        assert c.engine is not None
        assert c.engine.moves is not None
        assert c.engine.moves.copies is None
        assert "all_reduce" in c.engine.library.calls  # type: ignore[attr-defined]
        return array.get()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for array in nccl_ranks(3, here, fabric=fabric):
            np.testing.assert_allclose(array, expected(3, 1000, "float32"), rtol=1e-6)
    said = [str(w.message) for w in caught if w.category is CopyEnginesWarning]
    assert len(said) == 1
    assert f"rank 2: RuntimeError: this GPU does not {name}" in said[0]


def test_the_environment_leaves_all_to_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCOMPILE_COPY_ENGINES", "0")

    def here(c: NcclCommunicator) -> Any:
        array = on_device(np.ones(100))
        c.all_reduce(array)
        assert c.engine is not None
        assert c.engine.moves is not None
        return array.get().tolist(), c.engine.moves.copies

    with warnings.catch_warnings():
        warnings.simplefilter("error", CopyEnginesWarning)
        assert nccl_ranks(2, here) == [([2.0] * 100, None)] * 2


def test_a_rank_that_never_launches_is_a_named_error_and_what_was_waited_for_is_nan() -> None:
    def here(c: NcclCommunicator) -> Any:
        c.all_reduce(on_device(np.ones(100)))
        gate = c.open_gate((1,), 1)
        gate.wait()
        if c.rank == 0:
            c.timeout_s = 0.3
            array = on_device(np.ones(3000))
            work: Any = c.all_reduce_async(array, gate=gate)
            with pytest.raises(CollectiveTimeoutError, match=r"did not finish within 0.3 s"):
                work.synchronize()
            c.engine.cuda.synchronize(work.ended)  # type: ignore[union-attr]
            assert np.isnan(array.get()).all()
        else:
            until_s = time.perf_counter() + 60
            while c.host.world.failure is None and time.perf_counter() < until_s:  # type: ignore[attr-defined]
                time.sleep(0.01)
        with pytest.raises(CollectiveError) as raised:
            c.all_reduce(on_device(np.ones(100)))
        return str(raised.value)

    texts = nccl_ranks(2, here)
    assert "did not finish" in texts[0]
    assert "rank 0 gave up" in texts[1]


def test_memory_is_let_go_in_order() -> None:
    fabric, together = Fabric(3), threading.Barrier(3)

    def here(c: NcclCommunicator) -> None:
        array = on_device(np.ones(5000))
        c.all_reduce(array)
        assert c.engine is not None
        closes = c.host.close
        c.host.close = lambda: (together.wait(), closes())[1]  # type: ignore[method-assign]
        c.close()

    nccl_ranks(3, here, fabric=fabric)
    last = [name for _, name in fabric.machine.log if name in ("unmap", "free")]
    assert last == ["unmap"] * 6 + ["free"] * 3
    assert (fabric.machine.wrong, fabric.machine.blocks) == ([], {})


def test_who_cannot_meet_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that stops in the middle of the start."""
    meet = Moves.meet

    def late(self: Moves, name: bytes, look: Callable[[], None]) -> None:
        if self.rank == 1:
            raise CollectiveError("this rank's GPU is gone")
        meet(self, name, look)

    monkeypatch.setattr(Moves, "meet", late)

    def here(c: NcclCommunicator) -> str:
        with pytest.raises(CollectiveError) as raised:
            c.all_reduce(on_device(np.ones(100)))
        return str(raised.value)

    texts = nccl_ranks(2, here)
    assert any("this rank's GPU is gone" in text or "did not arrive" in text for text in texts), texts  # who was first
    assert all("gave up" in text or "is gone" in text or "did not arrive" in text for text in texts), texts


def hear(c: NcclCommunicator) -> None:
    """Talk with the other ranks until one gives up; at most a minute."""
    until_s = time.perf_counter() + 60
    while time.perf_counter() < until_s:
        c.host.all_gather_object(None)


def test_ranks_are_told_though_cuda_takes_no_call_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another thread waits in CUDA, with its lock, for a stream that waits for words."""
    monkeypatch.setattr(copies, "TELL_S", 0.2)
    open_again = threading.Event()

    def here(c: NcclCommunicator) -> str:
        c.all_reduce(on_device(np.ones(100)))
        assert c.engine is not None
        assert c.engine.moves is not None
        made = c.engine.moves.copies
        assert made is not None
        signal = made.memory.signal

        def stuck(stream: Any, writes: Any, waits: Any) -> None:
            if stream is made.urgent:
                open_again.wait(120)
            signal(stream, writes, waits)

        made.memory.signal = stuck  # type: ignore[method-assign]
        began_s = time.perf_counter()
        if c.rank == 0:
            c.give_up(CollectiveError("this rank has had enough"))
        with pytest.raises(CollectiveError) as raised:
            hear(c)
        assert time.perf_counter() - began_s < 50
        return str(raised.value)

    try:
        texts = nccl_ranks(2, here)
    finally:
        open_again.set()
    assert all("had enough" in text for text in texts), texts


def test_a_rank_that_cannot_unmap_closes_in_order() -> None:
    """As where a kernel of the program has broken the GPU: the others should not wait for a rank that is at its end."""
    fabric = Fabric(2)

    def here(c: NcclCommunicator) -> None:
        c.all_reduce(on_device(np.ones(5000)))
        c.host.barrier()  # MPI's close waits for all ranks; that of threads does not
        fabric.machine.faults[1] = "unmap"
        c.close()
        assert c.engine.is_freed  # type: ignore[union-attr]

    nccl_ranks(2, here, fabric=fabric)
