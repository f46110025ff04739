"""scan: a graph is run for each place of some arrays, and hands values on (scan of control flow in a graph).

In: `carried` values that are handed on, `scanned` arrays of one length, then values that all turns read; as an
attribute the text of a graph of the carried values, the arrays at one place, and the rest, which gives the next carried
values, of the same metas, and results of that place. Out: the last carried values, and the results of all places along
a first dim; of these those in `places`, of one dtype, or as bytes, behind each other in a vector: `scanned_over` gives
them as they were. reverse: from the last place to the first. Native code calls it back; the graph is compiled for
itself.
The gradient is two of the same op: one that gives what each turn was handed, and one that goes back over these. So it
takes memory for all turns, in the backward alone, and has gradients itself.
Source: JAX's scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from compiler_core.aot.branch import parsed
from compiler_core.aot.of_graphs import (
    Run,
    as_text,
    executable,
    inexact_of,
    interpreted,
    metas_of,
    pack,
    pack_arrays,
    results,
    unpack,
    vector_of,
)
from compiler_core.dtype import DType, float32, float64, uint8
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.over_batch import over_batch
from compiler_core.graph.print import print_graph
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.batching.running import spread
from compiler_core.ops.differentiate import vjps_of
from compiler_core.ops.registry import Array, Attrs, Op, Sample, Value, meta_of, register, use_trace
from compiler_core.ops.routine import call_back, is_contiguous
from compiler_core.ops.rules import OwnCode


def scanned_over(
    carried: Sequence[Value],
    xs: Sequence[Value],
    others: Sequence[Value],
    body: str,
    *,
    reverse: bool,
    has_gradients: bool,
) -> list[Value]:
    """The last carried values, then the results of all places. has_gradients: see `results`."""
    attrs = {"body": body, "carried": len(carried), "scanned": len(xs), "reverse": reverse}
    metas = _made(body, len(carried), meta_of(xs[0]).shape[0])
    return results(SCAN, (*carried, *xs, *others), attrs, metas, has_gradients=has_gradients)


def _made(body: str, carried: int, length: int) -> list[TensorMeta]:
    """What comes out."""
    outputs = [node.meta for node in parsed(body).outputs]
    return [meta if k < carried else meta.with_shape((length, *meta.shape)) for k, meta in enumerate(outputs)]


def _infer(
    *operands: TensorMeta, body: str, carried: int, scanned: int, reverse: bool, places: tuple[int, ...], dtype: DType
) -> TensorMeta:
    xs = operands[carried : carried + scanned]
    turn = (*operands[:carried], *(x.with_shape(x.shape[1:]) for x in xs), *operands[carried + scanned :])
    graph = parsed(body)
    if turn != tuple(metas_of(body)) or len({x.shape[0] for x in xs}) != 1:
        raise GraphError(f"the operands of scan do not fit graph {graph.name}", got=str(operands))
    if tuple(node.meta for node in graph.outputs[:carried]) != operands[:carried]:
        raise GraphError(f"graph {graph.name} of scan hands something else on", expected=str(operands[:carried]))
    made = _made(body, carried, xs[0].shape[0])
    return vector_of([made[k] for k in places], dtype)


def _eager(
    xp: Any,
    *operands: Array,
    body: str,
    carried: int,
    scanned: int,
    reverse: bool,
    places: tuple[int, ...],
    dtype: DType,
    run: Callable[[str], Run] = interpreted,
) -> Array:
    values, xs, others = operands[:carried], operands[carried : carried + scanned], operands[carried + scanned :]
    turn, found = run(body), []
    with use_trace(None):
        for k in reversed(range(len(xs[0]))) if reverse else range(len(xs[0])):
            made = turn((*values, *(x[k : k + 1].reshape(x.shape[1:]) for x in xs), *others))
            values = tuple(made[:carried])
            found.append(made[carried:])
    columns = zip(*(found[::-1] if reverse else found), strict=True)
    all_made = [*values, *(xp.stack(column) for column in columns)]
    return pack_arrays(xp, [all_made[k] for k in places], dtype)


def _called_back(xp: Any, *operands: Array, **attrs: Any) -> Array:
    """The graph is compiled for the CPU."""
    return _eager(xp, *operands, **attrs, run=executable if xp is np else interpreted)


# ---- its gradient


@lru_cache(256)
def _handed(body: str, carried: int) -> str:
    """What a turn hands on, and as its results what it was handed."""
    return as_text("handed", metas_of(body), lambda *v: [*interpret(parsed(body), v)[:carried], *v[:carried]])


@lru_cache(256)
def _turn_back(body: str, carried: int, scanned: int, given: tuple[int, ...]) -> str:
    """Of (cotangents of what a turn hands on, sums for what all read; cotangents of its results `given`, what it was
    handed, the arrays there; the rest): the cotangents before it, sums, and, as results, those of the arrays."""
    metas, outputs = metas_of(body), [node.meta for node in parsed(body).outputs]
    kept = inexact_of(metas)
    handed = [k for k in kept if k < carried]
    read = [k for k in kept if k >= carried + scanned]

    def before(*values: Value) -> list[Value]:
        behind = dict(zip([*handed, *given], [*values[: len(handed)], *values[len(handed) + len(read) :]]))
        sums, operands = values[len(handed) :][: len(read)], values[len(handed) + len(read) + len(given) :]
        cotangents = [behind.get(k) for k in range(len(outputs))]
        found = vjps_of(partial(interpret, parsed(body)), cotangents, operands)
        zeros = [prims.full(meta.shape, 0, meta.dtype) if d is None else d for meta, d in zip(metas, found)]
        added = [prims.add(total, zeros[k]) for total, k in zip(sums, read)]
        return [*(zeros[k] for k in handed), *added, *(zeros[k] for k in kept if carried <= k < carried + scanned)]

    carries = [metas[k] for k in (*handed, *read)]
    return as_text("turn_back", [*carries, *(outputs[k] for k in given), *metas], before)


def _vjp(
    g: Value,
    out: Value,
    *operands: Value,
    body: str,
    carried: int,
    scanned: int,
    reverse: bool,
    places: tuple[int, ...],
    dtype: DType,
) -> tuple[Value | None, ...]:
    first, xs, others = operands[:carried], operands[carried : carried + scanned], operands[carried + scanned :]
    metas, kept = [meta_of(x) for x in operands], inexact_of(metas_of(body))
    made = _made(body, carried, metas[carried].shape[0])
    came = dict(zip(places, unpack(g, [made[k] for k in places])))
    run = partial(scanned_over, has_gradients=True)
    handed = run(first, xs, others, _handed(body, carried), reverse=reverse)[carried:]
    carries = [k for k in kept if k < carried or k >= carried + scanned]
    begun = [came[k] if k in came and k < carried else prims.full(metas[k].shape, 0, metas[k].dtype) for k in carries]
    given = tuple(k for k in places if k >= carried)
    back = _turn_back(body, carried, scanned, given)
    found = run(begun, [*(came[k] for k in given), *handed, *xs], others, back, reverse=not reverse)
    of = dict(zip([*carries, *(k for k in kept if carried <= k < carried + scanned)], found))
    return tuple(of.get(k) for k in range(len(operands)))


# ---- under vmap


@lru_cache(256)
def _over_batch(body: str, size: int) -> str:
    return print_graph(over_batch(parsed(body), size, [True] * len(metas_of(body))))


def _mapped(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    first, last = attrs["carried"], attrs["carried"] + attrs["scanned"]
    every = [x if yes else spread(x, size) for x, yes in zip(operands, are_batched, strict=True)]
    xs = [_swapped(x) for x in every[first:last]]
    body = _over_batch(attrs["body"], size)
    found = scanned_over(every[:first], xs, every[last:], body, reverse=attrs["reverse"], has_gradients=True)
    fronted = [x if k < first else _swapped(x) for k, x in enumerate(found)]
    return pack([fronted[k] for k in attrs["places"]], attrs["dtype"], (size,))


def _swapped(x: Value) -> Value:
    """The first two dims in each other's place."""
    return prims.permute(x, (1, 0, *range(2, len(x.shape))))


# ---- the op


def _sample(of: DType, dtype: DType, places: tuple[int, ...], *, reverse: bool) -> Sample:
    """c = c * x + y; the results are the sums of c * y."""
    d = of.short
    head = f"(%c: {d}[2] input 'c', %x: {d}[2] input 'x', %y: {d}[2] input 'y')"
    lines = f"%m: {d}[2] = mul(%c, %x)\n  %a: {d}[2] = add(%m, %y)\n  "
    lines += f"%r: {d}[2] = mul(%a, %y)\n  %s: {d}[] = sum(%r) dims=(0,)"
    body = f"graph turn{head} {{\n  {lines}\n  return %a, %s\n}}\n"
    attrs = {"body": body, "carried": 1, "scanned": 1, "reverse": reverse, "places": places, "dtype": dtype}
    return Sample(((2,), (3, 2), (2,)), attrs, dtypes=(of,))


_WHY = "its turns are calls of a graph"
SCAN = register(
    Op(
        "scan",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=_mapped,
        lower=call_back("scan", _called_back, why=_WHY, accepts=is_contiguous),
        samples=(
            _sample(float32, float32, (0, 1), reverse=False),
            _sample(float64, float64, (0, 1), reverse=True),
            _sample(float64, float64, (1,), reverse=False),
            _sample(float64, uint8, (0, 1), reverse=True),
        ),
        dtypes=(float32, float64),
        doc="a graph is run for each place of arrays, and hands values on",
        engines=OwnCode(_WHY),
    )
)
