"""One parameter's update: what it reads, where it goes, and how it runs op by op.

In: cells of a parameter and its state, its gradient, the numbers of a step. Out: new values in the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler_core.device import device_of
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.tensor.memory.cell import Cell, DeviceCell, write_all
from compiler_core.tensor.memory.fence import Fence
from distcompile.optim.update_rules.rule import UpdateRule, apply_rule


@dataclass(slots=True)
class Update:
    """What one parameter's update reads and where it goes.

    cells: the parameter's and its state's, in the rule's order. numbers: index into the step's list of scalar sets.
    counters: cells of the state's numbers ("step", ...), each with the value it takes. fence: guards the gradient.
    """

    rule: UpdateRule
    cells: list[Cell]
    gradient: Array
    numbers: int
    counters: Sequence[tuple[Cell, Array]]
    fence: Fence | None = None

    def write(self, outputs: list[Array]) -> None:
        write_all(self.cells, outputs)
        for cell, value in self.counters:
            cell.write(value if type(cell.raw) is np.ndarray else device_of(cell.raw).put(value))


_THERE = frozenset((DeviceCell,))


def inputs_of(updates: Sequence[Update], scalars: Sequence[Mapping[str, Array]]) -> list[Array]:
    """What the compiled call of `updates` reads, in its order."""
    inputs: list[Array] = []
    for update in updates:
        parameter, *state = update.cells
        if _THERE.issuperset(map(type, update.cells)):
            inputs += (parameter.raw, update.gradient, *[cell.raw for cell in state])
        else:
            inputs += (parameter.current(), update.gradient, *[cell.current() for cell in state])
    for numbers in scalars:
        inputs += numbers.values()
    return inputs


def run_eager_update(update: Update, scalars: Sequence[Mapping[str, Array]]) -> list[Array]:
    """The update op by op on arrays: new values of its cells."""
    return apply_update(update, [cell.current() for cell in update.cells], scalars)


def apply_update(update: Update, values: Sequence[Array], scalars: Sequence[Mapping[str, Array]]) -> list[Array]:
    """The rule of `update` on these values of its cells."""
    parameter, *state = values
    named = dict(zip(update.rule.state, state, strict=True))
    return apply_rule(update.rule, parameter, update.gradient, named, scalars[update.numbers])
