"""torch.distributed's collectives on Tensors. In-place forms give a Tensor a new value.

In: Tensors of the same shapes and dtypes on all ranks of `group` (None: the default group), on the CPU or on a GPU.
Out: None, when it is done; or, with async_op=True, a Work. On a GPU "done" is meant as in torch: what the current
stream is given from then on comes after the collective; the host does not wait for it.
`src` and `dst` are global ranks, `group_src` and `group_dst` ranks in the group.
Ranks that call different collectives, or with other sizes or dtypes, get CollectiveMismatchError on all of them.
A rank that is not in the group (`GroupMember.NON_GROUP_MEMBER`) gets a warning and None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np

from collectives.call import ReduceOp as OpName
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.arguments import by_row, elements_of, equal_rows, on_root
from distcompile.distributed.group import (
    ProcessGroup,
    Timeout,
    check_not_traced,
    group_or_default,
    not_in,
    peer_rank,
    seconds,
)
from distcompile.distributed.under_trace import recorded_under_a_trace
from distcompile.distributed.work import (
    TensorWork,
    blank,
    check_list,
    copied,
    finish,
    outsider,
    value_of,
)


class ReduceOp:
    """Names of the reductions, for `op`: each is a string.

        SUM                  of all dtypes
        AVG                  SUM, divided by the number of ranks; of floating and complex dtypes
        PRODUCT, MAX, MIN    of all but complex dtypes
        BAND, BOR, BXOR      bitwise; of integers and bools

    Of bools, SUM is whether any is true, PRODUCT whether all are.

    Example:
        >>> dist.ReduceOp.PRODUCT
        'prod'
    """

    SUM: OpName = "sum"
    AVG: OpName = "avg"
    MAX: OpName = "max"
    MIN: OpName = "min"
    PRODUCT: OpName = "prod"
    BAND: OpName = "band"
    BOR: OpName = "bor"
    BXOR: OpName = "bxor"
    RedOpType: TypeAlias = str


@recorded_under_a_trace
def all_reduce(
    tensor: Tensor, op: OpName = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Replace `tensor`'s value by the reduction over all ranks.

        x ← x₀ ∘ x₁ ∘ ... ∘ xₙ₋₁, elementwise, on every rank; ∘ is `op`

    Args:
        tensor: of one shape and dtype on all ranks. On a GPU, what the stream is given from then on comes after the
            collective; the host does not wait.
        op: see `ReduceOp`.
        group: None: the default group. On a rank that is not in it there is a warning, and None is returned.
        async_op: return a `TensorWork` at once; `tensor` has its new value after its `wait()`.

    Raises: CollectiveMismatchError, on all ranks, where they call different collectives or with other sizes or dtypes;
    CollectiveTimeoutError, which names ranks that it waits for.

    Example:
        >>> from collectives import run_ranks
        >>> def total(ranks):
        ...     with dist.use_communicator(ranks):
        ...         x = torch.tensor([1.0 + dist.get_rank()])
        ...         dist.all_reduce(x)
        ...         return x
        >>> run_ranks(2, total)
        [tensor([3.]), tensor([3.])]
    """
    if not_in(group):
        return outsider("all_reduce")
    array = copied(tensor)
    work = group_or_default(group).all_reduce_async(array, op)
    return finish(TensorWork(work, [(tensor, array)]), async_op)


@recorded_under_a_trace
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: OpName = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> TensorWork | None:
    """On rank `dst`, replace `tensor`'s value by the reduction over all ranks; elsewhere it stays as it is.

    Args:
        dst: a global rank, 0 if not given; or group_dst: a rank in the group. The others: see `all_reduce`.

    Example:
        >>> from collectives import run_ranks
        >>> def total(ranks):
        ...     with dist.use_communicator(ranks):
        ...         x = torch.tensor([1.0 + dist.get_rank()])
        ...         dist.reduce(x, dst=0)
        ...         return x
        >>> run_ranks(2, total)
        [tensor([3.]), tensor([2.])]
    """
    if not_in(group):
        return outsider("reduce")
    array, found = copied(tensor), group_or_default(group)
    root = peer_rank(group, dst, group_dst, "dst")
    work = found.reduce_async(array, op, root=root)
    return finish(TensorWork(work, [(tensor, array)] if found.rank == root else []), async_op)


@recorded_under_a_trace
def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> TensorWork | None:
    """Replace `tensor`'s value by rank `src`'s.

    Args:
        src: a global rank, 0 if not given; or group_src: a rank in the group. The others: see `all_reduce`.

    Example:
        >>> from collectives import run_ranks
        >>> def same(ranks):
        ...     with dist.use_communicator(ranks):
        ...         x = torch.tensor([1.0 + dist.get_rank()])
        ...         dist.broadcast(x, src=1)
        ...         return x
        >>> run_ranks(2, same)
        [tensor([2.]), tensor([2.])]
    """
    if not_in(group):
        return outsider("broadcast")
    array = copied(tensor)
    work = group_or_default(group).broadcast_async(array, root=peer_rank(group, src, group_src, "src"))
    return finish(TensorWork(work, [(tensor, array)]), async_op)


@recorded_under_a_trace
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Put all ranks' `input_tensor`, by rank, into `output_tensor`. Group and async_op: see `all_reduce`.

    Shape: input [m, ...], output [N·m, ...] or [N, m, ...] for N ranks: N times the elements.

    Example:
        >>> from collectives import run_ranks
        >>> def joined(ranks):
        ...     with dist.use_communicator(ranks):
        ...         out = torch.empty(2)
        ...         dist.all_gather_into_tensor(out, torch.tensor([1.0 + dist.get_rank()]))
        ...         return out
        >>> run_ranks(2, joined)
        [tensor([1., 2.]), tensor([1., 2.])]
    """
    if not_in(group):
        return outsider("all_gather_into_tensor")
    array = blank(output_tensor)
    work = group_or_default(group).all_gather_async(array, copied(input_tensor))
    return finish(TensorWork(work, [(output_tensor, array)]), async_op)


@recorded_under_a_trace
def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Give `tensor_list[r]` rank r's `tensor`. Group and async_op: see `all_reduce`.

    Args:
        tensor_list: a Tensor for each rank, of `tensor`'s shape and dtype.

    Raises: TensorListError for another list.

    Example:
        >>> from collectives import run_ranks
        >>> def everyone(ranks):
        ...     with dist.use_communicator(ranks):
        ...         parts = [torch.empty(1), torch.empty(1)]
        ...         dist.all_gather(parts, torch.tensor([1.0 + dist.get_rank()]))
        ...         return parts
        >>> run_ranks(2, everyone)[0]
        [tensor([1.]), tensor([2.])]
    """
    if not_in(group):
        return outsider("all_gather")
    check_list("tensor_list", tensor_list, group, like=tensor)
    source = copied(tensor)
    rows = np.empty_like(source, shape=(len(tensor_list), *source.shape))
    work = group_or_default(group).all_gather_async(rows, source)
    return finish(TensorWork(work, by_row(tensor_list, rows)), async_op)


@recorded_under_a_trace
def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> TensorWork | None:
    """On rank `dst`, give `gather_list[r]` rank r's `tensor`.

    Args:
        gather_list: on `dst` a Tensor for each rank, of `tensor`'s shape and dtype; elsewhere None.
        dst: a global rank, 0 if not given; or group_dst: a rank in the group. The others: see `all_reduce`.

    Raises: TensorListError for another list.

    Example:
        >>> from collectives import run_ranks
        >>> def on_0(ranks):
        ...     with dist.use_communicator(ranks):
        ...         parts = [torch.empty(1), torch.empty(1)] if dist.get_rank() == 0 else None
        ...         dist.gather(torch.tensor([1.0 + dist.get_rank()]), parts, dst=0)
        ...         return parts
        >>> run_ranks(2, on_0)
        [[tensor([1.]), tensor([2.])], None]
    """
    if not_in(group):
        return outsider("gather")
    found, root = group_or_default(group), peer_rank(group, dst, group_dst, "dst")
    listed = on_root("gather_list", gather_list, found.rank == root)
    source = copied(tensor)
    if found.rank != root:
        return finish(TensorWork(found.gather_async(None, source, root=root), []), async_op)
    check_list("gather_list", listed, group, like=tensor)
    rows = np.empty_like(source, shape=(len(listed), *source.shape))
    return finish(TensorWork(found.gather_async(rows, source, root=root), by_row(listed, rows)), async_op)


@recorded_under_a_trace
def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> TensorWork | None:
    """Give rank r's `tensor` the value of rank `src`'s `scatter_list[r]`.

    Args:
        scatter_list: on `src` a Tensor for each rank, of `tensor`'s shape and dtype; elsewhere None.
        src: a global rank, 0 if not given; or group_src: a rank in the group. The others: see `all_reduce`.

    Raises: TensorListError for another list.

    Example:
        >>> from collectives import run_ranks
        >>> def part(ranks):
        ...     with dist.use_communicator(ranks):
        ...         x = torch.empty(1)
        ...         dist.scatter(x, [torch.zeros(1), torch.ones(1)] if dist.get_rank() == 0 else None, src=0)
        ...         return x
        >>> run_ranks(2, part)
        [tensor([0.]), tensor([1.])]
    """
    if not_in(group):
        return outsider("scatter")
    found, root = group_or_default(group), peer_rank(group, src, group_src, "src")
    listed = on_root("scatter_list", scatter_list, found.rank == root)
    array, rows = blank(tensor), None
    if found.rank == root:
        check_list("scatter_list", listed, group, like=tensor)
        rows = np.stack([value_of(part) for part in listed])
    return finish(TensorWork(found.scatter_async(array, rows, root=root), [(tensor, array)]), async_op)


@recorded_under_a_trace
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: OpName = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Reduce all ranks' `input` and keep this rank's part of the result in `output`. Arguments: see `all_reduce`.

    Shape: input [N·m, ...] or [N, m, ...], output [m, ...] for N ranks: an Nth of the elements.

    Example:
        >>> from collectives import run_ranks
        >>> def part(ranks):
        ...     with dist.use_communicator(ranks):
        ...         out = torch.empty(1)
        ...         dist.reduce_scatter_tensor(out, torch.tensor([1.0, 10.0]))
        ...         return out
        >>> run_ranks(2, part)
        [tensor([2.]), tensor([20.])]
    """
    if not_in(group):
        return outsider("reduce_scatter_tensor")
    array = blank(output)
    work = group_or_default(group).reduce_scatter_async(array, copied(input), op)
    return finish(TensorWork(work, [(output, array)]), async_op)


@recorded_under_a_trace
def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: OpName = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> TensorWork | None:
    """Reduce all ranks' `input_list[r]` and keep this rank's in `output`. The other arguments: see `all_reduce`.

    Args:
        input_list: a Tensor for each rank, of `output`'s shape and dtype.

    Raises: TensorListError for another list.

    Example: see `reduce_scatter_tensor`.
    """
    if not_in(group):
        return outsider("reduce_scatter")
    check_list("input_list", input_list, group, like=output)
    array = blank(output)
    work = group_or_default(group).reduce_scatter_async(array, np.stack([value_of(part) for part in input_list]), op)
    return finish(TensorWork(work, [(output, array)]), async_op)


@recorded_under_a_trace
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> TensorWork | None:
    """Send part r of `input`, cut along dimension 0, to rank r; put what rank r sends into part r of `output`.

    Args:
        output_split_sizes, input_split_sizes: rows of each part, one number for each rank; None: equal parts.

    Raises: TensorListError for sizes that do not add up. Group and async_op: see `all_reduce`.

    Example:
        >>> from collectives import run_ranks
        >>> def swapped(ranks):
        ...     with dist.use_communicator(ranks):
        ...         out = torch.empty(2)
        ...         dist.all_to_all_single(out, torch.tensor([0.0, 1.0]) + 10 * dist.get_rank())
        ...         return out
        >>> run_ranks(2, swapped)
        [tensor([ 0., 10.]), tensor([ 1., 11.])]
    """
    if not_in(group):
        return outsider("all_to_all_single")
    found, array = group_or_default(group), blank(output)
    splits = None
    if output_split_sizes or input_split_sizes:
        splits = (
            elements_of("input", input, input_split_sizes, found.world_size),
            elements_of("output", output, output_split_sizes, found.world_size),
        )
    else:
        for name, tensor in (("input", input), ("output", output)):
            equal_rows(name, tensor, found.world_size)
    return finish(TensorWork(found.all_to_all_async(array, copied(input), splits=splits), [(output, array)]), async_op)


@recorded_under_a_trace
def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> TensorWork | None:
    """Send `input_tensor_list[r]` to rank r, and give `output_tensor_list[r]` what rank r sends. Sizes may differ.

    Raises: TensorListError unless there is a Tensor for each rank, all of one dtype. The others: see `all_reduce`.

    Example:
        >>> from collectives import run_ranks
        >>> def swapped(ranks):
        ...     with dist.use_communicator(ranks):
        ...         out = [torch.empty(1), torch.empty(1)]
        ...         dist.all_to_all(out, [torch.tensor([10.0 * dist.get_rank() + to]) for to in range(2)])
        ...         return out
        >>> run_ranks(2, swapped)[1]
        [tensor([1.]), tensor([11.])]
    """
    if not_in(group):
        return outsider("all_to_all")
    check_list("input_tensor_list", input_tensor_list, group)
    check_list("output_tensor_list", output_tensor_list, group)
    source = np.concatenate([value_of(tensor).reshape(-1) for tensor in input_tensor_list])
    sent, received = ([math.prod(t.shape) for t in tensors] for tensors in (input_tensor_list, output_tensor_list))
    target = np.empty_like(source, shape=(sum(received),), dtype=value_of(output_tensor_list[0]).dtype)
    work = group_or_default(group).all_to_all_async(target, source, splits=(sent, received))
    parts = [target[start:stop] for start, stop in pairwise(accumulate(received, initial=0))]
    results = [(t, part.reshape(tuple(t.shape))) for t, part in zip(output_tensor_list, parts)]
    return finish(TensorWork(work, results), async_op)


def barrier(group: ProcessGroup | None = None, async_op: bool = False, device_ids: object = None) -> TensorWork | None:
    """Return when all ranks are here. Group and async_op: see `all_reduce`; device_ids: without effect.

    Raises: CollectiveTimeoutError, which names ranks that it waits for; GraphBreak while tracing.

    Example:
        >>> from collectives import run_ranks
        >>> def met(ranks):
        ...     with dist.use_communicator(ranks):
        ...         dist.barrier()
        ...         return "here"
        >>> run_ranks(2, met)
        ['here', 'here']
    """
    check_not_traced("barrier")
    if not_in(group):
        return outsider("barrier")
    return finish(TensorWork(group_or_default(group).barrier_async(), []), async_op)


def monitored_barrier(group: ProcessGroup | None = None, timeout: Timeout = None, wait_all_ranks: bool = False) -> None:
    """A barrier with a limit of its own, for finding a rank that hangs.

    Args:
        timeout: timedelta or seconds; None: the group's.
        wait_all_ranks: torch's rank 0 names the first missing rank, or with True all of them. Here all are named either
            way, by any rank whose limit passes.

    Raises: CollectiveTimeoutError, which names all missing ranks (or the rank that has given up already), on every rank
    that came; GraphBreak while tracing.

    Example: `dist.monitored_barrier(timeout=30)`.
    """
    check_not_traced("monitored_barrier")
    if not_in(group):
        outsider("monitored_barrier")
        return
    work = group_or_default(group).barrier_async(label="monitored_barrier")
    work.wait(None if timeout is None else seconds(timeout))


all_gather_single = all_gather_into_tensor  # torch's newer names
reduce_scatter_single = reduce_scatter_tensor
