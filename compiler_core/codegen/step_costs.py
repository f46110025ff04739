"""What each step of a program moves and computes, for the profiler's GB/s and GFLOP/s.

In: a `Program`. Out: one `StepCost` a step. Bytes: every operand once in each direction it is accessed in, whatever
caches do; events move nothing. Floating-point operations: those of library calls (2 m n k), not those of kernels, which
bandwidth bounds.
"""

from __future__ import annotations

import math

from compiler_core.loop_ir.ir import KernelCall, LibraryCall, Program, RoutineCall, Signal, Step, Wait
from compiler_core.meta import TensorMeta
from compiler_core.runtime.profiler import StepCost


def step_costs(program: Program) -> list[StepCost]:
    """The costs of `program.steps`, in order."""
    return [_cost(step) for step in program.steps]


def _cost(step: Step) -> StepCost:
    note = step.note.splitlines()[0] if step.note else ""
    if isinstance(step, KernelCall):
        return StepCost(step.kernel.name, note, _kernel_nbytes(step), 0)
    if isinstance(step, Signal | Wait):
        return StepCost(f"{type(step).__name__.lower()} {step.event}", note, 0, 0)
    if isinstance(step, RoutineCall):
        return _routine_cost(step, note)
    count = math.prod(map(int, step.batch))
    label = f"gemm {step.dtype.short} {f'{count}x ' if count > 1 else ''}{step.m}x{step.n}x{step.k}"
    return StepCost(label, note, _gemm_nbytes(step, count), 2 * count * step.m * step.n * step.k)


def _kernel_nbytes(call: KernelCall) -> int:
    directions = {"in": 1, "out": 1, "inout": 2}
    return sum(int(p.numel) * p.dtype.itemsize * directions[p.access] for p in call.kernel.params)


def _routine_cost(call: RoutineCall, note: str) -> StepCost:
    metas = [TensorMeta(view.layout.shape, view.layout.dtype) for view in (*call.operands, call.result)]
    flops = call.routine.flops(*metas[:-1], **dict(call.attrs))
    return StepCost(f"{call.routine.name} {metas[-1]}", note, sum(meta.nbytes for meta in metas), flops)


def _gemm_nbytes(call: LibraryCall, count: int) -> int:
    elements = call.m * call.k + call.k * call.n + call.m * call.n * (2 if call.beta else 1)
    return count * elements * call.dtype.itemsize
