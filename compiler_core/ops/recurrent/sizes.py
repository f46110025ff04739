"""The sizes that all forms of a recurrent layer share: gates, what is saved, which rows a step has.

In: mode, sizes, `runs`: how many sequences reach how many steps, ((sequences, steps), ...), sequences falling (sorted,
longest first; a padded batch is one run). Out: shapes of packed results; `TimeStep`s in the order they are worked on.

    mode    gates (rows of w)   saved per step (S blocks of H)     states   blocks of the result
    tanh    1                   -                                  h        h
    relu    1                   -                                  h        h
    gru     3: r z n            4: r z n, and W_n h + b_n          h        h, saved
    lstm    4: i f g o          4: i f g o                         h, c     h, c, saved
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from compiler_core.errors import ShapeError
from compiler_core.meta import Shape
from compiler_core.records import dataclass

Runs = tuple[tuple[int, int], ...]
GATES = {"tanh": 1, "relu": 1, "gru": 3, "lstm": 4}
SAVED = {"tanh": 0, "relu": 0, "gru": 4, "lstm": 4}


class TimeStep(NamedTuple):
    """size: the sequences that reach it. row: its first row."""

    size: int
    row: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.size)


NOTHING = TimeStep(0, 0)


@dataclass(frozen=True, slots=True)
class RecurrentSizes:
    """One layer and direction. reverse: from the last step to the first; a sequence joins at its last step."""

    mode: str
    hidden: int
    runs: Runs
    reverse: bool

    @property
    def batch(self) -> int:
        return self.runs[0][0]

    @property
    def rows(self) -> int:
        return sum(size * steps for size, steps in self.runs)

    @property
    def gates(self) -> int:
        return GATES[self.mode]

    @property
    def saved(self) -> int:
        """How many blocks of H are saved of a step."""
        return SAVED[self.mode]

    @property
    def has_cells(self) -> bool:
        return self.mode == "lstm"

    @property
    def result(self) -> tuple[Shape, ...]:
        """The shapes of the blocks of the result."""
        blocks = [(self.rows, self.hidden)] * (2 if self.has_cells else 1)
        return (*blocks, (self.rows, self.saved * self.hidden)) if self.saved else tuple(blocks)

    @property
    def gradients(self) -> tuple[Shape, ...]:
        """Those of the backward's: of x; for gru of W_n h + b_n; of the first states."""
        of_new = [(self.rows, self.hidden)] if self.mode == "gru" else []
        states = [(self.batch, self.hidden)] * (2 if self.has_cells else 1)
        return ((self.rows, self.gates * self.hidden), *of_new, *states)

    def steps(self, *, backward: bool = False) -> list[TimeStep]:
        """All steps in the order in which they are computed, or in which the backward visits them."""
        steps, row = [], 0
        for size, count in self.runs:
            for _ in range(count):
                steps.append(TimeStep(size, row))
                row += size
        return steps[::-1] if self.reverse != backward else steps


def check_runs(op: str, runs: Runs) -> None:
    """Raise ShapeError unless runs are of falling, positive sizes (or one run of no sequence), and not empty."""
    sizes = [size for size, _ in runs]
    falls = all(a > b for a, b in pairwise(sizes)) and min(sizes, default=-1) >= (0 if len(runs) == 1 else 1)
    if not falls or any(count < 1 for _, count in runs):
        raise ShapeError(f"{op}: runs of steps with falling numbers of sequences", expected="((4, 2), (3, 1))",
                         got=str(runs))  # fmt: skip


def runs_of(sizes: list[int]) -> Runs:
    """The runs of batch sizes, one a step."""
    runs: list[tuple[int, int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size:
            runs[-1] = (size, runs[-1][1] + 1)
        else:
            runs.append((size, 1))
    return tuple(runs)


def steps_of(runs: Runs) -> list[int]:
    """The batch sizes of runs, one a step: their number is a constant then."""
    return [size for size, steps in runs for _ in range(steps)]
