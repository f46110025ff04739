"""A whole step of a DistributedDataParallel as one graph: its gradients are reduced inside.

In: the backward of a step that is captured whole (`fullgraph=True`). Out: each gradient, divided by the number of ranks
and summed over them by a collective of the graph (compiler_core/ops/collectives), which is launched in a bucket as soon
as the backward has made it; what an optimizer does with it stands behind its wait, in the same native call.
Where that is not the same as what the reducer does, the graph ends at the backward, as it did, and `refusal` says why:
accumulation, hooks, communication hooks, parameters that may be unused, join(), overlap="step", plans that are given.
Agreement: as in passes.py each step opens a gate that tells all ranks round and forward, with a word of its own; the
collectives stand behind it, on the instance's own communicator, with stamps. Ranks that run the step otherwise do not
pass it, nothing is written, and RankDisagreementError, or what `reconcile` finds, is raised on this rank.
In `overlap_report()` a row of such a step is a launch, and its times count from the call's beginning.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from collectives import Communicator, Gate, Stamp, Work
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Graph
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from compiler_core.tensor.tensor import Tensor
from distcompile import watchdog
from distcompile.ddp.agreement import sizes_of, skeleton
from distcompile.ddp.errors import RankDisagreementError
from distcompile.ddp.overlap.recorder import FlightRecord, Time
from distcompile.ddp.overlap.times import Interval
from distcompile.ddp.plan.layout import word_of
from distcompile.ddp.reconcile import AGREE, judge, reconcile, words_of

if TYPE_CHECKING:
    from distcompile.ddp.books import Books, PlanFingerprint

IN_GRAPH = 0x5EED_1E55_0DD5  # what the word of the plan differs by
_reducers: WeakKeyDictionary[Communicator, WeakValueDictionary[str, InGraph]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class LaunchedBucket:
    """What travels together in a graph: as many gradients as there are slots."""

    slots: range
    nbytes: int
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Flown:
    """The launches of one call, in order, when each was waited for, and where a GPU's stream was then."""

    buckets: tuple[LaunchedBucket, ...]
    works: Sequence[Work]
    waits: Sequence[Interval]
    reached: Sequence[Time | None]


class InGraph:
    """What one instance does for the graphs that reduce its gradients. key: the name of its group in them.

    gate, step, used, began_s, began, flown: of the call that runs; began: as the recorder has it. is_judged: whether
    ranks were found to agree in it.
    """

    def __init__(self, books: Books) -> None:
        self.books, self.key = books, f"ddp {books.instance}"
        self.gate: Gate | None = None
        self.step, self.is_judged = 0, False
        self.began_s = 0.0
        self.began: Time = 0.0
        self.flown: Flown | None = None
        self.used: list[PlanFingerprint] = []
        self._known: dict[int, tuple[Graph, PlanFingerprint]] = {}  # of the graphs that were called
        _reducers.setdefault(books.communicator, WeakValueDictionary())[self.key] = self

    # -- capture

    def refusal(self) -> str:
        """Why the reducer must see the backward; empty: it need not. Asked before every call."""
        books, settings = self.books, self.books.settings
        reasons = {
            'overlap="step": gradients travel on when the step has ended': settings.overlap != "backward",
            "parameters may take no part": settings.allows_unused,
            "a bucket plan is given": settings.bucket_plan != "None",
            "there is a communication hook": books.comm_hook is not None,
            "a rank may end before others (join)": books.joining is not None,
            "gradients are accumulated (no_sync)": not books.is_synchronising or bool(books.ledger.local),
            "its process group is none of this thread's": reducer_of(self.key) is not self,
        }
        return next((why for why, holds in reasons.items() if holds), "")

    def reduced(self, leaves: Sequence[Tensor], gradients: Sequence[Value]) -> list[Value]:
        """The gradients, those of the instance's parameters reduced. Raises GraphBreak if one has none."""
        ours = {id(parameter) for parameter in self.books.parameters.values()}
        if not ours <= {id(leaf) for leaf in leaves}:
            raise GraphBreak("a parameter takes no part in the loss", where=user_location())
        return [
            self._reduced(gradient) if id(leaf) in ours else gradient
            for leaf, gradient in zip(leaves, gradients, strict=True)
        ]

    def _reduced(self, gradient: Value) -> Value:
        ranks = self.books.communicator.world_size
        if ranks == 1:
            return gradient
        scale, reduction = self.books.scale, "avg" if self.books.layout.averages else "sum"
        share = gradient if scale == 1 else prims.mul(gradient, prims.full_like(gradient, scale))
        return prims.all_reduce(share, reduction=reduction, group=self.key, ranks=ranks)

    # -- calls

    def begin(self, graph: Graph) -> None:
        """A call of this graph begins, whose forward has been announced."""
        books = self.books
        if books.landing is not None:
            books.landing.finish()
            books.landing = None
        watchdog.begin_step(books.recorder.count)
        books.round += 1
        books.awaits_backward = False
        self.step, self.gate, self.is_judged = books.round, None, False
        self.began_s, self.began, self.flown = time.perf_counter(), books.now(), None
        self.used = [self._fingerprint(graph)]
        if books.communicator.world_size > 1:
            books.used = self.used
            plan, *words = words_of(books)
            label = f"backward {books.round}, in a graph"
            self.gate = books.communicator.open_gate((plan ^ IN_GRAPH, *words), AGREE, label=label)
        books.used = []

    def _fingerprint(self, graph: Graph) -> PlanFingerprint:
        """What other ranks are told of a graph."""
        if id(graph) not in self._known:
            subject = skeleton(graph)
            from distcompile.ddp.books import PlanFingerprint

            sizes = word_of(sizes_of(graph, by_name=False))
            self._known[id(graph)] = graph, PlanFingerprint(sizes, word_of("\n".join(subject.lines)), (subject,))
        return self._known[id(graph)][1]

    def stamp(self, plan: int, number: int) -> Stamp:
        """Whose collective it is."""
        return Stamp(plan, self.step, number)

    def check(self) -> None:
        """After a wait for one of its collectives, before anything reads it: raise what differs between ranks and must
        not, on all of them."""
        if self.gate is None or self.is_judged:
            return
        self.is_judged, rows = True, self.gate.wait()
        if self.gate.passed:
            judge(self.books, rows, self.used)
            return
        rows = tuple((row[0] ^ IN_GRAPH, *row[1:]) for row in rows)
        reconcile(self.books, rows, is_compiled=True)
        raise RankDisagreementError(
            "this rank ran a whole step as one graph, and other ranks did not",
            where=f"rank {self.books.communicator.rank}",
            expected="the step compiled alike on all ranks",
            remedy="look for rank-dependent control flow in the step, or around the call that compiles it",
        )

    def end(self) -> None:
        """The call is over, its gradients are reduced."""
        books = self.books
        self.check()
        books.ledger.local.clear()
        if self.flown is None:
            books.recorder.untimed()
        else:
            books.recorder.flight(self._record(self.flown))
        self.gate = self.flown = None

    def _record(self, flown: Flown) -> FlightRecord:
        began, ended = self.began, self.books.now()
        times = [work.late_times() for work in flown.works]
        record = FlightRecord(
            flown,
            self.began_s,
            time.perf_counter(),
            {},
            times,
            flown.waits,
            spread=True,
            graphs=["the step"] * len(times),
        )
        if isinstance(began, float) or isinstance(ended, float):
            return record._replace(ready_s={k: one.released_s for k, one in enumerate(times)})
        return record._replace(marks=(began, ended), reached=[r for r in flown.reached if not isinstance(r, float)])


def reducer_of(key: str) -> InGraph | None:
    """That of this thread's groups which graphs call `key`."""
    from distcompile.distributed.group import all_groups

    for group in all_groups():
        if group in _reducers and (found := _reducers[group].get(key)) is not None:
            return found
    return None
