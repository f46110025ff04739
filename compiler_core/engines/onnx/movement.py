"""ONNX's operators for ops that make, move, join and index elements.

In: an Emitter and a call. Out: the name of the result. An index that is negative, which ONNX takes as counted from the
end and the op refuses, becomes one beyond the end: the engine then refuses it too.
"""

from __future__ import annotations

import numpy as np

from compiler_core.dtype import int64
from compiler_core.engines.onnx.emitter import Emitter, Rule, element_type
from compiler_core.graph.ir import Call, Node
from compiler_core.symbolic.expression import Sym, SymOrInt, is_same

_FIRST = np.iinfo(np.int64).min


def _full(e: Emitter, call: Call) -> str:
    number = e.number(call.attrs["value"], call.dtype)
    return e.node("Expand", number, e.sizes(call.shape)) if call.shape else number


def _iota(e: Emitter, call: Call) -> str:
    """A ramp along one dim: computed where the call decides its length."""
    dim, shape = call.attrs["dim"], call.shape
    size: SymOrInt = shape[dim]
    if isinstance(size, Sym):
        end = e.node("Squeeze", e.size(size), e.integers([0]))
        ramp = e.node("Range", e.number(0, int64), end, e.number(1, int64))
        ramp = e.node("Cast", ramp, to=element_type(call.dtype))
    else:
        ramp = e.constant(np.arange(size).astype(call.dtype.numpy))
    if len(shape) == 1:
        return ramp
    column = e.node("Reshape", ramp, e.integers([-1 if d == dim else 1 for d in range(len(shape))]))
    return e.node("Expand", column, e.sizes(shape))


def _reshape(e: Emitter, call: Call) -> str:
    return e.node("Reshape", *e.operands(call), e.sizes(call.shape), allowzero=1)


def _expand(e: Emitter, call: Call) -> str:
    return e.node("Expand", *e.operands(call), e.sizes(call.shape))


def _permute(e: Emitter, call: Call) -> str:
    return e.node("Transpose", *e.operands(call), perm=list(call.attrs["dims"]))


def _flip(e: Emitter, call: Call) -> str:
    dims = call.attrs["dims"]
    if not dims:
        return e.node("Identity", *e.operands(call))
    starts, ends, steps = ([n] * len(dims) for n in (-1, _FIRST, -1))
    return e.node("Slice", *e.operands(call), *map(e.integers, (starts, ends, list(dims), steps)))


def _slice(e: Emitter, call: Call) -> str:
    """A stop before the first element is the lowest number: -1 would count from the end."""
    (x,) = e.operands(call)
    rows = zip(*(call.attrs[name] for name in ("starts", "stops", "steps")), call.args[0].shape)
    kept = [(d, a, b, s) for d, (a, b, s, n) in enumerate(rows) if not _is_whole(a, b, s, n)]
    if not kept:
        return e.node("Identity", x)
    dims, starts, ends, steps = zip(*kept)
    stops: tuple[SymOrInt, ...] = tuple(
        _FIRST if step < 0 and not isinstance(b, Sym) and b < 0 else b for b, step in zip(ends, steps)
    )
    return e.node("Slice", x, e.sizes(starts), e.sizes(stops), e.integers(dims), e.integers(steps))


def _is_whole(start: SymOrInt, stop: SymOrInt, step: int, size: SymOrInt) -> bool:
    return step == 1 and not isinstance(start, Sym) and start == 0 and is_same(stop, size)


def _cat(e: Emitter, call: Call) -> str:
    return e.node("Concat", *e.operands(call), axis=call.attrs["dim"])


def _pad(e: Emitter, call: Call) -> str:
    pads = e.sizes((*call.attrs["low"], *call.attrs["high"]))
    return e.node("Pad", *e.operands(call), pads, e.number(call.attrs["value"], call.dtype))


# ---- indices


def _index(e: Emitter, node: Node, size: int) -> str:
    """An index whose negative entries are `size`, which is out of range."""
    name = e.value(node)
    beyond = e.number(size, node.dtype)
    return e.node("Where", e.node("Less", name, e.number(0, node.dtype)), beyond, name)


def _take(e: Emitter, call: Call) -> str:
    x, idx = call.args
    return e.node("Gather", e.value(x), _index(e, idx, x.shape[0]), axis=0)


def _gather(e: Emitter, call: Call) -> str:
    (x, idx), dim = call.args, call.attrs["dim"]
    return e.node("GatherElements", e.value(x), _index(e, idx, x.shape[dim]), axis=dim)


def _put(e: Emitter, call: Call, op: str, index: str, **how: str | int) -> str:
    """The source put into the base; 16-bit floats are added in f32."""
    base, _, src = e.operands(call)
    if how["reduction"] == "none" or call.dtype.compute is call.dtype:
        return e.node(op, base, index, src, **how)
    base, src = (e.node("Cast", x, to=element_type(call.dtype.compute)) for x in (base, src))
    return e.node("Cast", e.node(op, base, index, src, **how), to=element_type(call.dtype))


def _scatter(reduction: str) -> Rule:
    def rule(e: Emitter, call: Call) -> str:
        (base, idx, _), dim = call.args, call.attrs["dim"]
        index = _index(e, idx, base.shape[dim])
        return _put(e, call, "ScatterElements", index, axis=dim, reduction=reduction)

    return rule


def _scatter_rows(reduction: str) -> Rule:
    def rule(e: Emitter, call: Call) -> str:
        base, idx, _ = call.args
        index = e.node("Unsqueeze", _index(e, idx, base.shape[0]), e.integers([len(idx.shape)]))
        index = e.node("Cast", index, to=element_type(int64))
        return _put(e, call, "ScatterND", index, reduction=reduction)

    return rule


MOVEMENT: dict[str, Rule] = {
    "full": _full,
    "iota": _iota,
    "reshape": _reshape,
    "expand": _expand,
    "permute": _permute,
    "flip": _flip,
    "slice": _slice,
    "cat": _cat,
    "pad": _pad,
    "take": _take,
    "gather": _gather,
    "scatter": _scatter("none"),
    "scatter_add": _scatter("add"),
    "index_copy": _scatter_rows("none"),
    "index_add": _scatter_rows("add"),
}
