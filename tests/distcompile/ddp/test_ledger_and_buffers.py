"""The books of reductions, and buffers that are never written while somebody else can see them."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import wrap

from collectives import ThreadedWorld
from compiler_core.dtype import float32
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.bucket_plan import Bucket, Slot
from distcompile.ddp.buffers import BucketBuffer, BufferPool
from distcompile.ddp.errors import LedgerError, UnusedParameterError
from distcompile.ddp.ledger import Ledger, shorten


def parameter() -> Tensor:
    return Tensor(wrap(np.zeros(3))._cell, requires_grad=True)


def test_a_gradient_reduced_twice_in_one_backward_is_an_error() -> None:
    ledger = Ledger({"w": parameter()})
    ledger.begin()
    ledger.mark_reduced(["w"])
    with pytest.raises(LedgerError, match="'w' was reduced twice"):
        ledger.mark_reduced(["w"])
    ledger.begin()
    ledger.mark_reduced(["w"])  # the next backward may


def test_a_gradient_left_out_is_an_error() -> None:
    ledger = Ledger({"w": parameter(), "b": parameter()})
    ledger.begin()
    ledger.mark_reduced(["w"])
    with pytest.raises(UnusedParameterError, match="no gradient reached 'b'"):
        ledger.end(["w", "b"])


def test_a_parameter_that_changed_while_its_gradient_was_local_is_an_error() -> None:
    w = parameter()
    ledger = Ledger({"w": w})
    w.grad = wrap(np.ones(3))
    ledger.mark_local("w")
    ledger.check_optimizer()
    w._cell.write(np.ones(3))
    with pytest.raises(LedgerError, match="no_sync"):
        ledger.check_optimizer()


def test_a_local_gradient_that_was_thrown_away_is_forgotten() -> None:
    w = parameter()
    ledger = Ledger({"w": w})
    ledger.mark_local("w")
    ledger.check_optimizer()  # .grad is None: nothing is pending
    w._cell.write(np.ones(3))
    ledger.check_optimizer()


def test_long_lists_of_names_are_shortened() -> None:
    assert shorten(list("abc"), 2) == "'a', 'b' and 1 more"


ALONE = ThreadedWorld(1).communicator(0)
BUCKET = Bucket("float32", (Slot("a", (2, 3), 0), Slot("b", (5,), 16)), 32, 0)


def pool() -> tuple[BufferPool, list[Tensor]]:
    parameters = [wrap(np.zeros((2, 3), np.float32)), wrap(np.zeros(5, np.float32))]
    return BufferPool(BUCKET, parameters, ALONE, "bucket 0"), parameters


def test_buffers_are_aligned_and_views_lie_in_them() -> None:
    assert ALONE.allocate(0, float32.numpy).size == 0
    buffer = BucketBuffer(BUCKET, ALONE)
    assert buffer.flat.ctypes.data % 64 == 0
    assert [view.shape for view in buffer.views] == [(2, 3), (5,)]
    buffer.views[1][...] = 7
    assert buffer.flat[16:21].tolist() == [7] * 5
    assert not buffer.flat[:16].any()


def test_the_same_buffer_is_taken_again_while_only_grad_shows_it() -> None:
    buffers, parameters = pool()
    first = buffers.acquire()
    parameters[0].grad = Tensor._wrap(first.views[0])
    assert buffers.acquire() is first
    assert len(buffers.buffers) == 1


@pytest.mark.parametrize("kept", ["view", "flat", "part", "tensor"])
def test_a_buffer_that_somebody_holds_is_not_taken(kept: str) -> None:
    buffers, parameters = pool()
    first = buffers.acquire()
    parameters[0].grad = Tensor._wrap(first.views[0])
    holders = {
        "view": lambda: first.views[1],
        "flat": lambda: first.flat,
        "part": lambda: first.views[0][1:],
        "tensor": lambda: Tensor._wrap(first.views[0]),
    }
    held = holders[kept]()
    second = buffers.acquire()
    assert second is not first
    del held
    assert buffers.acquire() is first  # .grad shows it, and it is free again
