"""Calls of one kernel on different arrays -> one call of a kernel that does them all.

In: a program's steps, for a GPU. Out: steps that mean the same. An optimizer updates a hundred small parameters: a
launch for each takes longer than the work, and the last programs of each leave most of the machine idle. In a run of
kernel calls none of which touches what another writes, those of one kernel become

    for b in 1 serial      the kernel's statements on the first call's arrays
    for b in 1 serial      ... on the second's

whose nests codegen/triton/alike.py makes one launch. Arrays that all calls read are one param. Kernels of several nests
(sums in two stages) and with checks stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.rename import renamed
from compiler_core.schedule.finish import KernelTable
from compiler_core.symbolic.index import named_axis

MOST_PARAMS = 400  # of a kernel: CUDA passes 4 KiB of pointers
AXIS = named_axis("b0", 1)


def batched(steps: Sequence[ir.Step], table: KernelTable) -> list[ir.Step]:
    """`steps` with fewer calls."""
    result: list[ir.Step] = []
    run: list[ir.KernelCall] = []
    for step in steps:
        if isinstance(step, ir.KernelCall):
            run.append(step)
        else:
            result += [*_merged(run, table), step]
            run = []
    return [*result, *_merged(run, table)]


def _merged(run: Sequence[ir.KernelCall], table: KernelTable) -> Iterable[ir.KernelCall]:
    if len(run) < 2 or not _are_independent(run):
        return run
    calls: dict[str, list[ir.KernelCall]] = {}
    for call in run:
        calls.setdefault(call.kernel.name, []).append(call)
    return [made for same in calls.values() for made in _of_one_kernel(same, table)]


def _are_independent(run: Sequence[ir.KernelCall]) -> bool:
    """Whether what a call writes is touched by no other."""
    touching: dict[str, int] = {}
    for number, call in enumerate(run):
        for slot in call.slots:
            touching[slot.buffer] = number if touching.setdefault(slot.buffer, number) == number else -1
    written = (slot.buffer for call in run for slot in _written(call))
    return all(touching[buffer] >= 0 for buffer in written)


def _written(call: ir.KernelCall) -> Iterator[ir.Slot]:
    return (slot for param, slot in zip(call.kernel.params, call.slots) if param.access != "in")


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
