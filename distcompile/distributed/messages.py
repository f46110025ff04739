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
from distcompile.distributed.work import TensorWork, blank, copied, outsider

Op: TypeAlias = Callable[..., "TensorWork | None"]


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> TensorWork | None:
    """Begin to send `tensor` to rank `dst`; it may be changed at once."""
    if not_in(group):
        return outsider("isend")
    found = group_or_default(group)
    # without NCCL a device's is fetched: the other end has it in host memory
    array = copied(tensor) if found.takes_device_arrays() else np.ascontiguousarray(tensor._array("isend()").copy())
    return TensorWork(found.send_async(array, _peer(group, dst, group_dst, "dst"), tag=tag), [])


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> TensorWork | None:
    """Begin to receive into `tensor` from rank `src`, or from whichever sends first (None)."""
    if not_in(group):
        return outsider("irecv")
    peer = None if src is None and group_src is None else _peer(group, src, group_src, "src")
    array = blank(tensor)
    return TensorWork(group_or_default(group).receive_async(array, peer, tag=tag), [(tensor, array)], group)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send `tensor` to rank `dst`. A large one, and one on a GPU, waits for its receiver."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into `tensor` from rank `src`, or from whichever sends first (None). Returns the sender's global rank."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One message of a batch. op: `isend` or `irecv`. peer: global rank; or group_peer: rank in the group."""

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


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[TensorWork]:
    """Begin all these messages, in order. Returns their Works. Raises TensorListError if they are not of one group."""
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
