"""Parameters and state of a captured step, written where they are: new values over the old ones.

In: an entry's graph, its executable, the inputs of a call. Out: places for what the call writes.
The executable says which outputs may lie over which inputs: nobody in the call reads these afterwards, and nothing can
fail any more (schedule/over_inputs.py). Here is said that nobody outside looks at them: only the cell refers to the
array, the inputs of the call, and the pool that it is from, if it is from the executable's own (on a GPU: that its
memory is from). Views, NumPy aliases, what a tape saved, and other calls under way count as references
(tensor/memory/ownership.py); lent memory is left to `Cell.write`. Then the value goes to fresh memory, as before.
A call that has a backward writes nothing in place: that may read what there was.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount

import numpy as np

from compiler_core.backend import AsksForPlaces, Executable, WritesOver
from compiler_core.capture.captured import Captured
from compiler_core.ops.registry import Array
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.ownership import is_alone_on_device


class InPlace:
    """targets: (output, the input whose value it replaces, the cell of both). size: how many outputs there are."""

    def __init__(self, executable: WritesOver, targets: Sequence[tuple[int, int, Cell]], size: int) -> None:
        self.executable, self.targets, self.size = executable, targets, size
        self._asks = executable.run_then_ask if isinstance(executable, AsksForPlaces) else None

    def run(self, inputs: list[Array]) -> list[Array]:
        """A call. Where the executable has something to do before it needs places, they are looked for meanwhile."""
        if self._asks is not None:
            return self._asks(inputs, lambda: self.places(inputs))
        return self.executable(inputs, self.places(inputs))

    def places(self, inputs: list[Array]) -> list[Array | None]:
        """A place for each output that may lie over its input in this call; None for the others."""
        places: list[Array | None] = [None] * self.size
        for output, place, cell in self.targets:
            if cell.raw is inputs[place] and not cell.is_lent and self._is_alone(output, inputs, place):
                places[output] = inputs[place]
        return places

    def _is_alone(self, output: int, inputs: list[Array], place: int) -> bool:
        """Whether nobody but the cell and the call refers to the array. Hold no reference while asking."""
        references = getrefcount(inputs[place]) - _ALONE
        if references not in (0, 1):
            return False
        if type(inputs[place]) is not np.ndarray:
            return references == 0 and (
                is_alone_on_device(inputs[place]) or self.executable.made(output, inputs[place])
            )
        flags = inputs[place].flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            return False
        return bool(flags.owndata) if references == 0 else self.executable.made(output, inputs[place])


def _references(inputs: list[Array], place: int) -> int:
    return getrefcount(inputs[place])


def _alone() -> int:
    cell = Cell(np.zeros(1))
    return _references([cell.value], 0)


_ALONE = _alone()


def writes_in_place(captured: Captured, executable: Executable) -> InPlace | None:
    """What the calls of an entry without a backward may write in place; None: nothing."""
    if not isinstance(executable, WritesOver):
        return None
    cells: dict[int, list[int]] = {}
    for place, lift in enumerate(captured.inputs):
        if lift is not None and lift.cell is not None:
            cells.setdefault(id(lift.cell), []).append(place)
    first = len(captured.outputs.nodes)
    targets = [
        (output, found[0], target.cell)
        for output, target in enumerate(captured.written, first)
        if target.cell is not None
        and len(found := cells.get(id(target.cell), [])) == 1
        and target.cell.root is target.cell
        and (output, found[0]) in executable.over_inputs
    ]
    return InPlace(executable, targets, len(captured.graph.outputs)) if targets else None
