"""Results in the memory of operands that nobody needs afterwards, and operands in that of results.

In: a program's steps and the lives of its temps. Out: joined lives, and which temp lies in which other. It saves
fetching the cache lines that a store would otherwise fill for the first time: kernels that stream more than the caches
hold run up to a third faster. When it is safe: loop_ir/aliasing.py. Temps take part, and inputs that the caller has
given up (role "spent"); other inputs are not ours to overwrite, and outputs lie where the caller says.
A large temp that dies where an output is made of it may lie where that will: one array less at that time. The caller
may have said that an output is to lie where an input does, element for element: so none that could be that input is
read once such a temp is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.aliasing import safe_pairs
from compiler_core.meta import TensorMeta
from compiler_core.schedule.arena_plan import Life

LARGE = 1 << 20  # bytes of a temp that lies where an output will


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


def _root(name: str, home: Mapping[str, str]) -> str:
    return home.get(name, name)


def _fits(result: Life | None, operand: Life | None, step: int) -> bool:
    """Whether the operand's life ends, and the result's begins, at `step`."""
    if result is None or operand is None or result.nbytes != operand.nbytes:
        return False
    return result.first == step == operand.last


def before_outputs(
    steps: Sequence[ir.Step],
    lives: Sequence[Life],
    home: Mapping[str, str],
    outputs: Mapping[str, TensorMeta],
    inputs: Mapping[str, TensorMeta],
) -> dict[str, str]:
    """Temp -> the output that it lies in until that is made of it. lives, home: as `share` gives them."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for slot in ir.slots_of(step):
            first.setdefault(slot.buffer, number)
            last[slot.buffer] = number
    by_name = {life.name: life for life in lives}
    found: dict[str, str] = {}
    for output, meta in outputs.items():
        number = first[output]
        alike = [last.get(name, -1) for name, m in inputs.items() if (m.dtype, m.numel) == (meta.dtype, meta.numel)]
        for root in _made_of(output, steps[number], home):
            life = by_name.get(root)
            if life is None or root in found or life.nbytes < LARGE:
                continue
            if life.last == number and life.nbytes == meta.nbytes and max(alike, default=-1) < life.first:
                found[root] = output
                break
    return found


def _made_of(output: str, step: ir.Step, home: Mapping[str, str]) -> list[str]:
    """The memories, each named but once, in any of which a kernel may make `output`."""
    if not isinstance(step, ir.KernelCall):
        return []
    slots = {param.name: slot for param, slot in zip(step.kernel.params, step.slots, strict=True)}
    rooms = [_root(slot.buffer, home) for slot in step.slots]
    pairs = [(slots[written], slots[read]) for written, read in safe_pairs(step.kernel)]
    roots = [
        _root(operand.buffer, home) for result, operand in pairs if result == ir.Slot(output) and not operand.offset
    ]
    return [root for root in roots if rooms.count(output) == rooms.count(root) == 1]
