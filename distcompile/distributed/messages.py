"""Messages between two ranks on Tensors: send, recv, isend, irecv, and batches of them.

In: a Tensor, a peer (global rank, or `group_src`/`group_dst`), a tag. Out: the receiver's Tensor gets the sender's
value. Messages of one tag from one rank arrive in order. One of another dtype or size than the receiver's Tensor is a
CollectiveMismatchError there. Both ends agree on the group; its messages never meet another group's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.errors import GroupRankError, TensorListError
from distcompile.distributed.group import ProcessGroup, group_or_default, not_in, peer_rank
from distcompile.distributed.under_trace import recorded_under_a_trace
from distcompile.distributed.work import TensorWork, blank, copied, outsider

Op: TypeAlias = Callable[..., "TensorWork | None"]


@recorded_under_a_trace
def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> TensorWork | None:
    """Begin to send `tensor` to rank `dst`; it may be changed at once. Returns a `TensorWork`.

    Args: as `send`'s; `irecv` has an example.
    """
    if not_in(group):
        return outsider("isend")
    found = group_or_default(group)
    # without NCCL a device's is fetched: the other end has it in host memory
    array = copied(tensor) if found.takes_device_arrays() else np.ascontiguousarray(tensor._array("isend()").copy())
    return TensorWork(found.send_async(array, _peer(group, dst, group_dst, "dst"), tag=tag), [])


@recorded_under_a_trace
def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> TensorWork | None:
    """Begin to receive into `tensor` from rank `src`, or from whichever sends first (None).

    Args: as `send`'s. Returns: a `TensorWork`; `tensor` has its value after `wait()`, which also checks dtype and size.

    Example:
        >>> from collectives import run_ranks
        >>> def exchanged(ranks):
        ...     with dist.use_communicator(ranks):
        ...         mine, theirs = torch.tensor([1.0 + dist.get_rank()]), torch.empty(1)
        ...         works = [dist.isend(mine, 1 - dist.get_rank()), dist.irecv(theirs, 1 - dist.get_rank())]
        ...         return [work.wait() for work in works], theirs
        >>> run_ranks(2, exchanged)
        [([True, True], tensor([2.])), ([True, True], tensor([1.]))]
    """
    if not_in(group):
        return outsider("irecv")
    peer = None if src is None and group_src is None else _peer(group, src, group_src, "src")
    array = blank(tensor)
    return TensorWork(group_or_default(group).receive_async(array, peer, tag=tag), [(tensor, array)], group)


@recorded_under_a_trace
def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send `tensor` to rank `dst`. A large one, and one on a GPU, waits for its receiver.

    Args:
        dst: a global rank; or group_dst: a rank in the group; never this one.
        tag: the receiver asks for the same; messages of one tag from one rank arrive in order.

    Raises: GroupRankError. The receiver gets CollectiveMismatchError where its Tensor has another dtype or size.

    Example:
        >>> from collectives import run_ranks
        >>> def passed(ranks):
        ...     with dist.use_communicator(ranks):
        ...         x = torch.tensor([1.0 + dist.get_rank()])
        ...         if dist.get_rank() == 0:
        ...             dist.send(x, dst=1)
        ...         else:
        ...             dist.recv(x, src=0)
        ...         return x
        >>> run_ranks(2, passed)
        [tensor([1.]), tensor([1.])]
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


@recorded_under_a_trace
def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into `tensor` from rank `src`, or from whichever sends first (None). Returns the sender's global rank.

    Args: as `send`'s, which has the example. Raises: CollectiveMismatchError for a message of another dtype or size.
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One message of a batch, for `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`, the functions.
        peer: a global rank; or group_peer: a rank in the group. The others: see `send`.

    Raises: TensorListError for another op.
    """

    def __init__(
        self,
        op: Op,
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise TensorListError("a P2POp's op is isend or irecv", got=getattr(op, "__name__", repr(op)))
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )

    def start(self) -> TensorWork | None:
        return self.op(self.tensor, self.peer, self.group, self.tag, self.group_peer)


@recorded_under_a_trace
def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[TensorWork]:
    """Begin all these messages, in order. Returns their Works.

    Raises: TensorListError for an empty list, or messages of different groups.

    Example:
        >>> from collectives import run_ranks
        >>> def shifted(ranks):
        ...     with dist.use_communicator(ranks):
        ...         me, x = dist.get_rank(), torch.empty(1)
        ...         ring = [dist.P2POp(dist.isend, torch.tensor([float(me)]), (me + 1) % 3)]
        ...         ring += [dist.P2POp(dist.irecv, x, (me - 1) % 3)]
        ...         for work in dist.batch_isend_irecv(ring):
        ...             work.wait()
        ...         return x
        >>> run_ranks(3, shifted)
        [tensor([2.]), tensor([0.]), tensor([1.])]
    """
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise TensorListError("batch_isend_irecv takes a list of P2POp, not an empty one", got=repr(p2p_op_list))
    if any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        raise TensorListError("all messages of a batch need to use the same group")
    works = [op.start() for op in p2p_op_list]
    return [work for work in works if work is not None]


def _peer(group: ProcessGroup | None, peer: Any, group_peer: int | None, name: str) -> int:
    """The other end's rank in the group; it is not this one."""
    if peer is None and group_peer is None:
        raise GroupRankError(f"{name} or group_{name} must be given")
    found = peer_rank(group, peer, group_peer, name)
    if found == group_or_default(group).rank:
        raise GroupRankError(f"{name} is this rank itself", got=f"rank {found}")
    return found
