"""When must a running job end? Policy only: reads the records and the clock, does nothing itself.

In: the ranks' records. Out: the time at which the launcher begins to end the job, or None.
    a rank failed, by itself       -> `SETTLE_S` later, so that what the others have to say arrives first
    a rank failed because of others -> up to the grace period later: the true cause may still be told
    a rank's wait came to its limit: the job hangs, but that rank may handle the error, and save -> the grace period
    after all whose wait ended so have come to their end, at the latest `save_limit_s` after the first was heard of
    a rank left with exit code 0, in the middle -> the grace period after hearing that, unless all others do so by then
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.records import RankRecord

SETTLE_S = 0.3
_NOTICE_S = 1.0  # by then a rank that does not handle the error has ended


def begins_at(records: Sequence[RankRecord], size: int, grace_s: float) -> float | None:
    """The time (monotonic) at which to end the job for a failure; None while there is none."""
    if everyone_left_early(records, size):
        return None
    times = [time for record in records if (time := _of_one(record, grace_s)) is not None]
    return min(times, default=None)


def _of_one(record: RankRecord, grace_s: float) -> float | None:
    if record.failure is not None:
        return record.failure.at + (grace_s if record.failure.consequence else SETTLE_S)
    if record.end is not None and not record.ended_well:
        if record.end.status == 0:
            return record.end.heard_at + grace_s
        return record.end.at + (SETTLE_S if not record.end.relayed else grace_s)
    if record.lost_at is not None:
        return record.lost_at + SETTLE_S
    return None


@dataclass
class Standstill:
    """A watchdog's word that the job hangs: since when, and who goes on although told. save_limit_s: 0 for ever.

    left_at: since when nobody does.
    """

    save_limit_s: float
    since: float | None = None
    goes_on: frozenset[int] = frozenset()
    left_at: float | None = None
    is_told: bool = False

    def hear(self, now: float, goes_on: frozenset[int] | None, records: Mapping[int, RankRecord]) -> None:
        """goes_on: the boards' word of it, None if there is none, or none any more."""
        if goes_on is None:
            self.since, self.goes_on, self.left_at, self.is_told = None, frozenset(), None, False
            return
        self.since = now if self.since is None else self.since
        self.goes_on = frozenset(rank for rank in goes_on if rank in records and not records[rank].is_over)
        self.left_at = None if self.goes_on else self.left_at or now

    def begins_at(self, grace_s: float) -> float | None:
        """When to end the job for it: the ranks that were not told may be ending, too."""
        if self.since is None or (self.left_at is None and not self.save_limit_s):
            return None
        return self.since + self.save_limit_s if self.left_at is None else self.left_at + grace_s

    def holds(self, now: float) -> bool:
        """Whether the job is left alone, whatever else ends: stacks are being written, or somebody goes on."""
        if self.since is None or now < self.since + _NOTICE_S:
            return self.since is not None
        return bool(self.goes_on) and (not self.save_limit_s or now < self.since + self.save_limit_s)

    def words(self, now: float, text: str) -> str:
        """What to say, once, of a job that is left alone; "" for now."""
        if self.is_told or self.since is None or now < self.since + _NOTICE_S or not self.holds(now):
            return ""
        self.is_told = True
        ranks = ", ".join(map(str, sorted(self.goes_on)))
        limit = f"the job ends in {self.save_limit_s:g} s (--save-limit), or" if self.save_limit_s else "the job ends"
        return f"{text}; rank(s) {ranks} handled that error, and may save: {limit} when they have ended"


def is_explained(records: Sequence[RankRecord]) -> bool:
    """Some rank failed by itself; else the failures there are only speak of others, and something hangs."""
    own = (record.failure is not None and not record.failure.consequence for record in records)
    dead = (record.failure is None and record.is_over and not record.ended_well for record in records)
    return any(own) or any(dead)


def everyone_left_early(records: Sequence[RankRecord], size: int) -> bool:
    """All ranks have ended by `os._exit(0)`: that is how this program ends, and nobody was left waiting."""
    return len(records) == size and all(record.left_early for record in records)
