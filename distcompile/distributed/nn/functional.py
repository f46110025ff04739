"""torch.distributed.nn.functional: collectives that give new Tensors, and that gradients go through.

In: Tensors, as the collectives of torch.distributed take them. Out: Tensors; the backward of each is a collective, too,
so all ranks of the group must run it, and in one order. What a rank's result counts for in another rank's loss comes
back to it summed: the gradient is that of the sum of all ranks' losses. They may be differentiated again.

    broadcast <-> reduce    gather <-> scatter    all_gather <-> reduce_scatter    all_to_all, all_reduce: themselves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from collectives.call import ReduceOp as OpName
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import zeros_like
from compiler_core.tensor.tensor import Tensor
from distcompile import distributed as dist
from distcompile.autograd import Function
from distcompile.distributed.group import ProcessGroup

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


class _Through(Function):
    """What `collective` makes of tensors; their gradients are what `adjoint` makes of the results'."""

    @staticmethod
    def forward(ctx: Any, collective: Callable[..., Any], adjoint: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.adjoint = adjoint
        return collective(*(tensor.detach().contiguous() for tensor in tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        found = ctx.adjoint(*(grad.contiguous() for grad in grads))
        return (None, None, *(found if isinstance(found, tuple) else (found,)))


def _through(collective: Callable[..., Any], adjoint: Callable[..., Any], *tensors: Tensor) -> Any:
    return _Through.apply(collective, adjoint, *tensors)


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """Rank `src`'s tensor."""

    def collective(x: Tensor) -> Tensor:
        x = x.clone()
        dist.broadcast(x, src, group=group)
        return x

    def adjoint(grad: Tensor) -> Tensor:
        total = reduce(grad, src, SUM, group)
        return total if dist.get_rank() == src else zeros_like(total)

    return _through(collective, adjoint, tensor)  # type: ignore[no-any-return]


def reduce(tensor: Tensor, dst: int, op: OpName = SUM, group: ProcessGroup | None = None) -> Tensor:
    """On rank `dst` the reduction over all ranks, elsewhere the tensor. The gradient is a sum's, whatever `op` is."""

    def collective(x: Tensor) -> Tensor:
        x = x.clone()
        dist.reduce(x, dst, op, group=group)
        return x

    return _through(collective, lambda grad: broadcast(grad, dst, group), tensor)  # type: ignore[no-any-return]


def gather(tensor: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """On rank `dst` all ranks' tensors, by rank; elsewhere as many zeros."""

    def collective(x: Tensor) -> tuple[Tensor, ...]:
        parts = _one_each(x, group)
        dist.gather(x, parts if dist.get_rank() == dst else None, dst, group=group)
        return tuple(parts)

    return _through(collective, lambda *grads: scatter(list(grads), dst, group), tensor)  # type: ignore[no-any-return]


def scatter(tensors: Sequence[Tensor], src: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Of rank `src`'s list the tensor of this rank. All ranks give a list: of what their own should have."""

    def collective(*parts: Tensor) -> Tensor:
        found = zeros_like(parts[0])
        dist.scatter(found, list(parts) if dist.get_rank() == src else None, src, group=group)
        return found

    return _through(collective, lambda grad: gather(grad, src, group), *tensors)  # type: ignore[no-any-return]


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """All ranks' tensors, by rank."""

    def collective(x: Tensor) -> tuple[Tensor, ...]:
        parts = _one_each(x, group)
        dist.all_gather(parts, x, group=group)
        return tuple(parts)

    def adjoint(*grads: Tensor) -> Tensor:
        return reduce_scatter(zeros_like(grads[0]), grads, SUM, group)

    return _through(collective, adjoint, tensor)  # type: ignore[no-any-return]


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: OpName = SUM, group: ProcessGroup | None = None
) -> Tensor:
    """The reduction of all ranks' `input_list[r]` on rank r, also written into `output`.

    The gradient is a sum's, whatever `op` is.
    """

    def collective(*parts: Tensor) -> Tensor:
        found = zeros_like(output)
        dist.reduce_scatter(found, list(parts), op, group=group)
        return found

    (found,) = _written([output], _through(collective, lambda grad: all_gather(grad, group), *input_list))
    return found


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: ProcessGroup | None = None
) -> tuple[Tensor, ...]:
    """What each rank r has as `input_tensor_list[this rank]`, by rank; also written into output_tensor_list."""
    places, sources = ([zeros_like(x) for x in tensors] for tensors in (output_tensor_list, input_tensor_list))

    def collective(*parts: Tensor) -> tuple[Tensor, ...]:
        found = [zeros_like(x) for x in places]
        dist.all_to_all(found, list(parts), group=group)
        return tuple(found)

    def adjoint(*grads: Tensor) -> tuple[Tensor, ...]:
        return all_to_all(sources, grads, group)

    return _written(output_tensor_list, *_through(collective, adjoint, *input_tensor_list))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Parts of `input`, rows by rank, exchanged; also written into `output`."""
    place, source = zeros_like(output), zeros_like(input)

    def collective(x: Tensor) -> Tensor:
        found = zeros_like(place)
        dist.all_to_all_single(found, x, output_split_sizes, input_split_sizes, group=group)
        return found

    def adjoint(grad: Tensor) -> Tensor:
        return all_to_all_single(source, grad, input_split_sizes, output_split_sizes, group)

    (found,) = _written([output], _through(collective, adjoint, input))
    return found


def all_reduce(tensor: Tensor, op: OpName = SUM, group: ProcessGroup | None = None) -> Tensor:
    """The reduction over all ranks. The gradient is reduced the same way, as in torch: right for sums and averages."""

    def collective(x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x, op, group=group)
        return x

    return _through(collective, lambda grad: all_reduce(grad, op, group), tensor)  # type: ignore[no-any-return]


def _written(places: Sequence[Tensor], *found: Tensor) -> tuple[Tensor, ...]:
    """`found`, whose values the places have now."""
    with no_grad():
        for place, tensor in zip(places, found, strict=True):
            place.copy_(tensor)
    return found


def _one_each(x: Tensor, group: ProcessGroup | None) -> list[Tensor]:
    return [zeros_like(x) for _ in range(dist.get_world_size(group))]
