"""compile(DDP(model)) on threads: N ranks equal one rank on the joined batch; one plan; no copies; named errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

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
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import LedgerError, RankDisagreementError, UnusedParameterError
from distcompile.nn import functional

BACKENDS = ["eager", "aot_eager", "codegen"]
AOT = BACKENDS[1:]
TINY_MB = 1e-6  # every parameter a bucket


def compiled(ddp: DistributedDataParallel, backend: str) -> DistributedDataParallel:
    return compile(ddp, backend=backend, fullgraph=True)


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("cap_mb", [None, TINY_MB])
@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_equal_one_rank_on_the_joined_batch(backend: str, cap_mb: float | None, world_size: int) -> None:
    def step(communicator: Communicator) -> dict[str, np.ndarray]:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=cap_mb)
        run = compiled(ddp, backend)
        for seed in (1, 2, 3):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Net(), batch(seed)))
        return gradients(ddp.module)

    results = on_ranks(world_size, step)
    for result in results:
        assert {n: a.tobytes() for n, a in result.items()} == {n: a.tobytes() for n, a in results[0].items()}


@pytest.mark.parametrize("backend", AOT)
def test_the_other_order_overlaps_too(backend: str) -> None:
    """DDP(compile(model)), as some scripts have it: the backward is cut by the plan, as of compile(DDP(model))."""

    def step(communicator: Communicator) -> None:
        inside = Net()
        ddp = DistributedDataParallel(compile(inside, backend=backend, fullgraph=True), bucket_cap_mb=TINY_MB)
        for seed in (1, 2):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            check_close(gradients(inside), joined_gradients(Net(), batch(seed)))
            assert [bucket.names for bucket in ddp.bucket_plan.buckets] == [("w2",), ("b1",), ("w1",)]
            assert [row.segment for row in ddp.overlap_report().rows] == [0, 1, 2]

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
@pytest.mark.parametrize("sizes", [(4, 3), (1, 4), (3, 1)])
def test_ranks_whose_first_batches_differ_in_size(backend: str, sizes: tuple[int, int]) -> None:
    """`* 0.25` and `/ 3`, a batch of one that needs no broadcast: simplified graphs differ, gradients are right."""

    def losses(run: Callable[[Tensor], Tensor], ranks: Sequence[int]) -> list[Tensor]:
        return [(run(wrap(batch(rank, sizes[rank]))) ** 2).mean() for rank in ranks]

    def step(communicator: Communicator) -> None:
        ddp, alone = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB), Net()
        losses(compiled(ddp, backend), [communicator.rank])[0].backward()
        (sum(losses(alone, (0, 1)), start=wrap(np.zeros(()))) * 0.5).backward()
        check_close(gradients(ddp.module), gradients(alone))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_is_another_model(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        loss_of(compiled(ddp, backend)(shard(batch(1), communicator))).backward()
        before = gradients(ddp.module)
        copied = copy.deepcopy(ddp)
        run = compiled(copied, backend)
        for seed in (2, 3):
            copied.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(copied.module), joined_gradients(Net(), batch(seed)))
            loss_of(copied(shard(batch(seed), communicator))).backward()
            check_close(gradients(copied.module), joined_gradients(Net(), batch(seed), batch(seed)))
        check_close(gradients(ddp.module), before)

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_gradients_land_in_the_bucket_without_a_copy(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        run = compiled(ddp, backend)
        memory = set()
        for _ in range(4):
            ddp.zero_grad()
            loss_of(run(shard(batch(), communicator))).backward()
            memory.add(id(ddp.module.w1.grad._cell.value.base))
        assert len(memory) == 1  # the same buffer every step: nobody keeps an old gradient alive
        pools = ddp._books.layout.pools
        assert [len(pool.buffers) for pool in pools] == [1] * len(pools)
        views = [view for pool in pools for view in pool.buffers[0].views]
        assert all(any(p.grad._cell.value is view for view in views) for p in ddp.parameters())

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_sync_accumulates_locally_then_all_is_reduced(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        run = compiled(ddp, backend)
        local: list[np.ndarray] = []
        for _ in range(2):
            ddp.zero_grad()
            with ddp.no_sync():
                for seed in (1, 2):
                    loss_of(run(shard(batch(seed), communicator))).backward()
                    local.append(np.array_split(batch(seed), communicator.world_size)[communicator.rank])
                    check_close(gradients(ddp.module), joined_gradients(Net(), *local))
            loss_of(run(shard(batch(3), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Net(), batch(1), batch(2), batch(3)))
            local.clear()

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_synchronised_backwards_without_zero_grad_add_up(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        run = compiled(ddp, backend)
        for seed in (1, 2):
            loss_of(run(shard(batch(seed), communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(1), batch(2)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:.*called again before backward")
def test_two_forwards_then_one_or_two_backwards(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        run = compiled(ddp, backend)
        for together in (True, False):
            ddp.zero_grad()
            losses = [loss_of(run(shard(batch(seed), communicator))) for seed in (1, 2)]
            if together:
                (losses[0] + losses[1]).backward()
            else:
                losses[0].backward()
                losses[1].backward()
            check_close(gradients(ddp.module), joined_gradients(Net(), batch(1), batch(2)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_zeroed_gradients_are_added_to_and_show_the_bucket_again(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        run = compiled(ddp, backend)
        for _ in range(2):
            ddp.zero_grad(set_to_none=False)
            handle = ddp.module.w1.grad
            loss_of(run(shard(batch(), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Net(), batch()))
            assert handle is None or ddp.module.w1.grad is handle

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_a_gradient_that_somebody_keeps_is_never_overwritten(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        run = compiled(ddp, backend)
        kept = []
        for seed in range(4):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            kept.append(ddp.module.w1.grad.detach())
        for seed, tensor in enumerate(kept):
            np.testing.assert_allclose(tensor._cell.value, joined_gradients(Net(), batch(seed))["w1"], rtol=1e-11)

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_another_batch_size_keeps_the_plan_and_needs_no_talk_between_ranks(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        run = compiled(ddp, backend)
        loss_of(run(shard(batch(), communicator))).backward()
        groups = ddp._books.layout.groups
        sizes = (3, 5)  # a ragged last batch: ranks recompile for different shapes
        arrays = [batch(r, size) for r, size in enumerate(sizes)]
        ddp.zero_grad()
        loss_of(run(wrap(arrays[communicator.rank]))).backward()
        assert ddp._books.layout.groups is groups
        locals_ = [joined_gradients(Net(), array) for array in arrays]
        check_close(gradients(ddp.module), {n: (locals_[0][n] + locals_[1][n]) / 2 for n in locals_[0]})

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_frozen_parameters_get_no_gradient_and_no_bucket(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        model = Net()
        model.w2.requires_grad_(False)
        ddp = DistributedDataParallel(model)
        loss_of(compiled(ddp, backend)(shard(batch(), communicator))).backward()
        expected = joined_gradients(Net(), batch())
        del expected["w2"]
        check_close(gradients(model), expected)
        assert set(ddp.bucket_plan.names) == {"w1", "b1"}

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_an_unused_parameter_is_named_unless_it_is_allowed(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        run = compiled(DistributedDataParallel(Branched()), backend)
        with pytest.raises(UnusedParameterError, match="'extra'"):
            loss_of(run(shard(batch(), communicator))).backward()
        ddp = DistributedDataParallel(Branched(), find_unused_parameters=True)
        loss_of(compiled(ddp, backend)(shard(batch(), communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch()))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_the_first_step_already_has_the_agreed_plan(backend: str) -> None:
    def step(communicator: Communicator) -> str:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        loss_of(compiled(ddp, backend)(shard(batch(), communicator))).backward()
        plan = ddp.bucket_plan
        assert plan.order == "gradient-ready order"
        assert [bucket.names for bucket in plan.buckets] == [
            ("w2",),
            ("b1",),
            ("w1",),
        ]  # w1 is tied: its last use counts
        assert [bucket.segment for bucket in plan.buckets] == [0, 1, 2]
        report = ddp.overlap_report()
        assert [row.bucket for row in report.rows] == [0, 1, 2]
        assert report.steps == 1
        return plan.hash

    assert len(set(on_ranks(2, step))) == 1


@pytest.mark.parametrize("backend", AOT)
def test_ranks_with_different_graphs_are_told_where_they_differ(backend: str) -> None:
    class RankDependent(Net):
        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y.exp() if self.rank == 1 else y.tanh()

    def step(communicator: Communicator) -> None:
        run = compiled(DistributedDataParallel(RankDependent(communicator.rank)), backend)
        loss_of(run(shard(batch(), communicator))).backward()

    with pytest.raises(RankDisagreementError) as caught:
        on_ranks(3, step)
    text = str(caught.value)
    assert "rank(s) [0, 2] have" in text
    assert "test_ddp_compiled.py:" in text
    assert "exp(" in text


@pytest.mark.parametrize("backend", AOT)
def test_stepping_on_gradients_of_no_sync_is_a_ledger_error(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        run = compiled(ddp, backend)
        with ddp.no_sync():
            loss_of(run(shard(batch(), communicator))).backward()
        ddp.module.w1._cell.write(np.full_like(ddp.module.w1._cell.value, communicator.rank))
        with pytest.raises(LedgerError, match="no_sync"):
            loss_of(run(shard(batch(), communicator))).backward()

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_buffers_are_rank_zeros_in_every_forward(backend: str) -> None:
    class Counting(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", wrap(np.zeros(3)))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.shift

    def step(communicator: Communicator) -> list[np.ndarray]:
        ddp = DistributedDataParallel(Counting())
        run = compiled(ddp, backend)
        outputs = []
        for value in (1.0, 2.0):
            ddp.module.shift._cell.write(np.full(3, value + 10 * communicator.rank))
            outputs.append(run(wrap(batch()))._cell.value)
        np.testing.assert_array_equal(ddp.module.shift._cell.value, np.full(3, 2.0))
        return outputs

    expected = Net()(wrap(batch()))._cell.value
    for outputs in on_ranks(2, step):
        np.testing.assert_allclose(outputs[0], expected + 1)
        np.testing.assert_allclose(outputs[1], expected + 2)


class Dropping(Net):
    """Net with dropout on its input; draws are made as elements of the joint batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.dropout(x, 0.4, training=True))


@pytest.mark.usefixtures("counter_draws")
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_dropout_on_ranks_drops_what_one_rank_would(backend: str | None) -> None:
    def step(communicator: Communicator) -> dict[str, np.ndarray]:
        ddp = DistributedDataParallel(Dropping())
        run = compiled(ddp, backend) if backend else ddp
        manual_seed(11)
        for _ in range(2):  # the second step draws further on
            ddp.zero_grad()
            loss_of(run(shard(batch(), communicator))).backward()
        return gradients(ddp.module)

    manual_seed(11)
    model = Dropping()
    for _ in range(2):
        model.zero_grad()
        expected = joined_gradients(model, batch())
    for result in on_ranks(2, step):
        check_close(result, expected)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_ranks_of_one_seed_draw_the_same_numbers_as_in_torch(backend: str | None) -> None:
    class Drawing(Net):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x), functional.dropout(x * 0 + 1, 0.5, training=True)

    def step(communicator: Communicator) -> np.ndarray:
        ddp = DistributedDataParallel(Drawing())
        run = compiled(ddp, backend) if backend else ddp
        manual_seed(11)
        return run(shard(batch(), communicator))[1].detach().numpy()

    one, other = on_ranks(2, step)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_training_function_finds_the_ddp_module_in_it(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)

        @compile(backend=backend, fullgraph=True)
        def loss(x: Tensor) -> Tensor:
            return loss_of(ddp(x))

        with ddp.no_sync():
            loss(shard(batch(1), communicator)).backward()
        loss(shard(batch(2), communicator)).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(1), batch(2)))
        if backend in AOT:
            assert ddp.bucket_plan.order == "gradient-ready order"

    on_ranks(2, step)


@pytest.mark.filterwarnings("ignore:.*runs eager")
def test_after_a_graph_break_the_eager_reducer_takes_over() -> None:
    class Breaking(Net):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if float(y.sum()) < 1e9 else -y

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Breaking())
        loss_of(compile(ddp)(shard(batch(), communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch()))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_hooks_on_parameters_see_and_replace_the_local_gradient(backend: str | None) -> None:
    def step(communicator: Communicator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        run = compiled(ddp, backend) if backend else ddp
        seen: dict[str, np.ndarray] = {}

        def hook(gradient: Tensor) -> Tensor:
            seen["w2"] = np.array(gradient._cell.current())
            return gradient * 10.0

        ddp.module.w2.register_hook(hook)
        loss_of(run(shard(batch(), communicator))).backward()
        return seen, gradients(ddp.module)

    expected = joined_gradients(Net(), batch())
    expected["w2"] = expected["w2"] * 10
    for rank, (seen, found) in enumerate(on_ranks(2, step)):
        check_close(found, expected)
        local = joined_gradients(Net(), np.array_split(batch(), 2)[rank])
        np.testing.assert_allclose(seen["w2"], local["w2"], rtol=1e-11)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_gradients_do_not_depend_on_bucket_sizes_or_segments(backend: str | None) -> None:
    def step(communicator: Communicator, cap_mb: float) -> dict[str, bytes]:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=cap_mb)
        run = compiled(ddp, backend) if backend else ddp
        loss_of(run(shard(batch(size=12), communicator))).backward()
        return {name: array.tobytes() for name, array in gradients(ddp.module).items()}

    one_bucket, per_parameter = (on_ranks(3, partial(step, cap_mb=cap_mb))[0] for cap_mb in (25, TINY_MB))
    assert one_bucket == per_parameter
