"""torch.distributed._functional_collectives: new tensors on every rank; parts of graphs."""

from __future__ import annotations

from typing import Any

import distcompile as dc
from collectives import run_ranks
from distcompile import Tensor
from distcompile import distributed as dist
from distcompile.distributed import _functional_collectives as fc


def on_two(body: Any) -> list[Any]:
    def run(ranks: Any) -> Any:
        with dist.use_communicator(ranks):
            return body(dc.arange(4.0).reshape(2, 2) + 10 * dist.get_rank())

    return run_ranks(2, run)


def test_each_leaves_its_argument_as_it_is() -> None:
    def body(x: Tensor) -> Any:
        before = x.clone()
        found = [
            fc.wait_tensor(fc.all_reduce(x, "sum")),
            fc.broadcast(x, 1, dist.group.WORLD),
            fc.all_gather_tensor(x, 1, None),
            fc.reduce_scatter_tensor(x, "max", 1),
        ]
        assert x.tolist() == before.tolist()
        return [tensor.tolist() for tensor in found]

    first, second = on_two(body)
    reduced, sent = [[10.0, 12.0], [14.0, 16.0]], [[10.0, 11.0], [12.0, 13.0]]
    gathered = [[0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]]
    assert first == [reduced, sent, gathered, [[10.0], [12.0]]]
    assert second == [reduced, sent, gathered, [[11.0], [13.0]]]


def doubled(x: Tensor, group: Any) -> Tensor:
    return fc.all_reduce(x * 2, "sum", group) + 1


def test_the_number_of_ranks_is_guarded() -> None:
    compiled = dc.compile(doubled, backend="eager")

    def body(x: Tensor) -> Any:
        alone = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
        return [compiled(x, group).sum().item() for group in (alone, dist.group.WORLD, alone)]

    assert on_two(body) == [[16.0, 108.0, 16.0], [96.0, 108.0, 96.0]]


def test_fullgraph_with_one_rank_and_with_two() -> None:
    compiled = dc.compile(doubled, backend="eager", fullgraph=True)

    def alone(ranks: Any) -> Any:
        with dist.use_communicator(ranks):
            return compiled(dc.ones(2), dist.group.WORLD).tolist()

    assert run_ranks(1, alone) == [[3.0, 3.0]]

    assert on_two(lambda x: compiled(x, dist.group.WORLD).sum().item()) == [108.0, 108.0]
