"""What each step of a program moves and computes, for the profiler's GB/s and GFLOP/s.

In: a `Program`. Out: one `StepCost` a step. Bytes: every operand once in each direction it is accessed in, whatever
caches do; events move nothing. Floating-point operations: those of library routines, not those of
kernels, which bandwidth bounds.
"""

from __future__ import annotations

from compiler_core.loop_ir.ir import KernelCall, Program, RoutineCall, Signal, Step, Wait
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
    return _routine_cost(step, note)


def _kernel_nbytes(call: KernelCall) -> int:
    directions = {"in": 1, "out": 1, "inout": 2}
    return sum(int(p.numel) * p.dtype.itemsize * directions[p.access] for p in call.kernel.params)


def _routine_cost(call: RoutineCall, note: str) -> StepCost:
    attrs, operands, result = dict(call.attrs), [view.layout.meta for view in call.operands], call.result.layout.meta
    sizes = " ".join("x".join(map(str, meta.shape)) for meta in operands if meta.shape)
    nbytes = sum(meta.nbytes for meta in operands) + result.nbytes * (2 if call.routine.reads_result(attrs) else 1)
    label = f"{call.routine.name} {result.dtype.short} {sizes}"
    return StepCost(label, note, nbytes, call.routine.flops(*operands, **attrs))
