"""Saved values in the host's memory: when a GPU's program sends them there, and when it fetches them back.

In: the steps of a program, and which of its outputs are sent, which inputs fetched. Out: the steps with the copies
among them (ops/host_copies.py). A value that is sent is a temp of the arena: its copy sets out behind the step that
completes it, and where the copy is done, by an estimate, its memory is free. One that is fetched is a temp from where
its copy sets out, so that it is there, by the same estimate, when the first step reads it.
The copies travel one after another. What is on its way takes memory, so that is bounded: when a quarter of all that is
copied, or two values, would be on the way, a program waits for the oldest, and fetches none further ahead.
Invariants: all copies are done when the program is: the arena, and the memory in the host, are the next one's.
Known limit: the estimate is an H200's; on another device a copy is waited for, or takes memory, longer than it must.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.placement import reads, writes
from compiler_core.meta import TensorMeta
from compiler_core.ops.host_copies import BEGINS, ENDS
from compiler_core.ops.routine import Strided, contiguous

# of an H200, in bytes or operations a microsecond: its memory; its link; products of 16-bit floats, and of others
_MEMORY, _LINK, _HALVES, _OTHERS = 3e6, 4e4, 4e8, 4e7
_LAUNCH = 2.0  # microseconds that a step takes at least

Copies = Mapping[str, str]  # a value -> its buffer in the host's memory


def with_copies(
    steps: Sequence[ir.Step], sent: Copies, fetched: Copies, metas: Mapping[str, TensorMeta]
) -> list[ir.Step]:
    """`steps` with the copies of values that are sent to the host, and fetched from there."""
    if not sent and not fetched:
        return list(steps)
    times = _times(steps, metas)
    ends, begins, both = (defaultdict[int, list[ir.Step]](list) for _ in range(3))  # by place: before the step there
    sending = _sending(steps, [*sent], times, metas)
    fetching = _fetching(steps, [*fetched], times, metas)
    for event, (name, first, last) in enumerate([*sending, *fetching]):
        source, target = (name, sent[name]) if name in sent else (fetched[name], name)
        layout = contiguous(metas[name])
        begins[first].append(_copy(source, target, layout, event, is_end=False))
        (ends if first < last else both)[last].append(_copy(source, target, layout, event, is_end=True))
    placed: list[ir.Step] = []
    for place in range(len(steps) + 1):
        placed += [*ends[place], *begins[place], *both[place], *steps[place : place + 1]]
    return placed


def _copy(source: str, target: str, layout: Strided, event: int, *, is_end: bool) -> ir.RoutineCall:
    routine, what = (ENDS, "is here") if is_end else (BEGINS, "travels")
    operand, result = ir.View(ir.Slot(source), layout), ir.View(ir.Slot(target), layout)
    return ir.RoutineCall(routine, (operand,), result, (("event", event),), f"{source} {what}: {target}")


Placed = list[tuple[str, int, int]]  # a value, the place before which its copy begins, and before which it ends


def _sending(
    steps: Sequence[ir.Step], names: Sequence[str], times: Sequence[float], metas: Mapping[str, TensorMeta]
) -> Placed:
    made: dict[str, int] = {}  # a value -> the place behind the last step that writes it
    for place, step in enumerate(steps, 1):
        made |= dict.fromkeys(writes(step), place)
    found: Placed = []
    under_way: deque[int] = deque()
    most, free, sent = _most(names, metas), 0.0, 0
    for name in sorted(names, key=made.__getitem__):
        first = made[name]
        free = max(free, times[first]) + metas[name].nbytes / _LINK
        last = max(first, min(bisect_left(times, free), len(steps)))
        while under_way and found[under_way[0]][2] <= first:
            sent -= metas[found[under_way.popleft()][0]].nbytes
        found.append((name, first, last))
        if last > first:
            under_way.append(len(found) - 1)
            sent += metas[name].nbytes
        while sent > most and len(under_way) > 2:
            oldest = under_way.popleft()  # is waited for before another sets out
            sent -= metas[found[oldest][0]].nbytes
            found[oldest] = (*found[oldest][:2], first)
    return found


def _fetching(
    steps: Sequence[ir.Step], names: Sequence[str], times: Sequence[float], metas: Mapping[str, TensorMeta]
) -> Placed:
    read: dict[str, int] = {}
    for place, step in enumerate(steps):
        for name in reads(step):
            read.setdefault(name, place)
    wanted = sorted((name for name in names if name in read), key=read.__getitem__)
    latest, starts = float("inf"), dict[str, int]()
    for name in reversed(wanted):
        latest = min(latest, times[read[name]]) - metas[name].nbytes / _LINK
        starts[name] = max(bisect_right(times, latest) - 1, 0)
    found: Placed = []
    most = _most(names, metas)
    ahead: deque[str] = deque()
    nbytes = 0
    for name in wanted:
        ahead.append(name)
        nbytes += metas[name].nbytes
        while nbytes > most and len(ahead) > 2:
            oldest = ahead.popleft()
            nbytes -= metas[oldest].nbytes
            starts[name] = max(starts[name], read[oldest] + 1)
        earlier = found[-1][1] if found else 0
        found.append((name, min(max(starts[name], earlier), read[name]), read[name]))
    return found


def _most(names: Sequence[str], metas: Mapping[str, TensorMeta]) -> int:
    """Bytes that may be on the way."""
    return sum(metas[name].nbytes for name in names) // 4


def _times(steps: Sequence[ir.Step], metas: Mapping[str, TensorMeta]) -> list[float]:
    """About when each step begins, in microseconds, and when the last one ends."""
    times = [0.0]
    for step in steps:
        times.append(times[-1] + _takes(step))
    return times


def _takes(step: ir.Step) -> float:
    if isinstance(step, ir.KernelCall):
        nbytes = sum(int(p.numel) * p.dtype.itemsize for p in step.kernel.params)
        return max(_LAUNCH, nbytes / _MEMORY)
    if isinstance(step, ir.RoutineCall):
        layouts = [view.layout for view in (*step.operands, step.result)]
        flops = step.routine.flops(*(view.layout.meta for view in step.operands), **dict(step.attrs))
        rate = _HALVES if step.operands and layouts[0].dtype.itemsize == 2 else _OTHERS
        return max(_LAUNCH, sum(layout.meta.nbytes for layout in layouts) / _MEMORY, flops / rate)
    return 0.0
