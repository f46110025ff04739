"""Who runs the collectives of a graph: the core knows no ranks, and asks.

In: a `Collective`, which says what is done, in which group, by a key; arrays. Out: what arrives, written where the core
says. `use(runner)` fills in who does it (distcompile/distributed/in_graphs.py).
    run      now, and returns when it is done: what op by op execution and native code that calls back do
    launch   all collectives of one native call, in order, each held until its operand is complete: a `Flight`
Invariants: every rank launches the collectives of a graph in one order; a flight is ended by whoever launched it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from compiler_core.dtype import DType
from compiler_core.errors import GraphError
from compiler_core.events import Events
from compiler_core.meta import Shape, TensorMeta
from compiler_core.records import dataclass

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective. ranks: of the group whose key is `group`. root: the rank in it that sends or receives, the other
    end of a message. sent, received: rows for, and from, each rank, where these differ."""

    kind: str
    group: str
    ranks: int
    reduction: str = "sum"
    root: int = 0
    tag: int = 0
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()

    @staticmethod
    def of(kind: str, attrs: Mapping[str, Any]) -> Collective:
        """That of an op of this name, with these attributes."""
        return Collective(kind, **attrs)


@dataclass(frozen=True, slots=True)
class Part:
    """What one op of a graph adds to a launch: the metas of its operand and its result."""

    operand: TensorMeta
    result: TensorMeta


@dataclass(frozen=True, slots=True)
class Launch:
    """One collective of a native call, or several alike that travel as one array: their parts, and the user's lines.

    in_place: the result lies where the operand lay. device: whose memory both are in, as `Graph.device`.
    """

    what: Collective
    parts: tuple[Part, ...]
    in_place: bool
    where: str = ""
    device: str = "cpu"

    @property
    def dtype(self) -> DType:
        return self.parts[0].operand.dtype

    @property
    def said(self) -> str:
        """What all ranks of the group say alike."""
        one = self.what
        if one.sent:  # of other sizes on each rank
            return f"{one.kind}({self.dtype.short})"
        more = f", {one.reduction}" if one.kind in ("all_reduce", "reduce_scatter", "reduce_to") else ""
        return f"{one.kind}({', '.join(str(part.operand) for part in self.parts)}{more})"

    def __str__(self) -> str:
        return f"{self.said} of group {self.what.group!r}"


class Flight(Protocol):
    """The collectives of one native call, on their way.

    operands[k], results[k]: memory for the operands of launch k, and of its results. events: `signal(k)` says that the
    operands of launch k are complete, `wait(k)` returns when its results may be read. On a GPU the work that makes them
    is enqueued then, and what is enqueued on the current stream from then on may read them.
    """

    @property
    def operands(self) -> Sequence[Sequence[Array]]: ...
    @property
    def results(self) -> Sequence[Sequence[Array]]: ...
    @property
    def events(self) -> Events: ...

    def land(self) -> None:
        """The native call is over, all waits done: the memory may be used again."""

    def fail(self) -> None:
        """The native call has failed: give up what it has not signalled."""


class Runner(Protocol):
    """See the head of this file."""

    def run(self, what: Collective, source: Array, shape: Shape) -> Array:
        """The result, of this shape. Does not write `source`."""

    def launch(self, launches: Sequence[Launch], shown: Sequence[tuple[int, int]]) -> Flight:
        """Begin all of them, held. shown: (output, result, counted over all): results that callers keep."""


_runner: Runner | None = None


def use(runner: Runner) -> None:
    """From now on `runner` runs collectives."""
    global _runner
    _runner = runner


def runner() -> Runner:
    """Who runs them. Raises GraphError if nobody does."""
    if _runner is None:
        raise GraphError(
            "a graph has collectives, and nothing here talks to other ranks", remedy="import distcompile.distributed"
        )
    return _runner
