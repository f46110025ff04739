"""What a call's `region` says: the checkpointed function that it belongs to, and where its policy has the value wait.

In: the function's number, counted from 1, and a `Keep`. Out: one number (`region_of`), and the two that it stands for.
"""

from __future__ import annotations

from enum import IntEnum

_STEP = 1 << 24  # more than there are checkpointed functions


class Keep(IntEnum):
    """Of a value of a checkpointed function, until the backward: computed again; kept; kept in the host's memory if it
    is worth a copy; kept there."""

    AGAIN = 0
    HERE = 1
    HOST_IF_LARGE = 2
    HOST = 3


def region_of(number: int, keep: Keep) -> int:
    """A call's region."""
    return number + keep * _STEP


def number_of(region: int) -> int:
    """The checkpointed function of a call; 0: none."""
    return region % _STEP


def keep_of(region: int) -> Keep:
    """What the policy of its function does with a call's value."""
    return Keep(region // _STEP)
