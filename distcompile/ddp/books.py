"""Books: what one DDP instance keeps, shared by its compiled and its eager reducer.

In: the wrapped module's parameters and the settings. Out: gradients written into buckets, averaged, and shown in
`.grad`. Invariants: `.grad` of a planned parameter is a view of its bucket after every backward; what was in `.grad`
before is added to, as in torch (with no_sync: local sums now, reduced as a whole in the next synchronised backward).
Settings that change while training live here and not on the module: a module's attributes are guarded by compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collectives import Communicator
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile import watchdog
from distcompile.ddp.bucket_plan import BucketPlan, Caps
from distcompile.ddp.buffers import BufferPool
from distcompile.ddp.ledger import Ledger
from distcompile.ddp.overlap import Recorder

if TYPE_CHECKING:
    from distcompile.ddp.join import Joining


@dataclass(frozen=True, slots=True)
class Settings:
    """How an instance was set up; equal on all ranks."""

    caps: Caps
    broadcast_buffers: bool
    find_unused_parameters: bool
    static_graph: bool


class Books:
    """Parameters (name -> tensor, those that require gradients), ledger, bucket buffers by plan, and recorded times."""

    def __init__(self, communicator: Communicator, parameters: Mapping[str, Tensor], settings: Settings) -> None:
        self.communicator, self.parameters, self.settings = communicator, dict(parameters), settings
        self.ledger = Ledger(parameters)
        self.is_synchronising = True  # False inside no_sync()
        self.plan_used: BucketPlan | None = None  # by the last synchronised backward
        self.joining: Joining | None = None  # inside join()
        self.recorder = Recorder(communicator.rank)
        self.handled: set[str] = set()  # gradients that a compiled backward has put in place in this pass
        self._pools: dict[BucketPlan, list[BufferPool]] = {}

    @property
    def scale(self) -> float:
        """What makes a sum over ranks the average."""
        return 1.0 / self.communicator.world_size

    def pools(self, plan: BucketPlan) -> list[BufferPool]:
        """The buffers of each bucket of `plan`; plans that differ in their segments only share them."""
        layout = plan.with_segments([0] * len(plan.buckets))
        if layout not in self._pools:
            self._pools[layout] = [
                BufferPool(bucket, [self.parameters[name] for name in bucket.names], self.communicator, f"bucket {k}")
                for k, bucket in enumerate(plan.buckets)
            ]
        return self._pools[layout]

    def begin(self, plan: BucketPlan) -> None:
        """A synchronised backward with `plan` begins."""
        watchdog.begin_step(self.recorder.count)
        self.plan_used = plan
        self.ledger.begin()


def held_gradient(parameter: Tensor) -> Array | None:
    """The array in `.grad`, to which a new gradient must be added; None if there is none."""
    grad = parameter.grad
    if grad is None:
        return None
    array: Array = grad._cell.current()
    return array


def add_held(view: Array, held: Array | None, scale: float) -> None:
    """view += held * scale, where `view` holds the new gradient (scaled already)."""
    if held is not None:
        view += held if scale == 1.0 else held * np.asarray(scale, held.dtype)


def run_hooks(parameter: Tensor, gradient: Array, scale: float) -> Array:
    """`gradient` after the hooks of Tensor.register_hook, which see it unscaled, local, before it is accumulated."""
    hooks = parameter._hooks
    if hooks is None or not hooks.grad:
        return gradient
    factor = gradient.dtype.type(scale)
    seen = Tensor._wrap(gradient / factor)
    for hook in list(hooks.grad.values()):
        replaced = hook(seen)
        seen = seen if replaced is None else replaced
    array: Array = seen._cell.current() * factor
    return array


def show_gradient(parameter: Tensor, view: Array) -> None:
    """Make `.grad` show `view`. A `.grad` that is there stays the same Tensor."""
    if parameter.grad is None:
        parameter._grad = Tensor._wrap(view)  # the setter would compare shape and dtype, which are the plan's
    else:
        parameter.grad._cell.write(view)
