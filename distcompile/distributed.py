"""torch.distributed's names over our collectives: process group, rank, world size, collectives on Tensors.

In: Tensors and picklable objects. Out: the same, reduced, broadcast, gathered. In-place forms give a Tensor a new
value. The default group is the process's; a thread that is a rank of its own (`use_communicator`) sees its own.
Not here: process groups over some of the ranks, and point-to-point messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import numpy as np

from collectives import Communicator, Work
from collectives.call import ReduceOp as OpName
from compiler_core import log
from compiler_core.ops.registry import Array
from compiler_core.tensor.fence import settle_all
from compiler_core.tensor.tensor import Tensor
from distcompile import watchdog
from distcompile.ddp.errors import NotInitializedError

ProcessGroup: TypeAlias = Communicator
Backend: TypeAlias = Literal["auto", "mpi", "threaded"]

# names that people's scripts use -> ours; None: for another device
_BACKENDS: dict[str, Backend | None] = {
    "auto": "auto",
    "mpi": "mpi",
    "threaded": "threaded",
    "gloo": "auto",
    "nccl": None,
}


class ReduceOp:
    """torch's names of the reductions."""

    SUM: OpName = "sum"
    AVG: OpName = "avg"
    MAX: OpName = "max"
    MIN: OpName = "min"
    PRODUCT: OpName = "prod"


class group:
    """torch's name of the default group."""

    WORLD: None = None


_process_group: Communicator | None = None
_thread_group: ContextVar[Communicator | None] = ContextVar("communicator", default=None)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    *,
    reduction: Literal["fast", "rank_order"] = "fast",
) -> None:
    """Make the default group of all ranks that the launcher started; one rank alone without a launcher.

    backend: None, "mpi" or "threaded"; "gloo" means the default. timeout: limit of every wait, timedelta or seconds.
    init_method, world_size, rank: accepted for torch's sake; MPI knows them. reduction: "rank_order" makes sums
    independent of bucket sizes. Raises NotInitializedError for a second call, MpiNotFoundError, ThreadLevelError.
    """
    global _process_group
    from collectives import connect
    from collectives.work import DEFAULT_TIMEOUT_S

    if is_initialized():
        raise NotInitializedError(
            "the default process group is already initialised", remedy="call destroy_process_group() first"
        )
    name = (backend or "auto").lower()
    transport = _BACKENDS.get(name)
    if transport is None:
        expected = ", ".join(n for n, known in _BACKENDS.items() if known)
        raise NotInitializedError(f"no transport for backend {backend!r} on the CPU", expected=expected)
    limit_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    limit_s = limit_s or watchdog.limit_s() or None
    _process_group = connect(
        transport, timeout_s=DEFAULT_TIMEOUT_S if limit_s is None else limit_s, reduction=reduction
    )
    log.set_rank(_process_group.rank)
    if _process_group.transport == "mpi":
        watchdog.attach(_process_group)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Close the default group: waits until all ranks do, and before that for what is still on its way in it."""
    global _process_group
    settle_all(group_or_default(group))
    group_or_default(group).close()
    if group is None or group is _process_group:
        watchdog.detach()
        _process_group = None


@contextmanager
def use_communicator(communicator: Communicator) -> Iterator[None]:
    """Within the block, in this thread, `communicator` is the default group (one rank a thread, see `run_ranks`)."""
    token = _thread_group.set(communicator)
    try:
        yield
    finally:
        _thread_group.reset(token)


def group_or_default(group: ProcessGroup | None) -> Communicator:
    """`group`, or the default one. Raises NotInitializedError if there is none."""
    found = group or _thread_group.get() or _process_group
    if found is None:
        raise NotInitializedError(
            "the default process group is not initialised",
            remedy="call distcompile.distributed.init_process_group() first",
        )
    return found


def is_available() -> bool:
    """Whether this package can be used: always."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return (_thread_group.get() or _process_group) is not None


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's rank, 0 .. world_size-1."""
    return group_or_default(group).rank


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of ranks."""
    return group_or_default(group).world_size


def get_backend(group: ProcessGroup | None = None) -> str:
    """The transport: "mpi" or "threaded"."""
    return group_or_default(group).transport


class TensorWork:
    """A collective on Tensors in flight: the Tensors get their new values in `wait()`."""

    def __init__(self, work: Work, results: list[tuple[Tensor, Array]]) -> None:
        self.work, self.results = work, results

    def is_completed(self) -> bool:
        """Whether the collective ended."""
        return self.work.is_done()

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait, and give the Tensors their values."""
        self.work.wait(timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
        for tensor, array in self.results:
            tensor._cell.write(array)
        self.results = []
        return True


def _finish(work: TensorWork, async_op: bool) -> TensorWork | None:
    if async_op:
        return work
    work.wait()
    return None


def _copy(tensor: Tensor) -> Array:
    """The tensor's value in memory of its own: values are immutable, collectives write."""
    return np.array(tensor._array("a collective"), order="C")


def all_reduce(
    tensor: Tensor, op: OpName = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Replace `tensor`'s value by the reduction over all ranks."""
    array = _copy(tensor)
    work = group_or_default(group).all_reduce_async(array, op)
    return _finish(TensorWork(work, [(tensor, array)]), async_op)


def broadcast(
    tensor: Tensor, src: int = 0, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Replace `tensor`'s value by rank `src`'s."""
    array = _copy(tensor)
    work = group_or_default(group).broadcast_async(array, root=src)
    return _finish(TensorWork(work, [(tensor, array)]), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Put all ranks' `input_tensor`, by rank, into `output_tensor` (world_size times its elements)."""
    array = _copy(output_tensor)
    work = group_or_default(group).all_gather_async(array, _copy(input_tensor))
    return _finish(TensorWork(work, [(output_tensor, array)]), async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Give `tensor_list[r]` rank r's `tensor`."""
    source = _copy(tensor)
    rows = np.empty((len(tensor_list), *source.shape), source.dtype)
    work = group_or_default(group).all_gather_async(rows, source)
    return _finish(TensorWork(work, list(zip(tensor_list, rows))), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: OpName = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> TensorWork | None:
    """Reduce all ranks' `input` and keep this rank's part in `output`."""
    array = _copy(output)
    work = group_or_default(group).reduce_scatter_async(array, _copy(input), op)
    return _finish(TensorWork(work, [(output, array)]), async_op)


def barrier(group: ProcessGroup | None = None, async_op: bool = False, device_ids: object = None) -> TensorWork | None:
    """Return when all ranks are here."""
    return _finish(TensorWork(group_or_default(group).barrier_async(), []), async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Put every rank's `obj` into `object_list`, by rank."""
    object_list[:] = group_or_default(group).all_gather_object(obj)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: ProcessGroup | None = None) -> None:
    """Replace the list's items by rank `src`'s."""
    object_list[:] = group_or_default(group).broadcast_object(list(object_list), root=src)
