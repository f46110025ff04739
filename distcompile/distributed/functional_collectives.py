"""torch.distributed._functional_collectives: collectives that give a new tensor, and leave their argument as it is.

In: Tensors and a process group. Out: Tensors, which are there when the call returns: nothing is left to wait for.
In a group of one rank nothing is sent, and graphs hold what is left; with more the graph breaks (GraphBreak under
fullgraph=True). They give no gradient among several ranks: torch.distributed.nn.functional has collectives that do.
"""

from __future__ import annotations

from collections.abc import Callable

from collectives import Communicator
from collectives.call import ReduceOp as OpName
from compiler_core.ops.composites.movement import cat
from compiler_core.tensor.making.creation import zeros_like
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed import tensors
from distcompile.distributed.group import ProcessGroup, get_world_size, group

__all__ = ["all_gather_tensor", "all_reduce", "broadcast", "reduce_scatter_tensor", "wait_tensor"]


def wait_tensor(tensor: Tensor) -> Tensor:
    """`tensor`: it is there."""
    return tensor


def all_reduce(self: Tensor, reduceOp: OpName, group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """The reduction of `self` over all ranks. tag: no effect."""
    return _of_copy(self, group, lambda x: tensors.all_reduce(x, reduceOp, group))


def broadcast(self: Tensor, src: int, group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """The `self` of rank `src`. tag: no effect."""
    return _of_copy(self, group, lambda x: tensors.broadcast(x, src, group))


def all_gather_tensor(self: Tensor, gather_dim: int, group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """The `self` of all ranks, side by side along `gather_dim`. tag: no effect."""
    ranks = _ranks(group)
    if ranks == 1:
        return self.clone()
    parts = [zeros_like(self) for _ in range(ranks)]
    tensors.all_gather(parts, self.detach(), group)
    return _joined(parts, gather_dim)


def reduce_scatter_tensor(
    self: Tensor, reduceOp: OpName, scatter_dim: int, group: ProcessGroup | None = None, tag: str = ""
) -> Tensor:
    """This rank's part along `scatter_dim` of the reduction of `self` over all ranks. tag: no effect."""
    ranks = _ranks(group)
    if ranks == 1:
        return self.clone()
    parts = list(self.detach().chunk(ranks, scatter_dim))
    found = zeros_like(parts[0])
    tensors.reduce_scatter(found, parts, reduceOp, group)
    return found


def _ranks(given: ProcessGroup | None) -> int:
    """How many ranks a group has: an attribute, which compiled code guards."""
    found = group.WORLD if given is None else given
    return found.world_size if isinstance(found, Communicator) else get_world_size(given)


def _of_copy(self: Tensor, group: ProcessGroup | None, collective: Callable[[Tensor], object]) -> Tensor:
    """What `collective` makes of a copy."""
    if _ranks(group) == 1:
        return self.clone()
    found = self.detach().clone()
    collective(found)
    return found


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    joined: Tensor = cat(parts, dim)
    return joined
