"""Which outputs of a program may be written over which of its inputs, should the caller own these and wish it.

In: a finished Program. Out: pairs (output, input), by number. A training step's new parameters and state may then lie
where the old ones do: no second memory for them, whose lines a store would have to fetch first.
A pair is there if the output's first store is the input's last use: in one kernel, in which they may be one memory
(loop_ir/aliasing.py). No step from there on may fail: whoever catches an error finds the inputs as they were. So
nothing is said of programs with events of the caller's, nor of what stands before a check, or before a routine that is
not BLAS's.
A GPU tells of what failed on it when all has run, whatever lies where: there only routines that run on the host count.
A collective that fails ends the group, and with it the training: what waits for one may write in place.
Pairs of different inputs and outputs may be used together: each is about its own two arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.aliasing import safe_pairs
from compiler_core.ops.linear_algebra.gemm import GEMM

Pair = tuple[int, int]


def over_inputs(
    program: ir.Program, may_fail: Callable[[ir.Step], bool] | None = None, *, only_collectives: bool = False
) -> tuple[Pair, ...]:
    """(output, input) pairs that may share memory. may_fail: which steps may; None: those that may on a CPU.

    only_collectives: its events are those of collectives in it.
    """
    if not only_collectives and any(isinstance(step, ir.Signal | ir.Wait) for step in program.steps):
        return ()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        for slot in ir.slots_of(step):
            first.setdefault(slot.buffer, number)
            last[slot.buffer] = number
    begin = 1 + max((number for number, step in enumerate(program.steps) if (may_fail or _may_fail)(step)), default=-1)
    outputs = {name: place for place, name in enumerate(program.outputs)}
    inputs = {name: place for place, name in enumerate(program.inputs)}
    buffers = {buffer.name: (buffer.dtype, buffer.numel) for buffer in program.buffers}
    return tuple(
        (outputs[written], inputs[read])
        for number, step in enumerate(program.steps[begin:], begin)
        if isinstance(step, ir.KernelCall)
        for written, read in _within(step, buffers)
        if written in outputs and read in inputs and first[written] == number == last[read]
    )


def _within(step: ir.KernelCall, buffers: Mapping[str, tuple[object, ...]]) -> Iterator[tuple[str, str]]:
    """(written, read) whole buffers that may be one memory in this step. buffers: dtype and size of each."""
    slots = {param.name: slot for param, slot in zip(step.kernel.params, step.slots, strict=True)}
    touched = [slot.buffer for slot in step.slots]
    for pair in safe_pairs(step.kernel):
        written, read = (slots[name] for name in pair)
        whole = not (written.offset or read.offset) and touched.count(written.buffer) == touched.count(read.buffer) == 1
        if whole and buffers[written.buffer] == buffers[read.buffer]:
            yield written.buffer, read.buffer


def _may_fail(step: ir.Step) -> bool:
    if isinstance(step, ir.RoutineCall):
        return step.routine is not GEMM
    return isinstance(step, ir.KernelCall) and any(isinstance(part, ir.Check) for part in ir.walk(step.kernel.body))
