"""Stops: where a compiled backward goes to Python, as data of the joint graph.

In: the calls of one boundary (`boundary.py`) met by the reverse sweep, and what has flowed back to them. Out: a `Stop`,
and a placeholder (role "hooked") for each gradient that its function hands on. Nothing else of the joint knows of
Python: what the function reads are more outputs, what it makes are more inputs, as tangents are.
Numbers: stop h is the h-th in the order of the backward, the tape's; stage s is what runs before stop s and after
stop s - 1. Arrivals are numbered: tangents first, then hooked placeholders; bit k of a mask stands for arrival k.
A value whose mask meets no arrival that came is no gradient in that pass: None to the tape, and to functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    """Boundary number `boundary` of the trace, in the backward. is_rule: not a hook, but a rule (`boundary.py`).

    cotangents: for each slot, the backward's output that holds its cotangent and the mask of what reaches it; None if
    nothing can. saved: outputs with the values that a rule reads. sources: of each tensor that gradients go on to, its
    meta. made: for each, its number among the hooked placeholders and its arrival's bit; None if it needs no gradient.
    """

    boundary: int
    is_rule: bool
    cotangents: tuple[tuple[int, int] | None, ...]
    saved: tuple[int, ...]
    sources: tuple[TensorMeta, ...]
    made: tuple[tuple[int, int] | None, ...]

    @property
    def reaching(self) -> int:
        """The mask of what reaches any of its cotangents."""
        mask = 0
        for cotangent in self.cotangents:
            mask |= 0 if cotangent is None else cotangent[1]
        return mask

    @property
    def making(self) -> int:
        """The mask of what it makes."""
        mask = 0
        for made in self.made:
            mask |= 0 if made is None else made[1]
        return mask


def all_that_may_come(came: int, stops: Sequence[Stop]) -> int:
    """The arrivals of a pass, if every stop of `stops` that is reached makes all that it can."""
    for stop in stops:
        if stop.reaching & came:
            came |= stop.making
    return came


def gradients_behind(stops: Sequence[Stop], reaches: Sequence[int]) -> list[frozenset[int]]:
    """For each stop, the gradients (by output) that depend on what it makes. reaches: the mask of each gradient."""
    found: list[frozenset[int]] = [frozenset()] * len(stops)
    for h in range(len(stops) - 1, -1, -1):
        makes = stops[h].making
        behind = {k for k, mask in enumerate(reaches) if mask & makes}
        for later in range(h + 1, len(stops)):
            if stops[later].reaching & makes:
                behind |= found[later]
        found[h] = frozenset(behind)
    return found
