"""Ranks with different numbers of batches: finished ones count as zero, nobody hangs, all leave with one state."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, Net, batch, check_close, gradients, loss_of, on_ranks, wrap

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import JoinError
from distcompile.errors import NotSupportedError

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


def test_a_rank_without_any_batch_is_an_error() -> None:
    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        with ddp.join():
            for _ in range(communicator.rank):
                loss_of(ddp(wrap(batch()))).backward()

    with pytest.raises(JoinError, match="rank 0 left join"):
        on_ranks(2, train, timeout_s=10)


def test_join_can_be_switched_off_and_knows_one_divisor() -> None:
    def train(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        with ddp.join(enable=False):
            loss_of(ddp(wrap(batch()))).backward()
        with pytest.raises(NotSupportedError), ddp.join(divide_by_initial_world_size=False):
            pass

    on_ranks(2, train)
