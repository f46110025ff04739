"""Communication hooks: what a user puts in the place of a bucket's all-reduce. The contract is torch's.

In: `register_comm_hook(state, hook)`; for each bucket of a synchronised backward, in launch order, a `GradBucket` of
local gradients, not yet divided by the number of ranks. Out: `hook(state, bucket)` returns a Future of the flat tensor
that becomes the bucket's gradients on this rank. Hooks run in the thread of the backward; their Futures are waited for
at its end, in launch order, so a hook's later collectives meet in one order on all ranks.
The built-in hooks that only change the dtype on the wire need no Python at all: they become one collective
(`CollectiveCall.wire`), with the average fused into the backward as without a hook.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from collectives import Communicator, Gate, Stamp, Work
from collectives.call import ReduceOp, Wire
from collectives.errors import CollectiveTimeoutError
from collectives.observer import ASK_EVERY_S, LONG_WAIT_S, current
from collectives.work import WorkTimes
from compiler_core.device import device_of
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.buffers import BucketBuffer
from distcompile.ddp.errors import CommHookError
from distcompile.ddp.plan.bucket_plan import BucketPlan
from distcompile.futures import Future

Hook: TypeAlias = Callable[[Any, "GradBucket"], Future[Any]]


class GradBucket:
    """One bucket's local gradients, as a communication hook sees them: flat, not yet divided by the number of ranks.

    Example (the mean, as without a hook):
        >>> from collectives import run_ranks
        >>> def mean(state, bucket):
        ...     work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        ...     return work.get_future().then(lambda future: future.value()[0])
        >>> def gradient(ranks):
        ...     with dist.use_communicator(ranks):
        ...         model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
        ...         model.register_comm_hook(None, mean)
        ...         model(torch.tensor([[1.0 + dist.get_rank()]])).sum().backward()
        ...         return model.module.weight.grad
        >>> run_ranks(2, gradient)
        [tensor([[1.5000]]), tensor([[1.5000]])]
    """

    def __init__(
        self, plan: BucketPlan, number: int, flat: Array, parameters: Sequence[Tensor], *, is_last: bool
    ) -> None:
        self.plan, self.array = plan, flat
        self._number, self._parameters, self._is_last = number, list(parameters), is_last
        self._tensor = Tensor._wrap(flat)

    def index(self) -> int:
        """The bucket's number in the plan, 0 .. buckets-1."""
        return self._number

    def buffer(self) -> Tensor:
        """The flat gradients, f[numel]: every parameter's at its place, zeros between them. One Tensor each time."""
        return self._tensor

    def set_buffer(self, tensor: Tensor) -> None:
        """Put another tensor in the buffer's place, for hooks that are wrapped in others."""
        self._tensor = tensor

    def gradients(self) -> list[Tensor]:
        """The parameters' gradients: views of the buffer, in the order of `parameters()`."""
        slots = self.plan.buckets[self._number].slots
        return [self._tensor[slot.offset : slot.offset + slot.numel].reshape(slot.shape) for slot in slots]

    def parameters(self) -> list[Tensor]:
        """The parameters whose gradients these are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether this is the last bucket of the backward."""
        return self._is_last


class NativeHook:
    """The plain average over all ranks, travelling as `wire` ("": as it is): one collective, no Python."""

    wants_raw: bool = False
    is_python: bool = False

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def launch(
        self,
        communicator: Communicator,
        plan: BucketPlan,
        number: int,
        buffer: BucketBuffer,
        parameters: Sequence[Tensor],
        *,
        label: str,
        stamp: Stamp,
        gate: Gate | None,
        op: ReduceOp = "sum",
        held: bool = False,
    ) -> Work:
        """Start reducing bucket `number`; by "sum" its gradients are divided by the number of ranks already."""
        flat = buffer.flat
        wire = self.wire if flat.dtype.itemsize > 2 else ""
        return communicator.all_reduce_async(flat, op, label=label, wire=wire, stamp=stamp, gate=gate, held=held)


class PythonHook:
    """A user's hook. It is called once the gate has passed: its own collectives know no gate."""

    wants_raw: bool = True
    is_python: bool = True

    def __init__(self, state: Any, hook: Hook) -> None:
        self.state, self.hook = state, hook

    def launch(
        self,
        communicator: Communicator,
        plan: BucketPlan,
        number: int,
        buffer: BucketBuffer,
        parameters: Sequence[Tensor],
        *,
        label: str,
        stamp: Stamp,
        gate: Gate | None,
        op: ReduceOp = "sum",
    ) -> HookWork:
        """Call the hook with bucket `number`."""
        is_last = number == plan.launch_order[-1]
        bucket = GradBucket(plan, number, buffer.flat, parameters, is_last=is_last)
        launched_s = time.perf_counter()
        future = self.hook(self.state, bucket)
        if not isinstance(future, Future):
            raise CommHookError(
                f"the communication hook {name_of(self.hook)} must return a Future",
                expected="distcompile.futures.Future of the bucket's flat tensor",
                got=type(future).__name__,
                remedy="return work.get_future().then(lambda f: f.value()[0])",
            )
        return HookWork(name_of(self.hook), label, future, buffer.flat, launched_s, communicator)


class HookWork:
    """A bucket that a hook reduces: `wait` puts the Future's value into the bucket."""

    def __init__(
        self,
        name: str,
        label: str,
        future: Future[Any],
        flat: Array,
        launched_s: float,
        communicator: Communicator,
    ) -> None:
        self.name, self.label, self.future, self.flat, self.communicator = name, label, future, flat, communicator
        self.launched_s, self.ended_s = launched_s, math.nan
        self.is_settled = False

    @property
    def times(self) -> WorkTimes:
        return WorkTimes(self.launched_s, self.launched_s, self.ended_s)

    def is_done(self) -> bool:
        """Whether the result is there. Never blocks."""
        return self.is_settled or self.future.done()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the bucket holds the result. Raises CollectiveTimeoutError, or what the Future ended with."""
        if self.is_settled:
            return
        self._await_future(self.communicator.timeout_s if timeout_s is None else timeout_s)
        value = self._flat_value(self.future.value())
        if value is not self.flat:
            with device_of(self.flat).working():
                self.flat[...] = value
        self.is_settled, self.ended_s = True, time.perf_counter()

    def _await_future(self, limit_s: float) -> None:
        """The hook's own collectives keep to their limits; a Future that somebody else must set has this one."""
        observer, deadline_s = current(), time.perf_counter() + limit_s
        if self.future.ends_by(min(deadline_s, time.perf_counter() + LONG_WAIT_S)):
            return
        try:
            while not self.future.ends_by(min(deadline_s, time.perf_counter() + ASK_EVERY_S)):
                if time.perf_counter() >= deadline_s:
                    raise CollectiveTimeoutError(
                        f"{self.label}: the Future of the communication hook {self.name} had no value "
                        f"within {limit_s:g} s",
                        where=f"rank {self.communicator.rank}",
                        got="a Future that nobody has set",
                        remedy="have the hook's set_result called, or return work.get_future() of its collective",
                    )
                observer.waiting(f"the communication hook {self.name}, {self.label}", ())
        finally:
            observer.settled()

    def _flat_value(self, result: Any) -> Array:
        tensor = result[0] if isinstance(result, (list, tuple)) and len(result) == 1 else result
        if not isinstance(tensor, Tensor) or math.prod(tensor.shape) != self.flat.size:
            got = f"{tensor.dtype}{list(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise CommHookError(
                f"{self.label}: the Future of the communication hook {self.name} has the wrong value",
                expected=f"a tensor of {self.flat.size} elements",
                got=got,
            )
        array: Array = tensor._own_array("a communication hook").reshape(-1)
        return array if type(array) is type(self.flat) else device_of(self.flat).put(array)


def make_hook(state: Any, hook: Hook, communicator: Communicator) -> NativeHook | PythonHook:
    """What the reducer uses for `hook`. Raises CommHookError for something that is not a hook.

    Hooks that only say how the average travels (`native_wire`) need no Python, if they are for DDP's own group.
    """
    if not callable(hook):
        raise CommHookError("a communication hook must be callable", got=type(hook).__name__)
    wire: Wire | None = getattr(hook, "native_wire", None)
    if wire is not None and (state is None or state is communicator):
        return NativeHook(wire)
    return PythonHook(state, hook)


def name_of(hook: Hook) -> str:
    """What messages, and the comparison between ranks, call a hook."""
    return getattr(hook, "__qualname__", None) or type(hook).__qualname__
