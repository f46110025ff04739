"""Convolutions of a program as calls of cuDNN, where it has a kernel for them: before the launcher is printed.

In: a `Program` for the current device. Out: one in which calls of `convolution_inner` (16-bit floats) are those of
`convolution_cudnn`, each with the engine that was fastest here. What cuDNN refuses stays, as do convolutions of few
channels into many, where our own kernel is three times as fast (0.56 ms against 1.77 for ResNet's first, on an H200),
and depthwise ones (0.2 to 0.95 of its time: ops/convolution/depthwise.py);
float32 stays, for ours has float32's errors. Where there is no cuDNN, all stay, and one warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler_core import cuda, log
from compiler_core.graph.ir import Graph
from compiler_core.graph.print import print_attrs
from compiler_core.ops.convolution.cudnn import BY_CUDNN
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda import cudnn

if TYPE_CHECKING:
    from compiler_core.loop_ir.ir import Program, RoutineCall, Step

_FEW = 16  # channels


def library_for(graphs: Sequence[Graph], capability: int) -> str:
    """For the cache key: the cuDNN that `graphs` will be compiled for; "" if they have no calls for it."""
    calls = [call for graph in graphs for call in graph.calls if call.op.name in BY_CUDNN]
    if not any(call.dtype in cudnn.TYPES for call in calls) or not cudnn.is_enabled():
        return ""
    if cuda.why_not() or int(cuda.module().cuda.Device().compute_capability) != capability:
        return ""  # compiled for another device than is here
    why = cudnn.why_not()
    if why:
        log.warn_once("cudnn", f"convolutions on the GPU are our own kernels, which are slower: {why}")
    return "" if why else cudnn.identity()


def by_cudnn(program: Program) -> Program:
    """See the head of this file."""
    starts = {buffer.name: int(buffer.offset) for buffer in program.buffers}
    return replace(program, steps=tuple(_chosen(step, starts) for step in program.steps))


def _chosen(step: Step, starts: Mapping[str, int]) -> Step:
    """starts: at which byte of the arena buffers begin; inputs and outputs begin where cuDNN wants it."""
    from compiler_core.loop_ir.ir import RoutineCall  # not at import: a filled cache needs no loop IR

    if not isinstance(step, RoutineCall) or step.routine.name not in BY_CUDNN or not _is_wanted(step):
        return step
    for view in (*step.operands, step.result):
        place = starts[view.slot.buffer] + int(view.slot.offset) * view.layout.dtype.itemsize
        if place % cudnn.ALIGNMENT:
            return step
    routine = BY_CUDNN[step.routine.name]
    arrays = tuple(view.layout for view in (*step.operands, step.result))
    choice = cudnn.choose(Callback(routine.name, print_attrs(dict(step.attrs)), arrays))
    if isinstance(choice, str):
        log.emit("fusion", f"{step.routine.name} is our own kernel: {choice}")
        return step
    chosen = {"mode": choice.mode, "place": choice.place, "workspace": choice.workspace}
    attrs = tuple(sorted({**dict(step.attrs), **chosen}.items()))
    return replace(step, routine=routine, attrs=attrs)


def _is_wanted(step: RoutineCall) -> bool:
    x, groups = step.operands[0].layout, dict(step.attrs)["groups"]
    if groups > 1 and all(view.layout.shape[-1] in (1, groups) for view in (*step.operands, step.result)):
        return False  # depthwise
    is_forward = step.routine.name == "convolution_inner"
    return x.dtype in cudnn.TYPES and len(x.shape) == 4 and not (is_forward and x.shape[-1] // groups < _FEW)
