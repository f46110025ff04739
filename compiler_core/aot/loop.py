"""while_loop: a graph is run as long as another one says so (torch.while_loop in a graph); and its gradient.

In: `carried` values that go from turn to turn, then values that both graphs read; as attributes the texts of two
graphs of all of these: `test` gives a truth value bool[], `body` the next carried values, of the same metas. Out: the
last ones in `places`, of one dtype, or as bytes, behind each other in a vector: `looped` gives them as they were.
Native code calls it back; the graphs are compiled for themselves.
`while_loop_gradient` takes the cotangent of that, then the same operands, and gives those of the operands `which`. It
runs the turns again, keeps what each of them was given, and goes back through these: so memory grows with the turns,
in the backward alone. Its own gradient is that of two nested loops, which keep nothing and compute each turn's operands
from the first on: the square of the turns. Under vmap examples wait, as they are, for the last one.
Source: torch/_higher_order_ops/while_loop.py keeps the carried values of all turns; JAX's while_loop has this vmap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from compiler_core.aot.branch import parsed, where
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
from compiler_core.dtype import DType, bool_, float32, float64, int64, uint8
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.over_batch import over_batch
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.batching.running import spread
from compiler_core.ops.differentiate import vjp_of, vjps_of
from compiler_core.ops.registry import Array, Attrs, Op, Sample, Value, bind, meta_of, register, use_trace
from compiler_core.ops.routine import call_back, is_contiguous
from compiler_core.ops.rules import OwnCode


def looped(
    carried: Sequence[Value], others: Sequence[Value], test: str, body: str, *, has_gradients: bool
) -> list[Value]:
    """The carried values after the last turn. has_gradients: an op for each dtype that has some, else one for all."""
    attrs = {"test": test, "body": body, "carried": len(carried)}
    return results(WHILE, (*carried, *others), attrs, [meta_of(x) for x in carried], has_gradients=has_gradients)


# ---- graphs made of graphs


@lru_cache(256)
def _turn_back(body: str, carried: int) -> str:
    """Of (cotangents behind a turn, its operands): those before it. Of operands that go round they are sums."""
    metas = metas_of(body)
    kept = inexact_of(metas)

    def before(*values: Value) -> list[Value]:
        behind, operands = dict(zip(kept, values)), values[len(kept) :]
        found = vjps_of(partial(interpret, parsed(body)), [behind.get(k) for k in range(carried)], operands)

        def cotangent(k: int) -> Value:
            if k >= carried:
                return behind[k] if found[k] is None else prims.add(behind[k], found[k])
            return prims.full(metas[k].shape, 0, metas[k].dtype) if found[k] is None else found[k]

        return [cotangent(k) for k in kept]

    return as_text("turn_back", [*(metas[k] for k in kept), *metas], before)


@lru_cache(256)
def _batched(test: str, body: str, size: int) -> tuple[str, str]:
    """Both for `size` examples: a turn as long as any of them wants one, which those alone get that do."""
    metas = [TensorMeta((size, *meta.shape), meta.dtype) for meta in metas_of(body)]
    tests, bodies = (over_batch(parsed(text), size, [True] * len(metas)) for text in (test, body))

    def turn(*values: Value) -> list[Value]:
        (want,) = interpret(tests, values)
        gated = [where(want, x, prims.detach(x)) if meta_of(x).dtype.is_inexact else x for x in values]
        return [where(want, a, b) for a, b in zip(interpret(bodies, gated), values)]

    return as_text("tests", metas, lambda *values: [F.any(interpret(tests, values)[0])]), as_text("bodies", metas, turn)


# ---- while_loop


def _infer(
    *operands: TensorMeta, test: str, body: str, carried: int, places: tuple[int, ...], dtype: DType
) -> TensorMeta:
    for graph, outputs in ((parsed(test), (TensorMeta((), bool_),)), (parsed(body), operands[:carried])):
        if tuple(node.meta for node in graph.inputs) != operands:
            raise GraphError(f"the operands of while_loop do not fit graph {graph.name}", got=str(operands))
        if tuple(node.meta for node in graph.outputs) != outputs:
            raise GraphError(f"graph {graph.name} of while_loop gives something else", expected=str(outputs))
    return vector_of([operands[k] for k in places], dtype)


def _turns(test: Run, body: Run, operands: Sequence[Array], carried: int) -> Iterator[list[Array]]:
    """What each turn is given, then what comes out of the last one."""
    values, others = list(operands[:carried]), operands[carried:]
    yield values
    while test((*values, *others))[0]:
        values = list(body((*values, *others)))
        yield values


def _eager(
    xp: Any,
    *operands: Array,
    test: str,
    body: str,
    carried: int,
    places: tuple[int, ...],
    dtype: DType,
    run: Callable[[str], Run] = interpreted,
) -> Array:
    with use_trace(None):
        (values,) = deque(_turns(run(test), run(body), operands, carried), maxlen=1)
    return pack_arrays(xp, [values[k] for k in places], dtype)


def _called_back(xp: Any, *operands: Array, **attrs: Any) -> Array:
    """The graphs are compiled for the CPU."""
    return _eager(xp, *operands, **attrs, run=executable if xp is np else interpreted)


def _vjp(g: Value, out: Value, *operands: Value, dtype: DType, **attrs: Any) -> tuple[Value | None, ...]:
    metas = [meta_of(x) for x in operands]
    found: list[Value | None] = [None] * len(metas)
    for of in dict.fromkeys(metas[k].dtype for k in inexact_of(metas)):
        which = tuple(k for k in inexact_of(metas) if metas[k].dtype is of)
        packed = bind(GRADIENT, g, *operands, **attrs, which=which)
        for k, share in zip(which, unpack(packed, [metas[k] for k in which]), strict=True):
            found[k] = share
    return tuple(found)


def _mapped(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    every = [x if yes else spread(x, size) for x, yes in zip(operands, are_batched, strict=True)]
    return _of_examples(WHILE, size, every, attrs, attrs["places"], attrs["dtype"])


def _of_examples(
    op: Op, size: int, every: Sequence[Value], attrs: Attrs, places: tuple[int, ...], dtype: DType
) -> Value:
    """What each example has of the operands `places`, behind each other. every: operands that have the batch."""
    test, body = _batched(attrs["test"], attrs["body"], size)
    packed = bind(op, *every, **{**attrs, "test": test, "body": body})
    return pack(unpack(packed, [metas_of(body)[k] for k in places]), dtype, (size,))


# ---- its gradient


def _infer_gradient(
    g: TensorMeta, *operands: TensorMeta, places: tuple[int, ...], which: tuple[int, ...], **attrs: Any
) -> TensorMeta:
    if _infer(*operands, **attrs, places=places, dtype=g.dtype) != g:
        raise GraphError("the cotangent of while_loop does not fit it", got=str(g))
    return vector_of([operands[k] for k in which], operands[which[0]].dtype)


def _eager_gradient(
    xp: Any,
    g: Array,
    *operands: Array,
    test: str,
    body: str,
    carried: int,
    places: tuple[int, ...],
    which: tuple[int, ...],
    run: Callable[[str], Run] = interpreted,
) -> Array:
    kept = inexact_of([meta_of(x) for x in operands])
    with use_trace(None):
        *turns, last = _turns(run(test), run(body), operands, carried)
        given = dict(zip(places, unpack(g, [meta_of(last[k]) for k in places])))
        flows: Sequence[Array] = [given[k] if k in given else xp.zeros_like(operands[k]) for k in kept]
        back = run(_turn_back(body, carried))
        for values in reversed(turns):
            flows = back((*flows, *values, *operands[carried:]))
    return pack_arrays(xp, [flows[kept.index(k)] for k in which], meta_of(operands[which[0]]).dtype)


def _gradient_called_back(xp: Any, *operands: Array, **attrs: Any) -> Array:
    return _eager_gradient(xp, *operands, **attrs, run=executable if xp is np else interpreted)


def _as_loops(
    g: Value, *operands: Value, test: str, body: str, carried: int, places: tuple[int, ...], which: tuple[int, ...]
) -> Value:
    """The gradient as a loop over the turns, the last first, in which a loop comes to what a turn was given."""
    metas, number = metas_of(body), TensorMeta((), int64)
    kept = inexact_of(metas)
    zero = prims.full((), 0, int64)

    def counted(i: Value, *values: Value) -> list[Value]:
        return [prims.add(i, prims.full((), 1, int64)), *interpret(parsed(body), values)]

    many = {
        "test": as_text("counted", [number, *metas], lambda i, *values: interpret(parsed(test), values)),
        "body": as_text("counting", [number, *metas], counted),
    }
    count = bind(WHILE, zero, *operands, **many, carried=carried + 1, places=(0,), dtype=int64)
    reaching = [number, *metas[:carried], number, *metas[carried:]]
    until = as_text("until", reaching, lambda i, *values: [prims.lt(i, values[carried])])
    reach = as_text("reach", reaching, lambda i, *values: counted(i, *values[:carried], *values[carried + 1 :]))

    def turn(left: Value, *values: Value) -> list[Value]:
        now = prims.sub(left, prims.full((), 1, int64))
        flows, (first, rest) = values[: len(kept)], (values[len(kept) :][:carried], values[len(kept) + carried :])
        begin = prims.full((), 0, int64)
        _, *reached = looped([begin, *first], [now, *rest], until, reach, has_gradients=True)
        return [now, *interpret(parsed(_turn_back(body, carried)), (*flows, *reached, *rest))]

    backwards = [number, *(metas[k] for k in kept), *metas]
    left = as_text("left", backwards, lambda left, *values: [prims.lt(prims.full((), 0, int64), left)])
    given = dict(zip(places, unpack(g, [metas[k] for k in places])))
    flows = [given[k] if k in given else prims.full(metas[k].shape, 0, metas[k].dtype) for k in kept]
    _, *found = looped(
        [prims.reshape(count, ()), *flows], operands, left, as_text("back", backwards, turn), has_gradients=True
    )
    return pack([found[kept.index(k)] for k in which], metas[which[0]].dtype)


def _vjp_gradient(h: Value, out: Value, g: Value, *operands: Value, **attrs: Any) -> tuple[Value | None, ...]:
    return vjp_of(partial(_as_loops, **attrs), h, g, *operands)


def _mapped_gradient(op: Op, size: int, are_batched: Sequence[bool], values: Sequence[Value], attrs: Attrs) -> Value:
    g, *every = [x if yes else spread(x, size) for x, yes in zip(values, are_batched, strict=True)]
    places, which, metas = attrs["places"], attrs["which"], metas_of(attrs["body"])
    split = unpack(g, [metas[k] for k in places], (size,))
    return _of_examples(GRADIENT, size, [pack(split, meta_of(g).dtype), *every], attrs, which, metas[which[0]].dtype)


# ---- the ops


def _sample(of: DType, **more: Any) -> Sample:
    """x = x * y + x, as long as its sum is below 50."""
    d = of.short
    head = f"(%x: {d}[3] input 'x', %y: {d}[3] input 'y')"
    bound = f"%m: {d}[] = full() dtype={d} shape=() value=50.0"
    less = f"%s: {d}[] = sum(%x) dims=(0,)\n  {bound}\n  %t: bool[] = lt(%s, %m)"
    test = f"graph test{head} {{\n  {less}\n  return %t\n}}\n"
    body = f"graph body{head} {{\n  %m: {d}[3] = mul(%x, %y)\n  %a: {d}[3] = add(%m, %x)\n  return %a\n}}\n"
    attrs = {"test": test, "body": body, "carried": 1, "places": (0,), **more}
    return Sample(((3,), (3,)) if "dtype" in more else ((3,), (3,), (3,)), attrs, low=1.0, high=2.0, dtypes=(of,))


_WHY = "how often it runs depends on the data"
WHILE = register(
    Op(
        "while_loop",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=_mapped,
        lower=call_back("while_loop", _called_back, why=_WHY, accepts=is_contiguous),
        samples=(_sample(float32, dtype=float32), _sample(float64, dtype=float64), _sample(float64, dtype=uint8)),
        dtypes=(float32, float64),
        doc="a graph is run as long as another one says so",
        engines=OwnCode(_WHY),
    )
)
GRADIENT = register(
    Op(
        "while_loop_gradient",
        infer=_infer_gradient,
        eager=_eager_gradient,
        vjp=_vjp_gradient,
        vmap=_mapped_gradient,
        lower=call_back("while_loop_gradient", _gradient_called_back, why=_WHY, accepts=is_contiguous),
        samples=(_sample(float32, which=(0, 1)), _sample(float64, which=(1,))),
        dtypes=(float32, float64),
        doc="the cotangents of what a while_loop was given",
        engines=OwnCode(_WHY),
    )
)
