"""cond: one of two graphs is run, as a truth value says (torch.cond in a graph); cond_select: both, and one is taken.

In: a truth value bool[], operands, and as attributes the texts of two graphs of these operands, whose outputs have the
same metas, and one dtype. Out: those of the graph that it chooses: one as it is, several as one vector (`unpacked`).
The gradient is the same op over the gradients of the two graphs: so what the other branch would have computed, NaN or
an error, has no part in it. It computes the branch again, from the operands.
How they are computed: `cond` calls back from native code, and runs the graph that was chosen, compiled for itself; what
is in the other one neither runs nor raises. `cond_select` becomes loops as other code does, with what stands around it.
It is for branches that cannot fail and cost next to nothing (`is_selectable`): see `applied`.
Source: torch/_higher_order_ops/cond.py has the same gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from compiler_core.dtype import FLOATING, DType, bool_, float32
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, GraphBuilder, Node
from compiler_core.graph.over_batch import over_batch
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.print import print_graph
from compiler_core.late import Late
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.registry import Array, Attrs, Op, Sample, Value, bind, meta_of, register, use_trace
from compiler_core.ops.routine import Routine, is_contiguous, register_routine
from compiler_core.ops.rules import (
    Composed,
    Expansion,
    Indexed,
    Movement,
    OwnCode,
    Pointwise,
    Reduction,
)

MOST_CALLS = 24  # of a branch that is computed beside the other one
# graph -> function of arrays and places for the outputs
EXECUTABLE: Late[Any] = Late("branch: an executable of a graph")

parsed = lru_cache(256)(parse_graph)


def is_total(call: Call) -> bool:
    """Whether a call can neither fail nor call a library: whatever its operands hold."""
    rule = call.op.lower
    is_short = isinstance(rule, Composed) and rule.elementwise and call.op.work > 0
    return is_short or (isinstance(rule, Pointwise | Movement | Reduction | Indexed) and not call.op.raises)


def is_selectable(*graphs: Graph) -> bool:
    """Whether graphs can all be computed, and one result taken: they are total, and short."""
    calls = [graph.calls for graph in graphs]
    return all(len(these) <= MOST_CALLS and all(map(is_total, these)) for these in calls)


def applied(pred: Value, operands: Sequence[Value], true: str, false: str) -> Value:
    """The outputs of one of two graphs, given as texts, packed."""
    return bind(SELECT if _selectable(true, false) else COND, pred, *operands, true=true, false=false)


@cache
def _selectable(true: str, false: str) -> bool:
    return is_selectable(parsed(true), parsed(false))


# ---- several values as one


def packed(values: Sequence[Value]) -> Value:
    """Values of one dtype behind each other in a vector; one value as it is."""
    if len(values) == 1:
        return values[0]
    return prims.cat([prims.reshape(value, (meta_of(value).numel,)) for value in values], 0)


def unpacked(value: Value, shapes: Sequence[tuple[int, ...]]) -> list[Value]:
    """The values of these shapes that were packed."""
    if len(shapes) == 1:
        return [value]
    found, start = [], 0
    for shape in shapes:
        numel = TensorMeta(shape, float32).numel
        found.append(prims.reshape(prims.slice(value, (start,), (start + numel,), (1,)), shape))
        start += numel
    return found


# ---- the rules


def _infer(pred: TensorMeta, *operands: TensorMeta, true: str, false: str) -> TensorMeta:
    if pred != TensorMeta((), bool_):
        raise GraphError("cond chooses by one truth value", got=str(pred))
    found = []
    for graph in (parsed(true), parsed(false)):
        if tuple(node.meta for node in graph.inputs) != operands:
            raise GraphError(f"the operands of cond do not fit graph {graph.name}", got=str(operands))
        found.append(tuple(node.meta for node in graph.outputs))
    metas = found[0]
    if metas != found[1] or len({meta.dtype for meta in metas}) != 1:
        raise GraphError("the graphs of cond give the same, of one dtype", got=f"{found[0]}, {found[1]}")
    return metas[0] if len(metas) == 1 else TensorMeta((sum(meta.numel for meta in metas),), metas[0].dtype)


def _shapes(text: str) -> list[tuple[int, ...]]:
    return [node.shape for node in parsed(text).outputs]


def _eager(xp: Any, pred: Array, *operands: Array, true: str, false: str) -> Array:
    with use_trace(None):
        return packed(interpret(parsed(true if pred else false), operands))  # type: ignore[no-any-return]


def _define(out: Array, pred: Array, *operands: Array, true: str, false: str) -> None:
    """The outputs of the graph, compiled, go where they lie in `out`."""
    text = true if pred else false
    if type(out) is not np.ndarray:
        with np.errstate(all="ignore"):
            out[...] = _eager(np, pred, *operands, true=true, false=false)
        return
    places, start, flat = [], 0, out.reshape(-1)
    for node in parsed(text).outputs:
        places.append(flat[start : start + node.meta.numel].reshape(node.shape))
        start += node.meta.numel
    for place, made in zip(places, _executable(text)(operands, places), strict=True):
        if made is not place:
            place[...] = made


@lru_cache(256)
def _executable(text: str) -> Any:
    return EXECUTABLE.get()(parsed(text))


def _vjp(g: Value, out: Value, pred: Value, *operands: Value, true: str, false: str) -> tuple[Value | None, ...]:
    metas = [meta_of(operand) for operand in operands]
    found: list[Value | None] = [None] * len(operands)
    for dtype in dict.fromkeys(meta.dtype for meta in metas if meta.dtype.is_inexact):
        which = tuple(k for k, meta in enumerate(metas) if meta.dtype is dtype)
        texts = [gradient(text, meta_of(g), which) for text in (true, false)]
        both = applied(pred, (g, *operands), *texts)
        for k, share in zip(which, unpacked(both, [metas[k].shape for k in which]), strict=True):
            found[k] = share
    return None, *found


@lru_cache(256)
def gradient(text: str, of: TensorMeta, which: tuple[int, ...]) -> str:
    """The graph of (g, *operands) that gives the cotangents of the operands `which`."""
    graph, builder = parsed(text), GraphBuilder(f"{parsed(text).name}_gradient")
    g = builder.placeholder("g", of)
    operands = [builder.placeholder(node.name, node.meta) for node in graph.inputs]
    with use_trace(builder):
        found = vjp_of(lambda *values: packed(interpret(graph, values)), g, *operands)
        zeros = [prims.full(node.shape, 0, node.dtype) if d is None else d for node, d in zip(operands, found)]
    return closed(builder, *(zeros[k] for k in which))


def closed(builder: GraphBuilder, *outputs: Node) -> str:
    """The text of what was recorded, but for what the outputs do not need."""
    return print_graph(Dce().apply(builder.build(outputs)))


def _mapped(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    """One truth value: the graphs go over the batch. One for each example: both are computed, and one is taken."""
    pred, *rest = operands
    texts = [_over_batch(attrs[name], size, tuple(are_batched[1:])) for name in ("true", "false")]
    if not are_batched[0]:
        return _beside(unpacked(applied(pred, rest, *texts), _shapes(texts[0])), size)
    columns = zip(*(interpret(parsed(text), rest) for text in texts), strict=True)
    return _beside([where(pred, a, b) for a, b in columns], size)


def _beside(values: Sequence[Value], size: int) -> Value:
    """Values of all examples, packed for each of them."""
    if len(values) == 1:
        return values[0]
    return prims.cat([prims.reshape(value, (size, meta_of(value).numel // size)) for value in values], 1)


def where(pred: Value, a: Value, b: Value) -> Value:
    """pred: bool[], or bool[N] for a and b with N in front."""
    shape, given = meta_of(a).shape, tuple(pred.shape)
    return prims.where(prims.expand(prims.reshape(pred, (*given, *(1 for _ in shape[len(given) :]))), shape), a, b)


@lru_cache(256)
def _over_batch(text: str, size: int, are_batched: tuple[bool, ...]) -> str:
    return print_graph(over_batch(parsed(text), size, are_batched))


def _both(pred: Value, *operands: Value, true: str, false: str) -> Value:
    """Both computed, one taken."""
    columns = zip(*(interpret(parsed(text), operands) for text in (true, false)), strict=True)
    return packed([where(pred, a, b) for a, b in columns])


def _flops(*metas: TensorMeta, true: str, false: str) -> int:
    return sum(call.meta.numel for text in (true, false) for call in parsed(text).calls)


# ---- the ops


def _sample(pred: bool, dtype: DType) -> Sample:
    """x * y.sin(), or x: f[2, 3]."""
    d = dtype.short
    head = f"(%x: {d}[2, 3] input 'x', %y: {d}[2, 3] input 'y')"
    true = f"graph yes{head} {{\n  %s: {d}[2, 3] = sin(%y)\n  %m: {d}[2, 3] = mul(%x, %s)\n  return %m\n}}\n"
    false = f"graph no{head} {{\n  return %x\n}}\n"

    def make(rng: np.random.Generator, dtype: DType) -> list[Array]:
        return [np.asarray(pred), *(rng.uniform(-2, 2, (2, 3)).astype(dtype.numpy) for _ in range(2))]

    return Sample(((), (2, 3), (2, 3)), {"true": true, "false": false}, dtypes=(dtype,), make=make)


_WHY = "which of two graphs is run depends on the data"
_SAMPLES = tuple(_sample(pred, dtype) for dtype in FLOATING for pred in (True, False))
COND = register(
    Op(
        "cond",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=_mapped,
        lower=register_routine(Routine("cond", _define, why=_WHY, accepts=is_contiguous)),
        samples=_SAMPLES,
        dtypes=FLOATING,
        doc="the output of one of two graphs, which alone is run",
        engines=OwnCode(_WHY),
    )
)
SELECT = register(
    Op(
        "cond_select",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=_mapped,
        lower=Expansion(_both, flops=_flops),
        samples=_SAMPLES,
        dtypes=FLOATING,
        doc="the output of one of two graphs that cannot fail",
    )
)
