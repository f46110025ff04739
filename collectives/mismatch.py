"""The error of ranks that met in different collectives: who entered what, at which step and bucket of which plan.

In: each rank's `CollectiveCall` and `Stamp`. Out: a CollectiveMismatchError. Where only the stamps differ, the sentence
says the step and bucket of each side; that is how a rank that skipped a backward, or took another plan, is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.call import CollectiveCall, Stamp
from collectives.errors import CollectiveMismatchError

Entry = tuple[CollectiveCall, Stamp]


def mismatch_error(
    entries: Sequence[Entry], texts: Sequence[str] = (), *, ranks: Sequence[int] | None = None
) -> CollectiveMismatchError:
    """The error for `entries`, one a rank. texts: what to call each (labels included); ranks: theirs, if not all."""
    members = list(ranks or range(len(entries)))
    said = [_text(entry, text) for entry, text in zip(entries, texts or [""] * len(entries))]
    return CollectiveMismatchError(
        _sentence(entries, members),
        expected="the same collective, dtype and size on every rank, at the same step and bucket, in the same order",
        got="; ".join(f"{text} on rank(s) {sides}" for text, sides in _grouped(said, members).items()),
        remedy="look for rank-dependent control flow before this call: a step or a backward that one rank skipped,"
        " an exception that was caught, a branch",
    )


def _text(entry: Entry, text: str) -> str:
    call, stamp = entry
    return f"{text or call} at {stamp}" if stamp else text or str(call)


def _sentence(entries: Sequence[Entry], members: Sequence[int]) -> str:
    if len({call for call, _ in entries}) > 1 or not any(stamp for _, stamp in entries):
        return "ranks met in different collectives"
    places = _grouped([str(stamp) for _, stamp in entries], members)
    return "ranks met at different steps: " + "; ".join(
        f"rank {', '.join(map(str, sides))} is at {place}" for place, sides in places.items()
    )


def _grouped(texts: Sequence[str], members: Sequence[int]) -> dict[str, list[int]]:
    sides: dict[str, list[int]] = {}
    for member, text in zip(members, texts):
        sides.setdefault(text, []).append(member)
    return sides
