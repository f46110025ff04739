"""Functions with collectives whose gradients are asked for: run compiled and as they are, on any number of ranks.

Each takes a matrix x[4 N, 3] for N ranks, and returns a Tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distcompile as dc
from distcompile import distributed as dist
from distcompile.distributed import _functional_collectives as fc
from distcompile.distributed.nn import functional as dist_nn

Program = Callable[[Any], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
def summed(x: Any) -> Any:
    return fc.all_reduce(x * x, "sum") * x


@program
def averaged(x: Any) -> Any:
    return fc.wait_tensor(fc.all_reduce(x.exp(), "avg")).sin() + x


@program
def two_behind_one_another(x: Any) -> Any:
    return fc.all_reduce(fc.all_reduce(x.tanh(), "sum").cos() * x, "sum")


@program
def several_side_by_side(x: Any) -> Any:
    parts = [fc.all_reduce(x * k, "sum") for k in range(1, 5)]
    return sum(part.sin() for part in parts) * x


@program
def gathered_along_dims(x: Any) -> Any:
    return fc.all_gather_tensor(x, 0).sin().sum() + fc.all_gather_tensor(x.cos(), 1).square().mean() * x


@program
def scattered_along_dims(x: Any) -> Any:
    return fc.reduce_scatter_tensor(x.sin(), "sum", 0).exp()


@program
def sent(x: Any) -> Any:
    root = dist.get_world_size() - 1
    return fc.broadcast(x.sin(), root) * x + dist_nn.broadcast(x.cos(), 0)


@program
def to_one_rank(x: Any) -> Any:
    return dist_nn.reduce(x * x, 0) + sum(dist_nn.gather(x.sin(), 0))


@program
def from_one_rank(x: Any) -> Any:
    return dist_nn.scatter([x * k for k in range(dist.get_world_size())], 0).sin()


@program
def exchanged(x: Any) -> Any:
    rows = fc.all_to_all_single(x.sin(), None, None)
    return dist_nn.all_to_all_single(dc.zeros_like(x), rows.exp()) * x


@program
def exchanged_in_parts(x: Any) -> Any:
    ranks, me = dist.get_world_size(), dist.get_rank()
    parts = [x[: rank + 1] * (rank + 1) for rank in range(ranks)]
    places = [dc.zeros(me + 1, 3) for _ in range(ranks)]
    return sum(part.square() for part in dist_nn.all_to_all(places, parts)).sum() * x


@program
def moved_on(x: Any) -> Any:
    ranks = dist.get_world_size()
    return fc.permute_tensor(x.sin().reshape(-1), [(rank + 1) % ranks for rank in range(ranks)]) ** 2


@program
def largest(x: Any) -> Any:
    return (
        dist_nn.reduce(x.exp(), 0, "max")
        + dist_nn.reduce_scatter(dc.zeros(4, 3), list((x * x).chunk(dist.get_world_size())), "max").sum()
    )


@program
def written_in_place(x: Any) -> Any:
    """torch writes outside of autograd: the gradient is that of what was there."""
    y = x.detach() * 2
    dist.all_reduce(y)
    return x * y


@program
def a_column_and_a_row(x: Any) -> Any:
    """Tensor-parallel layers: the first is cut by columns, the second by rows."""
    me = dist.get_rank() + 1
    count = dc.arange(15.0, dtype=x.dtype)
    first, second = count.reshape(3, 5).cos() * me, count.reshape(5, 3).sin() * me
    hidden = (x @ first).relu()
    return fc.all_reduce(hidden @ second, "sum") + x
