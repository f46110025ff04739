"""Canonicalise, the part that differentiation makes worthwhile: factors, signs, softmax, embeddings.

In: a call and the rewriter. Out: a cheaper equal form, or None. What each rule is for:
  the two halves of the gradient of x*x are one product with 2; powers of two join other factors
  signs and factors leave sums, where they would be applied to every term
  softmax's gradient in terms of its output p alone: p * (g - sum(g * p)), so that only p is saved
  embedding rows 0..n-1 are a slice; its gradient adds into what is there instead of into zeros
Numerically each form is as good as what it replaces (softmax's is better: it does not divide twice).
"""

from __future__ import annotations

import math

from compiler_core.dtype import joint_factor
from compiler_core.graph.ir import Call, Node
from compiler_core.graph.passes.rewrite import Rewriter, Rule, splat


def _match(node: Node, op: str) -> tuple[Node, ...] | None:
    """The operands of `node` if it is a call of `op`."""
    return node.args if isinstance(node, Call) and node.op.name == op else None


def _is_power_of_two(number: float) -> bool:
    return number != 0 and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5


# -- factors and signs


def double(rewriter: Rewriter, call: Call) -> Node | None:
    """x + x = 2 x."""
    left, right = call.args
    return rewriter.call("mul", left, rewriter.full(left.meta, 2)) if left is right and call.dtype.kind == "f" else None


def join_factors(rewriter: Rewriter, call: Call) -> Node | None:
    """(x a) b = x (a b), where a or b is a power of two, and so rounds nothing; see `joint_factor`."""
    inner, b = _match(call.args[0], "mul"), splat(call.args[1])
    if inner is None or b is None or call.dtype.kind != "f":
        return None
    a = splat(inner[1])
    if a is None or not (_is_power_of_two(a) or _is_power_of_two(b)):
        return None
    factor = joint_factor(call.dtype, a, b)
    return None if factor is None else rewriter.call("mul", inner[0], rewriter.full(call.meta, factor))


def half_or_double_copies(rewriter: Rewriter, call: Call) -> Node | None:
    """(expand(r) x) 2 = expand(r 2) x, or 1/2: the factor is applied before copies are made.

    Not of 16-bit floats; of others only an r at an end of the range, within a factor of 2, leaves it where the product
    would not.
    """
    inner, factor = _match(call.args[0], "mul"), splat(call.args[1])
    if inner is None or factor not in (2, 0.5) or call.dtype.kind != "f" or call.dtype.compute is not call.dtype:
        return None
    for copies, other in (inner, inner[::-1]):
        source = _match(copies, "expand")
        if source is not None and splat(other) is None:
            small = rewriter.call("mul", source[0], rewriter.full(source[0].meta, factor))
            return rewriter.call("mul", rewriter.call("expand", small, shape=call.shape), other)
    return None


def sign_to_factor(rewriter: Rewriter, call: Call) -> Node | None:
    """(-x) c = x (-c)."""
    inner, factor = _match(call.args[0], "neg"), splat(call.args[1])
    if inner is None or factor is None or not call.dtype.is_signed:
        return None
    return rewriter.call("mul", inner[0], rewriter.full(call.args[1].meta, -factor))


def sign_out_of_sum(rewriter: Rewriter, call: Call) -> Node | None:
    """sum(-x) = -sum(x)."""
    inner = _match(call.args[0], "neg")
    return None if inner is None else rewriter.call("neg", rewriter.call("sum", inner[0], **call.attrs))


# -- softmax


def softmax_gradient(rewriter: Rewriter, call: Call) -> Node | None:
    """(g/S - sum(g/S * p)) * e = p * (g - sum(g * p)), for p = e/S and S the same along the summed dimensions."""
    for difference, e in (call.args, call.args[::-1]):
        for combine in ("add", "sub"):
            parts = _match(difference, combine)
            found = None if parts is None else _softmax_parts(parts[0], parts[1], e, negated=combine == "sub")
            if found is not None:
                g, p, total = found
                inner = rewriter.call("sum", rewriter.call("mul", g, p), **total.attrs)
                kept = tuple(1 if d in total.attrs["dims"] else n for d, n in enumerate(g.shape))
                copies = rewriter.call("expand", rewriter.call("reshape", inner, shape=kept), shape=g.shape)
                return rewriter.call("mul", p, rewriter.call("sub", g, copies))
    return None


def _softmax_parts(quotient: Node, copies: Node, e: Node, *, negated: bool) -> tuple[Node, Node, Call] | None:
    """(g, p, the sum) if `quotient` is g/S and `copies` the sum of g/S * p, spread out again; p = e/S."""
    divided = _match(quotient, "div")
    total, sign = _peel(copies)
    if divided is None or (sign < 0) == negated or not isinstance(total, Call) or total.op.name != "sum":
        return None
    product, inner_sign = _peel(total.args[0])
    factors = _match(product, "mul")
    if inner_sign < 0 or factors is None or quotient not in factors:
        return None
    p = factors[1] if factors[0] is quotient else factors[0]
    if _match(p, "div") != (e, divided[1]) or not _spread_over(divided[1], total.attrs["dims"]):
        return None
    return divided[0], p, total


def _peel(node: Node) -> tuple[Node, int]:
    """`node` without reshapes, expands and signs around it, and the sign."""
    sign = 1
    while isinstance(node, Call) and node.op.name in ("reshape", "expand", "neg"):
        sign = -sign if node.op.name == "neg" else sign
        node = node.args[0]
    return node, sign


def _spread_over(node: Node, dims: tuple[int, ...]) -> bool:
    """Whether `node` is the same along `dims`, because an expand made those dimensions."""
    source = _match(node, "expand")
    if source is None:
        return False
    lead = len(node.shape) - len(source[0].shape)
    return all(d < lead or source[0].shape[d - lead] == 1 for d in dims)


# -- embeddings


def _counts_rows(index: Node) -> bool:
    """Whether `index` is 0, 1, 2, ..."""
    return isinstance(index, Call) and index.op.name == "iota" and len(index.shape) == 1


def take_of_count(rewriter: Rewriter, call: Call) -> Node | None:
    """The first n rows are a slice."""
    table, index = call.args
    if not _counts_rows(index) or index.shape[0] > table.shape[0]:
        return None
    return rewriter.call(
        "slice", table, starts=(0,) * len(table.shape), stops=call.shape, steps=(1,) * len(table.shape)
    )


def index_add_of_count(rewriter: Rewriter, call: Call) -> Node | None:
    """Adding to the first n rows of zeros pads with zeros."""
    base, index, rows = call.args
    if not _counts_rows(index) or splat(base) != 0 or index.shape[0] > base.shape[0]:
        return None
    rank = len(base.shape)
    high = (base.shape[0] - rows.shape[0], *(0,) * (rank - 1))
    return rewriter.call("pad", rows, low=(0,) * rank, high=high, value=0.0)


def add_to_scattered(rewriter: Rewriter, call: Call) -> Node | None:
    """x + index_add(0, i, rows) = index_add(x, i, rows)."""
    for x, other in (call.args, call.args[::-1]):
        inner = _match(other, "index_add") or _match(other, "scatter_add")
        if inner is not None and splat(inner[0]) == 0 and rewriter.use_count(other) == 1 and splat(x) is None:
            assert isinstance(other, Call)
            return rewriter.call(other.op, x, *inner[1:], **other.attrs)
    return None


GRADIENT_RULES: dict[str, tuple[Rule, ...]] = {
    "add": (double, add_to_scattered),
    "mul": (join_factors, half_or_double_copies, sign_to_factor, softmax_gradient),
    "sum": (sign_out_of_sum,),
    "take": (take_of_count,),
    "index_add": (index_add_of_count,),
}
