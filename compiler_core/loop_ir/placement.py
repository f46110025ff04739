"""Where events may stand among the steps of a program.

In: a Program, or its steps with the events that they shall meet. Out: checked, or placed.
A signal stands right after the last step that writes what it announces, a wait right before the first step that reads
what it waits for: as early and as late as the order of the other steps allows. What no step touches is announced at
the start, and waited for at the end, so that every event happens once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from compiler_core.errors import GraphError
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.print import print_step

Events = Mapping[int, tuple[str, ...]]  # event -> the buffers it announces, or makes readable


def reads(step: ir.Step) -> Iterator[str]:
    """The buffers a step reads."""
    if isinstance(step, ir.KernelCall):
        yield from (slot.buffer for slot, p in zip(step.slots, step.kernel.params) if p.access != "out")
    elif isinstance(step, ir.RoutineCall):
        yield from (view.slot.buffer for view in step.operands)
        if step.routine.reads_result(dict(step.attrs)):
            yield step.result.slot.buffer


def writes(step: ir.Step) -> Iterator[str]:
    """The buffers a step writes."""
    if isinstance(step, ir.KernelCall):
        yield from (slot.buffer for slot, p in zip(step.slots, step.kernel.params) if p.access != "in")
    elif isinstance(step, ir.RoutineCall):
        yield step.result.slot.buffer


def place_events(steps: Sequence[ir.Step], signals: Events, waits: Events) -> list[ir.Step]:
    """`steps` with the events among them."""
    after: dict[int, list[ir.Step]] = {}
    before: dict[int, list[ir.Step]] = {}
    for event, names in signals.items():
        last = max((k for k, step in enumerate(steps) if not set(names).isdisjoint(writes(step))), default=-1)
        after.setdefault(last, []).append(ir.Signal(event, names))
    for event, names in waits.items():
        first = (k for k, step in enumerate(steps) if not set(names).isdisjoint(reads(step)))
        before.setdefault(next(first, len(steps)), []).append(ir.Wait(event, names))
    placed = [*after.get(-1, ())]
    for k, step in enumerate(steps):
        placed += [*before.get(k, ()), step, *after.get(k, ())]
    return [*placed, *before.get(len(steps), ())]


def check_events(program: ir.Program) -> None:
    """Raise GraphError if an event stands where it must not, or twice."""
    for kind, allowed in ((ir.Signal, program.outputs), (ir.Wait, program.inputs)):
        found = [step for step in program.steps if isinstance(step, kind)]
        if len({event.event for event in found}) != len(found):
            raise GraphError(f"program {program.name}: an event stands twice", got="; ".join(map(print_step, found)))
        for event in found:
            _check_names(program, event, allowed)
    for k, step in enumerate(program.steps):
        if isinstance(step, ir.Signal):
            late = {name for later in program.steps[k:] for name in writes(later)}
            _check_apart(program, step, late, "written after")
        elif isinstance(step, ir.Wait):
            early = {name for earlier in program.steps[:k] for name in reads(earlier)}
            _check_apart(program, step, early, "read before")


def _check_names(program: ir.Program, step: ir.Signal | ir.Wait, allowed: Collection[str]) -> None:
    unknown = [name for name in step.buffers if name not in allowed]
    if unknown:
        what = "output" if isinstance(step, ir.Signal) else "input"
        raise GraphError(f"program {program.name}: {', '.join(unknown)} is no {what}", got=print_step(step))


def _check_apart(program: ir.Program, step: ir.Signal | ir.Wait, touched: Collection[str], how: str) -> None:
    wrong = [name for name in step.buffers if name in touched]
    if wrong:
        raise GraphError(f"program {program.name}: {', '.join(wrong)} is {how} its event", got=print_step(step))
