"""ONNX's operators for ops that a model must have, though beside an engine our own code is the better one for them.

In: an Emitter and a call. Out: the name of the result. Sorting is two stable ones by TopK, by value and by being NaN,
which counts as the largest: of equals TopK takes the one with the lower index. A recurrent layer is a Scan over its
steps, whose body reads the weights outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from compiler_core.dtype import float32
from compiler_core.engines.onnx.emitter import Emitter, Rule, element_type
from compiler_core.engines.onnx.model import TABLE
from compiler_core.graph.ir import Call
from compiler_core.ops.recurrent.sizes import RecurrentSizes

_F32 = element_type(float32)


# ---- order


def _sorted_by(e: Emitter, x: str, count: str, dim: int, largest: bool) -> str:
    """The places of the elements in order."""
    values, places = (e.fresh("topk") for _ in range(2))
    e.nodes.append(
        helper.make_node("TopK", [x, count], [values, places], name=places, axis=dim, largest=int(largest), sorted=1)
    )
    return places


def _order(e: Emitter, call: Call, descending: bool) -> str:
    (x,), (node,), dim = e.operands(call), call.args, call.attrs["dim"]
    count = e.size(node.shape[dim])
    if not node.dtype.is_floating_point:
        return _sorted_by(e, x, count, dim, descending)
    nan = e.node("IsNaN", x)
    places = _sorted_by(e, e.node("Where", nan, e.number(0, node.dtype), x), count, dim, descending)
    flags = e.node("GatherElements", e.node("Cast", nan, to=_F32), places, axis=dim)
    return e.node("GatherElements", places, _sorted_by(e, flags, count, dim, descending), axis=dim)


def _argsort(e: Emitter, call: Call) -> str:
    return _order(e, call, call.attrs["descending"])


def _part(e: Emitter, places: str, dim: int, start: int, stop: int) -> str:
    return e.node("Slice", places, *map(e.integers, ([start], [stop], [dim])))


def _topk_places(e: Emitter, call: Call) -> str:
    return _part(e, _order(e, call, call.attrs["largest"]), call.attrs["dim"], 0, call.attrs["k"])


def _rank_place(e: Emitter, call: Call) -> str:
    rank = call.attrs["rank"]
    return _part(e, _order(e, call, False), call.attrs["dim"], rank, rank + 1)


# ---- recurrent layers


class _Body:
    """The graph of one step: its nodes, in the order in which they were made."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.nodes: list[onnx.NodeProto] = []

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = self.e.fresh("step")
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def blocks(self, x: str, width: int, count: int) -> list[str]:
        """x: f[B, count * width], cut along its columns."""
        axis = self.e.integers([1])
        cuts = [(k * width, (k + 1) * width) for k in range(count)]
        return [self.node("Slice", x, self.e.integers([a]), self.e.integers([b]), axis) for a, b in cuts]


Step: TypeAlias = Callable[..., tuple[list[str], list[str]]]  # (body, H, x, z, h, c) -> states, what is kept


def _simple(op: str) -> Step:
    def step(body: _Body, n: int, x: str, z: str, h: str, *cells: str) -> tuple[list[str], list[str]]:
        new = body.node(op, body.node("Add", z, x))
        return [new], [new]

    return step


def _lstm(body: _Body, n: int, x: str, z: str, h: str, *cells: str) -> tuple[list[str], list[str]]:
    gates = body.blocks(body.node("Add", z, x), n, 4)
    i, f, g, o = (body.node("Tanh" if k == 2 else "Sigmoid", gate) for k, gate in enumerate(gates))
    c = body.node("Add", body.node("Mul", f, cells[0]), body.node("Mul", i, g))
    new = body.node("Mul", o, body.node("Tanh", c))
    return [new, c], [new, c, body.node("Concat", i, f, g, o, axis=1)]


def _gru(body: _Body, n: int, x: str, z: str, h: str, *cells: str) -> tuple[list[str], list[str]]:
    (zr, zu, zn), (xr, xu, xn) = body.blocks(z, n, 3), body.blocks(x, n, 3)
    r, u = (body.node("Sigmoid", body.node("Add", a, b)) for a, b in ((zr, xr), (zu, xu)))
    new = body.node("Tanh", body.node("Add", xn, body.node("Mul", r, zn)))
    state = body.node("Add", new, body.node("Mul", u, body.node("Sub", h, new)))
    return [state], [state, body.node("Concat", r, u, new, zn, axis=1)]


_STEPS: dict[str, Step] = {"tanh": _simple("Tanh"), "relu": _simple("Relu"), "lstm": _lstm, "gru": _gru}


def _turned(e: Emitter, x: str) -> str:
    """From the last step to the first."""
    return e.node("Slice", x, *map(e.integers, ([-1], [np.iinfo(np.int64).min], [0], [-1])))


def _recurrent(e: Emitter, call: Call) -> str:
    """A Scan: states go from step to step, x comes a step at a time; what comes of each step is laid end to end."""
    attrs, (x, w, b, *first) = call.attrs, e.operands(call)
    sizes = RecurrentSizes(attrs["mode"], call.args[1].shape[1], attrs["runs"], attrs["reverse"])
    ((batch, steps),) = sizes.runs
    element, body = element_type(call.dtype), _Body(e)
    taken = [e.fresh("state") for _ in first]
    row = e.fresh("row")
    product = body.node("Add", body.node("MatMul", taken[0], e.node("Transpose", w, perm=[1, 0])), b)
    states, made = _STEPS[sizes.mode](body, sizes.hidden, row, product, *taken)
    given = [body.node("Identity", name) for name in (*states, *made)]  # each output is one of its own

    def described(name: str, width: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, element, [batch, width])

    inputs = [*(described(name, sizes.hidden) for name in taken), described(row, sizes.gates * sizes.hidden)]
    widths = [*(sizes.hidden for _ in states), *(width for _, width in sizes.result)]
    graph = helper.make_graph(body.nodes, e.fresh("body"), inputs, [described(*pair) for pair in zip(given, widths)])
    outputs = [e.fresh("scan") for _ in given]
    rows = e.node("Reshape", x, e.integers([steps, batch, sizes.gates * sizes.hidden]))
    rows = _turned(e, rows) if sizes.reverse else rows
    e.nodes.append(helper.make_node("Scan", [*first, rows], outputs, name=outputs[0], body=graph, num_scan_inputs=1))
    found = outputs[len(states) :]
    found = [_turned(e, name) for name in found] if sizes.reverse else found
    flat = [e.node("Reshape", name, e.integers([-1])) for name in found]
    return e.node("Concat", *flat, axis=0) if len(flat) > 1 else flat[0]


EXPORTED: Mapping[str, Rule] = {
    **TABLE,
    "argsort": _argsort,
    "topk_places": _topk_places,
    "rank_place": _rank_place,
    "recurrent": _recurrent,
}
