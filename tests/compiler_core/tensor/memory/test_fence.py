"""Fences: nobody reads a value before it has arrived, whatever way they come; and nothing costs where nothing waits."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import compile
from compiler_core.errors import FenceError
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.fence import Fence, GuardedCell, anything_waits, promise, settle_all
from compiler_core.tensor.tensor import Tensor

NEW = np.array([[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]], np.float32)


class Delivery:
    """A tensor whose value is on its way, and how often it was waited for."""

    def __init__(self, owner: object = None) -> None:
        self.tensor = Tensor._wrap(np.full((2, 3), np.nan, np.float32))
        self.waits = 0
        cell = self.tensor._cell
        self.fence = Fence(self._wait, lambda: False, "the value", owner=owner)
        promise(cell, cell.raw)
        self.fence.guard([cell])

    def _wait(self) -> None:
        self.waits += 1
        np.copyto(self.tensor._cell.raw, NEW)


def test_guarding_changes_the_class_and_back() -> None:
    delivery = Delivery()
    cell = delivery.tensor._cell
    assert type(cell) is GuardedCell
    assert anything_waits()
    assert delivery.tensor.shape == (2, 3)
    assert delivery.tensor.dtype.is_floating_point
    assert delivery.tensor._version == 1
    assert delivery.waits == 0  # what is known without the value waits for nothing
    np.testing.assert_array_equal(delivery.tensor.tolist(), NEW)
    assert type(cell) is Cell
    assert cell.version == 1
    delivery.tensor.numpy()
    assert delivery.waits == 1
    assert delivery.fence.is_settled


READERS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda t: t.numpy(),
    "array": lambda t: np.asarray(t),
    "add": lambda t: (t + 1).numpy() - 1,
    "tolist": lambda t: np.array(t.tolist()),
    "detach": lambda t: t.detach().numpy(),
    "data": lambda t: t.data.numpy(),
    "view": lambda t: t.reshape(6).numpy().reshape(2, 3),
    "row": lambda t: np.stack([t[0].numpy(), t[1].numpy()]),
    "deepcopy": lambda t: copy.deepcopy(t).numpy(),
    "pickle": lambda t: pickle.loads(pickle.dumps(t)).numpy(),
    "repr": lambda t: (repr(t), t.numpy())[1],
    "item": lambda t: np.array([[x.item() for x in row] for row in t]),
    "compiled argument": lambda t: compile(lambda x: x * 2, fullgraph=True)(t).numpy() / 2,
    "compiled closure": lambda t: compile(lambda x: t + x, fullgraph=True)(
        Tensor._wrap(np.float32(0).reshape(1))
    ).numpy(),
    "eager backend": lambda t: compile(lambda x: t + x, backend="eager")(Tensor._wrap(np.zeros(1, np.float32))).numpy(),
    "sum": lambda t: t.numpy() if t.sum().item() == NEW.sum() else None,
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_waits(name: str) -> None:
    delivery = Delivery()
    np.testing.assert_array_equal(READERS[name](delivery.tensor), NEW)
    assert delivery.waits == 1


def test_a_view_made_before_is_derived_again() -> None:
    tensor = Tensor._wrap(np.zeros((2, 3), np.float32))
    row = tensor[1]
    row.tolist()
    fence = Fence(lambda: np.copyto(tensor._cell.raw, NEW), lambda: True, "the value")
    promise(tensor._cell, tensor._cell.raw.copy())
    fence.guard([tensor._cell])
    np.testing.assert_array_equal(row.numpy(), NEW[1])


def test_a_write_waits_first() -> None:
    delivery = Delivery()
    with no_grad():
        delivery.tensor.fill_(3)
    np.testing.assert_array_equal(delivery.tensor.numpy(), np.full((2, 3), 3))
    delivery = Delivery()
    with no_grad():
        delivery.tensor[0] = 1
    np.testing.assert_array_equal(delivery.tensor.numpy(), [[1, 1, 1], [8, 9, 10]])


def test_a_compiled_function_that_ran_before_sees_what_arrived() -> None:
    tensor = Tensor._wrap(np.zeros((2, 3), np.float32))
    run = compile(lambda x: tensor + x, fullgraph=True)
    zero = Tensor._wrap(np.zeros(1, np.float32))
    np.testing.assert_array_equal(run(zero).numpy(), np.zeros((2, 3)))
    fence = Fence(lambda: np.copyto(tensor._cell.raw, NEW), lambda: True, "the value")
    promise(tensor._cell, tensor._cell.raw)
    fence.guard([tensor._cell])
    np.testing.assert_array_equal(run(zero).numpy(), NEW)


def test_computations_follow_the_wait_once() -> None:
    delivery = Delivery()
    other = Tensor._wrap(np.zeros(3, np.float32))
    steps: list[str] = []
    delivery.fence.then(lambda: steps.append("first"), [])
    delivery.fence.then(lambda: np.copyto(other._cell.raw, NEW.sum(0)), [other._cell])
    np.testing.assert_array_equal(other.tolist(), NEW.sum(0))
    delivery.tensor.numpy()
    assert steps == ["first"]
    delivery.fence.then(lambda: steps.append("at once"), [other._cell])
    assert steps == ["first", "at once"]
    assert type(other._cell) is Cell


def test_a_wait_that_fails_fails_for_every_reader() -> None:
    tensor = Tensor._wrap(np.zeros(3, np.float32))
    failures = [KeyError("lost"), KeyError("lost"), None]

    def wait() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    Fence(wait, lambda: False, "the value").guard([tensor._cell])
    for _ in range(2):
        with pytest.raises(KeyError, match="lost"):
            tensor.numpy()
    tensor.numpy()


def test_a_computation_that_fails_half_way_is_never_read() -> None:
    delivery = Delivery()

    def half() -> None:
        raise MemoryError("in the middle")

    delivery.fence.then(half, [])
    with pytest.raises(MemoryError):
        delivery.tensor.numpy()
    for _ in range(2):
        with pytest.raises(FenceError, match="the value was interrupted half way"):
            delivery.tensor.numpy()


def test_a_signal_handler_that_reads_during_the_wait_settles_once() -> None:
    """It interrupts the wait of its own thread: what it settled is not computed again."""
    delivery = Delivery()
    seen: list[float] = []
    observed: list[str] = []
    delivery.fence._observe = lambda kind, began_s, ended_s: observed.append(kind)
    total = Tensor._wrap(np.zeros((2, 3), np.float32))

    def wait() -> None:
        delivery._wait()
        if not seen:  # the handler comes before the wait returns
            seen.append(-1.0)
            seen.append(float(total.numpy()[0, 0]))

    def add() -> None:
        total._cell.raw += delivery.tensor._cell.raw

    delivery.fence._wait = wait
    delivery.fence.then(add, [total._cell])
    np.testing.assert_array_equal(total.numpy(), NEW)
    assert seen == [-1.0, 5.0]
    assert observed == ["wait", "update"]


def test_a_signal_handler_that_reads_during_the_computation_gets_an_error() -> None:
    delivery = Delivery()
    calls: list[str] = []

    def compute() -> None:
        calls.append("computed")
        with pytest.raises(FenceError, match="the value is being computed, and was read from inside of that"):
            delivery.tensor.numpy()

    delivery.fence.then(compute, [])
    np.testing.assert_array_equal(delivery.tensor.numpy(), NEW)
    assert calls == ["computed"]


def test_a_fence_that_is_settled_while_cells_are_guarded_leaves_none_behind() -> None:
    delivery = Delivery()
    others = [Tensor._wrap(np.zeros(3, np.float32)) for _ in range(2)]

    def interrupted() -> Any:
        yield others[0]._cell
        others[0].tolist()  # a signal handler
        yield others[1]._cell

    delivery.fence.then(lambda: None, interrupted())
    assert all(type(tensor._cell) is Cell for tensor in others)


def test_threads_that_read_at_once_wait_for_one_settling() -> None:
    gate, begun = threading.Event(), threading.Event()
    tensor = Tensor._wrap(np.full((2, 3), np.nan, np.float32))
    count = []

    def wait() -> None:
        begun.set()
        assert gate.wait(60)
        count.append(1)
        np.copyto(tensor._cell.raw, NEW)

    Fence(wait, lambda: False, "the value").guard([tensor._cell])
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(tensor.numpy())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    gate.set()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert count == [1]
    for array in found:
        np.testing.assert_array_equal(array, NEW)


def test_settle_all() -> None:
    owner = object()  # other tests' fences may still wait
    deliveries = [Delivery(owner) for _ in range(3)]
    settle_all(owner)
    assert all(d.fence.is_settled and d.waits == 1 for d in deliveries)


def test_a_dropped_tensor_is_waited_for_by_nobody() -> None:
    delivery = Delivery()
    fence = weakref.ref(delivery.fence)
    del delivery
    gc.collect()
    assert fence() is None


def test_a_forked_child_does_not_wait_for_what_cannot_come() -> None:
    delivery = Delivery()
    child = os.fork()
    if child == 0:
        try:
            delivery.tensor.numpy()
        except FenceError as error:
            os._exit(17 if "forked" in str(error) and not anything_waits() else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    np.testing.assert_array_equal(delivery.tensor.numpy(), NEW)
