"""Random programs with random collectives, compiled and as they are: the same values, inputs and gradients.

The seed is printed first; DISTCOMPILE_FUZZ_SEED sets it. A program is drawn from its number alone, so all ranks have
the same; their data differ.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import distributed as dist
from distcompile.distributed import _functional_collectives as fc

SEED = int(os.environ.get("DISTCOMPILE_FUZZ_SEED", "0"))
SHAPE = (4, 3)


def summed(pick: int, x: Any) -> Any:
    return fc.all_reduce(x, "sum")


def averaged(pick: int, x: Any) -> Any:
    return fc.all_reduce(x.reshape(-1), "avg").reshape(SHAPE)


def sent(pick: int, x: Any) -> Any:
    return fc.broadcast(x, pick % dist.get_world_size())


def gathered(pick: int, x: Any) -> Any:
    rows = fc.all_gather_tensor(x, pick % 2)
    return rows[: SHAPE[0], : SHAPE[1]] + rows[-SHAPE[0] :, -SHAPE[1] :]


def scattered(pick: int, x: Any) -> Any:
    return fc.reduce_scatter_tensor(dc.cat([x * k for k in range(1, dist.get_world_size() + 1)]), "sum", 0)


def exchanged(pick: int, x: Any) -> Any:
    ranks = dist.get_world_size()
    rows = fc.all_to_all_single(dc.cat([x * k for k in range(1, ranks + 1)]), None, None)
    return rows.reshape(ranks, *SHAPE).sum(0)


def in_place(pick: int, x: Any) -> Any:
    y = x.detach() * 0.5
    works = [dist.all_reduce(part, op=dist.ReduceOp.AVG, async_op=True) for part in (y, y[1:2])]
    for work in works:
        work.wait()
    return x + y


COLLECTIVES = (summed, averaged, sent, gathered, scattered, exchanged, in_place)
LOCAL = (
    lambda x, y: (x * 0.5).sin() + y,
    lambda x, y: x.tanh() * y,
    lambda x, y: (x @ x.t()).tanh() @ y,
    lambda x, y: dc.where(x > 0, y, x),
    lambda x, y: (x - y.mean(0)).tanh(),
)


Step = tuple[bool, int, int, int, int]  # whether it is a collective, which, its operands, what it picks


def drawn(number: int) -> tuple[list[Step], list[int]]:
    """A program of ten to twenty steps, of which about half are collectives; and which values it adds up."""
    rng = np.random.default_rng((SEED, number))
    steps: list[Step] = []
    for k in range(rng.integers(10, 20)):
        talks, values = bool(rng.random() < 0.5), 2 + k
        kinds = len(COLLECTIVES if talks else LOCAL)
        steps.append((talks, *map(int, (rng.integers(kinds), *rng.integers(values, size=2), rng.integers(6)))))  # type: ignore[arg-type]
    return steps, [int(k) for k in rng.integers(len(steps) + 2, size=4)]


def run(steps: list[Step], summands: list[int], x: Any) -> Any:
    values = [x, x.cos()]
    for talks, kind, first, second, pick in steps:
        made = COLLECTIVES[kind](pick, values[first]) if talks else LOCAL[kind](values[first], values[second])
        values.append(made.tanh())  # numbers stay small
    return sum(values[k] for k in summands)


def outcome(function: Any, data: Any) -> tuple[Any, Any]:
    x = dc.tensor(data).requires_grad_()
    out = function(x)
    (out * dc.arange(12.0, dtype=dc.float64).reshape(SHAPE)).sum().backward()
    assert x.grad is not None
    return out.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("number", [*range(10), *(pytest.param(k, marks=pytest.mark.long) for k in range(10, 60))])
def test_a_random_program(number: int, ranks: int, backend: str) -> None:
    print(f"DISTCOMPILE_FUZZ_SEED={SEED}, program {number}")

    steps, summands = drawn(number)

    def function(x: Any) -> Any:
        return run(steps, summands, x)

    def body(world: Communicator) -> None:
        with dist.use_communicator(world):
            compiled = dc.compile(function, backend=backend, fullgraph=True)
            for step in range(2):
                data = np.random.default_rng((step, world.rank)).uniform(-1, 1, SHAPE)
                for got, expected in zip(outcome(compiled, data), outcome(function, data), strict=True):
                    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9)

    run_ranks(ranks, body, timeout_s=60)
