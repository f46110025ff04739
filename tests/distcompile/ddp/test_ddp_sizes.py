"""compile(DDP(model)) with batches of other sizes on each rank and step: one capture if dynamic=True, else two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ddp_models import (
    DistributedDataParallel,
    Net,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    weight,
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.codegen import native_backend
from compiler_core.config import config
from compiler_core.runtime import build
from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.module import Module

TINY_MB = 1e-6  # every parameter a bucket
Steps = tuple[tuple[int, int], ...]
# of two ranks: in some steps one compiles and the other need not
STEPS: Steps = ((4, 4), (3, 5), (5, 3), (3, 3), (2, 7))


def trained(communicator: Communicator, steps: Steps, backend: str, **options: Any) -> int:
    """How often a rank captured; each step's gradients are the means of the ranks' own."""
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
    run: Any = compile(ddp, backend=backend, **options)
    for seed, sizes in enumerate(steps):
        arrays = [batch(seed + rank, size) for rank, size in enumerate(sizes)]
        ddp.zero_grad()
        loss_of(run(wrap(arrays[communicator.rank]))).backward()
        locals_ = [joined_gradients(Net(), array) for array in arrays]
        check_close(gradients(ddp.module), {n: (locals_[0][n] + locals_[1][n]) / 2 for n in locals_[0]})
    return len(run.explain().entries)


@pytest.mark.parametrize(("dynamic", "captures"), [(True, 1), (None, 2)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_ranks_of_different_sizes_agree(backend: str, dynamic: bool | None, captures: int) -> None:
    def rank(communicator: Communicator) -> int:
        return trained(communicator, STEPS, backend, fullgraph=True, dynamic=dynamic)

    assert on_ranks(2, rank) == [captures, captures]


def test_a_backward_in_buckets_is_built_once_for_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    real = build.build_library

    def noted(units: dict[str, str], *args: Any, **kwargs: Any) -> None:
        built.append("".join(units.values()))
        real(units, *args, **kwargs)

    monkeypatch.setattr(build, "build_library", noted)
    monkeypatch.setattr(native_backend, "_sizes_seen", None)
    with config.patch(cache_dir=tmp_path):
        assert on_ranks(2, lambda c: trained(c, STEPS, "codegen", dynamic=True)) == [1, 1]
    assert len([text for text in built if "run1_" in text]) == 1


class Letters(Module):
    """A class of each text, and its next letters: the mean loss of both."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.next, self.kind = weight(1, 11, 6), weight(2, 6, 11), weight(3, 6, 3)

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        states = F.embedding(x[:, :-1], self.table).cumsum(1).tanh()  # (batch, length, 6)
        letters = F.cross_entropy((states @ self.next).flatten(0, 1), x[:, 1:].flatten())
        return letters + F.cross_entropy(states.mean(1) @ self.kind, kinds)


def texts(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """i64[batch, length + 1], i64[batch]: of another length at each step and rank; rank 1 has fewer at times."""
    generator = np.random.default_rng([step, rank])
    count = 3 if step % 3 == 2 and rank == 1 else 5
    x, kinds = generator.integers(0, 11, (count, 4 + (step * 5 + rank * 3) % 7)), generator.integers(0, 3, count)
    return wrap(x), wrap(kinds)


def texts_trained(communicator: Communicator) -> int:
    """How often a rank captured, as all is by default; each step's gradients are those of the joined batch."""
    ddp = DistributedDataParallel(Letters(), bucket_cap_mb=TINY_MB)
    run: Any = compile(ddp)
    for step in range(7):
        batches = [texts(step, rank) for rank in range(communicator.world_size)]
        ddp.zero_grad()
        run(*batches[communicator.rank]).backward()
        joined = Letters()
        for x, kinds in batches:
            (joined(x, kinds) / len(batches)).backward()
        check_close(gradients(ddp.module), gradients(joined))
    return len(run.explain().entries)


@pytest.mark.parametrize("ranks", [2, 4])
def test_texts_of_other_lengths_and_a_last_batch_that_is_smaller_on_one_rank(ranks: int) -> None:
    assert max(on_ranks(ranks, texts_trained, timeout_s=200)) == 2


@pytest.mark.parametrize(("dynamic", "captures"), [(True, [2, 2]), (None, [2, 3])])
def test_a_rank_whose_batch_is_one_captures_alone(dynamic: bool | None, captures: list[int]) -> None:
    steps = ((1, 6), (6, 6), (6, 1), (9, 4), (1, 1))
    assert on_ranks(2, lambda c: trained(c, steps, "codegen", fullgraph=True, dynamic=dynamic)) == captures


@pytest.mark.filterwarnings("ignore")  # that one rank runs eager
def test_a_rank_that_meets_many_sizes_runs_eager_beside_one_that_does_not() -> None:
    steps = tuple((size, 4) for size in (4, 3, 5, 6, 7, 5, 4))
    with config.patch(recompile_limit=2):
        assert on_ranks(2, lambda c: trained(c, steps, "codegen")) == [2, 1]
