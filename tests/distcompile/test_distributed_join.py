"""torch.distributed.algorithms.join: joinables of the user's, and DDP, with uneven batches; one rank a thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import pytest

import distcompile as dc
import distcompile.distributed as dist
from collectives import Communicator, run_ranks
from distcompile import nn
from distcompile.ddp.errors import EarlyEndError
from distcompile.distributed.algorithms.join import Join, Joinable, JoinHook
from distcompile.distributed.optim import ZeroRedundancyOptimizer
from distcompile.errors import ArgumentError
from distcompile.nn.parallel import DistributedDataParallel

T = TypeVar("T")


def on_ranks(world_size: int, function: Callable[[int], T]) -> list[T]:
    def run(communicator: Communicator) -> T:
        with dist.use_communicator(communicator):
            return function(communicator.rank)

    return run_ranks(world_size, run, timeout_s=60)


class CounterHook(JoinHook):
    """Shadows a Counter's sum; at the end all learn the total."""

    def __init__(self, counter: Counter, sync_max_count: bool) -> None:
        self.counter, self.sync_max_count = counter, sync_max_count

    def main_hook(self) -> None:
        dist.all_reduce(dc.zeros(1))

    def post_hook(self, is_last_joiner: bool) -> None:
        self.counter.was_last = is_last_joiner
        if self.sync_max_count:
            largest = self.counter.count.clone()
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            self.counter.max_count = int(largest.item())


class Counter(Joinable):
    """Counts everybody's inputs, a sum over the ranks at each."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.max_count, self.was_last = dc.zeros(1), 0, False

    def __call__(self) -> None:
        Join.notify_join_context(self)
        one = dc.ones(1)
        dist.all_reduce(one)
        self.count += one

    def join_hook(self, **kwargs: Any) -> CounterHook:
        return CounterHook(self, kwargs.get("sync_max_count", False))

    @property
    def join_device(self) -> str:
        return "cpu"

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


def test_a_rank_that_has_run_out_shadows_the_others() -> None:
    def count(rank: int) -> tuple[int, int, bool]:
        counter = Counter()
        with Join([counter], sync_max_count=True):
            for _ in range(5 + 2 * rank):
                counter()
        counter_after = counter._join_config.enable
        assert not counter_after
        return int(counter.count.item()), counter.max_count, counter.was_last

    # inputs 5, 7, 9: sums of 3, then 2, then 1
    assert on_ranks(3, count) == [(15, 21, False), (19, 21, False), (21, 21, True)]


def test_only_the_first_joinable_is_asked_for_ones() -> None:
    def count(rank: int) -> list[int]:
        counters = [Counter(), Counter()]
        with Join(counters):
            for _ in range(1 + rank):
                for counter in counters:
                    counter()
        return [int(counter.count.item()) for counter in counters]

    assert on_ranks(2, count) == [[2, 2], [3, 3]]


def test_the_first_end_may_be_an_error_on_all() -> None:
    def count(rank: int) -> str:
        counter = Counter()

        def inputs() -> None:
            with Join([counter], throw_on_early_termination=True):
                for _ in range(1 + rank):
                    counter()

        with pytest.raises(EarlyEndError) as caught:
            inputs()
        assert isinstance(caught.value, RuntimeError)
        return str(caught.value)

    first, second = on_ranks(2, count)
    assert first == "Rank 0 exhausted all inputs."
    assert second == "Detected at least one rank that exhausted inputs. Throwing across all ranks."


def test_a_block_that_is_switched_off_or_left_by_an_error_asks_nobody() -> None:
    def run(rank: int) -> None:
        counter = Counter()
        with Join([counter], enable=False):
            counter()
        with pytest.raises(KeyError), Join([counter]):
            raise KeyError(rank)

    on_ranks(2, run)


def trained(rank: int, block: Callable[[DistributedDataParallel], Any], compiled: bool) -> list[np.ndarray[Any, Any]]:
    dc.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
    call: Any = dc.compile(model, backend="aot_eager") if compiled else model
    optimizer = dc.optim.SGD(model.parameters(), lr=0.1)
    rng = np.random.default_rng(rank)
    with block(model):
        for _ in range(2 + 2 * rank):
            optimizer.zero_grad()
            call(dc.from_numpy(rng.standard_normal((3, 4)).astype(np.float32))).square().mean().backward()
            optimizer.step()
    return [value.detach().numpy().copy() for value in model.state_dict().values()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("divides", [True, False])
def test_ddp_in_a_block_is_ddps_own_join(divides: bool, compiled: bool) -> None:
    options = {"divide_by_initial_world_size": divides}
    own = on_ranks(2, lambda rank: trained(rank, lambda model: model.join(**options), compiled))
    generic = on_ranks(2, lambda rank: trained(rank, lambda model: Join([model], **options), compiled))
    for mine, theirs in zip(generic, own, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_ddp_beside_a_joinable_of_the_users() -> None:
    def run(rank: int) -> tuple[int, float]:
        counter, model = Counter(), DistributedDataParallel(nn.Linear(1, 1, bias=False), init_sync=True)
        with dc.no_grad():
            model.module.weight.fill_(1.0)
        with Join([model, counter]):
            for _ in range(1 + rank):
                model.zero_grad()
                model(dc.ones(1, 1)).sum().backward()
                with dc.no_grad():
                    model.module.weight -= model.module.weight.grad
                counter()
        return int(counter.count.item()), float(model.module.weight.item())

    # gradients of 1, averaged over 2 ranks: 1, then, of rank 1 alone, 1/2; all end with rank 1's weight
    assert on_ranks(2, run) == [(2, -0.5), (3, -0.5)]


def test_evenly_it_changes_nothing() -> None:
    def run(rank: int) -> list[np.ndarray[Any, Any]]:
        return trained(0, lambda model: Join([model]), compiled=False)

    plain = on_ranks(2, lambda rank: trained(0, lambda model: nullcontext(), compiled=False))
    for a, b in zip(on_ranks(2, run)[1], plain[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_join_is_named() -> None:
    def run(rank: int) -> None:
        model = DistributedDataParallel(nn.Linear(2, 2))
        zero = ZeroRedundancyOptimizer(model.parameters(), dc.optim.SGD, lr=0.1)
        with pytest.raises(ArgumentError, match="ZeroRedundancyOptimizer does not join"):
            Join([model, zero])
        with pytest.raises(ArgumentError, match="at least one joinable"):
            Join([])
        apart = dist.new_group([0, 1])
        with pytest.raises(ArgumentError, match="multiple process groups"):
            Join([model, DistributedDataParallel(nn.Linear(2, 2), process_group=apart)])

    on_ranks(2, run)
