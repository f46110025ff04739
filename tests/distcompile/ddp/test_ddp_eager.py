"""Eager DDP on threads: N ranks equal one rank on the joined batch; accumulation, unused parameters, state."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import (
    Branched,
    DistributedDataParallel,
    Net,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    shard,
    weight,
    wrap,
)

from collectives import Communicator
from collectives.errors import CollectiveError
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import (
    LedgerError,
    ModelMismatchError,
    NoGradientsError,
    RankDisagreementError,
    UnusedParameterError,
)
from distcompile.errors import NotSupportedError
from distcompile.nn.layers.embedding import Embedding
from distcompile.nn.module import Module

SMALL_MB = 100 / 2**20  # several buckets


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("cap_mb", [None, SMALL_MB, 1e-6])
def test_ranks_equal_one_rank_on_the_joined_batch(world_size: int, cap_mb: float | None) -> None:
    def step(communicator: Communicator) -> dict[str, np.ndarray]:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=cap_mb)
        loss_of(ddp(shard(batch(), communicator))).backward()
        return gradients(ddp.module)

    expected = joined_gradients(Net(), batch())
    results = on_ranks(world_size, step)
    for result in results:
        check_close(result, expected)
        assert {n: a.tobytes() for n, a in result.items()} == {n: a.tobytes() for n, a in results[0].items()}


def memory_of(views: list[np.ndarray]) -> int:
    """The one owner of all views' memory; each view starts at a cache line."""
    assert all(view.ctypes.data % 64 == 0 for view in views)
    owners = {id(view.base) for view in views}
    assert len(owners) == 1
    return owners.pop()


def test_gradients_are_views_of_buckets_also_after_zero_grad() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        owners = []
        for set_to_none in (True, False, True):
            ddp.zero_grad(set_to_none=set_to_none)
            loss_of(ddp(shard(batch(), communicator))).backward()
            owners.append(memory_of([p.grad._cell.value for p in ddp.parameters()]))
        check_close(gradients(ddp.module), joined_gradients(Net(), batch()))
        assert len(set(owners)) == 1

    on_ranks(2, step)


def test_a_gradient_that_somebody_keeps_is_never_overwritten() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        loss_of(ddp(shard(batch(), communicator))).backward()
        kept = ddp.module.w1.grad._cell.value
        before = kept.copy()
        ddp.zero_grad()
        loss_of(ddp(shard(batch(7), communicator))).backward()
        np.testing.assert_array_equal(kept, before)
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(7)))

    on_ranks(2, step)


def test_no_sync_accumulates_locally_then_all_is_reduced() -> None:
    first, second = batch(1), batch(2)

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=SMALL_MB)
        with ddp.no_sync():
            loss_of(ddp(shard(first, communicator))).backward()
        local = joined_gradients(Net(), np.array_split(first, communicator.world_size)[communicator.rank])
        check_close(gradients(ddp.module), local)
        loss_of(ddp(shard(second, communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), first, second))

    on_ranks(2, step)


def test_two_synchronised_backwards_add_up() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        for seed in (1, 2):
            loss_of(ddp(shard(batch(seed), communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(1), batch(2)))

    on_ranks(2, step)


def test_two_forwards_then_one_backward() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        losses = [loss_of(ddp(shard(batch(seed), communicator))) for seed in (1, 2)]
        (losses[0] + losses[1]).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(1), batch(2)))

    on_ranks(2, step)


def test_stepping_on_gradients_of_no_sync_is_a_ledger_error() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        with ddp.no_sync():
            loss_of(ddp(shard(batch(), communicator))).backward()
        ddp.module.w1._cell.write(np.full_like(ddp.module.w1._cell.value, communicator.rank))
        with pytest.raises(LedgerError, match=r"'w1'(.|\n)*no_sync"):
            loss_of(ddp(shard(batch(), communicator))).backward()

    on_ranks(2, step)


def test_an_unused_parameter_is_named() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Branched())
        with pytest.raises(UnusedParameterError, match="'extra'"):
            loss_of(ddp(shard(batch(), communicator))).backward()

    on_ranks(2, step)


def test_find_unused_parameters_averages_over_ranks_that_used_it() -> None:
    def step(communicator: Communicator) -> np.ndarray | None:
        ddp = DistributedDataParallel(Branched(), find_unused_parameters=True)
        loss_of(ddp(shard(batch(), communicator))).backward()
        assert ddp.module.extra.grad is None  # used nowhere: left alone
        ddp.zero_grad()
        loss_of(ddp(shard(batch(), communicator), use_extra=communicator.rank == 1)).backward()
        return np.array(ddp.module.extra.grad._cell.current())

    results = on_ranks(2, step)
    model = Branched()
    loss_of(model(wrap(batch()[4:]), use_extra=True)).backward()
    for result in results:
        np.testing.assert_allclose(result, model.extra.grad._cell.value / 2)


def test_rank_zeros_parameters_and_buffers_are_sent() -> None:
    class WithBuffer(Net):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            self.register_buffer("calls", wrap(np.full(2, float(seed))))

        def forward(self, x: Tensor) -> Tensor:
            self.calls._cell.write(self.calls._cell.current() + 1)
            return super().forward(x)

    def step(communicator: Communicator) -> list[float]:
        ddp = DistributedDataParallel(WithBuffer(communicator.rank * 10))
        reference = WithBuffer(0)
        for name, p in ddp.module.named_parameters():
            np.testing.assert_array_equal(p._cell.value, dict(reference.named_parameters())[name]._cell.value)
        seen = [ddp.module.calls._cell.value[0]]
        ddp.module.calls._cell.write(np.full(2, 100.0 * communicator.rank))
        ddp(shard(batch(), communicator))
        seen.append(ddp.module.calls._cell.value[0])
        return seen

    assert on_ranks(2, step) == [[0.0, 1.0], [0.0, 1.0]]


def test_buffers_that_are_written_through_numpy_are_rank_zeros_too() -> None:
    class WithBuffers(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shown", wrap(np.zeros(2)))
            self.register_buffer("table", wrap(np.zeros(1000)))

    def step(communicator: Communicator) -> list[list[float]]:
        ddp = DistributedDataParallel(WithBuffers())
        ddp(shard(batch(), communicator))
        memory, seen = ddp.module.shown.numpy(), []
        for number in (3.0, 4.0):
            memory[:] = number + communicator.rank  # which no stamp tells
            ddp(shard(batch(), communicator))
            seen.append(memory.tolist())
        assert ddp._buffer_sync.travelling == {"shown"}
        return seen

    assert on_ranks(2, step) == [[[3.0, 3.0], [4.0, 4.0]]] * 2


def test_state_dict_keys_have_torchs_prefix() -> None:
    keys = on_ranks(1, lambda c: list(DistributedDataParallel(Net()).state_dict()))[0]
    assert keys == ["module.w1", "module.b1", "module.w2"]


def test_different_models_name_the_parameter_and_the_ranks() -> None:
    class Wider(Net):
        def __init__(self) -> None:
            super().__init__()
            self.w2 = weight(0, 5, 4)

    def step(communicator: Communicator) -> None:
        DistributedDataParallel(Wider() if communicator.rank == 2 else Net())

    with pytest.raises(ModelMismatchError) as caught:
        on_ranks(3, step)
    assert "rank(s) [0, 1] have `parameter w2: f64[5, 3]" in str(caught.value)
    assert "rank(s) [2] have `parameter w2: f64[5, 4]" in str(caught.value)


def test_different_settings_are_a_disagreement() -> None:
    with pytest.raises(RankDisagreementError, match="settings of DistributedDataParallel"):
        on_ranks(2, lambda c: DistributedDataParallel(Net(), bucket_cap_mb=1.0 + c.rank))


def test_nothing_to_train_is_an_error() -> None:
    with pytest.raises(NoGradientsError):
        on_ranks(1, lambda c: DistributedDataParallel(Module()))


def test_a_parameter_replaced_after_wrapping_is_a_ledger_error() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        ddp.module.w2 = weight(1, 5, 3)
        with pytest.raises(LedgerError, match="'w2'"):
            ddp(shard(batch(), communicator))

    on_ranks(1, step)


def test_a_rank_that_dies_in_backward_ends_the_others() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        loss = loss_of(ddp(shard(batch(), communicator)))
        if communicator.rank == 1:
            raise KeyError("gone")
        with pytest.raises(CollectiveError, match="rank 1 raised KeyError"):
            loss.backward()

    with pytest.raises(KeyError):
        on_ranks(2, step)


def test_the_overlap_report_covers_every_bucket() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6)
        assert ddp.overlap_report().steps == 0
        for _ in range(3):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(), communicator))).backward()
        report = ddp.overlap_report()
        assert (report.rank, report.steps, len(report.rows)) == (communicator.rank, 3, 3)
        assert sum(row.parameters for row in report.rows) == 3
        for row in report.rows:
            assert row.ready_ms <= row.launch_ms <= row.start_ms <= row.end_ms
        assert "why exposed" in str(report)

    on_ranks(2, step)


@pytest.mark.parametrize("cap_mb", [None, 1e-6])
def test_sparse_gradients_are_refused_by_name(cap_mb: float | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Embedding(6, 3, sparse=True), bucket_cap_mb=cap_mb)
        loss = ddp(tensor([communicator.rank, 2])).sum()
        with pytest.raises(NotSupportedError, match="the gradient of weight is sparse"):
            loss.backward()

    on_ranks(2, step)
