"""A DistributedDataParallel as tuning sees it: its plan, recorded steps and backward; and how a plan is given to it.

In: a DistributedDataParallel, and what its user passed as `bucket_plan`. Out: a `DdpView` (auto.py's `Tunable`), and
`attach`: explicit plans proposed, plan files read by rank 0 and given to all, "auto" answered by an `AutoTuner`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from collectives import Communicator
from compiler_core import dtype as dtypes
from compiler_core.device import Device, cpu
from compiler_core.graph.ir import Graph
from distcompile.ddp.overlap.times import StepTimes
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter
from distcompile.errors import ArgumentError
from distcompile.tuning.across_step import StepNeeds, needs_of
from distcompile.tuning.auto import AutoTuner
from distcompile.tuning.errors import PlanFileError
from distcompile.tuning.measure import host_signature
from distcompile.tuning.plan_file import Place, check_fits, parse_plan, read_plan_text

if TYPE_CHECKING:
    from distcompile.ddp.ddp import DistributedDataParallel, PlanChoice

AUTO = "auto"


class DdpView:
    """`Tunable` over a DistributedDataParallel."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.ddp = ddp

    @property
    def communicator(self) -> Communicator:
        return self.ddp.process_group

    @property
    def device(self) -> Device:
        return next(iter(self.ddp._books.parameters.values())).device

    @property
    def plan(self) -> BucketPlan:
        return self.ddp.bucket_plan

    @property
    def synchronised(self) -> int:
        return self.ddp._books.round

    def steps(self) -> list[StepTimes]:
        return self.ddp._books.recorder.steps()

    def local_passes(self) -> list[tuple[float, tuple[float, ...]]]:
        """When backwards inside no_sync began, and when each of their segments ended."""
        return self.ddp._books.recorder.local_passes()

    def backward(self) -> tuple[Graph | None, Sequence[ReadyParameter]]:
        graph, ready = self.ddp._strategy.backward_graph, self.ddp._strategy.ready_parameters
        return (None, in_plan_order(self.plan)) if graph is None or ready is None else (graph, ready)

    def needs(self, steps: Sequence[StepTimes]) -> StepNeeds | None:
        if self.ddp._books.settings.overlap != "step":
            return None
        spans = self.ddp._books.recorder.spans()
        forwards = [(span.began_s, span.ended_s) for span in spans if span.kind == "forward"]
        return needs_of(steps, forwards, self.ddp._strategy.first_use)

    @contextmanager
    def boundaries_told_by(self, boundary: str | None) -> Iterator[None]:
        """Backwards that are cut within the block tell bucket boundaries by "cut" or "notification"; None: as set."""
        strategy = self.ddp._strategy
        before, strategy.boundary_wanted = strategy.boundary_wanted, boundary
        try:
            yield
        finally:
            strategy.boundary_wanted = before

    def propose(self, plan: BucketPlan) -> None:
        self.ddp.propose_plan(plan)


def in_plan_order(plan: BucketPlan) -> list[ReadyParameter]:
    """The planned parameters, as if each were ready after the one before."""
    slots = [(slot, bucket) for bucket in plan.buckets for slot in bucket.slots]
    return [ReadyParameter(s.name, s.shape, dtypes.by_name(b.dtype), at) for at, (s, b) in enumerate(slots)]


def place_of(communicator: Communicator, device: Device = cpu) -> Place:
    """Where this job runs, as plan files have it. Collective. device: where its model is."""
    transport = communicator.host_transport if device.is_host else communicator.transport
    return Place(communicator.world_size, transport, host_signature(communicator))


def attach(choice: PlanChoice, ddp: DistributedDataParallel) -> AutoTuner | None:
    """Do what `bucket_plan=choice` asks for. Collective. A tuner only for "auto".

    Raises PlanError for a plan of other parameters, PlanFileError, ArgumentError.
    """
    if choice is None:
        return None
    if isinstance(choice, BucketPlan):
        ddp.propose_plan(choice)
    elif choice == AUTO:
        return AutoTuner(DdpView(ddp))
    elif isinstance(choice, str | os.PathLike):
        ddp.propose_plan(shared_plan(choice, ddp))
    else:
        raise ArgumentError("bucket_plan", expected='a BucketPlan, a path, "auto" or None', got=type(choice).__name__)
    return None


def shared_plan(path: str | os.PathLike[str], ddp: DistributedDataParallel) -> BucketPlan:
    """The plan in rank 0's file, on all ranks; an error of reading is raised on all of them."""
    group, where = ddp.process_group, os.fspath(path)
    sent: tuple[str, str] | None = None
    if group.rank == 0:
        try:
            sent = ("text", read_plan_text(path))
        except PlanFileError as error:
            sent = ("error", error.got)
    kind, text = group.broadcast_object(sent)
    if kind == "error":
        raise PlanFileError("the plan file cannot be read", where=where, got=text)
    record = parse_plan(text, where)
    check_fits(record, in_plan_order(ddp.bucket_plan), place_of(group, DdpView(ddp).device), where)
    return record.plan
