"""torch.distributed._functional_collectives: collectives that give a new tensor, and leave their argument as it is.

In: Tensors and a process group. Out: Tensors, which are there when the call returns: nothing is left to wait for.
Each is one op, in eager code and in graphs, and gradients go through it as in torch 2.13: those of the sum of all
ranks' losses (compiler_core/ops/collectives/op.py), so every rank must run the backward. Of reductions only sums and
averages have one. In a group of one rank nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.call import ReduceOp as OpName
from compiler_core.ops.composites.movement import cat
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed import recorded
from distcompile.distributed.group import ProcessGroup, group_or_default
from distcompile.distributed.traced import key_of, peer_rank, ranks_of

__all__ = [
    "all_gather_single",
    "all_gather_single_autograd",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "permute_tensor",
    "reduce_scatter_single",
    "reduce_scatter_single_autograd",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "wait_tensor",
]


def wait_tensor(tensor: Tensor) -> Tensor:
    """`tensor`: it is there."""
    return tensor


def all_reduce(self: Tensor, reduceOp: OpName, group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """The reduction of `self` over all ranks. tag: no effect."""
    ranks = ranks_of(group)
    return self.clone() if ranks == 1 else recorded.all_reduced(self, reduceOp.lower(), key_of(group), ranks)


def all_reduce_coalesced(
    self: Sequence[Tensor], reduceOp: OpName, group: ProcessGroup | None = None, tag: str = ""
) -> list[Tensor]:
    """The reductions of several tensors. tag: no effect."""
    return [all_reduce(tensor, reduceOp, group) for tensor in self]


def broadcast(self: Tensor, src: int, group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """The `self` of rank `src`. tag: no effect."""
    ranks, root = ranks_of(group), peer_rank(group, src, None, "src")
    return self.clone() if ranks == 1 else recorded.sent_by(self, root, key_of(group), ranks)


def all_gather_tensor(self: Tensor, gather_dim: int, group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """The `self` of all ranks, side by side along `gather_dim`. tag: no effect."""
    ranks = ranks_of(group)
    if ranks == 1:
        return self.clone()
    rows = recorded.gathered(self, key_of(group), ranks)  # [ranks, ...]
    if gather_dim % self.dim() == 0:
        return rows.reshape(ranks * self.shape[0], *self.shape[1:])
    joined: Tensor = cat([rows[rank] for rank in range(ranks)], gather_dim)
    return joined


def reduce_scatter_tensor(
    self: Tensor, reduceOp: OpName, scatter_dim: int, group: ProcessGroup | None = None, tag: str = ""
) -> Tensor:
    """This rank's part along `scatter_dim` of the reduction of `self` over all ranks. tag: no effect.

    The ranks must divide that dim. Raises TensorListError.
    """
    ranks, dim = ranks_of(group), scatter_dim % self.dim()
    if ranks == 1:
        return self.clone()
    size = recorded.part_of(self.shape[dim], ranks)
    rows = self.reshape(*self.shape[:dim], ranks, size, *self.shape[dim + 1 :]).movedim(dim, 0)
    return recorded.reduced_row(rows, reduceOp.lower(), key_of(group), ranks)


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: ProcessGroup | None = None,
    tag: str = "",
) -> Tensor:
    """Rows of `self`, cut by `input_split_sizes`, exchanged. None: equal parts. tag: no effect."""
    ranks = ranks_of(group)
    if ranks == 1:
        return self.clone()
    if output_split_sizes is None and input_split_sizes is None:
        size = recorded.part_of(self.shape[0], ranks)
        rows = recorded.exchanged(self.reshape(ranks, size, *self.shape[1:]), key_of(group), ranks)
        return rows.reshape(*self.shape)
    even = [recorded.part_of(self.shape[0], ranks)] * ranks
    sent, received = input_split_sizes or even, output_split_sizes or even
    return recorded.exchanged_rows(self, sent, received, key_of(group), ranks)


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: ProcessGroup | None = None, tag: str = "") -> Tensor:
    """What the rank m has for which src_dst[m] is this one. tag: no effect. Shape: f[n], as in torch: flat."""
    ranks, mine = ranks_of(group), group_or_default(group).rank
    if ranks == 1:
        return self.clone()
    count = self.shape[0]
    sent = [count if src_dst[mine] == rank else 0 for rank in range(ranks)]
    received = [count if src_dst[rank] == mine else 0 for rank in range(ranks)]
    return recorded.exchanged_rows(self, sent, received, key_of(group), ranks)


all_gather_single = all_gather_single_autograd = all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_single = reduce_scatter_single_autograd = reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single
