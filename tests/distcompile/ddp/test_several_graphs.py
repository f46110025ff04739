"""Several graphs in one step, with Python between them: gradients are the joined batch's, by one plan over all of them.

The graphs are parts of the module that are compiled apart, inside a forward that runs as it is.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from ddp_models import (
    DistributedDataParallel,
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
from compiler_core.capture import compile
from compiler_core.steps import compile_times
from compiler_core.tensor.tensor import Tensor
from distcompile import optim
from distcompile.ddp.errors import UnusedParameterError
from distcompile.ddp.passes import BackwardPass
from distcompile.nn.module import Module
from distcompile.utils.checkpoint import checkpoint

BACKENDS = ["eager", "aot_eager", "codegen"]
AOT = BACKENDS[1:]
TINY_MB = 1e-6  # every parameter a bucket


class Pieces(Module):
    """Three functions, each a graph of its own if there is a backend; `between` is applied as it is; `tied` is in two.

    turn: which of two parameters the second function uses. The registration order is not the backward's, reversed.
    """

    def __init__(self, backend: str | None = None) -> None:
        super().__init__()
        self.w2, self.tied, self.between = weight(1, 5, 3), weight(2, 5, 5), weight(3, 5)
        self.left, self.w1, self.right = weight(4, 5), weight(5, 5, 5), weight(6, 5)
        self.turn: Callable[[], int] = lambda: 0
        parts = [self.first, self.second, self.third]
        made = [part if backend is None else compile(part, backend=backend, fullgraph=True) for part in parts]
        object.__setattr__(self, "parts", made)

    def first(self, x: Tensor) -> Tensor:
        return ((x @ self.w1).tanh() @ self.tied).tanh()

    def second(self, x: Tensor, turn: int) -> Tensor:
        return (x * (self.right if turn else self.left)).tanh()

    def third(self, x: Tensor) -> Tensor:
        return (x @ self.tied).tanh() @ self.w2

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.parts
        x = first(x) + self.between
        return third(second(x, self.turn()))


class Turning(Pieces):
    """Uses `left` and `right` in turns, by rank and step; other ranks may use the other one."""

    def __init__(self, backend: str | None = None, start: int = 0) -> None:
        super().__init__(backend)
        calls = iter(range(start, start + 100))
        object.__setattr__(self, "turn", lambda: next(calls) % 2)


def both(backend: str | None = None) -> Pieces:
    """Pieces without a parameter that it does not use."""
    model = Pieces(backend)
    model.right.requires_grad_(False)
    return model


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("cap_mb", [None, TINY_MB])
@pytest.mark.parametrize("backend", BACKENDS)
def test_three_graphs_and_a_piece_between_them(backend: str, cap_mb: float | None, world_size: int) -> None:
    def step(communicator: Communicator) -> dict[str, bytes]:
        ddp = DistributedDataParallel(both(backend), bucket_cap_mb=cap_mb)
        for seed in (1, 2, 3):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed, 12), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(both(), batch(seed, 12)))
        return {name: array.tobytes() for name, array in gradients(ddp.module).items()}

    results = on_ranks(world_size, step)
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unused_means_unused_in_all_of_them(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        with pytest.raises(UnusedParameterError, match="'right'"):
            loss_of(DistributedDataParallel(Pieces(backend))(shard(batch(), communicator))).backward()
        ddp = DistributedDataParallel(Pieces(backend), find_unused_parameters=True, bucket_cap_mb=TINY_MB)
        for seed in (1, 2):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            assert ddp.module.right.grad is None
            check_close(gradients(ddp.module), joined_gradients(both(), batch(seed)))

    on_ranks(2, step)


class Boxed(Module):
    """Returns an object of the program's own around the result."""

    def __init__(self, inner: Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(found=[SimpleNamespace(loss=self.inner(x))])


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_wrapping_dropped_before_its_backward_is_averaged_and_then_forgotten(
    backend: str | None, boxed: bool
) -> None:
    def step(communicator: Communicator) -> None:
        model = both(backend)
        ddp = DistributedDataParallel(Boxed(model) if boxed else model, bucket_cap_mb=TINY_MB)
        gone, output = weakref.ref(ddp._books), ddp(shard(batch(), communicator))
        loss = loss_of(output.found[0].loss if boxed else output)
        del ddp, output
        gc.collect()
        loss.backward()
        check_close(gradients(model), joined_gradients(both(), batch()))
        del loss
        until = time.monotonic() + 60
        while gone() is not None and time.monotonic() < until:
            gc.collect()  # at once done, to no effect, while the other rank's thread collects
        assert gone() is None

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("apart", [0, 1])
def test_a_branch_by_step_and_by_rank(backend: str, apart: int) -> None:
    """apart: 1 if ranks take the other branch than each other in every step."""

    def step(communicator: Communicator) -> None:
        model, alone = Turning(backend, apart * communicator.rank), [Turning(None, apart * r) for r in range(2)]
        ddp = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=TINY_MB)
        for seed in range(4):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            for rank, other in enumerate(alone):
                other.zero_grad()
                loss_of(other(wrap(np.split(batch(seed), 2)[rank]))).backward()
            parts = [gradients(other) for other in alone]
            names = {*parts[0], *parts[1]}
            expected = {n: sum(part[n] for part in parts if n in part) * 0.5 for n in names}
            check_close(gradients(ddp.module), expected)

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_a_graph_that_one_rank_compiles_again_later(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(both(backend), bucket_cap_mb=TINY_MB)
        for seed in range(4):
            sizes = (4, 6 if seed == 2 else 4)
            arrays = [batch(10 * seed + rank, size) for rank, size in enumerate(sizes)]
            ddp.zero_grad()
            loss_of(ddp(wrap(arrays[communicator.rank]))).backward()
            parts = [joined_gradients(both(), array) for array in arrays]
            check_close(gradients(ddp.module), {n: (parts[0][n] + parts[1][n]) / 2 for n in parts[0]})

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_accumulation_under_no_sync(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(both(backend), bucket_cap_mb=TINY_MB)
        for _ in range(2):
            ddp.zero_grad()
            local: list[np.ndarray] = []
            with ddp.no_sync():
                for seed in (1, 2):
                    loss_of(ddp(shard(batch(seed), communicator))).backward()
                    local.append(np.split(batch(seed), 2)[communicator.rank])
                    check_close(gradients(ddp.module), joined_gradients(both(), *local))
            loss_of(ddp(shard(batch(3), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(both(), batch(1), batch(2), batch(3)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_one_rank_has_other_graphs_than_another(backend: str) -> None:
    """One rank compiles the module whole, one in pieces, one not at all."""

    def step(communicator: Communicator) -> int:
        ddp = DistributedDataParallel(both((None, backend, None)[communicator.rank]), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend, fullgraph=True) if communicator.rank == 2 else ddp
        for seed in range(3):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed, 12), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(both(), batch(seed, 12)))
        return ddp._books.layout.word

    assert len(set(on_ranks(3, step))) == 1


# -- one plan, straight into the buckets


@pytest.mark.parametrize("backend", AOT)
def test_the_first_backward_makes_one_plan_of_all_graphs(backend: str) -> None:
    """By the order of the whole step: what two graphs use is complete in the one whose backward runs last."""

    def step(communicator: Communicator) -> str:
        ddp = DistributedDataParallel(both(backend), bucket_cap_mb=TINY_MB)
        hashes = set()
        for seed in (1, 2):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            names = [bucket.names for bucket in ddp.bucket_plan.buckets]
            assert names == [("w2",), ("left",), ("between",), ("tied",), ("w1",)]
            hashes.add(ddp.bucket_plan.hash)
        rows = ddp.overlap_report().rows
        assert [row.graph for row in rows] == ["third", "second", "", "first", "first"]
        first, second, _, tied, w1 = (row.segment for row in rows)
        assert first == 0 < second < tied < w1
        assert "third: 0" in str(ddp.overlap_report())
        assert "third: 0" in str(ddp.overlap_report(all_ranks=True))
        assert len(hashes) == 1
        return hashes.pop()

    assert len(set(on_ranks(2, step))) == 1


@pytest.mark.parametrize("backend", AOT)
@pytest.mark.usefixtures("no_compile_times")
def test_a_backward_is_compiled_once_and_by_the_plan_of_all(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(both(backend), bucket_cap_mb=TINY_MB)
        for seed in (1, 2):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()

    on_ranks(2, step)
    made = Counter(time.step for time in compile_times())
    assert made["capture"] == 2 * 3
    assert made["backend"] == 2 * 2 * 3


@pytest.mark.parametrize("backend", AOT)
def test_only_the_piece_between_goes_over_the_tape(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delivered: list[str] = []
    deliver = BackwardPass.deliver

    def watched(self: BackwardPass, name: str, parameter: Tensor, *, show: bool) -> None:
        delivered.append(name)
        deliver(self, name, parameter, show=show)

    monkeypatch.setattr(BackwardPass, "deliver", watched)

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(both(backend))
        for _ in range(3):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(), communicator))).backward()
            pools = ddp._books.layout.pools
            assert [len(pool.buffers) for pool in pools] == [1] * len(pools)
            assert sum(pool.buffers[0]._shown(pool.parameters) for pool in pools) == 5

    on_ranks(2, step)
    assert delivered == ["between"] * 6


@pytest.mark.parametrize("backend", AOT)
def test_buckets_of_one_graph_leave_before_the_next_graphs_backward(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(both(backend), bucket_cap_mb=TINY_MB)
        loss_of(ddp(shard(batch(), communicator))).backward()
        (record,) = (record for _, record in ddp._books.recorder._flights)
        began_s = {span.number: span.began_s for span in ddp._books.recorder.spans() if span.kind == "segment"}
        rows = ddp.overlap_report().rows
        first_of = {row.graph: row.segment for row in reversed(rows)}
        for row, works in zip(rows, record.works):
            if row.graph in ("third", "second"):
                assert works.launched_s < began_s[first_of["first"]]

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_a_branch_not_taken_holds_no_bucket_up(backend: str) -> None:
    """By the plan of the first step `left` leaves early and `right` last; later steps use the one or the other."""

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Turning(backend), find_unused_parameters=True, bucket_cap_mb=TINY_MB)
        for seed in range(4):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            left, right = ddp.module.left.grad, ddp.module.right.grad
            assert (left is None, right is None) == (seed % 2 == 1, seed % 2 == 0)
        _, record = ddp._books.recorder._flights[-1]
        launched = dict(zip(record.order, record.works, strict=True))
        last = {name: b for b, bucket in enumerate(record.plan.buckets) for name in bucket.names}
        assert launched[last["w2"]].launched_s < record.ready_s[last["between"]]
        assert launched[last["between"]].launched_s < record.ready_s[last["w1"]]

    on_ranks(2, step)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_parameter_that_a_backward_inside_the_backward_reaches_is_no_unused_one(backend: str | None) -> None:
    class Checkpointed(Pieces):
        def forward(self, x: Tensor) -> Tensor:
            first, second, third = self.parts
            inner = checkpoint(lambda h: second(h, 0), first(x) + self.between, use_reentrant=True)
            return third(inner)

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Checkpointed(backend), find_unused_parameters=True, bucket_cap_mb=TINY_MB)
        for seed in (1, 2):
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(both(), batch(seed)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_freezing_what_only_the_piece_between_uses_plans_anew(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        model = both(backend)
        ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB)
        for seed in range(4):
            model.between.requires_grad_(seed in (0, 3))
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            expected = joined_gradients(both(), batch(seed))
            check_close(gradients(model), {n: g for n, g in expected.items() if n != "between" or seed in (0, 3)})
            names = [name for bucket in ddp.bucket_plan.buckets for name in bucket.names if name != "between"]
            assert names == ["w2", "left", "tied", "w1"]

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_compiled_inside_outlives_its_instance(backend: str, keeps: bool) -> None:
    """keeps: the first instance stays; then the leaves have two owners, and the one whose forward runs reduces."""

    def step(communicator: Communicator) -> None:
        model, kept = both(backend), []
        for seed in range(3):
            ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB)
            kept.append(ddp)
            for _ in range(2):
                model.zero_grad()
                loss_of(ddp(shard(batch(seed), communicator))).backward()
                check_close(gradients(model), joined_gradients(both(), batch(seed)))
            assert ddp._books.round == 2
            if not keeps:
                kept.clear()
                del ddp
                gc.collect()

    on_ranks(2, step)


@pytest.mark.parametrize("overlap", ["backward", "step"])
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_training_equals_one_rank_on_the_joined_batch(backend: str | None, overlap: str) -> None:
    def train(model: Pieces, run: Callable[[Tensor], Tensor], data: Callable[[int], Tensor]) -> dict[str, np.ndarray]:
        optimizer = optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        for seed in range(5):
            optimizer.zero_grad()
            loss_of(run(data(seed))).backward()
            optimizer.step()
        return {name: p.detach().numpy() for name, p in model.named_parameters()}

    def step(communicator: Communicator) -> dict[str, np.ndarray]:
        model = both(backend)
        ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB, overlap=overlap)
        return train(model, ddp, lambda seed: shard(batch(seed), communicator))

    alone = both()
    expected = train(alone, alone, lambda seed: wrap(batch(seed)))
    for found in on_ranks(2, step):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)
