"""Canonicalise: algebraic identities and movement of movement, so that equal computations look equal and noise is gone.

In: Graph. Out: Graph in which no rule applies. The rules' tables: here, and in canonicalise_movement.py,
canonicalise_gradient.py and canonicalise_views.py.
Rules are exact in the values' arithmetic, also where it rounds, overflows or is not finite, with these exceptions,
each at most as far from the true value as what it replaces: a sum of n equal terms becomes a product with n; x**2, and
x**3 of the wide floats, become multiplications; softmax's gradient is written in terms of its output. A rule that makes
a number of others asks the dtype whether it holds it (`dtype.joint_factor`).
`after_autograd=True` also drops what only differentiation reads: `detach`, `gradient_boundary`, operands of no effect;
and it computes before copies are made: earlier, gradients would be added up before an infinite slope makes NaN of them.
One table entry an op: rules are tried in order, the first that answers wins.
"""

from __future__ import annotations

import math

from compiler_core.dtype import DType
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.graph.passes.canonicalise_gradient import GRADIENT_RULES
from compiler_core.graph.passes.canonicalise_movement import MOVEMENT_RULES, add_of_pads, slice_of_cat
from compiler_core.graph.passes.canonicalise_views import cat_of_views
from compiler_core.graph.passes.rewrite import Rewriter, Rule, first_said, splat
from compiler_core.ops.rules import Pointwise
from compiler_core.records import dataclass

MANTISSA_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


@dataclass(frozen=True, slots=True)
class Canonicalise:
    """See the head of this file."""

    after_autograd: bool = False

    def apply(self, graph: Graph) -> Graph:
        return Rewriter(graph, _rule_after_autograd if self.after_autograd else _rule).run()


def _rule(rewriter: Rewriter, call: Call) -> Node | None:
    if call.op.commutative and (swapped := _number_to_the_right(rewriter, call)) is not None:
        return swapped
    rules = RULES.get(call.op.name)
    return first_said(rules, rewriter, call) if rules else None


def _rule_after_autograd(rewriter: Rewriter, call: Call) -> Node | None:
    if call.op.only_for_autograd:
        return call.args[0]
    rules = RULES_AFTER_AUTOGRAD.get(call.op.name)
    if rules and (node := first_said(rules, rewriter, call)) is not None:
        return node
    node = _rule(rewriter, call)
    return _sink_expand(rewriter, call) if node is None and isinstance(call.op.lower, Pointwise) else node


# -- rules shared by several ops


def _is(node: Node, op: str) -> bool:
    return isinstance(node, Call) and node.op.name == op


def _by_one(rewriter: Rewriter, call: Call) -> Node | None:
    """op(x, 1) = x; not of complex numbers, where infinity times the imaginary 0 is NaN."""
    return call.args[0] if splat(call.args[1]) == 1 and not call.dtype.is_complex else None


def _zero_added(rewriter: Rewriter, call: Call) -> Node | None:
    """x + 0 = x and x - 0 = x; of floats x + -0 and x - 0: the other zero would make 0 of -0."""
    number, of_zero = splat(call.args[1]), -1.0 if call.op.name == "add" else 1.0
    if number != 0 or call.dtype.is_complex:
        return None
    return call.args[0] if call.dtype.kind != "f" or math.copysign(1.0, number) == of_zero else None


def _number_to_the_right(rewriter: Rewriter, call: Call) -> Node | None:
    """op(number, x) = op(x, number): later rules and the lowering look on the right only."""
    left, right = call.args
    if splat(left) is not None and splat(right) is None:
        return rewriter.call(call.op, right, left)
    return None


def _involution(rewriter: Rewriter, call: Call) -> Node | None:
    """op(op(x)) = x."""
    inner = call.args[0]
    return inner.operands[0] if isinstance(inner, Call) and inner.op is call.op else None


def _sink_expand(rewriter: Rewriter, call: Call) -> Node | None:
    """op(expand(x), expand(y)) = expand(op(x, y)): compute before copies are made. Numbers follow any shape."""
    sources = [arg.operands[0] for arg in call.args if _is(arg, "expand")]
    if not sources:
        return None
    shapes = {source.shape for source in sources}
    if len(shapes) != 1 or any(not _is(arg, "expand") and splat(arg) is None for arg in call.args):
        return None
    (shape,) = shapes
    small = [
        arg.operands[0] if _is(arg, "expand") else rewriter.full(arg.meta.with_shape(shape), splat(arg))
        for arg in call.args
    ]
    return rewriter.call("expand", rewriter.call(call.op, *small, **call.attrs), shape=call.shape)


# -- arithmetic


def _add_negated(rewriter: Rewriter, call: Call) -> Node | None:
    """a + -b = a - b; -a + b = b - a."""
    left, right = call.args
    if _is(right, "neg"):
        return rewriter.call("sub", left, right.operands[0])
    return rewriter.call("sub", right, left.operands[0]) if _is(left, "neg") else None


def _subtract_negated(rewriter: Rewriter, call: Call) -> Node | None:
    """a - -b = a + b."""
    left, right = call.args
    return rewriter.call("add", left, right.operands[0]) if _is(right, "neg") else None


def _multiply_by_minus_one(rewriter: Rewriter, call: Call) -> Node | None:
    return rewriter.call("neg", call.args[0]) if splat(call.args[1]) == -1 and call.dtype.kind in "if" else None


def _cancel_signs(rewriter: Rewriter, call: Call) -> Node | None:
    """op(-a, -b) = op(a, b) for products and quotients."""
    left, right = call.args
    if _is(left, "neg") and _is(right, "neg"):
        return rewriter.call(call.op, left.operands[0], right.operands[0])
    return None


def _divide_by_power_of_two(rewriter: Rewriter, call: Call) -> Node | None:
    """x / 2**k = x * 2**-k, exactly, while the reciprocal is a normal number of every float type."""
    divisor = splat(call.args[1])
    if not call.dtype.is_floating_point or not divisor or not math.isfinite(divisor):
        return None
    mantissa, exponent = math.frexp(divisor)
    if abs(mantissa) != 0.5 or abs(exponent) > 12:
        return None
    return rewriter.call("mul", call.args[0], rewriter.full(call.args[1].meta, 1.0 / divisor))


def _small_power(rewriter: Rewriter, call: Call) -> Node | None:
    """x**2 = x*x; x**3 = x*x*x, which 16-bit floats would round twice."""
    base, exponent = call.args[0], splat(call.args[1])
    if exponent != 2 and (exponent != 3 or call.dtype.compute is not call.dtype):
        return None
    square = rewriter.call("mul", base, base)
    return square if exponent == 2 else rewriter.call("mul", square, base)


def _cast_to_own(rewriter: Rewriter, call: Call) -> Node | None:
    return call.args[0] if call.args[0].dtype is call.dtype else None


def _cast_of_cast(rewriter: Rewriter, call: Call) -> Node | None:
    """cast(cast(x, wide), to) = cast(x, to) if `wide` holds every value of x's dtype."""
    inner = call.args[0]
    if not _is(inner, "cast") or not _holds(inner.dtype, inner.operands[0].dtype):
        return None
    source = inner.operands[0]
    return source if source.dtype is call.dtype else rewriter.call("cast", source, dtype=call.dtype)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if narrow.kind == "b" or wide is narrow:
        return True
    if wide.kind == "f":
        bits = 8 * narrow.itemsize - (narrow.kind == "i")
        return wide.itemsize > narrow.itemsize if narrow.kind == "f" else bits <= MANTISSA_BITS[wide.name]
    return wide.kind in (narrow.kind, "i") and narrow.kind in "iu" and wide.itemsize > narrow.itemsize


def _same_branches(rewriter: Rewriter, call: Call) -> Node | None:
    """where(c, a, a) = a, unless what tells c is refused: then the program is to say so."""
    test, then, other = call.args
    return then if then is other and not _is_refused(test) else None


def _is_refused(node: Node) -> bool:
    """Whether what `node` is computed from holds a call of constants that was not folded, for it raises."""
    todo, seen = [node], set[Node]()
    while todo:
        found = todo.pop()
        if not isinstance(found, Call) or found in seen:
            continue
        seen.add(found)
        if found.op.raises and all(isinstance(arg, Constant) or splat(arg) is not None for arg in found.args):
            return True
        todo += found.args
    return False


def _known_branch(rewriter: Rewriter, call: Call) -> Node | None:
    """where of a known condition = that branch."""
    known = splat(call.args[0])
    return None if known is None else call.args[1 if known else 2]


def _extremum(rewriter: Rewriter, call: Call) -> Node | None:
    """where(a >= b, a, maximum(a, b)) = maximum(a, b), and so for the least: clamps, once no gradient asks for more."""
    test, then, other = call.args
    if not isinstance(other, Call) or not isinstance(test, Call) or other.op.name not in ("maximum", "minimum"):
        return None
    names = {"maximum": "ge", "minimum": "le"}
    if test.op.name == names[other.op.name] and set(test.args) == set(other.args):
        return other if then is test.args[0] else None
    return other if _is_between(test, then, other) else None


def _relu(rewriter: Rewriter, call: Call) -> Node | None:
    """where(x <= c, where(x < c, c, x), x) = where(x < c, c, x): a relu, once no gradient asks whether x is c."""
    test, then, x = call.args
    if not (_is(test, "le") and _is(then, "where") and test.operands[0] is x):
        return None
    inner, bound, kept = then.operands
    is_same = _is(inner, "lt") and inner.operands == test.operands and kept is x
    limit = splat(bound)
    return then if is_same and limit is not None and limit == splat(test.operands[1]) else None


def _is_between(test: Call, x: Node, limited: Call) -> bool:
    """Whether `limited` is minimum(maximum(x, low), high), in any order, and `test` is low < x < high."""
    if not (_is(test, "bitwise_and") and _is(limited, "minimum")):
        return False
    above, below = test.args
    if not (_is(above, "gt") and _is(below, "lt") and above.operands[0] is x is below.operands[0]):
        return False
    raised = next((one for one in limited.args if one is not below.operands[1]), None)
    is_limited = below.operands[1] in limited.args and isinstance(raised, Call) and _is(raised, "maximum")
    return is_limited and raised is not None and set(raised.operands) == set(above.operands)


ARITHMETIC_RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_zero_added, _add_negated, add_of_pads),
    "sub": (_zero_added, _subtract_negated),
    "mul": (_by_one, _multiply_by_minus_one, _cancel_signs),
    "div": (_by_one, _cancel_signs, _divide_by_power_of_two),
    "pow": (_by_one, _small_power),
    "neg": (_involution,),
    "logical_not": (_involution,),
    "cast": (_cast_to_own, _cast_of_cast),
    "where": (_same_branches,),
}
# rules that drop an operand through which a gradient (of zeros) would have flowed
RULES_AFTER_AUTOGRAD: dict[str, tuple[Rule, ...]] = {
    "where": (_known_branch, _extremum, _relu),
    "slice": (slice_of_cat,),
    "cat": (cat_of_views,),
}
RULES: dict[str, tuple[Rule, ...]] = {
    name: (*ARITHMETIC_RULES.get(name, ()), *MOVEMENT_RULES.get(name, ()), *GRADIENT_RULES.get(name, ()))
    for name in ARITHMETIC_RULES | MOVEMENT_RULES | GRADIENT_RULES
}
