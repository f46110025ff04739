"""torch.distributed.nn.functional: collectives that give new Tensors, and that gradients go through.

In: Tensors, as the collectives of torch.distributed take them. Out: Tensors; the backward of each is a collective, too,
so all ranks of the group must run it, and in one order. What a rank's result counts for in another rank's loss comes
back to it summed: the gradient is that of the sum of all ranks' losses. They may be differentiated again.

    broadcast <-> reduce    gather <-> scatter    all_gather <-> reduce_scatter    all_to_all, all_reduce: themselves

Each is an op (compiler_core/ops/collectives), in eager code and in graphs. As in torch, the gradient of a reduction is
a sum's where it is reduced to one rank or scattered, and of all_reduce it is reduced as the values were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collectives.call import ReduceOp as OpName
from compiler_core.ops.composites.movement import cat, stack
from compiler_core.tensor.tensor import Tensor
from distcompile import distributed as dist
from distcompile.autograd import Function
from distcompile.distributed import recorded
from distcompile.distributed.group import ProcessGroup, group_or_default
from distcompile.distributed.traced import key_of, peer_rank, ranks_of

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]
SUM = dist.ReduceOp.SUM
_DIFFERENTIABLE = (SUM, dist.ReduceOp.AVG)  # whose gradient is the same reduction


class _Reduced(Function):
    """all_reduce of which the gradient is reduced in the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: OpName, group: ProcessGroup | None) -> Tensor:
        ctx.of = op, group
        found = x.detach().clone()
        dist.all_reduce(found, op, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return all_reduce(grad, *ctx.of), None, None


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """Rank `src`'s tensor."""
    ranks, root = ranks_of(group), peer_rank(group, src, None, "src")
    return tensor.clone() if ranks == 1 else recorded.sent_by(tensor, root, key_of(group), ranks)


def reduce(tensor: Tensor, dst: int, op: OpName = SUM, group: ProcessGroup | None = None) -> Tensor:
    """On rank `dst` the reduction over all ranks, elsewhere the tensor. The gradient is a sum's, whatever `op` is."""
    ranks, root = ranks_of(group), peer_rank(group, dst, None, "dst")
    if ranks == 1:
        return tensor.clone()
    key, here = key_of(group), group_or_default(group).rank == root
    found = recorded.reduced_to(tensor, SUM, root, key, ranks)
    if not here:
        found = found + tensor.detach()
    return found if op == SUM else _of_value(found, _reduced_otherwise(tensor, op, root, key, ranks, here))


def _reduced_otherwise(tensor: Tensor, op: OpName, root: int, key: str, ranks: int, here: bool) -> Tensor:
    found = recorded.reduced_to(tensor.detach(), op, root, key, ranks)
    return found if here else tensor.detach()


def _of_value(linear: Tensor, value: Tensor) -> Tensor:
    """`value`, with the gradient of `linear`."""
    return recorded.of_value(linear, value)


def gather(tensor: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """On rank `dst` all ranks' tensors, by rank; elsewhere as many zeros."""
    ranks, root = ranks_of(group), peer_rank(group, dst, None, "dst")
    if ranks == 1:
        return (tensor.clone(),)
    rows = recorded.gathered_to(tensor, root, key_of(group), ranks)
    return tuple([rows[rank] for rank in range(ranks)])


def scatter(tensors: Sequence[Tensor], src: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Of rank `src`'s list the tensor of this rank. All ranks give a list: of what their own should have."""
    ranks, root = ranks_of(group), peer_rank(group, src, None, "src")
    if ranks == 1:
        return tensors[0].clone()
    return recorded.scattered(stack(list(tensors)), root, key_of(group), ranks)


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """All ranks' tensors, by rank."""
    ranks = ranks_of(group)
    if ranks == 1:
        return (tensor.clone(),)
    rows = recorded.gathered(tensor, key_of(group), ranks)
    return tuple([rows[rank] for rank in range(ranks)])


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: OpName = SUM, group: ProcessGroup | None = None
) -> Tensor:
    """The reduction of all ranks' `input_list[r]` on rank r, also written into `output`.

    The gradient is a sum's, whatever `op` is.
    """
    ranks, rows = ranks_of(group), stack(list(input_list))
    found: Tensor
    if ranks == 1:
        found = rows[0].clone()
    else:
        found = recorded.reduced_row(rows, SUM, key_of(group), ranks)
        if op != SUM:
            found = _of_value(found, recorded.reduced_row(rows.detach(), op, key_of(group), ranks))
    recorded.put(output, found.detach())
    return found


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: ProcessGroup | None = None
) -> tuple[Tensor, ...]:
    """What each rank r has as `input_tensor_list[this rank]`, by rank; also written into output_tensor_list."""
    ranks = ranks_of(group)
    flat: Tensor = cat([part.reshape(-1) for part in input_tensor_list])
    sent, received = [x.numel() for x in input_tensor_list], [x.numel() for x in output_tensor_list]
    flat = recorded.exchanged_rows(flat, sent, received, key_of(group), ranks) if ranks > 1 else flat.clone()
    found, start = [], 0
    for place, count in zip(output_tensor_list, received):
        found.append(flat[start : start + count].reshape(place.shape))
        recorded.put(place, found[-1].detach())
        start += count
    return tuple(found)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Parts of `input`, rows by rank, exchanged; also written into `output`."""
    ranks = ranks_of(group)
    found: Tensor
    if ranks == 1:
        found = input.clone()
    elif output_split_sizes or input_split_sizes:
        sent = input_split_sizes or [recorded.part_of(input.shape[0], ranks)] * ranks
        received = output_split_sizes or [recorded.part_of(output.shape[0], ranks)] * ranks
        found = recorded.exchanged_rows(input, sent, received, key_of(group), ranks)
    else:
        size = recorded.part_of(input.shape[0], ranks)
        rows = input.reshape(ranks, size, *input.shape[1:])
        found = recorded.exchanged(rows, key_of(group), ranks).reshape(input.shape)
    recorded.put(output, found.detach())
    return found


def all_reduce(tensor: Tensor, op: OpName = SUM, group: ProcessGroup | None = None) -> Tensor:
    """The reduction over all ranks. The gradient is reduced the same way, as in torch: right for sums and averages."""
    ranks = ranks_of(group)
    if ranks == 1:
        return tensor.clone()
    if op not in _DIFFERENTIABLE:
        return _Reduced.apply(tensor, op, group)  # type: ignore[no-any-return]
    return recorded.all_reduced(tensor, op, key_of(group), ranks)
