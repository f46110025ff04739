"""Ranks with different numbers of batches: finished ones count as zero, nobody hangs, all leave with one state."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, Net, batch, check_close, gradients, loss_of, on_ranks, wrap

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import EarlyEndError

BATCHES = (1, 3, 2)  # by rank


def local_gradients(seed: int) -> dict[str, np.ndarray]:
    model = Net()
    loss_of(model(wrap(batch(seed)))).backward()
    return gradients(model)


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "codegen"])
def test_finished_ranks_count_as_zero(backend: str | None) -> None:
    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6)
        run = compile(ddp, backend=backend) if backend else ddp
        with ddp.join():
            for step in range(BATCHES[communicator.rank]):
                ddp.zero_grad()
                loss_of(run(wrap(batch(10 * communicator.rank + step)))).backward()
                active = [rank for rank, n in enumerate(BATCHES) if n > step]
                parts = [local_gradients(10 * rank + step) for rank in active]
                check_close(gradients(ddp.module), {n: sum(p[n] for p in parts) / 3 for n in parts[0]})

    on_ranks(3, train)


@pytest.mark.parametrize("counts", [(2, 3, 3), (2, 2, 2)])
def test_throw_on_early_termination(counts: tuple[int, ...]) -> None:
    """On all ranks, in the step that not all have a batch for; a common end is none."""

    def train(communicator: Communicator) -> int:
        ddp, steps = DistributedDataParallel(Net()), 0
        with ddp.join(throw_on_early_termination=True):
            for _ in range(counts[communicator.rank]):
                loss_of(ddp(wrap(batch()))).backward()
                steps += 1
        return steps

    def caught(communicator: Communicator) -> str:
        with pytest.raises(EarlyEndError, match="at least one rank that exhausted inputs") as found:
            train(communicator)
        return str(found.value)

    if len(set(counts)) == 1:
        assert on_ranks(3, train) == [2, 2, 2]
    else:
        assert all("rank(s) [0] have no more batches" in text for text in on_ranks(3, caught))


def test_all_leave_with_the_state_of_the_rank_that_trained_longest() -> None:
    class Counting(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", wrap(np.zeros(1)))

        def forward(self, x: Tensor) -> Tensor:
            self.calls._cell.write(self.calls._cell.current() + 1)
            return super().forward(x)

    def train(communicator: Communicator) -> tuple[float, float]:
        ddp = DistributedDataParallel(Counting())
        with ddp.join():
            for _ in range(BATCHES[communicator.rank]):
                ddp.zero_grad()
                loss_of(ddp(wrap(batch()))).backward()
                ddp.module.b1._cell.write(ddp.module.b1._cell.current() + 1)  # an optimizer's step
        return float(ddp.module.calls._cell.value[0]), float(ddp.module.b1._cell.value[0])

    start = float(Net().b1._cell.value[0])
    assert on_ranks(3, train) == [(3.0, start + 3)] * 3


@pytest.mark.parametrize(
    ("counts", "seen", "left"),
    [((1, 3, 2), [[0], [0, 200, 101], [0, 200]], 102), ((2, 2, 0), [[0, 100], [0, 100], []], 101)],
)
def test_buffers_come_from_the_highest_rank_that_still_trains(
    counts: tuple[int, ...], seen: list[list[float]], left: float
) -> None:
    """As in torch, before every forward and at the end of the block."""

    class Marked(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mark", wrap(np.zeros(1)))

    def train(communicator: Communicator) -> tuple[list[float], float]:
        ddp, found = DistributedDataParallel(Marked()), []
        cell = ddp.module.mark._cell
        with ddp.join():
            for step in range(counts[communicator.rank]):
                ddp.zero_grad()
                loss = loss_of(ddp(wrap(batch())))
                found.append(float(cell.current()[0]))
                loss.backward()
                cell.write(np.full(1, 100.0 * communicator.rank + step))
        return found, float(ddp.module.mark.numpy()[0])

    assert on_ranks(3, train) == [(found, left) for found in seen]


@pytest.mark.parametrize("backend", [None, "aot_eager", "codegen"])
@pytest.mark.parametrize("counts", [(0, 2), (2, 0), (0, 0)])
def test_a_rank_without_any_batch_knows_the_plan_all_the_same(counts: tuple[int, int], backend: str | None) -> None:
    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6)
        run = compile(ddp, backend=backend) if backend else ddp
        with ddp.join():
            for step in range(counts[communicator.rank]):
                ddp.zero_grad()
                loss_of(run(wrap(batch(step)))).backward()
                check_close(gradients(ddp.module), {n: g / 2 for n, g in local_gradients(step).items()})

    on_ranks(2, train, timeout_s=60)


@pytest.mark.parametrize("backend", [None, "codegen"])
@pytest.mark.parametrize("find_unused_parameters", [False, True])
def test_the_divisor_may_be_the_ranks_that_still_train(backend: str | None, find_unused_parameters: bool) -> None:
    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6, find_unused_parameters=find_unused_parameters)
        run = compile(ddp, backend=backend) if backend else ddp
        with ddp.join(divide_by_initial_world_size=False):
            for step in range(BATCHES[communicator.rank]):
                ddp.zero_grad()
                loss_of(run(wrap(batch(10 * communicator.rank + step)))).backward()
                active = [rank for rank, n in enumerate(BATCHES) if n > step]
                parts = [local_gradients(10 * rank + step) for rank in active]
                check_close(gradients(ddp.module), {n: sum(p[n] for p in parts) / len(parts) for n in parts[0]})
        ddp.zero_grad()
        loss_of(run(wrap(batch(communicator.rank)))).backward()
        parts = [local_gradients(rank) for rank in range(3)]
        check_close(gradients(ddp.module), {n: sum(p[n] for p in parts) / 3 for n in parts[0]})

    on_ranks(3, train)


@pytest.mark.parametrize("backend", [None, "codegen"])
def test_accumulation_under_no_sync_inside_join(backend: str | None) -> None:
    counts = (1, 2)  # synchronised steps by rank, each after a local one

    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6)
        run = compile(ddp, backend=backend) if backend else ddp
        with ddp.join():
            for step in range(counts[communicator.rank]):
                ddp.zero_grad()
                with ddp.no_sync():
                    loss_of(run(wrap(batch(100 + 10 * communicator.rank + step)))).backward()
                loss_of(run(wrap(batch(10 * communicator.rank + step)))).backward()
                active = [rank for rank, n in enumerate(counts) if n > step]
                parts = [local_gradients(seed + 10 * rank + step) for rank in active for seed in (0, 100)]
                check_close(gradients(ddp.module), {n: sum(p[n] for p in parts) / 2 for n in parts[0]})

    on_ranks(2, train)


def test_join_can_be_switched_off() -> None:
    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        with ddp.join(enable=False):
            loss_of(ddp(wrap(batch()))).backward()

    on_ranks(2, train)
