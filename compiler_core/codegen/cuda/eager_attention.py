"""Attention of eager code on a CUDA device by the kernels of compiled code: many scores, in programs of one op each.

In: the op `attention` or `attention_backward`, CuPy's arrays, attributes. Out: an array; None where there are few
scores (products and a softmax then are as fast, and need nothing compiled), where the kernels refuse the operands or
Triton is missing, and beyond `MOST` sizes: the op's definition is then run, block by block.
A program is compiled at the first call of its sizes, for about a second, and comes from the cache in the next process.
Asked for by name (ops/on_device.py: DEFINITIONS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from compiler_core import cuda, log
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.dtype import of
from compiler_core.errors import DeviceError, DistCompileError
from compiler_core.graph.ir import GraphBuilder
from compiler_core.graph.passes.expand import kernels_take
from compiler_core.graph.passes.rewrite import frozen
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.attention.op import ATTENTION
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.broadcasting import broadcast_to
from compiler_core.ops.on_device import ATTENTION as SLOT
from compiler_core.ops.registry import bind, use_trace
from compiler_core.runtime.cuda import context, driver

Array = Any
LARGE = 1 << 24  # scores, of all heads, from which on the kernels are used
MOST = 32  # programs of a process
_programs: dict[tuple[Any, ...], Callable[[Any], Any] | None] = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    metas = [TensorMeta(array.shape, of(array.dtype)) for array in operands]
    sizes = AttentionSizes.of(metas if op is ATTENTION else metas[3:], attrs["causal"])
    if math.prod(sizes.scores) < LARGE:
        return None
    given = [_once(array) for array in operands]
    shapes = tuple(array.shape for array in given)
    key = (op.name, *metas, shapes, frozen(attrs), cuda.current())
    if key not in _programs:
        if not _has_room():
            return None
        _programs[key] = _program(op, metas, shapes, attrs)
    program = _programs[key]
    if program is None:
        return None
    with context.nested_arena():  # an op that a program calls back must leave that program's memory alone
        return program(given)[0]


def _once(array: Array) -> Array:
    """What an expanded array repeats, 1 long there: a program's inputs are contiguous, and a mask's scores are many."""
    return array[tuple(slice(None) if stride or n == 0 else slice(1) for n, stride in zip(array.shape, array.strides))]


def _has_room() -> bool:
    if sum(program is not None for program in _programs.values()) < MOST:
        return True
    log.warn_once(
        "eager attention", f"eager attention has its {MOST} programs; other sizes run in blocks: compile the function"
    )
    return False


def _program(
    op: Any, metas: list[TensorMeta], shapes: Sequence[Shape], attrs: dict[str, Any]
) -> Callable[[Any], Any] | None:
    """Of operands in these shapes, repeated to those of `metas`. None where it cannot be had, which is said."""
    if not kernels_take(op, metas, attrs) or not _can_run():
        return None
    builder = GraphBuilder(f"eager_{op.name}")
    builder.device = f"cuda:{cuda.current()}"
    pairs = enumerate(zip(metas, shapes, strict=True))
    given = [builder.placeholder(f"operand{k}", meta.with_shape(shape)) for k, (meta, shape) in pairs]
    with use_trace(builder):
        repeated = [broadcast_to(node, meta.shape) for node, meta in zip(given, metas, strict=True)]
        made = bind(op, *repeated, **attrs)
    try:
        (program,) = CudaBackend().compile([builder.build([made])], builder.name)
    except DistCompileError as error:
        log.warn_once("eager attention", f"eager attention runs in blocks, its kernels cannot be built: {error}")
        return None
    return program


def _can_run() -> bool:
    """Whether there is Triton, and a driver: a stand-in has none."""
    try:
        driver.function("cuLaunchKernel")
    except DeviceError:
        return False
    return find_spec("triton") is not None


SLOT.fill(run)
