"""Attention that is written out, softmax(q k^T scale + mask) v, becomes the op `attention`.

In: a Graph, before differentiation. Out: a Graph in which such a product by weights is one call. It is taken where the
weights, the scores and all that lies between are read by nothing else, in f32 or f64, without dropout. A mask may be
added to the scores, or put -inf where a test says so; a test that depends on no input is computed here, and if it shows
each query the keys up to its own place, the op's blocks skip the rest. As in the softmax that stood there, a query that
sees nothing gives NaN (`strict`), and so do its gradients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from compiler_core.dtype import is_normal
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.rewrite import Rewriter, splat
from compiler_core.ops.attention.sizes import DTYPES, MAX_WIDTH, AttentionSizes
from compiler_core.records import dataclass

_MAX_TEST = 1 << 24  # elements of a mask that is computed while compiling


@dataclass(frozen=True, slots=True)
class RecogniseAttention:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        if sum(call.op.name == "matmul" for call in graph.calls) < 2 or not any(
            c.op.name == "exp" for c in graph.calls
        ):
            return graph
        return Dce().apply(Rewriter(graph, _rule).run())


class _Scores(NamedTuple):
    """What stands behind scores: matmul(q, keys) * scale, then perhaps a mask.

    added: a mask that is added. test: one of truth values; shown: which of them lets a key be seen.
    """

    q: Node
    keys: Node
    scale: float
    added: Node | None = None
    test: Node | None = None
    shown: bool = True


def _rule(rewriter: Rewriter, call: Call) -> Node | None:
    if call.op.name != "matmul" or call.dtype not in DTYPES or len(call.shape) < 3:
        return None
    weights, v = call.args
    source = _softmax_of(rewriter, weights)
    scores = None if source is None else _scores(rewriter, source)
    if scores is None or not call.meta.numel or not weights.meta.numel:
        return None
    if not 0 < scores.q.shape[-1] <= MAX_WIDTH or v.shape[-1] > MAX_WIDTH:
        return None
    return _attention(rewriter, scores, v, call)


def _is(node: Node | None, op: str) -> bool:
    return isinstance(node, Call) and node.op.name == op


def _only(rewriter: Rewriter, node: Node, op: str, uses: int = 1) -> tuple[Node, ...] | None:
    """The operands of `node`, if it is an `op` that so many calls read."""
    return node.args if isinstance(node, Call) and _is(node, op) and rewriter.use_count(node) == uses else None


def _behind(node: Node) -> Node:
    """What a number for each row is, before it was repeated along the row."""
    while isinstance(node, Call) and node.op.name in ("expand", "reshape", "detach"):
        node = node.args[0]
    return node


def _softmax_of(rewriter: Rewriter, weights: Node) -> Node | None:
    """x, if `weights` is softmax(x) along the last dim, and nothing else reads what lies between."""
    divided = _only(rewriter, weights, "div")
    powers = divided and _only(rewriter, divided[0], "exp", uses=2)
    less = powers and _only(rewriter, powers[0], "sub")
    if not divided or not less:
        return None
    dims = (len(weights.shape) - 1,)
    total, peak = _behind(divided[1]), _behind(less[1])
    for node, op, of in ((total, "sum", divided[0]), (peak, "max", less[0])):
        if not isinstance(node, Call) or node.op.name != op or node.args != (of,) or tuple(node.attrs["dims"]) != dims:
            return None
        if rewriter.use_count(node) != 1:
            return None
    repeated = all(_along_rows(node, weights.shape) for node in (divided[1], less[1]))
    return less[0] if repeated and rewriter.use_count(less[0]) == 2 else None


def _along_rows(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether `node` repeats a number a row: expand(reshape(x[*rows], (*rows, 1)))."""
    if shape[-1] == 1:
        return math.prod(_behind(node).shape) == math.prod(shape)
    return isinstance(node, Call) and node.op.name == "expand" and node.args[0].shape == (*shape[:-1], 1)


def _scores(rewriter: Rewriter, node: Node) -> _Scores | None:
    """What `node`, which a softmax reads twice, is made of."""
    if isinstance(node, Call) and node.op.name == "where":
        test, then, other = node.args
        for hidden, seen, shown in ((then, other, False), (other, then, True)):
            if splat(hidden) == -math.inf:
                found = _scaled(rewriter, seen, 1)
                return found and found._replace(test=test, shown=shown)
        return None
    if isinstance(node, Call) and node.op.name == "add":
        for scores, mask in (node.args, node.args[::-1]):
            found = _scaled(rewriter, scores, 1)
            if found:
                return found._replace(added=mask)
        return None
    return _scaled(rewriter, node, 2)


def _scaled(rewriter: Rewriter, node: Node, uses: int) -> _Scores | None:
    factor = 1.0
    for op in ("mul", "div"):
        operands = _only(rewriter, node, op, uses)
        number = splat(operands[1]) if operands else None
        if operands and number:
            factor, node, uses = (float(number) if op == "mul" else 1.0 / float(number)), operands[0], 1
            break
    product = _only(rewriter, node, "matmul", uses)
    return _Scores(product[0], product[1], factor) if product and is_normal(node.dtype, factor) else None


# ---- the call


def _attention(rewriter: Rewriter, scores: _Scores, v: Node, call: Call) -> Node:
    rank = len(call.shape)
    turned = rewriter.call("permute", scores.keys, dims=(*range(rank - 2), rank - 1, rank - 2))
    causal, mask = False, scores.added
    if scores.test is not None:
        causal = _is_causal(scores.test, scores.shown)
        if not causal:
            mask = scores.test if scores.shown else _inverted(rewriter, scores.test)
    operands = [scores.q, turned, v, *([] if mask is None else [mask])]
    operands = [_four(rewriter, operand) for operand in operands]
    sizes = AttentionSizes.of([operand.meta for operand in operands], causal)
    packed = rewriter.call("attention", *operands, scale=scores.scale, causal=causal, learned=True, strict=True)
    size = math.prod(sizes.result[0])
    out = rewriter.call("slice", packed, starts=(0,), stops=(size,), steps=(1,))
    out = rewriter.call("permute", rewriter.call("reshape", out, shape=sizes.result[0]), dims=(0, 2, 1, 3))
    return out if out.shape == call.shape else rewriter.call("reshape", out, shape=call.shape)


def _four(rewriter: Rewriter, node: Node) -> Node:
    """(*batch, heads, positions, width) with one batch dim; three dims are heads without a batch."""
    *batch, heads, rows, columns = node.shape
    shape = (math.prod(batch), heads, rows, columns)
    return node if node.shape == shape else rewriter.call("reshape", node, shape=shape)


def _inverted(rewriter: Rewriter, test: Node) -> Node:
    """not test, before it is repeated."""
    if isinstance(test, Call) and test.op.name == "expand":
        return rewriter.call("expand", _inverted(rewriter, test.args[0]), **test.attrs)
    return rewriter.call("eq", test, rewriter.full(test.meta, False))


def _is_causal(test: Node, shown: bool) -> bool:
    """Whether `test` depends on no input, and is `shown` just where the column is not beyond the row."""
    while isinstance(test, Call) and test.op.name == "expand" and test.args[0].shape[-2:] == test.shape[-2:]:
        test = test.args[0]
    nodes = _made_of_constants(test)
    if nodes is None or test.meta.numel > _MAX_TEST:
        return False
    (value,) = interpret(Graph("mask", tuple(nodes), (test,)), [])
    return bool(np.all((np.asarray(value) == shown) == np.tri(*test.shape[-2:], dtype=np.bool_)))


def _made_of_constants(node: Node) -> list[Node] | None:
    """`node` and all that it depends on, operands first; None if that includes an input, or is random."""
    order: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        at, ready = stack.pop()
        if ready:
            order[at] = None
        elif isinstance(at, Constant) or (isinstance(at, Call) and not at.op.random):
            stack += [(at, True), *((operand, False) for operand in at.operands if operand not in order)]
        else:
            return None
    return list(order)
