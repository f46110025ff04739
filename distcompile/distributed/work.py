"""`TensorWork`: the handle on a collective on Tensors, as torch's Work; and how Tensors become arrays and back.

In: a collective in flight, and which Tensors get which arrays when it is done. Out: `wait`, `is_completed`, `result`,
`get_future`. A Tensor's value is immutable, so a collective works on a copy, and the Tensor gets its new value when
somebody first learns that the collective is done: by `wait`, `is_completed`, or a Future.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeAlias

from collectives import Work
from compiler_core import log
from compiler_core.device import copy_of, device_of
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.errors import TensorListError
from distcompile.distributed.group import (
    ProcessGroup,
    Timeout,
    get_global_rank,
    get_rank,
    group_or_default,
    seconds,
)
from distcompile.futures import Future

Results: TypeAlias = "list[tuple[Tensor, Array]]"


class TensorWork:
    """A collective, or a message, on Tensors in flight: what async_op=True returns. Also named `Work`.

    A Tensor gets its new value when somebody first learns that the collective is done: by `wait`, `is_completed`, or
    a Future; until then it has its old one.

    Args:
        work: the collective on arrays.
        results: each Tensor, and the array that becomes its value.
        group: of a message, for the sender's global rank.

    Example:
        >>> from collectives import run_ranks
        >>> def late(ranks):
        ...     with dist.use_communicator(ranks):
        ...         x = torch.ones(1)
        ...         work = dist.all_reduce(x, async_op=True)
        ...         return x.item(), work.wait(), x.item()
        >>> run_ranks(2, late)
        [(1.0, True, 2.0), (1.0, True, 2.0)]
    """

    def __init__(self, work: Work, results: Results, group: ProcessGroup | None = None) -> None:
        self.work, self.group = work, group
        self.tensors = [tensor for tensor, _ in results]
        self._results = results
        self._lock = threading.Lock()

    def is_completed(self) -> bool:
        """Whether it ended, well or not. Never blocks. If it ended well, the Tensors have their values."""
        if self.work.is_done() and self.exception() is None:
            self._deliver()
        return self.work.is_done()

    def is_success(self) -> bool:
        """Whether it ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error it ended with; None if it ended well or is still on its way."""
        if not self.work.is_done():
            return None
        try:
            self.work.wait()
        except Exception as error:  # noqa: BLE001 - handed to the caller, who asked for it
            return error
        return None

    def wait(self, timeout: Timeout = None) -> bool:
        """Wait, and give the Tensors their values. Raises CollectiveTimeoutError, or the error it ended with."""
        self.work.wait(None if timeout is None else seconds(timeout))
        self._deliver()
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def result(self) -> list[Tensor]:
        """The Tensors it wrote, when it is done."""
        self.wait()
        return self.tensors

    def get_future(self) -> Future[list[Tensor]]:
        """A Future of the Tensors it writes; see futures.py for when its callbacks run."""
        return Future.produced_by(self.result, self.is_completed)

    def source_rank(self) -> int:
        """Of a message received: the global rank that sent it."""
        if self.work.peer is None:
            raise TensorListError("this is not a message that was received", got=self.work.what)
        return get_global_rank(self.group, self.work.peer)

    def _deliver(self) -> None:
        with self._lock:
            for tensor, array in self._results:
                tensor._cell.write(array)
            self._results = []


def finish(work: TensorWork, async_op: bool) -> TensorWork | None:
    """`work`, or, if it is not to be asynchronous, None when it is done."""
    if async_op:
        return work
    work.wait()
    return None


def outsider(name: str) -> TensorWork | None:
    """This rank is not in the group: say so once, and do nothing, as torch. Always None."""
    rank = get_rank()
    log.warn_once(
        f"distributed: {name} from outside", f"{name} on global rank {rank}, which does not belong to the given group"
    )
    return None


def copied(tensor: Tensor) -> Array:
    """The tensor's value in memory of its own: values are immutable, collectives write."""
    array: Array = copy_of(value_of(tensor))
    return array


def value_of(tensor: Tensor) -> Array:
    """The tensor's value, C-contiguous, to be read only."""
    if not isinstance(tensor, Tensor):
        raise TensorListError("a collective takes Tensors", got=type(tensor).__name__)
    array = tensor._own_array("a collective")
    return array if array.flags.c_contiguous else copy_of(array)


def blank(tensor: Tensor) -> Array:
    """Memory for a result of the tensor's shape and dtype."""
    like = value_of(tensor)
    place: Array = device_of(like).empty(like.shape, like.dtype)
    return place


def check_list(name: str, tensors: Sequence[Tensor], group: ProcessGroup | None, like: Tensor | None = None) -> None:
    """Raise TensorListError unless there is a tensor for each rank, of `like`'s shape and dtype if that is given."""
    world_size = group_or_default(group).world_size
    if len(tensors) != world_size:
        raise TensorListError(f"{name} needs a tensor for each rank", expected=str(world_size), got=str(len(tensors)))
    for rank, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TensorListError(f"{name}[{rank}] is not a Tensor", got=type(tensor).__name__)
        if tensor.dtype != (tensors[0] if like is None else like).dtype:
            raise TensorListError(f"{name}[{rank}] has another dtype", got=str(tensor.dtype))
        if like is not None and tensor.shape != like.shape:
            raise TensorListError(
                f"{name}[{rank}] has another shape", expected=str(tuple(like.shape)), got=str(tuple(tensor.shape))
            )
