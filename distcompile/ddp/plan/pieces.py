"""Pieces: the graphs that make up a step, and the one bucket plan over all of them.

In: the backward that is about to run, as the tape has it. Out: the order in which its gradients become complete, in
graphs and in the eager operations between them, and the bucket plan by that order; for a report, which graph and which
of its segments completed each bucket.
A module's forward may be several graphs: a graph break, or parts that are compiled apart, with Python between. When the
first is compiled nobody knows the others; at the first backward the tape knows them all. So plans are made there, and
graphs that are parts are cut there (`PutOff`). A parameter that several graphs use is complete at its last
contribution. One that no part of this backward uses comes last.
Later steps may take other paths; the plan stays, as all ranks have it, and what comes late leaves late.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from compiler_core import dtype as dtypes
from compiler_core.aot.strategy import BackwardSession, Segment
from compiler_core.aot.wrapper import BackwardCall
from compiler_core.graph.ir import Graph
from compiler_core.tensor.autograd.engine import Backward, running_backwards
from compiler_core.tensor.autograd.tape import FunctionNode, GradNode
from distcompile.ddp.plan.bucket_plan import READY_ORDER, BucketPlan, ReadyParameter, make_plan
from distcompile.ddp.plan.order import launch_order, ready_shares
from distcompile.ddp.plan.tail import places_of

if TYPE_CHECKING:
    from collections.abc import Set

    from distcompile.ddp.books import Books
    from distcompile.ddp.plan.layout import Layout


@dataclass(frozen=True, slots=True)
class FlatPiece:
    """One compiled backward. ready: its parameters, by the place in `backward` that completes their gradients.

    first_use: the place in the forward, of `n_forward` nodes, that first reads each parameter.
    """

    name: str
    backward: Graph
    ready: tuple[ReadyParameter, ...]
    first_use: Mapping[str, int]
    n_forward: int


class Cutting(Protocol):
    """A compiled call's plan, as a step's plan sees it."""

    @property
    def piece(self) -> FlatPiece: ...
    @property
    def books(self) -> Books | None: ...


class PutOff:
    """The plan of a part of a forward, whose backward is cut and compiled when the tape first reaches it."""

    segments: Sequence[Segment] = ()

    def __init__(self, books: Books, piece: FlatPiece) -> None:
        self._books, self.piece = weakref.ref(books), piece

    @property
    def books(self) -> Books | None:
        """None once the instance is gone."""
        return self._books()

    @property
    def is_stale(self) -> bool:
        """Always: it has no segments."""
        books = self.books
        for run in running_backwards()[-1:]:
            if books is not None:
                books.settle(run)
        return True

    def begin(self, ticket: object, missing: Set[int]) -> BackwardSession:
        raise AssertionError("a backward that was put off is cut before it runs")


class Stretch(NamedTuple):
    """What one node of the tape adds to a backward: a compiled call, or an operation and the parameters it reads."""

    piece: FlatPiece | None
    names: Sequence[str]


@dataclass(slots=True)
class BackwardOrder:
    """A backward's order. ready, shares: parameter -> place, and share of the work, at which its gradient is complete.

    first_use: parameter -> place in the forwards. pieces: the compiled calls, as the backward runs them.
    """

    ready: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    first_use: dict[str, int] = field(default_factory=dict)
    pieces: list[FlatPiece] = field(default_factory=list)


def look_at(books: Books, run: Backward) -> BackwardOrder:
    """The order of the backward `run`."""
    step, stretches = BackwardOrder(), list(_stretches(books, run))
    step.pieces = [stretch.piece for stretch in stretches if stretch.piece is not None]
    whole, done, at = sum(map(_weight, step.pieces)), 0.0, 0
    for piece, names in stretches:
        if piece is None:
            step.ready.update(dict.fromkeys(names, at))
            step.shares.update(dict.fromkeys(names, done))
            at += 1
            continue
        share, shares = _weight(piece) / whole, ready_shares(piece.backward, piece.ready)
        for parameter in piece.ready:
            step.ready.pop(parameter.name, None)  # of equal places, the order is that in which they come
            step.ready[parameter.name] = at + parameter.ready
            step.shares[parameter.name] = done + share * shares[parameter.name]
        at, done = at + places_of(piece.backward), done + share
    at = 0
    for piece, names in reversed(stretches):
        uses = dict.fromkeys(names, 0) if piece is None else piece.first_use
        for name, place in uses.items():
            step.first_use.setdefault(name, at + place)
        at += 1 if piece is None else piece.n_forward
    return step


def _weight(piece: FlatPiece) -> float:
    """A piece's share of the backward's time: by the elements it makes, roughly."""
    return float(max(1, sum(node.meta.numel for node in piece.backward.nodes)))


def _stretches(books: Books, run: Backward) -> Iterator[Stretch]:
    """The nodes of `run` that give gradients to our parameters, in the order in which they run."""
    ours = {id(parameter): name for name, parameter in books.parameters.items()}
    for node in sorted(run.active, key=lambda node: node.seq, reverse=True):
        piece = piece_of(books, node)
        names = [ours[id(edge)] for edge in node.edges if id(edge) in ours]
        if piece is not None or names:
            yield Stretch(piece, names)


def piece_of(books: Books, node: GradNode) -> FlatPiece | None:
    """The piece of `books` that the tape's node is; None if it is none."""
    call = node.backward if isinstance(node, FunctionNode) else None
    if not isinstance(call, BackwardCall):
        return None
    plan = call.backward.cut.plan
    piece: FlatPiece | None = getattr(plan, "piece", None)
    return piece if piece is not None and plan.books is books else None  # type: ignore[attr-defined]


def plan_step(books: Books, step: BackwardOrder) -> BucketPlan:
    """The bucket plan of a whole step: of its gradients as they become complete, then of what it does not use."""
    last = max(step.ready.values(), default=0) + 1
    names = [*step.ready, *(name for name in books.parameters if name not in step.ready)]
    ready = [
        ReadyParameter(name, tuple(p.shape), dtypes.of(p.dtype), step.ready.get(name, last))
        for name in names
        for p in (books.parameters[name],)
    ]
    plan = make_plan(ready, books.settings.caps, order=READY_ORDER)
    if books.settings.overlap == "step":
        plan = replace(plan, launch=launch_order(plan, step.shares, step.first_use))
    return plan


# -- afterwards


class Flown(NamedTuple):
    """A layout's plan with the segment, counted through the whole step, that completed each bucket; and its graph."""

    plan: BucketPlan
    graphs: tuple[str, ...]


class Took(NamedTuple):
    """A compiled call that took part in a pass: its plan, cut for these groups, and the number of its first segment."""

    name: str
    cut: BucketPlan
    outputs: frozenset[str]
    first: int
    n_segments: int


def flown(layout: Layout, took: Iterable[Took]) -> Flown:
    """Which segment of which graph completed each bucket; of a bucket that none did, the last before."""
    plan, parts = layout.plan, list(took)
    graphs: list[str] = []
    segments: list[int] = []
    for number, bucket in enumerate(plan.buckets):
        last = next((part for part in reversed(parts) if not part.outputs.isdisjoint(bucket.names)), None)
        graphs.append("" if last is None else last.name)
        if last is None:
            segments.append(segments[-1] if segments else 0)
        elif last.cut.buckets[number : number + 1] and last.cut.buckets[number].names == bucket.names:
            segments.append(last.first + last.cut.buckets[number].segment)
        else:  # it was cut for another plan
            segments.append(last.first + last.n_segments - 1)
    return Flown(plan.with_segments(segments), tuple(graphs))
