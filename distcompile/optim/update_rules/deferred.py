"""Updates put off until their gradients have arrived.

In: updates whose gradients one fence guards, with the numbers of the step that asked for them. Out: promises: the cells
of parameters and state hold the arrays that will have the new values, guarded by the same fence, so that whoever reads
one first has the update made.
Invariants: what a step reads beside gradients (values, learning rates, counts) is taken when it is called; versions
rise, and step counts are written, when it is called; a value is written over only if nobody else sees it, as in an
update that is made at once. The compiled update of a parameter is the same kernel either way: the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler_core.device import device_of
from compiler_core.log import warn_once
from compiler_core.ops.registry import Array
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.fence import Fence, can_guard, fence_of, promise
from compiler_core.tensor.memory.lent import is_lent
from compiler_core.tensor.memory.ownership import destination
from distcompile.optim.update_rules.update import Update, apply_update, inputs_of

if TYPE_CHECKING:
    from compiler_core.backend import Executable


def deferrable(gradient: Cell, cells: Sequence[Cell]) -> Fence | None:
    """The fence that an update of `cells` may be put behind; None if it must be made now.

    Arrays that do not fit together (state kept while the model was converted) are one such case: the update's error
    then comes out of the step, which has written nothing, and not out of whoever reads the parameter first.
    """
    fence = fence_of(gradient)
    if fence is None:
        return None
    if any(is_lent(cell) for cell in cells):
        warn_once(
            "deferred.lent",
            "the memory of a parameter, or of an optimizer's state, was lent (numpy(), data_ptr(), ...): its update "
            "cannot be put off until its gradient arrives, so each step waits for that; read with tolist() or "
            "clone().numpy()",
        )
        return None
    like = gradient.raw
    fits = all(can_guard(c) and c.raw.dtype == like.dtype and c.raw.shape == like.shape for c in cells)
    return fence if fits else None


def settle_fences(fences: Iterable[Fence | None]) -> None:
    """Wait for what these updates wait for."""
    for fence in fences:
        if fence is not None:
            fence.settle()


def defer(
    fence: Fence, updates: Sequence[Update], scalars: Sequence[Mapping[str, Array]], call: Executable | None
) -> None:
    """Have `updates` made when `fence` is settled: by `call`, or op by op."""
    cells = [cell for update in updates for cell in update.cells]
    places = [destination(cell) for cell in cells]  # before anything else refers to the values
    compute: Callable[[], None] = _Eager(updates, scalars, places)
    if call is not None:
        compute = _Native(call, inputs_of(updates, scalars), places)
    fence.then(compute, cells)  # before the promises: nobody, in whatever thread, sees a place that is still empty
    for cell, place in zip(cells, places, strict=True):
        promise(cell, place)
    for update in updates:
        for cell, value in update.counters:
            cell.write(value if type(cell.raw) is np.ndarray else device_of(cell.raw).put(value))


class _Native:
    """One native call."""

    def __init__(self, call: Executable, inputs: list[Array], places: list[Array]) -> None:
        self.call, self.inputs, self.places = call, inputs, places

    def __call__(self) -> None:
        self.call(self.inputs, self.places)


class _Eager:
    """Op by op; all results are computed before the first is put into its place."""

    def __init__(
        self, updates: Sequence[Update], scalars: Sequence[Mapping[str, Array]], places: Sequence[Array]
    ) -> None:
        self.updates, self.scalars, self.places = updates, scalars, places
        self.values = [[cell.current() for cell in update.cells] for update in updates]

    def __call__(self) -> None:
        results = [
            result
            for update, values in zip(self.updates, self.values, strict=True)
            for result in apply_update(update, values, self.scalars)
        ]
        for place, result in zip(self.places, results, strict=True):
            place[...] = result
