"""When must a running job end? Policy only: reads the records and the clock, does nothing itself.

In: the ranks' records. Out: the time at which the launcher begins to end the job, or None.
    a rank failed, by itself       -> `SETTLE_S` later, so that what the others have to say arrives first
    a rank failed because of others -> up to the grace period later: the true cause may still be told
    a rank left with exit code 0, in the middle -> the grace period after hearing that, unless all others do so by then
"""

from __future__ import annotations

from collections.abc import Sequence

from launch.records import RankRecord

SETTLE_S = 0.3


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


def is_explained(records: Sequence[RankRecord]) -> bool:
    """Some rank failed by itself; else the failures there are only speak of others, and something hangs."""
    own = (record.failure is not None and not record.failure.consequence for record in records)
    dead = (record.failure is None and record.is_over and not record.ended_well for record in records)
    return any(own) or any(dead)


def everyone_left_early(records: Sequence[RankRecord], size: int) -> bool:
    """All ranks have ended by `os._exit(0)`: that is how this program ends, and nobody was left waiting."""
    return len(records) == size and all(record.left_early for record in records)
