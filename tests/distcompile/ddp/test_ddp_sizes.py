"""compile(DDP(model)) with batches of other sizes on each rank and step: one capture if dynamic=True, else two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.codegen import native_backend
from compiler_core.config import config
from compiler_core.runtime import build

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


@pytest.mark.parametrize(("dynamic", "captures"), [(True, [2, 2]), (None, [2, 3])])
def test_a_rank_whose_batch_is_one_captures_alone(dynamic: bool | None, captures: list[int]) -> None:
    steps = ((1, 6), (6, 6), (6, 1), (9, 4), (1, 1))
    assert on_ranks(2, lambda c: trained(c, steps, "codegen", fullgraph=True, dynamic=dynamic)) == captures


@pytest.mark.filterwarnings("ignore")  # that one rank runs eager
def test_a_rank_that_meets_many_sizes_runs_eager_beside_one_that_does_not() -> None:
    steps = tuple((size, 4) for size in (4, 3, 5, 6, 7, 5, 4))
    with config.patch(recompile_limit=2):
        assert on_ranks(2, lambda c: trained(c, steps, "codegen")) == [2, 1]
