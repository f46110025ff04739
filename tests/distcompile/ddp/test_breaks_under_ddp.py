"""Graph breaks in the forward of a wrapped module: its graphs, with Python between them, train as one rank would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from breaking_models import Branching, Looping, Printing, Reading, Stages, frozen, mean_of_ranks
from ddp_models import (
    DistributedDataParallel,
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
from compiler_core.log import DistCompileWarning
from compiler_core.tensor.tensor import Tensor

pytestmark = pytest.mark.filterwarnings(f"error::{DistCompileWarning.__module__}.{DistCompileWarning.__name__}")
BACKENDS = ["eager", "aot_eager", "codegen"]
AOT = BACKENDS[1:]
TINY_MB = 1e-6


@pytest.mark.parametrize("model", [Printing, Looping])
@pytest.mark.parametrize("cap_mb", [None, TINY_MB])
@pytest.mark.parametrize("backend", BACKENDS)
def test_breaks_train_as_one_rank_would(model: type[Stages], backend: str, cap_mb: float | None) -> None:
    def step(communicator: Communicator) -> dict[str, bytes]:
        ddp = DistributedDataParallel(frozen(model), bucket_cap_mb=cap_mb)
        run = compile(ddp, backend=backend)
        for seed in range(4):
            ddp.zero_grad()
            parts = np.split(batch(seed, 12), 3)
            loss_of(run(wrap(parts[communicator.rank]))).backward()
            check_close(gradients(ddp.module), mean_of_ranks(lambda: frozen(model), parts))
            assert ddp._books.forwards == ddp._books.round == seed + 1
        assert run.explain().breaks
        return {name: array.tobytes() for name, array in gradients(ddp.module).items()}

    results = on_ranks(3, step)
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_of_the_data_in_the_next_graph_is_no_disagreement(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(frozen(Reading), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for seed in range(4):
            ddp.zero_grad()
            parts = np.split(batch(seed), 2)
            loss_of(run(wrap(parts[communicator.rank]))).backward()
            check_close(gradients(ddp.module), mean_of_ranks(lambda: frozen(Reading), parts))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_on_data_that_ranks_and_steps_take_differently(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Branching(), find_unused_parameters=True, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for seed in range(6):
            signs = [1 if (seed >> rank) & 1 else -1 for rank in range(2)]
            parts = [np.abs(batch(10 * seed + rank)) * sign for rank, sign in enumerate(signs)]
            ddp.zero_grad()
            loss_of(run(wrap(parts[communicator.rank]))).backward()
            check_close(gradients(ddp.module), mean_of_ranks(Branching, parts))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", AOT)
def test_all_graphs_share_one_plan_from_the_first_step(backend: str) -> None:
    def step(communicator: Communicator) -> str:
        ddp = DistributedDataParallel(frozen(Printing), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for seed in range(3):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            names = [bucket.names for bucket in ddp.bucket_plan.buckets]
            assert names == [("w2",), ("gain",), ("tied",), ("w1",)]
        rows = ddp.overlap_report().rows
        graphs = [row.graph for row in rows]
        assert graphs[2] == graphs[3]
        assert len(set(graphs)) == 3
        assert [row.segment for row in rows] == sorted({row.segment for row in rows})
        return ddp.bucket_plan.hash

    assert len(set(on_ranks(2, step))) == 1


@pytest.mark.parametrize("backend", AOT)
def test_gradients_of_all_graphs_land_in_the_buckets(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from distcompile.ddp.passes import BackwardPass

    delivered: list[str] = []
    monkeypatch.setattr(BackwardPass, "deliver", lambda self, name, parameter, *, show: delivered.append(name))

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(frozen(Printing))
        run = compile(ddp, backend=backend)
        for seed in range(2):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()

    on_ranks(2, step)
    assert not delivered


@pytest.mark.parametrize("backend", AOT)
def test_one_rank_breaks_where_another_does_not(backend: str) -> None:
    """The graphs differ, as do their numbers: no rank waits for a graph that another does not have."""

    class Sometimes(Stages):
        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x) * self.gain
            if self.breaks:
                print(end="")
            return self.last(h)

    def step(communicator: Communicator) -> int:
        model = frozen(Sometimes)
        object.__setattr__(model, "breaks", communicator.rank == 1)
        ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for seed in range(3):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed, 12), communicator))).backward()
            check_close(gradients(model), joined_gradients(frozen(Printing), batch(seed, 12)))
        return ddp._books.layout.word

    assert len(set(on_ranks(3, step))) == 1


@pytest.mark.parametrize("backend", AOT)
def test_a_path_that_comes_later_keeps_the_plan(backend: str) -> None:
    """In step 3 a graph is compiled for the first time, on one rank, and then on all."""

    class Later(Stages):
        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x) * self.gain
            print(end="")
            if self.turns():
                h = (h * 2.0).tanh()
                print(end="")
            return self.last(h)

    def model_for(turns: Callable[[], bool]) -> Stages:
        model = frozen(Later)
        object.__setattr__(model, "turns", turns)
        return model

    def step(communicator: Communicator) -> None:
        now = {"seed": 0}

        def turned(rank: int) -> bool:
            return now["seed"] >= (3, 4)[rank]

        ddp = DistributedDataParallel(model_for(lambda: turned(communicator.rank)), bucket_cap_mb=TINY_MB)
        run, hashes = compile(ddp, backend=backend), set()
        for seed in range(6):
            now["seed"] = seed
            ddp.zero_grad()
            parts = np.split(batch(seed), 2)
            loss_of(run(wrap(parts[communicator.rank]))).backward()
            alone = [joined_gradients(model_for(lambda r=r: turned(r)), part) for r, part in enumerate(parts)]
            check_close(gradients(ddp.module), {name: (alone[0][name] + alone[1][name]) / 2 for name in alone[0]})
            hashes.add(tuple(bucket.names for bucket in ddp.bucket_plan.buckets))
        assert len(hashes) == 1

    on_ranks(2, step)
