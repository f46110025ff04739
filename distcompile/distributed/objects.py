"""Objects between ranks: whatever pickle takes. As in torch: unpickle only what your own ranks sent.

In: picklable objects; lists that receive them, filled in place. Out: every rank's, one rank's, or this rank's object.
all_gather_object and broadcast_object_list go over the group's control channel, the others as arrays of bytes, in
order with the other collectives.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.errors import TensorListError
from distcompile.distributed.group import ProcessGroup, check_not_traced, group_or_default, not_in, peer_rank
from distcompile.distributed.messages import recv, send
from distcompile.distributed.work import outsider


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Put every rank's `obj`, whatever pickle takes, into `object_list`, by rank.

    Example:
        >>> from collectives import run_ranks
        >>> def names(ranks):
        ...     with dist.use_communicator(ranks):
        ...         found = [None, None]
        ...         dist.all_gather_object(found, {"rank": dist.get_rank()})
        ...         return found
        >>> run_ranks(2, names)[0]
        [{'rank': 0}, {'rank': 1}]
    """
    check_not_traced("all_gather_object")
    if not_in(group):
        outsider("all_gather_object")
        return
    object_list[:] = group_or_default(group).all_gather_object(obj)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: object = None,
    group_src: int | None = None,
) -> None:
    """Replace the list's items by rank `src`'s.

    Args:
        src: a global rank, 0 if not given; or group_src: a rank in the group. device: without effect.

    Raises: TensorListError if the lists have different lengths.

    Example:
        >>> from collectives import run_ranks
        >>> def told(ranks):
        ...     with dist.use_communicator(ranks):
        ...         items = ["run 7", 0.1] if dist.get_rank() == 0 else [None, None]
        ...         dist.broadcast_object_list(items)
        ...         return items
        >>> run_ranks(2, told)[1]
        ['run 7', 0.1]
    """
    check_not_traced("broadcast_object_list")
    if not_in(group):
        outsider("broadcast_object_list")
        return
    root = peer_rank(group, src, group_src, "src")
    received = group_or_default(group).broadcast_object(list(object_list), root=root)
    if len(received) != len(object_list):
        raise TensorListError(
            "broadcast_object_list needs lists of one length", expected=str(len(received)), got=str(len(object_list))
        )
    object_list[:] = received


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
) -> None:
    """On rank `dst`, put every rank's `obj` into `object_gather_list`, by rank.

    Args:
        object_gather_list: on `dst` a list with an item for each rank; elsewhere None.
        dst: a global rank, 0 if not given; or group_dst: a rank in the group.

    Raises: TensorListError for another list.

    Example:
        >>> from collectives import run_ranks
        >>> def on_0(ranks):
        ...     with dist.use_communicator(ranks):
        ...         found = [None, None] if dist.get_rank() == 0 else None
        ...         dist.gather_object("ab"[dist.get_rank()], found)
        ...         return found
        >>> run_ranks(2, on_0)
        [['a', 'b'], None]
    """
    check_not_traced("gather_object")
    if not_in(group):
        outsider("gather_object")
        return
    found, root = group_or_default(group), peer_rank(group, dst, group_dst, "dst")
    is_root = found.rank == root
    _check_root_list("object_gather_list", object_gather_list, is_root, found.world_size)
    text = _pickled(obj)
    sizes = np.empty(found.world_size, np.int64)
    found.all_gather(sizes, np.array([text.size], np.int64))
    longest = int(sizes.max())
    rows = np.empty((found.world_size, longest), np.uint8) if is_root else None
    found.gather_async(rows, np.pad(text, (0, longest - text.size)), root=root).wait()
    if rows is not None and object_gather_list is not None:
        object_gather_list[:] = [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes)]


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
) -> None:
    """Put item r of rank `src`'s `scatter_object_input_list` into rank r's `scatter_object_output_list[0]`.

    Args:
        scatter_object_output_list: at least one item long.
        scatter_object_input_list: on `src` an item for each rank; elsewhere it is not looked at.
        src: a global rank, 0 if not given; or group_src: a rank in the group.

    Raises: TensorListError for another list.

    Example:
        >>> from collectives import run_ranks
        >>> def part(ranks):
        ...     with dist.use_communicator(ranks):
        ...         mine = [None]
        ...         dist.scatter_object_list(mine, ["a", "b"] if dist.get_rank() == 0 else None)
        ...         return mine
        >>> run_ranks(2, part)
        [['a'], ['b']]
    """
    check_not_traced("scatter_object_list")
    if not_in(group):
        outsider("scatter_object_list")
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise TensorListError("scatter_object_output_list must be a list of at least one item")
    found, root = group_or_default(group), peer_rank(group, src, group_src, "src")
    is_root = found.rank == root
    texts: list[Array] = []
    sizes = np.empty(found.world_size, np.int64)
    if is_root:
        _check_root_list("scatter_object_input_list", scatter_object_input_list, True, found.world_size)
        texts = [_pickled(item) for item in scatter_object_input_list or ()]
        sizes[:] = [text.size for text in texts]
    found.broadcast(sizes, root=root)
    longest = int(sizes.max())
    rows = np.stack([np.pad(text, (0, longest - text.size)) for text in texts]) if is_root else None
    mine = np.empty(longest, np.uint8)
    found.scatter_async(mine, rows, root=root).wait()
    scatter_object_output_list[0] = pickle.loads(mine[: sizes[found.rank]].tobytes())


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: object = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the list's items, whatever pickle takes, to rank `dst`.

    Args:
        dst: a global rank; or group_dst: a rank in the group. device, use_batch: without effect.

    Example:
        >>> from collectives import run_ranks
        >>> def passed(ranks):
        ...     with dist.use_communicator(ranks):
        ...         if dist.get_rank() == 0:
        ...             dist.send_object_list(["a", 1], dst=1)
        ...         else:
        ...             items = [None, None]
        ...             return dist.recv_object_list(items, src=0), items
        >>> run_ranks(2, passed)[1]
        (0, ['a', 1])
    """
    check_not_traced("send_object_list")
    if not_in(group):
        outsider("send_object_list")
        return
    text = _pickled(list(object_list))
    for array in (np.array([text.size], np.int64), text):
        send(Tensor._wrap(array), dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: object = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Replace the list's items by those that rank `src` (None: any) sends. Returns the sender's global rank.

    Raises: TensorListError for a list of another length. Arguments and example: see `send_object_list`.
    """
    check_not_traced("recv_object_list")
    if not_in(group):
        outsider("recv_object_list")
        return -1
    size = Tensor._wrap(np.empty(1, np.int64))
    sender = recv(size, src, group, group_src=group_src)
    text = Tensor._wrap(np.empty(int(size._array("recv")[0]), np.uint8))
    recv(text, sender, group)
    received = pickle.loads(text._array("recv").tobytes())
    if len(received) != len(object_list):
        raise TensorListError(
            f"rank {sender} sent a list of another length", expected=str(len(object_list)), got=str(len(received))
        )
    object_list[:] = received
    return sender


def _pickled(obj: Any) -> Array:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _check_root_list(name: str, items: Sequence[Any] | None, is_root: bool, world_size: int) -> None:
    if is_root and (items is None or len(items) != world_size):
        got = "None" if items is None else str(len(items))
        raise TensorListError(f"{name} must have an item for each rank on the root", expected=str(world_size), got=got)
    if not is_root and items:
        raise TensorListError(f"{name} must not be given on other ranks than the root")
