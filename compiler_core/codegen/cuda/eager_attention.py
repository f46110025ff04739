"""Attention of eager code on a CUDA device by the kernels of compiled code: many scores, in programs of one op each.

In: the op `attention` or `attention_backward`, CuPy's arrays, attributes. Out: an array; None where there are few
scores (products and a softmax then are as fast, and need nothing compiled), where the kernels refuse the operands or
Triton is missing, and beyond `MOST` sizes: the op's definition is then run, block by block.
A program is compiled at the first call of its sizes, for about a second, and comes from the cache in the next process.
Queries, keys and values that lie in one product stay there: the program is given that product, and takes its parts.
The key of a dropout stays on the host, from where the program takes it along.
Asked for by name (ops/on_device.py: DEFINITIONS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

from compiler_core import cuda, log
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.dtype import DType, of, uint64
from compiler_core.errors import DeviceError, DistCompileError
from compiler_core.graph.ir import GraphBuilder, Node
from compiler_core.graph.passes.expand import kernels_take
from compiler_core.graph.passes.rewrite import frozen
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.attention import sizes as common
from compiler_core.ops.attention.op import ATTENTION
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.broadcasting import broadcast_to
from compiler_core.ops.on_device import ATTENTION as SLOT
from compiler_core.ops.registry import Value, bind, use_trace
from compiler_core.runtime.cuda import context, driver

Array = Any
MOST = 32  # programs of a process
_programs: dict[tuple[Any, ...], Callable[[Any], Any] | None] = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    metas = [TensorMeta(array.shape, of(array.dtype)) for array in operands]
    sizes = AttentionSizes.of(metas if op is ATTENTION else metas[3:], attrs["causal"])
    if math.prod(sizes.scores) < common.MANY:
        return None
    *heads, rng = (*operands, None) if metas[-1].dtype is not uint64 else operands
    given, parts = _sources([_once(array) for array in heads])
    given += [] if rng is None else [rng]
    key = (op.name, *metas, parts, frozen(attrs), cuda.precision.tf32, cuda.current())
    if key not in _programs:
        if not _has_room():
            return None
        _programs[key] = _program(op, metas, [of(array.dtype) for array in given], parts, attrs)
    program = _programs[key]
    if program is None:
        return None
    with context.nested_arena():  # an op that a program calls back must leave that program's memory alone
        return program(given)[0]


def _once(array: Array) -> Array:
    """What an expanded array repeats, 1 long there: a program's inputs are contiguous, and a mask's scores are many."""
    return array[tuple(slice(None) if stride or n == 0 else slice(1) for n, stride in zip(array.shape, array.strides))]


class _Part(NamedTuple):
    """Where an operand lies: in the program's input `source`, rows (how many, how long), as columns from `first` on.

    These are dims of sizes `inner`, in the order of memory, to be permuted by `dims`. One that is an input has no dims.
    """

    source: int
    rows: Shape
    first: int
    inner: Shape
    dims: tuple[int, ...]


def _sources(operands: Sequence[Array]) -> tuple[list[Array], tuple[_Part, ...]]:
    """The arrays to give, each once, and where in them the operands are."""
    given: list[Array] = []
    known: dict[tuple[int, Shape], int] = {}
    parts = []
    for array in operands:
        source, part = _part_of(array)
        key = (source.data.ptr, source.shape)
        if key not in known:
            known[key] = len(given)
            given.append(source)
        parts.append(part._replace(source=known[key]))
    return given, tuple(parts)


def _part_of(array: Array) -> tuple[Array, _Part]:
    """The dense matrix that an array is columns of, and which; or the array itself."""
    alone = array, _Part(0, array.shape, 0, (), ())
    if array.flags.c_contiguous or min(array.strides) <= 0:
        return alone
    lies, rows, long, columns, inner, back = _columns(array.shape, array.strides, array.itemsize)
    whole = array
    while whole.base is not None:
        whole = whole.base
    first = (array.data.ptr - whole.data.ptr) // array.itemsize
    fits = whole.flags.c_contiguous and whole.size == rows * long and 0 <= first <= long - columns
    if not (lies and fits and whole.dtype == array.dtype):
        return alone
    return whole.reshape(rows, long), _Part(0, (rows, long), first, inner, back)


@lru_cache(1 << 10)
def _columns(shape: Shape, strides: Shape, itemsize: int) -> tuple[bool, int, int, int, Shape, tuple[int, ...]]:
    """(whether it can be columns of rows, how many rows, their length, columns, sizes as they lie, their dims)."""
    steps = [stride // itemsize for stride in strides]
    order = sorted(range(len(shape)), key=lambda d: (-steps[d], d))
    columns, at = 1, len(order)
    while at and (steps[order[at - 1]] == columns or shape[order[at - 1]] == 1):
        at -= 1
        columns *= shape[order[at]]
    long = steps[order[at - 1]] if at else columns
    rows = math.prod(shape[d] for d in order[:at])
    lies = all(steps[a] == steps[b] * shape[b] for a, b in pairwise(order[:at]))
    return lies, rows, long, columns, tuple(shape[d] for d in order), tuple(order.index(d) for d in range(len(shape)))


def _taken(source: Node, part: _Part) -> Value:
    """The operand, of the program's input."""
    if not part.dims:
        return source
    columns = math.prod(part.inner) // part.rows[0]
    zeros = (0, part.first), (part.rows[0], part.first + columns), (1, 1)
    return prims.permute(prims.reshape(prims.slice(source, *zeros), part.inner), part.dims)


def _has_room() -> bool:
    if sum(program is not None for program in _programs.values()) < MOST:
        return True
    log.warn_once(
        "eager attention", f"eager attention has its {MOST} programs; other sizes run in blocks: compile the function"
    )
    return False


def _program(
    op: Any, metas: list[TensorMeta], dtypes: Sequence[DType], parts: Sequence[_Part], attrs: dict[str, Any]
) -> Callable[[Any], Any] | None:
    """Of inputs of these dtypes, whose `parts` are repeated to `metas`. None where it cannot be had, which is said."""
    if not kernels_take(op, metas, attrs) or not _can_run():
        return None
    builder = GraphBuilder(f"eager_{op.name}")
    builder.device = f"cuda:{cuda.current()}"
    shapes, rng = {part.source: part.rows for part in parts}, metas[len(parts) :]
    given = [builder.placeholder(f"operand{k}", TensorMeta(shapes[k], dtypes[k])) for k in shapes]
    keys = [builder.placeholder("key", meta, role="rng") for meta in rng]
    with use_trace(builder):
        taken = [_taken(given[part.source], part) for part in parts]
        repeated = [broadcast_to(node, meta.shape) for node, meta in zip(taken, metas)]
        made = bind(op, *repeated, *keys, **attrs)
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
