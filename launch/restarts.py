"""`--max-restarts N`: the whole job again after a failure, until it ends well or has failed N + 1 times.

In: a function that runs one attempt. Out: the last attempt's exit code; every attempt's first cause is said again at
the end. Between attempts there is a pause that doubles, so that what caused the failure (a full disk, a port still in
use) has time to pass. What the user ended (a signal, --timeout) is not started again. The program resumes from its
own checkpoint: it finds the count in TORCHELASTIC_RESTART_COUNT.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_ME = "distcompile-run:"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one start ended. cause: its first cause, one line. may_restart: it failed by itself."""

    code: int
    words: str
    cause: str
    may_restart: bool


def run(attempt: Callable[[int], Attempt], most: int, say: Callable[[str], None]) -> int:
    """attempt: starts the job, given how many starts there were before. most: restarts allowed."""
    told: list[str] = []
    for count in range(most + 1):
        ended = attempt(count)
        say(ended.words)
        if ended.code == 0 or not ended.may_restart or most == 0:
            return ended.code
        told.append(ended.cause)
        if count < most:
            pause_s = min(FIRST_PAUSE_S * 2**count, _LONGEST_PAUSE_S)
            say(f"{_ME} start {count + 1} of {most + 1} failed: {ended.cause}; starting again in {pause_s:g} s\n")
            time.sleep(pause_s)
    lines = "".join(f"  start {count + 1}: {cause}\n" for count, cause in enumerate(told))
    say(f"{_ME} failed {len(told)} times:\n{lines}")
    return ended.code
