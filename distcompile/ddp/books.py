"""Books: what one DDP instance keeps, shared by its compiled and its eager side.

In: the wrapped module's parameters and the settings. Out: the layout in use, the pass that runs, and what ranks
compare. Invariants: one layout at a time, over all trained parameters, used by eager and compiled backwards alike;
ranks compare its word, the round and the forward at the start of every synchronised backward (`passes.py`). Plans are
ordered by version: a plan made from a backward graph replaces the one by registration, and one made from all graphs of
a backward (`pieces.py`) both; freezing, unfreezing and `propose` start a new epoch. Settings that change while training
live here and not on the module, whose attributes compiled code guards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ref

from collectives import Communicator
from compiler_core import dtype as dtypes
from compiler_core.tensor.autograd.engine import Backward, running_backwards
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.agreement import Subject
from distcompile.ddp.errors import PlanError
from distcompile.ddp.forwards import Forwards
from distcompile.ddp.ledger import Ledger
from distcompile.ddp.overlap import StepRecorder
from distcompile.ddp.overlap.recorder import Time
from distcompile.ddp.plan.bucket_plan import REGISTRATION_ORDER, BucketPlan, Caps, ReadyParameter, make_plan
from distcompile.ddp.plan.layout import BY_GRAPH, BY_REGISTRATION, BY_STEP, Layout, Version
from distcompile.ddp.plan.pieces import look_at, plan_step
from distcompile.ddp.turns import Turns
from distcompile.optim.optimizer import STEP_CLOCKS

if TYPE_CHECKING:
    from distcompile.ddp.flight import CommHook
    from distcompile.ddp.join import Joining
    from distcompile.ddp.landing import Landing
    from distcompile.ddp.passes import BackwardPass
    from distcompile.ddp.strategy import BucketStrategy


@dataclass(frozen=True, slots=True)
class DDPSettings:
    """How an instance was set up; equal on all ranks."""

    caps: Caps
    broadcast_buffers: bool
    find_unused_parameters: bool
    static_graph: bool
    bucket_plan: str = "None"  # what was asked for: a plan's hash, a path, "auto"
    overlap: str = "backward"  # with what communication overlaps: the "backward", or the whole "step"

    @property
    def allows_unused(self) -> bool:
        """Whether parameters may take no part in a backward. As in torch, a static graph may leave some out."""
        return self.find_unused_parameters or self.static_graph


@dataclass(frozen=True, slots=True)
class PlanFingerprint:
    """What ranks compare of one compiled call: the sizes of its inputs, and its graphs if the sizes are equal."""

    sizes: int
    graph: int
    subjects: tuple[Subject, ...]


class Books:
    """parameters: name -> tensor, those that require gradients now. instance: the same number on all ranks."""

    def __init__(
        self, communicator: Communicator, parameters: Mapping[str, Tensor], settings: DDPSettings, instance: int
    ) -> None:
        self.communicator, self.settings, self.instance = communicator, settings, instance
        self.parameters = dict(parameters)
        self.ledger = Ledger(communicator, self.parameters)
        self.recorder = StepRecorder(communicator.rank)
        self.is_synchronising = True  # False inside no_sync()
        self.forward_synchronises = True  # what it was at the last forward
        self.sends_buffers_next = True  # at the next forward
        self.awaits_backward = False  # a forward that is to be followed by a synchronised one ran, and none has since
        self.forward_positions = Forwards()
        self.forward_began: Time = 0.0
        self.copies = 0  # made of this instance
        self.round = 0  # synchronised backwards begun
        self.forwards = 0  # training forwards that are to be followed by one
        self.turns = Turns()
        self.joining: Joining | None = None  # inside join()
        self.active_ranks = communicator.world_size  # over which gradients are averaged
        self.comm_hook: CommHook | None = None
        self.current: BackwardPass | None = None
        self.landing: Landing | None = None  # the last, whose last bucket perhaps nobody has waited for
        self.used: list[PlanFingerprint] = []  # compiled calls that no gate has told the other ranks of yet
        self.strategy: ref[BucketStrategy] | None = None  # once something asks for it
        self.has_pieces = False  # whether a backward was ever compiled for this instance
        self.layout = self._lay_out(self._registration_plan(), (0, BY_REGISTRATION))
        if self.layout.averages:
            STEP_CLOCKS.add(self)

    @property
    def scale(self) -> float:
        """What gradients are multiplied by before they are reduced; 1 if a communication hook averages."""
        if self.comm_hook is not None and self.comm_hook.wants_raw:
            return 1.0
        return (self.communicator.world_size if self.layout.averages else 1) / self.active_ranks

    @property
    def shares_by_hook(self) -> bool:
        """Whether it is a communication hook of the user's that says what ranks have in common."""
        return self.comm_hook is not None and self.comm_hook.is_python

    def owns(self, parameter: Tensor) -> bool:
        """Whether it is one of the parameters."""
        return any(ours is parameter for ours in self.parameters.values())

    def now(self) -> Time:
        """This moment, as the recorder has it: on a GPU, where its stream is."""
        if self.recorder.is_on and self.layout.averages:
            mark = self.communicator.mark(next(iter(self.parameters.values()))._cell.raw)
            if mark is not None:
                return mark
        return time.perf_counter()

    # -- plans

    def _registration_plan(self) -> BucketPlan:
        """Buckets over all parameters, last registered first: roughly the order in which a backward completes them."""
        return make_plan(ready_parameters(self.parameters), self.settings.caps, order=REGISTRATION_ORDER)

    def _lay_out(self, plan: BucketPlan, version: Version) -> Layout:
        return Layout(plan, version, self.parameters, self.communicator, self.instance)

    def train_others(self, parameters: Mapping[str, Tensor]) -> None:
        """From now on, these parameters are trained: something was frozen or unfrozen."""
        self.parameters = dict(parameters)
        self.ledger.forget(self.parameters)
        self.turns = Turns()
        self.layout = self._lay_out(self._registration_plan(), (self.layout.version[0] + 1, BY_REGISTRATION))

    @property
    def wants_ready_plan(self) -> bool:
        """Whether the plan in use is the one by registration, which a plan from a backward graph replaces."""
        return self.layout.version[1] == BY_REGISTRATION

    def offer(self, plan: BucketPlan) -> None:
        """Use `plan`, made from a backward graph. Other ranks do so too, or `reconcile` finds one plan for all."""
        self.adopt(plan, (self.layout.version[0], BY_GRAPH))

    @property
    def is_settled(self) -> bool:
        """Whether the plan in use is to stay."""
        return self.layout.version[1] == BY_STEP

    def settle(self, run: Backward) -> None:
        """Called before the first gradient of `run`: make the plan that is to stay, if graphs take part in it."""
        if self.is_settled or not self.has_pieces or run.wanted is not None:
            return
        step = look_at(self, run)
        if not step.pieces:
            return
        plan, layout = plan_step(self, step), self.layout
        version = (layout.version[0], BY_STEP)
        if layout.groups == tuple(b.names for b in plan.buckets) and layout.order == plan.launch_order:
            layout.version = version
        else:
            self.adopt(plan, version)
        strategy = None if self.strategy is None else self.strategy()
        if strategy is not None:
            strategy.learn(step)

    def propose(self, plan: BucketPlan) -> None:
        """Use `plan` from the next synchronised backward on. Called with an equal plan on every rank.

        Raises PlanError unless it covers exactly the trained parameters.
        """
        if not plan.fits(ready_parameters(self.parameters)):
            raise PlanError(
                "a bucket plan that does not cover exactly the trained parameters",
                expected=", ".join(sorted(self.parameters)),
                got=", ".join(sorted(plan.names)),
            )
        self.adopt(plan, (self.layout.version[0] + 1, BY_STEP))

    def adopt(self, plan: BucketPlan, version: Version) -> None:
        """Use `plan`. Of a plan laid out as the one in use, the buffers are kept."""
        layout = self._lay_out(plan, version)
        if layout.word == self.layout.word:
            layout.pools = self.layout.pools
        self.layout = layout

    # -- forwards

    def begin_forward(self) -> None:
        """What the tape records from here on is part of a forward of this instance."""
        self.forward_began = self.now()
        self.forward_positions.begin()

    def end_forward(self) -> None:
        """The forward that runs, if one does, ends here."""
        if self.forward_positions.end():
            self.recorder.span("forward", 0, self.forward_began, self.now())

    # -- passes

    def drop_broken_pass(self) -> None:
        """Forget a backward that an exception ended half way; its buffers belong to the works that are in flight."""
        if self.current is not None and self.current.run not in running_backwards():
            self.current = None

    def takes_part(self, run: Backward) -> bool:
        """Whether a forward of this instance is part of the backward `run`."""
        if self.current is not None and self.current.run is run:
            return True
        return self.forward_positions.are_in(run)


def ready_parameters(parameters: Mapping[str, Tensor]) -> Sequence[ReadyParameter]:
    """The parameters as a plan takes them, last registered first."""
    last = len(parameters) - 1
    return [
        ReadyParameter(name, tuple(p.shape), dtypes.of(p.dtype), last - place)
        for place, (name, p) in enumerate(parameters.items())
    ]
