"""The question that a bucket plan answers: when each gradient is ready, what moving it costs, where it is needed next.

In: measurements. Out: a frozen `Problem`, and `Groups`: the answer, as indices of gradients by bucket in launch order.
Times are seconds of computation alone, after the backward began; sizes are bytes, padding to 64 included.
Invariants: gradients stand in ready order; the segment of a bucket is the one that completes the last of its gradients
and of all buckets launched before it, as `splitter.assign_segments` has it: a bucket that adds no computation shares
the segment before it, and costs no cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from distcompile.tuning.cost import CostFit

Groups: TypeAlias = tuple[tuple[int, ...], ...]  # buckets in launch order, each the indices of its gradients


@dataclass(frozen=True, slots=True)
class Contention:
    """How much slower each side runs while the other does, on the same cores: 1.0 is not at all.

    compute: time of a computation with communication running, over its time alone. communication: the reverse.
    """

    compute: float = 1.0
    communication: float = 1.0


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient: ready_s after the backward began. need_s: after the next forward began (only across the step)."""

    name: str
    dtype: str
    nbytes: int
    ready_s: float
    need_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Problem:
    """What is known of one model on one communicator.

    backward_s: the backward's computation, whole and alone. gamma_s: the cost of one more segment (call, lost fusion).
    forward_s: the time from the optimizer's step to the next backward (across the step only).
    update_s_per_byte: the optimizer's work for a byte of gradient (across the step only).
    """

    gradients: tuple[Gradient, ...]
    backward_s: float
    fit: CostFit
    gamma_s: float = 0.0
    contention: Contention = Contention()
    forward_s: float = 0.0
    update_s_per_byte: float = 0.0

    def nbytes(self, group: Sequence[int]) -> int:
        """Bytes of a bucket."""
        return sum(self.gradients[i].nbytes for i in group)

    def costs_s(self, groups: Groups) -> list[float]:
        """What moving each bucket costs, alone."""
        return [self.fit.seconds(self.nbytes(group)) for group in groups]

    def segments(self, groups: Groups) -> list[int]:
        """The segment that completes each bucket."""
        found: list[int] = []
        latest_s = float("-inf")
        for group in groups:
            ready_s = max(self.gradients[i].ready_s for i in group)
            found.append((found[-1] if found else 0) + (bool(found) and ready_s > latest_s))
            latest_s = max(latest_s, ready_s)
        return found

    def slowed(self, compute: float, communication: float) -> Problem:
        """The same with every time of either side multiplied, and no contention: what the recurrence can be told."""
        gradients = tuple(replace(g, ready_s=g.ready_s * compute, need_s=g.need_s * compute) for g in self.gradients)
        pieces = tuple(
            replace(p, alpha_s=p.alpha_s * communication, beta_s_per_byte=p.beta_s_per_byte * communication)
            for p in self.fit.pieces
        )
        return replace(
            self,
            gradients=gradients,
            backward_s=self.backward_s * compute,
            gamma_s=self.gamma_s * compute,
            forward_s=self.forward_s * compute,
            fit=CostFit(pieces),
            contention=Contention(),
        )
