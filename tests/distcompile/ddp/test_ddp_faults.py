"""A rank that fails at any one of a program's collectives: every other rank gets a named error, and nobody hangs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, batch, loss_of, wrap

from collectives import Communicator, Work, run_ranks
from collectives.call import Task
from collectives.errors import CollectiveError
from collectives.threaded import ThreadedCommunicator
from compiler_core.capture import compile
from compiler_core.tensor.tensor import Tensor
from distcompile import nn
from tests.sharing import some

pytestmark = pytest.mark.filterwarnings("ignore::compiler_core.log.DistCompileWarning")
WORLD = 3


class Normed(nn.Module):
    """Buffers, and a break on one rank: gates, buckets, plans exchanged, counts, broadcasts."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(5), nn.Linear(5, 4), nn.Linear(4, 2)
        self.breaks = breaks

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.up(self.norm(x.float())).tanh())
        return y * (1.0 if y.sum().item() < 1e9 else 0.0) if self.breaks else y


class Fault(Exception):
    """What the failing rank raises."""


class Failing(ThreadedCommunicator):
    """Raises at its collective number `at`; counts them."""

    def __init__(self, inner: ThreadedCommunicator, at: int) -> None:
        super().__init__(inner.world, inner.rank)
        self.at, self.count = at, 0

    def _step(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Fault(f"collective {self.at}")

    def launch(self, task: Task) -> Work:
        self._step()
        return super().launch(task)

    def _exchange(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        self._step()
        return super()._exchange(*args, **kwargs)


def train(communicator: Communicator) -> None:
    ddp = DistributedDataParallel(
        Normed(communicator.rank == 1), bucket_cap_mb=1e-6, find_unused_parameters=True, process_group=communicator
    )
    run = compile(ddp, backend="aot_eager")
    with ddp.join():
        for step in range(2 + (communicator.rank == 0)):
            ddp.zero_grad()
            loss_of(run(wrap(batch(step)))).backward()


def run(rank: int, at: int) -> tuple[list[str], int]:
    """What each rank ended with, and how many collectives rank `rank` began."""
    ended, counts = ["nothing"] * WORLD, [0]

    def one(communicator: Communicator) -> None:
        assert isinstance(communicator, ThreadedCommunicator)
        mine = Failing(communicator, at if communicator.rank == rank else 0)
        try:
            train(mine)
        except CollectiveError:
            ended[communicator.rank] = "named"
            raise
        except Fault:
            ended[communicator.rank] = "fault"
            raise
        finally:
            if communicator.rank == rank:
                counts[0] = mine.count

    with contextlib.suppress(Fault):
        run_ranks(WORLD, one, timeout_s=60)
    return ended, counts[0]


@pytest.mark.parametrize("rank", some(range(WORLD), 1))
def test_a_fault_at_any_collective_is_named_on_the_other_ranks(rank: int) -> None:
    ended, count = run(rank, 0)
    assert ended == ["nothing"] * WORLD
    assert count > 20
    for at in np.unique(np.linspace(1, count, 24).astype(int)):
        ended, _ = run(rank, int(at))
        assert ended[rank] == "fault", f"collective {at} of {count}: {ended}"
        others = [how for other, how in enumerate(ended) if other != rank]
        assert others == ["named"] * (WORLD - 1), f"collective {at} of {count}: {ended}"
