"""Results in the memory of operands that nobody needs afterwards.

In: a program's steps and the lives of its temps. Out: joined lives, and which temp lies in which other. It saves
fetching the cache lines that a store would otherwise fill for the first time: kernels that stream more than the caches
hold run up to a third faster. When it is safe: loop_ir/aliasing.py. Temps take part, and inputs that the caller has
given up (role "spent"); other inputs are not ours to overwrite, and outputs lie where the caller says.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.aliasing import safe_pairs
from compiler_core.schedule.arena_plan import Life


def share(steps: Sequence[ir.Step], lives: Sequence[Life]) -> tuple[list[Life], dict[str, str]]:
    """Lives with results joined to the operands whose memory they take, and (result -> the temp it lies in)."""
    by_name = {life.name: life for life in lives}
    home: dict[str, str] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, ir.KernelCall):
            continue
        slots = {param.name: slot.buffer for param, slot in zip(step.kernel.params, step.slots)}
        taken: set[str] = set()
        for written, read in safe_pairs(step.kernel):
            result, operand = slots[written], slots[read]
            if result in home or operand in taken or list(slots.values()).count(operand) > 1:
                continue
            if _fits(by_name.get(result), by_name.get(_root(operand, home)), number):
                root = _root(operand, home)
                by_name[root] = Life(root, by_name[root].nbytes, by_name[root].first, by_name.pop(result).last)
                home[result] = root
                taken.add(operand)
    return list(by_name.values()), {name: _root(name, home) for name in home}


def _root(name: str, home: dict[str, str]) -> str:
    return home.get(name, name)


def _fits(result: Life | None, operand: Life | None, step: int) -> bool:
    """Whether the operand's life ends, and the result's begins, at `step`."""
    if result is None or operand is None or result.nbytes != operand.nbytes:
        return False
    return result.first == step == operand.last
