"""What a compiled call takes beside its inputs, as its plans have it: known once it is compiled, before it runs.

In: the executables of a forward and of its backward, and which outputs only the backward reads. Out: `MemoryPlan`.
What a thread computes with is one arena, as large as its largest program's; what executables give back comes from
memory that they keep for the next call, so of a step that is repeated the sum is the peak. Values that the backward
writes over (schedule/lending.py) are counted once, and those that wait in the host's memory (`offload.py`) apart.
Limits: of a whole step on a GPU nothing is said. What a call writes into its inputs' memory, and gradients that lie in
a bucket, are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

from compiler_core.backend import Executable, WritesOver
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass

_MIB = 1 << 20


@runtime_checkable
class Planned(Protocol):
    """An executable that knows what it takes. working_nbytes: of its arena, as far as it is touched; on a GPU of all
    that it is given."""

    output_metas: Sequence[TensorMeta]

    @property
    def working_nbytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes: of results and values written back; kept for the backward; of gradients; of what both compute with; and of
    what waits for the backward in the host's memory."""

    results: int
    saved: int
    gradients: int
    working: int
    hosted: int = 0

    @property
    def peak(self) -> int:
        """The most that a step takes at once, in bytes."""
        return self.results + self.saved + self.gradients + self.working

    def __str__(self) -> str:
        parts = {"saved for the backward": self.saved, "gradients": self.gradients, "results": self.results}
        parts["working memory"] = self.working
        text = ", ".join(f"{what} {nbytes / _MIB:.1f}" for what, nbytes in parts.items() if nbytes)
        there = f", in the host's memory {self.hosted / _MIB:.1f}" if self.hosted else ""
        return f"memory planned: {self.peak / _MIB:.1f} MiB at most ({text or 'none'}){there}"


def memory_plan(
    forward: Executable,
    backward: Iterable[Executable] = (),
    saved: Sequence[int] = (),
    *,
    hosted: Collection[int] = (),
    has_places: bool = False,
) -> MemoryPlan | None:
    """None if an executable does not know. saved: outputs of the forward that only its backward reads; hosted: those of
    them in the host's memory. has_places: gradients are written where their owner keeps them."""
    runs = [forward, *backward]
    if not all(isinstance(run, Planned) for run in runs):
        return None
    planned = [run for run in runs if isinstance(run, Planned)]
    first, rest = planned[0], planned[1:]
    over = {output for output, _ in forward.over_inputs} if not rest and isinstance(forward, WritesOver) else set()
    kept = sum(first.output_metas[i].nbytes for i in saved)
    made = sum(meta.nbytes for i, meta in enumerate(first.output_metas) if i not in over)
    there = sum(first.output_metas[i].nbytes for i in hosted)
    gradients = 0 if has_places else sum(meta.nbytes for run in rest for meta in run.output_metas)
    return MemoryPlan(made - kept, kept - there, gradients, max(run.working_nbytes for run in planned), there)
