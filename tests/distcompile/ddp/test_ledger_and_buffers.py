"""The books of reductions, and buffers that are never written while somebody else can see them."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import on_ranks, wrap

from collectives import Communicator, ThreadedWorld
from compiler_core.dtype import float32
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.buffers import BucketBuffer, BufferPool
from distcompile.ddp.errors import LedgerError
from distcompile.ddp.ledger import Ledger, shorten
from distcompile.ddp.plan.bucket_plan import Bucket, Slot

ALONE = ThreadedWorld(1).communicator(0)


def parameter() -> Tensor:
    return Tensor(wrap(np.zeros(3))._cell, requires_grad=True)


def changed(parameter: Tensor, value: float = 1.0) -> Tensor:
    parameter._cell.write(np.full(3, value))
    return parameter


def test_a_parameter_that_changed_while_its_gradient_was_local_may_have_been_stepped() -> None:
    w = {"w": parameter()}
    ledger = Ledger(ALONE, w)
    assert not ledger.may_have_stepped(w)
    ledger.mark_local(["w"], w)
    assert not ledger.may_have_stepped(w)
    changed(w["w"])
    ledger.mark_local(["w"], w)  # a second gradient does not hide it
    assert ledger.may_have_stepped(w)
    ledger.forget({})
    assert not ledger.may_have_stepped(w)


def test_only_parameters_that_differ_between_ranks_are_an_error() -> None:
    def step(communicator: Communicator) -> None:
        ledger = Ledger(communicator, {})
        ledger.compare_parameters({"w": changed(parameter())})
        nearly = {"w": changed(parameter(), 1 + 1e-7 * communicator.rank)}
        ledger.compare_parameters(nearly, allowed=1e-6)
        for parameters, allowed in (
            ({"w": changed(parameter(), communicator.rank)}, 0.9),
            (nearly, 1e-8),
            (nearly, 0.0),
        ):
            with pytest.raises(LedgerError, match="'w'"):
                ledger.compare_parameters(parameters, allowed=allowed)

    on_ranks(2, step)


def test_long_lists_of_names_are_shortened() -> None:
    assert shorten(list("abc"), 2) == "'a', 'b' and 1 more"


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
