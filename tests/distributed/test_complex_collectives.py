"""Complex tensors travel as their real and imaginary parts: every collective gives what it gives of these apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from collectives.errors import CollectiveArgumentError
from distcompile import distributed as dist

RANKS = 3
Move = Callable[[Any], Any]  # of a tensor (RANKS * RANKS, 2); returns one


def all_reduce(x: Any) -> Any:
    y = x.clone()
    dist.all_reduce(y)
    return y


def reduce(x: Any) -> Any:
    y = x.clone()
    dist.reduce(y, dst=1)
    return y


def broadcast(x: Any) -> Any:
    y = x.clone()
    dist.broadcast(y, src=2)
    return y


def gathered(x: Any) -> Any:
    parts = [dc.zeros_like(x) for _ in range(RANKS)]
    dist.all_gather(parts, x)
    return dc.cat(parts)


def gathered_on_one(x: Any) -> Any:
    parts = [dc.zeros_like(x) for _ in range(RANKS)] if dist.get_rank() == 0 else None
    dist.gather(x, parts)
    return dc.cat(parts) if parts else x


def scattered(x: Any) -> Any:
    y = dc.zeros_like(x)
    dist.scatter(y, [x * k for k in range(RANKS)] if dist.get_rank() == 0 else None)
    return y


def reduced_and_scattered(x: Any) -> Any:
    y = dc.zeros_like(x[:RANKS])
    dist.reduce_scatter_tensor(y, x)
    return y


def exchanged(x: Any) -> Any:
    y = dc.zeros_like(x)
    dist.all_to_all_single(y, x)
    return y


def exchanged_unevenly(x: Any) -> Any:
    rank = dist.get_rank()
    sent = [(rank + other) % RANKS + 2 for other in range(RANKS)]
    y = dc.zeros_like(x)
    dist.all_to_all_single(y, x, sent, sent)
    return y


def passed_on(x: Any) -> Any:
    y, rank = dc.zeros_like(x), dist.get_rank()
    works = [dist.isend(x, (rank + 1) % RANKS), dist.irecv(y, (rank - 1) % RANKS)]
    for work in works:
        work.wait()  # type: ignore[union-attr]
    return y


def reduced_by_a_group(x: Any) -> Any:
    group = dist.new_group([0, 2])
    y = x.clone()
    dist.all_reduce(y, group=group)
    return y


MOVES = [
    all_reduce, reduce, broadcast, gathered, gathered_on_one, scattered, reduced_and_scattered, exchanged,
    exchanged_unevenly, passed_on, reduced_by_a_group,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [dc.float32, dc.float64])
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
@pytest.mark.filterwarnings("ignore:.*does not belong to the given group")
def test_as_the_parts_apart(move: Move, dtype: Any) -> None:
    def run(world: Communicator) -> None:
        with dist.use_communicator(world):
            real = dc.arange(2 * RANKS * RANKS, dtype=dtype).reshape(-1, 2) + 100 * world.rank
            imaginary = real.square() - 7
            found = move(dc.complex(real, imaginary))
            assert found.real.tolist() == move(real).tolist()
            assert found.imag.tolist() == move(imaginary).tolist()

    run_ranks(RANKS, run, timeout_s=60)


@pytest.mark.parametrize("op", ["MAX", "MIN", "PRODUCT", "BAND"])
def test_what_is_not_defined_on_them_is_refused(op: str) -> None:
    def run(world: Communicator) -> None:
        with dist.use_communicator(world):
            x = dc.zeros(2, dtype=dc.complex64)
            for call in (
                lambda: dist.all_reduce(x, op=getattr(dist.ReduceOp, op)),
                lambda: dist.reduce(x, 0, op=getattr(dist.ReduceOp, op)),
                lambda: dist.reduce_scatter_tensor(x[:1].clone(), x, op=getattr(dist.ReduceOp, op)),
            ):
                with pytest.raises(CollectiveArgumentError, match="complex64"):
                    call()

    run_ranks(2, run, timeout_s=60)
