"""Calls of one kernel on different arrays -> one call of a kernel that does them all.

In: a program's steps, for a GPU. Out: steps that mean the same. An optimizer updates a hundred small parameters: a
launch for each takes longer than the work, and the last programs of each leave most of the machine idle. First, calls
whose results nothing reads wait for others of their kernel (`gathered`): in a whole step each update could follow its
gradient. Then, in a run of kernel calls none of which touches what another writes, those of one kernel become

    for b in 1 serial      the kernel's statements on the first call's arrays
    for b in 1 serial      ... on the second's

whose nests codegen/triton/alike.py makes one launch. Arrays that all calls read are one param. Kernels of several nests
(sums in two stages) and with checks stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.placement import reads, writes
from compiler_core.loop_ir.rename import renamed
from compiler_core.schedule.finish import KernelTable
from compiler_core.symbolic.index import named_axis

MOST_PARAMS = 400  # of a kernel: CUDA passes 4 KiB of pointers
MOST_HELD = 32 << 20  # bytes of temps that calls which wait keep from being freed
AXIS = named_axis("b0", 1)


def batched(steps: Sequence[ir.Step], table: KernelTable, temps: Mapping[str, int]) -> list[ir.Step]:
    """`steps` with fewer calls. temps: the size of each in bytes."""
    result: list[ir.Step] = []
    run: list[ir.KernelCall] = []
    touched = _Touched()
    for step in gathered(steps, temps):
        if not isinstance(step, ir.KernelCall) or not touched.is_apart(step):
            result += _merged(run, table)
            run, touched = [], _Touched()
        if isinstance(step, ir.KernelCall):
            run.append(step)
            touched.add(step)
        else:
            result.append(step)
    return [*result, *_merged(run, table)]


class _Touched:
    """What some calls read and write."""

    def __init__(self) -> None:
        self._touched: set[str] = set()
        self._written: set[str] = set()

    def is_apart(self, step: ir.Step) -> bool:
        """Whether a step touches nothing that they write, and writes nothing that they touch."""
        return self._touched.isdisjoint(writes(step)) and self._written.isdisjoint(reads(step))

    def add(self, call: ir.KernelCall) -> None:
        """One more of them."""
        self._touched.update(slot.buffer for slot in call.slots)
        self._written.update(writes(call))


def gathered(steps: Sequence[ir.Step], temps: Mapping[str, int]) -> list[ir.Step]:
    """`steps` in another order: calls whose results nothing reads come together, kernel by kernel. None waits past an
    event, nor where temps of more than MOST_HELD bytes would have to be kept for those that wait."""
    read = {name for step in steps for name in reads(step)}
    ends = [_end(step, read) for step in steps]
    left = Counter(end.kernel.name for end in ends if end is not None)
    result: list[ir.Step] = []
    waiting: dict[str, list[ir.KernelCall]] = {}
    held: Counter[str] = Counter()
    touched = _Touched()
    for step, end in zip(steps, ends, strict=True):
        if isinstance(step, ir.Signal | ir.Wait) or not touched.is_apart(step):
            result += [call for calls in waiting.values() for call in calls]
            waiting, held, touched = {}, Counter(), _Touched()
        if end is None:
            result.append(step)
            continue
        name = end.kernel.name
        waiting.setdefault(name, []).append(end)
        touched.add(end)
        held[name] += sum(temps.get(buffer, 0) for buffer in {*reads(end)})
        left[name] -= 1
        if held.total() > MOST_HELD:
            name = max(held, key=held.__getitem__)
        elif left[name]:
            continue
        result += waiting.pop(name)
        del held[name]
    return [*result, *(call for calls in waiting.values() for call in calls)]


def _end(step: ir.Step, read: set[str]) -> ir.KernelCall | None:
    """`step`, if it is a call that may be batched, and whose results no step reads."""
    if isinstance(step, ir.KernelCall) and read.isdisjoint(writes(step)) and _is_one_nest(step.kernel):
        return step
    return None


def _merged(run: Sequence[ir.KernelCall], table: KernelTable) -> Iterable[ir.KernelCall]:
    calls: dict[str, list[ir.KernelCall]] = {}
    for call in run:
        calls.setdefault(call.kernel.name, []).append(call)
    return [made for same in calls.values() for made in _of_one_kernel(same, table)]


def _of_one_kernel(calls: Sequence[ir.KernelCall], table: KernelTable) -> Iterator[ir.KernelCall]:
    """In batches of even size."""
    kernel = calls[0].kernel
    shared = [len({call.slots[k] for call in calls}) == 1 for k in range(len(kernel.params))]
    own = shared.count(False)
    if len(calls) < 2 or not own or not _is_one_nest(kernel):
        yield from calls
        return
    most = max((MOST_PARAMS - len(shared) + own) // own, 1)
    size = -(-len(calls) // -(-len(calls) // most))
    for start in range(0, len(calls), size):
        yield _batch(calls[start : start + size], tuple(shared), table)


def _is_one_nest(kernel: ir.Kernel) -> bool:
    loops = [stmt for stmt in kernel.body if isinstance(stmt, ir.Loop)]
    others = [stmt for stmt in kernel.body if not isinstance(stmt, ir.Loop | ir.Let)]
    return len(loops) == 1 and not others and not any(isinstance(stmt, ir.Check) for stmt in ir.walk(kernel.body))


def _batch(calls: Sequence[ir.KernelCall], shared: tuple[bool, ...], table: KernelTable) -> ir.KernelCall:
    if len(calls) == 1:
        return calls[0]
    first = calls[0]
    slots = [*first.slots]
    for call in calls[1:]:
        slots += [slot for slot, is_shared in zip(call.slots, shared) if not is_shared]
    key = (first.kernel.name, len(calls), shared)
    if key not in table.batches:
        table.batches[key] = _kernel(first.kernel, len(calls), shared, f"{first.kernel.name}_x{len(table.batches)}")
    return replace(first, kernel=table.batches[key], slots=tuple(slots))


def _kernel(kernel: ir.Kernel, count: int, shared: tuple[bool, ...], name: str) -> ir.Kernel:
    params = [*kernel.params]
    nests: list[ir.Stmt] = []
    for number in range(count):
        names = {param.name: param.name for param in kernel.params}
        if number:
            for param, is_shared in zip(kernel.params, shared):
                if not is_shared:
                    names[param.name] = f"p{len(params)}"
                    params.append(replace(param, name=names[param.name]))
        body = tuple(renamed(stmt, names) for stmt in kernel.body)
        nests.append(ir.Loop(AXIS, "serial", body))
    return ir.Kernel(name, tuple(params), tuple(nests))
