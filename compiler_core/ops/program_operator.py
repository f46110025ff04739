"""program_operator: an operator that the program defined (torch.library) is run whole, from within a graph.

In: its arrays, and as attributes its name, the rest of its arguments as text, the metas of its results. Out: the
result; several behind each other in a vector: of their dtype if they share one, else of bytes (`results_of`).
No gradient passes: an operator's is a rule of its own, or none (distcompile/library/calls.py).
Definition: who keeps the operators runs it (a slot). The operator "" gives its operands back; it is the sample.
An operand that the program has row-major is so; others may lie as the graph has them.
Invariants: it is run by what is registered when the graph runs, not when it was captured; what it gives has the metas
that the graph was made with, or that is an error; its operands' memory is the graph's, and is not kept.
"""

from __future__ import annotations

import ctypes
import gc
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core.dtype import DType, of, uint8
from compiler_core.errors import GraphError
from compiler_core.late import Late
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import EVERY
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, bind, register, use_trace
from compiler_core.ops.routine import Routine, register_routine
from compiler_core.ops.rules import OwnCode

# (name, arguments as text, arrays) -> arrays of the results
RUN: Late[Callable[[str, str, Sequence[Array]], Sequence[Array]]] = Late("operators: run one of the program's")
_WHY = "it is an operator of the program's, in Python"


def applied(
    operator: str, arguments: str, operands: Sequence[Value], dense: Sequence[bool], results: Sequence[TensorMeta]
) -> list[Value]:
    """The results of a call, as values of the operands' kind. dense: which operands the program has row-major."""
    shapes, kinds = tuple(meta.shape for meta in results), tuple(meta.dtype for meta in results)
    told = {"operator": operator, "arguments": arguments, "dense": tuple(dense), "shapes": shapes, "kinds": kinds}
    made = bind(OPERATOR, *operands, **told)
    return results_of(made, results)


def results_of(value: Value, results: Sequence[TensorMeta]) -> list[Value]:
    """The values of these metas that lie in a call's result."""
    if len(results) == 1:
        return [value]
    found, start, packed = [], 0, _packed_as([meta.dtype for meta in results])
    for meta in results:
        count = _units(meta.shape, meta.dtype, packed)
        part = prims.slice(value, (start,), (start + count,), (1,))
        part = part if meta.dtype is packed else prims.bitcast(part, meta.dtype)
        found.append(prims.reshape(part, meta.shape))
        start += count
    return found


def _packed_as(kinds: Sequence[DType]) -> DType:
    return kinds[0] if len(set(kinds)) == 1 else uint8


def _units(shape: Shape, kind: DType, packed: DType) -> int:
    return math.prod(shape) * (1 if kind is packed else kind.itemsize)


# ---- the rules


def _infer(
    *metas: TensorMeta,
    operator: str,
    arguments: str,
    dense: tuple[bool, ...],
    shapes: tuple[Shape, ...],
    kinds: tuple[DType, ...],
) -> TensorMeta:
    if not shapes or len(shapes) != len(kinds) or len(dense) != len(metas):
        raise GraphError(f"operator {operator!r} needs a shape and a dtype for each result", got=f"{shapes}, {kinds}")
    if len(shapes) == 1:
        return TensorMeta(shapes[0], kinds[0])
    packed = _packed_as(kinds)
    return TensorMeta((sum(_units(shape, kind, packed) for shape, kind in zip(shapes, kinds)),), packed)


def _define(
    out: Array,
    *operands: Array,
    operator: str,
    arguments: str,
    dense: tuple[bool, ...],
    shapes: tuple[Shape, ...],
    kinds: tuple[DType, ...],
) -> None:
    rows = [one.copy() if asked and not one.flags.c_contiguous else one for one, asked in zip(operands, dense)]
    made = _made(rows, operator, arguments)
    if len(made) != len(kinds) or any(of(one.dtype) is not kind for one, kind in zip(made, kinds)):
        raise _misfit(operator, made, shapes, kinds)
    if len(made) == 1:
        if made[0].shape != out.shape:
            raise _misfit(operator, made, shapes, kinds)
        out[...] = made[0]
        return
    sizes = [_units(one.shape, kind, of(out.dtype)) for one, kind in zip(made, kinds)]
    if sum(sizes) != out.size or any(map(_differs, made, shapes)):
        raise _misfit(operator, made, shapes, kinds)
    start = 0
    for one, size in zip(made, sizes):
        part = out[start : start + size]
        (part if of(one.dtype) is of(out.dtype) else part.view(one.dtype)).reshape(one.shape)[...] = one
        start += size


def _differs(made: Array, shape: Shape) -> bool:
    """Sizes that the call decides are not looked at."""
    return len(made.shape) != len(shape) or any(isinstance(n, int) and n != m for n, m in zip(shape, made.shape))


def _misfit(operator: str, made: Sequence[Array], shapes: Sequence[Shape], kinds: Sequence[DType]) -> GraphError:
    return GraphError(
        f"{operator} gives other results than its fake tells (register_fake)",
        expected=", ".join(f"{kind}{list(shape)}" for kind, shape in zip(kinds, shapes)),
        got=", ".join(f"{of(one.dtype)}{list(one.shape)}" for one in made),
    )


def _made(operands: Sequence[Array], operator: str, arguments: str) -> list[Array]:
    """The results. Raises GraphError if the operator keeps an operand whose memory is only lent to it."""
    lent = [holder for holder in map(_lender, operands) if holder is not None]
    before = [*map(sys.getrefcount, lent)]
    with use_trace(None):
        made = [*RUN.get()(operator, arguments, operands)] if operator else [one.copy() for one in operands]
    for generation in range(3):  # it may be garbage: what a kernel leaves is young
        if [*map(sys.getrefcount, lent)] == before:
            return made
        gc.collect(generation)
    if [*map(sys.getrefcount, lent)] == before:
        return made
    raise GraphError(
        f"{operator} keeps an argument beyond its call, whose memory is the graph's", remedy="keep a clone of it"
    )


def _lender(operand: Any) -> object | None:
    """What everybody refers to who uses an operand's memory, if that does not keep the memory itself."""
    if not isinstance(operand, np.ndarray):
        memory = operand.data.mem
        return memory if type(memory).__name__ == "UnownedMemory" else None
    return operand if isinstance(operand.base, ctypes.Array) else None


def _eager(xp: Any, *operands: Array, **attrs: Any) -> Array:
    meta = _infer(**attrs | {"dense": ()})
    out: Array = xp.empty(meta.shape, meta.dtype.numpy)
    _define(out, *operands, **attrs)
    return out


def _sample(shapes: tuple[Shape, ...], dtype: DType) -> Sample:
    dense, kinds = (True,) * len(shapes), (dtype,) * len(shapes)
    attrs = {"operator": "", "arguments": "", "dense": dense, "shapes": shapes, "kinds": kinds}
    return Sample(shapes, attrs, dtypes=(dtype,))


OPERATOR = register(
    Op(
        "program_operator",
        infer=_infer,
        eager=_eager,
        vjp=NotDifferentiable("the gradient of an operator is what its rule says"),
        lower=register_routine(Routine("program_operator", _define, why=_WHY)),
        samples=tuple(_sample(shapes, dtype) for dtype in EVERY for shapes in (((2, 3),), ((2, 3), (4,)))),
        dtypes=EVERY,
        doc="an operator of the program's, run whole",
        engines=OwnCode(_WHY),
    )
)
