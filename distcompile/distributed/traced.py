"""torch.distributed's collectives in captured code: what is captured in place of tensors.py and messages.py.

In: their arguments. Out: what they give. Each becomes one op of the graph (compiler_core/ops/collectives), and its
result is written, outside of autograd as torch does, into the tensor that the caller gave. A handle of async_op=True is
done when it is made: in a graph the reader of the value waits, not who holds the handle. Group, rank and sizes are
guarded constants. In a group of one rank nothing is sent.
A group that was not made by `new_group`, and a rank that is not in one, end the graph, as does what has no rule here
(objects, barriers, a message from any rank).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from collectives.call import ReduceOp as OpName
from compiler_core.capture import policy
from compiler_core.ops.composites.movement import cat, stack
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed import messages, recorded, tensors
from distcompile.distributed.arguments import equal_rows, on_root
from distcompile.distributed.group import (
    ProcessGroup,
    Timeout,
    check_not_traced,
    group_or_default,
    not_in,
)
from distcompile.distributed.group import peer_rank as told_peer_rank
from distcompile.distributed.under_trace import INSTEAD
from distcompile.distributed.work import TensorWork, check_list, outsider


class _Over:
    """A collective that is done."""

    peer: int | None = None

    def wait(self, timeout_s: float | None = None) -> None:
        return None

    def is_done(self) -> bool:
        return True


class GraphWork(TensorWork):
    """The handle on a collective of a graph: it is done. tensors: those that it wrote. source: who sent a message."""

    work = _Over()  # type: ignore[assignment]
    _results = ()  # type: ignore[assignment]
    _lock = threading.Lock()

    def __init__(self, tensors: list[Tensor], source: int = -1) -> None:
        self.tensors, self.source = tensors, source

    def wait(self, timeout: Timeout = None) -> bool:
        return True

    def synchronize(self) -> None:
        return None

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    def result(self) -> list[Tensor]:
        return self.tensors

    def source_rank(self) -> int:
        if self.source < 0:
            return TensorWork.source_rank(self)  # raises
        return self.source


def _finished(written: list[Tensor], async_op: bool) -> GraphWork | None:
    return GraphWork(written) if async_op else None


def key_of(group: ProcessGroup | None) -> str:
    """The name of a group in graphs."""
    if group is None or group is group_or_default(None):
        return "world"
    key = group_or_default(group).graph_key
    if not key:
        check_not_traced("a group that new_group() did not make")
    return key


def _members(group: ProcessGroup | None) -> Sequence[int]:
    """The global ranks of a group."""
    found = group_or_default(group)
    return found.members or range(found.world_size)


def peer_rank(group: ProcessGroup | None, global_rank: int | None, group_rank: int | None, name: str) -> int:
    """As in group.py, which says what is wrong once the graph has ended."""
    members = _members(group)
    if group_rank is None and (0 if global_rank is None else global_rank) in members:
        return members.index(0 if global_rank is None else global_rank)
    if group_rank is None or global_rank is not None or not 0 <= group_rank < len(members):
        return told_peer_rank(group, global_rank, group_rank, name)  # raises
    return group_rank


def ranks_of(group: ProcessGroup | None) -> int:
    return group_or_default(group).world_size


def all_reduce(tensor: Tensor, op: OpName = "sum", group: ProcessGroup | None = None, async_op: bool = False) -> Any:
    if not_in(group):
        return outsider("all_reduce")
    ranks = ranks_of(group)
    if ranks > 1:
        recorded.put(tensor, recorded.all_reduced(tensor.detach(), op, key_of(group), ranks))
    return _finished([tensor], async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: OpName = "sum",
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    if not_in(group):
        return outsider("reduce")
    ranks, root = ranks_of(group), peer_rank(group, dst, group_dst, "dst")
    written = []
    if ranks > 1:
        found = recorded.reduced_to(tensor.detach(), op, root, key_of(group), ranks)
        if group_or_default(group).rank == root:
            recorded.put(tensor, found)
            written = [tensor]
    return _finished(written, async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    if not_in(group):
        return outsider("broadcast")
    ranks, root = ranks_of(group), peer_rank(group, src, group_src, "src")
    if ranks > 1:
        recorded.put(tensor, recorded.sent_by(tensor.detach(), root, key_of(group), ranks))
    return _finished([tensor], async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Any:
    if not_in(group):
        return outsider("all_gather_into_tensor")
    recorded.put(output_tensor, _gathered(input_tensor, group))
    return _finished([output_tensor], async_op)


def _gathered(x: Tensor, group: ProcessGroup | None) -> Tensor:
    ranks = ranks_of(group)
    return recorded.gathered(x.detach(), key_of(group), ranks) if ranks > 1 else x.detach()[None]


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Any:
    if not_in(group):
        return outsider("all_gather")
    _check_list("tensor_list", tensor_list, group, tensor)
    rows = _gathered(tensor, group)
    for rank, place in enumerate(tensor_list):
        recorded.put(place, rows[rank])
    return _finished(list(tensor_list), async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    if not_in(group):
        return outsider("gather")
    ranks, root = ranks_of(group), peer_rank(group, dst, group_dst, "dst")
    here = group_or_default(group).rank == root
    listed = _on_root("gather_list", gather_list, here)
    if here:
        _check_list("gather_list", listed, group, tensor)
    rows = tensor.detach()[None] if ranks == 1 else recorded.gathered_to(tensor.detach(), root, key_of(group), ranks)
    for rank, place in enumerate(listed):
        recorded.put(place, rows[rank])
    return _finished(list(listed), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    if not_in(group):
        return outsider("scatter")
    ranks, root = ranks_of(group), peer_rank(group, src, group_src, "src")
    here = group_or_default(group).rank == root
    listed = _on_root("scatter_list", scatter_list, here)
    if here:
        _check_list("scatter_list", listed, group, tensor)
    rows = stack([part.detach() for part in (listed if here else [tensor] * ranks)])
    recorded.put(tensor, rows[0] if ranks == 1 else recorded.scattered(rows, root, key_of(group), ranks))
    return _finished([tensor], async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: OpName = "sum", group: ProcessGroup | None = None, async_op: bool = False
) -> Any:
    if not_in(group):
        return outsider("reduce_scatter_tensor")
    recorded.put(output, _reduced_row(input.detach().reshape(ranks_of(group), *output.shape), op, group))
    return _finished([output], async_op)


def _reduced_row(rows: Tensor, op: OpName, group: ProcessGroup | None) -> Tensor:
    ranks = ranks_of(group)
    return recorded.reduced_row(rows, op, key_of(group), ranks) if ranks > 1 else rows[0]


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: OpName = "sum",
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    if not_in(group):
        return outsider("reduce_scatter")
    _check_list("input_list", input_list, group, output)
    recorded.put(output, _reduced_row(stack([part.detach() for part in input_list]), op, group))
    return _finished([output], async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    if not_in(group):
        return outsider("all_to_all_single")
    ranks, x = ranks_of(group), input.detach()
    if not output_split_sizes and not input_split_sizes:
        _equal_parts("input", input, ranks)
        _equal_parts("output", output, ranks)
        rows = x.reshape(ranks, x.shape[0] // ranks, *x.shape[1:])
        recorded.put(output, recorded.exchanged(rows, key_of(group), ranks) if ranks > 1 else rows)
    else:
        sent, received = _parts(input, input_split_sizes, ranks), _parts(output, output_split_sizes, ranks)
        recorded.put(output, recorded.exchanged_rows(x, sent, received, key_of(group), ranks) if ranks > 1 else x)
    return _finished([output], async_op)


def _equal_parts(name: str, x: Tensor, ranks: int) -> None:
    if not x.shape or x.shape[0] % ranks:
        equal_rows(name, x, ranks)  # raises, once it is out of the graph


def _parts(x: Tensor, sizes: Sequence[int] | None, ranks: int) -> list[int]:
    return [int(size) for size in sizes] if sizes else [x.shape[0] // ranks] * ranks


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    if not_in(group):
        return outsider("all_to_all")
    ranks = ranks_of(group)
    flat = cat([part.detach().reshape(-1) for part in input_tensor_list])
    sent, received = [x.numel() for x in input_tensor_list], [x.numel() for x in output_tensor_list]
    if ranks > 1:
        flat = recorded.exchanged_rows(flat, sent, received, key_of(group), ranks)
    start = 0
    for place, count in zip(output_tensor_list, received):
        recorded.put(place, flat[start : start + count])
        start += count
    return _finished(list(output_tensor_list), async_op)


# ---- messages


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Any:
    if not_in(group):
        return outsider("isend")
    recorded.send(tensor, _peer(group, dst, group_dst, "dst"), tag, key_of(group), ranks_of(group))
    return GraphWork([])


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Any:
    if not_in(group):
        return outsider("irecv")
    if src is None and group_src is None:
        check_not_traced("a message from any rank")
    peer = _peer(group, src, group_src, "src")
    recorded.put(tensor, recorded.received(tensor, peer, tag, key_of(group), ranks_of(group)))
    return GraphWork([tensor], _global(group, peer))


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    isend(tensor, dst, group, tag, group_dst)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    work = irecv(tensor, src, group, tag, group_src)
    return -1 if work is None else work.source


def _global(group: ProcessGroup | None, peer: int) -> int:
    return _members(group)[peer]


def _peer(group: ProcessGroup | None, peer: int | None, group_peer: int | None, name: str) -> int:
    if peer is None and group_peer is None:
        messages._peer(group, peer, group_peer, name)  # raises
    found = peer_rank(group, peer, group_peer, name)
    if found == group_or_default(group).rank:
        messages._peer(group, peer, group_peer, name)  # raises
    return found


def batch_isend_irecv(p2p_op_list: list[messages.P2POp]) -> list[Any]:
    if not p2p_op_list or any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        messages.batch_isend_irecv(p2p_op_list)  # raises
    works = []
    for op in p2p_op_list:
        works.append(op.op(op.tensor, op.peer, op.group, op.tag, op.group_peer))
    return [work for work in works if work is not None]


# ---- arguments


def _check_list(name: str, listed: list[Tensor], group: ProcessGroup | None, like: Tensor) -> None:
    """Lists that do not fit end the graph: eager code says why."""
    if len(listed) != ranks_of(group) or any(x.shape != like.shape or x.dtype != like.dtype for x in listed):
        check_list(name, listed, group, like=like)


def _on_root(name: str, listed: list[Tensor] | None, here: bool) -> list[Tensor]:
    if (here and listed is None) or (not here and listed):
        on_root(name, listed, here)  # raises
    return listed or []


REPLACED = {
    tensors: (
        *(all_reduce, reduce, broadcast, all_gather_into_tensor, all_gather, gather, scatter),
        *(reduce_scatter_tensor, reduce_scatter, all_to_all_single, all_to_all),
    ),
    messages: (isend, irecv, send, recv, batch_isend_irecv),
}


def replace_in_captured_code() -> None:
    """From now on, captured code has these in the place of what talks at once."""
    for module, functions in REPLACED.items():
        for function in functions:
            policy.say(getattr(module, function.__name__), policy.Replaced(function))
            INSTEAD[function.__name__] = function
