"""while_loop: a graph is run as long as another one says so (torch.while_loop in a graph).

In: `carried` values that go from turn to turn, then values that both graphs read; as attributes the texts of two
graphs of all of these: `test` gives a truth value bool[], `body` the next carried values, of the same metas. Out: the
last ones, byte by byte behind each other, u8[*]: `unpacked` gives them. Native code calls it back; both graphs are
compiled for themselves. There is no gradient: it would need what every turn has computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core.aot.branch import EXECUTABLE, parsed
from compiler_core.dtype import DType, bool_, float32, float64, uint8
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, bind, register, use_trace
from compiler_core.ops.routine import call_back, is_contiguous
from compiler_core.ops.rules import OwnCode

Run = Callable[[Sequence[Array]], Sequence[Array]]


def looped(carried: Sequence[Value], others: Sequence[Value], test: str, body: str) -> Value:
    """The packed result. test, body: texts of graphs."""
    return bind(WHILE, *carried, *others, test=test, body=body, carried=len(carried))


def unpacked(packed: Value, metas: Sequence[TensorMeta]) -> list[Value]:
    """The values of these metas that were packed."""
    found, start = [], 0
    for meta in metas:
        stop = start + meta.numel * meta.dtype.itemsize
        part = prims.slice(packed, (start,), (stop,), (1,))
        found.append(prims.reshape(prims.bitcast(part, meta.dtype), meta.shape))
        start = stop
    return found


def _infer(*operands: TensorMeta, test: str, body: str, carried: int) -> TensorMeta:
    for graph, outputs in ((parsed(test), (TensorMeta((), bool_),)), (parsed(body), operands[:carried])):
        if tuple(node.meta for node in graph.inputs) != operands:
            raise GraphError(f"the operands of while_loop do not fit graph {graph.name}", got=str(operands))
        if tuple(node.meta for node in graph.outputs) != outputs:
            raise GraphError(f"graph {graph.name} of while_loop gives something else", expected=str(outputs))
    return TensorMeta((sum(meta.numel * meta.dtype.itemsize for meta in operands[:carried]),), uint8)


def _run(xp: Any, test: Run, body: Run, operands: Sequence[Array], carried: int) -> Array:
    values, others = list(operands[:carried]), operands[carried:]
    while test((*values, *others))[0]:
        values = list(body((*values, *others)))
    made: Array = xp.concatenate([xp.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values])
    return made


def _eager(xp: Any, *operands: Array, test: str, body: str, carried: int) -> Array:
    with use_trace(None):
        return _run(xp, lambda v: interpret(parsed(test), v), lambda v: interpret(parsed(body), v), operands, carried)


def _called_back(xp: Any, *operands: Array, test: str, body: str, carried: int) -> Array:
    if xp is not np:  # both graphs are compiled for the CPU
        return _eager(xp, *operands, test=test, body=body, carried=carried)
    return _run(np, _executable(test), _executable(body), operands, carried)


@lru_cache(256)
def _executable(text: str) -> Run:
    return EXECUTABLE.get()(parsed(text))  # type: ignore[no-any-return]


def _sample(dtype: DType) -> Sample:
    """x = x * y + x, as long as its sum is below 50."""
    d = dtype.short
    head = f"(%x: {d}[3] input 'x', %y: {d}[3] input 'y')"
    bound = f"%m: {d}[] = full() dtype={d} shape=() value=50.0"
    less = f"%s: {d}[] = sum(%x) dims=(0,)\n  {bound}\n  %t: bool[] = lt(%s, %m)"
    test = f"graph test{head} {{\n  {less}\n  return %t\n}}\n"
    body = f"graph body{head} {{\n  %m: {d}[3] = mul(%x, %y)\n  %a: {d}[3] = add(%m, %x)\n  return %a\n}}\n"
    attrs = {"test": test, "body": body, "carried": 1}
    return Sample(((3,), (3,)), attrs, low=1.0, high=2.0, dtypes=(dtype,))


WHILE = register(
    Op(
        "while_loop",
        infer=_infer,
        eager=_eager,
        vjp=NotDifferentiable("it would need what every turn has computed"),
        lower=call_back("while_loop", _called_back, why="how often it runs depends on the data", accepts=is_contiguous),
        samples=(_sample(float32), _sample(float64)),
        dtypes=(float32, float64),
        doc="a graph is run as long as another one says so",
        engines=OwnCode("how often it runs depends on the data"),
    )
)
