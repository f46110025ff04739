"""Gradients inside a graph that is being captured: `backward()` and `autograd.grad` of code that is captured whole.

In: a trace, values of it with gradients of their own (roots), values whose gradients are wanted. Out: nodes for these,
recorded by each op's vjp, which is the rule of tape and joint graph alike (`aot/joint.py`).
Method: one reverse sweep over the calls so far. A handle of a traced tensor says only whether it has a history; what
this is, the graph says: who detaches, or records nothing, leaves a `detach` there.
Where it begins and ends is marked (custom_gradient's BEGINS and ENDS): what comes after capture differentiates the
forward anew, once that is simplified (aot/within.py).
A backward that does not retain what was saved spends the calls that it went through: a second one that reads what they
saved fails as on the tape, and a result of theirs fails when a backward of later code comes to it (`tape.SpentNode`).
Known limits: where the sweep would meet what only Python can do (hooks, rules that are not traced), what was computed
before the graph, or with create_graph a checkpointed region, it raises GraphBreak, with nothing recorded that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compiler_core.aot.boundary import is_boundary, passes_gradients
from compiler_core.aot.custom_gradient import rule_cotangents, rule_groups
from compiler_core.aot.joint import Cotangents, pull_back
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Call, Node
from compiler_core.location import user_location
from compiler_core.ops.primitives.arithmetic import add_gradients
from compiler_core.ops.primitives.convert import DETACH
from compiler_core.ops.primitives.custom_gradient import BEGINS, CUSTOM_GRADIENT, ENDS, Rule, rule_of
from compiler_core.ops.registry import Attrs, NotDifferentiable, Op, PerOperand, Value, current_trace, use_trace
from compiler_core.tensor.autograd.gone import Poison, demand, freed_error
from compiler_core.tensor.autograd.tape import GradNode

if TYPE_CHECKING:
    from compiler_core.capture.trace import CaptureTrace
    from compiler_core.tensor.tensor import Tensor


def gradients_within(
    trace: CaptureTrace,
    roots: Sequence[tuple[Node, Node]],
    wanted: Sequence[Node] | None,
    *,
    retain: bool,
    recorded: bool = False,
) -> dict[Node, Node]:
    """The gradients of `wanted`, or of all inputs that take one, where `roots` (value, its gradient) depend on them.

    retain: what was saved may be read again. recorded: the gradients have histories. Raises GraphBreak, and
    AutogradError where what was saved is gone.
    """
    inputs = {lift.placeholder: lift.edge for lift in trace.lifted.values() if lift.edge is not None}
    before = {node for node, edge in inputs.items() if isinstance(edge, GradNode)}
    ends: set[Node] = {*inputs, *trace.leaves} if wanted is None else {*wanted, *before}
    calls = [node for node in trace.body if isinstance(node, Call)]
    sweep = _Sweep(trace, Cotangents(trace, flowing(calls, ends)), recorded)
    with use_trace(sweep):
        for node, gradient in roots:
            if node in sweep.cotangents.flows:
                sweep.cotangents.add(node, gradient if recorded else sweep.mark(BEGINS, gradient, node))
        sweep.go_back(calls)
        table = sweep.cotangents.table
        reached = [
            node for node in dict.fromkeys([*inputs, *trace.leaves, *(wanted or ())]) if node in ends and node in table
        ]
        found = {node: table[node] if recorded else sweep.mark(ENDS, table[node], node) for node in reached}
    if any(node in table for node in before):
        raise refused("a tensor that was computed before the graph has a part in it")
    if not retain:
        trace.spent.extend(sweep.visited)
    return found


def refused(why: str) -> GraphBreak:
    """Why a backward is not part of the graph."""
    return GraphBreak(f"backward() cannot be traced: {why}", where=user_location())


def flowing(calls: Sequence[Call], ends: set[Node]) -> set[Node]:
    """The nodes through which gradients flow to `ends`."""
    flows = set(ends)
    for call in calls:
        if call.dtype.is_inexact and call.op is not DETACH and passes_gradients(call, flows):
            flows.add(call)
    return flows


def spent_among(trace: CaptureTrace) -> set[Node]:
    """The values whose history goes through what a backward in the graph has spent."""
    found: set[Node] = {call for call in trace.spent if not _only_passes(call)}
    for call in trace.body if found else ():
        if isinstance(call, Call) and call.dtype.is_inexact and call.op is not DETACH and passes_gradients(call, found):
            found.add(call)
    return found


def _only_passes(call: Call) -> bool:
    """Whether a call saves nothing for its gradient: it says where memory has its history from."""
    return call.op is CUSTOM_GRADIENT and not rule_of(call.attrs).joint


class _Sweep:
    """The trace while gradients are computed: what is bound stands where the call does whose gradient it is."""

    def __init__(self, trace: CaptureTrace, cotangents: Cotangents, recorded: bool) -> None:
        self.trace, self.cotangents, self.recorded = trace, cotangents, recorded
        self.number, trace.sweeps = trace.sweeps, trace.sweeps + 1
        self.visited: list[Call] = []
        self.spent: set[Call] = set(trace.spent)
        self.location = ""

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        args = [value if isinstance(value, Node) else self.trace.constant(value) for value in values]
        node = self.trace.call(op, args, attrs, location=self.location)
        self.trace.place_call(node)
        return node

    def mark(self, rule: Rule, gradient: Node, of: Node) -> Node:
        """`gradient`, marked as that of a value where this backward begins or ends."""
        attrs = {"rule": rule, "slot": self.number, "sources": 1}
        made = self.bind(CUSTOM_GRADIENT, (gradient, gradient, of), attrs)
        assert isinstance(made, Node)
        return made

    def go_back(self, calls: Sequence[Call]) -> None:
        """Cotangents go back through the calls, the last first."""
        table, rules = self.cotangents.table, rule_groups(calls)
        for call in reversed(calls):
            self.location = call.location
            if call in rules:
                group = [member for member in rules[call] if member in table]
                if group:
                    self._enter(group, rules[call])
                    self.cotangents.add_all(rule_cotangents(rules[call], table))
            elif call in table and call.op is not CUSTOM_GRADIENT:
                self._enter([call], [call])
                self.cotangents.add_all(self._pull(call, table[call]))

    def _enter(self, arrived: Sequence[Call], group: Sequence[Call]) -> None:
        """The sweep comes to the calls of one rule, to some of which gradients have come."""
        for call in arrived:
            if is_boundary(call) or call in self.trace.hooked:
                raise refused("there are hooks on what the graph computes, or a rule that Python has to run")
            if call.region and self.recorded:
                raise refused("with create_graph=True it comes to a checkpointed function")
        if any(call in self.spent and not _only_passes(call) for call in group) and group[0].op is CUSTOM_GRADIENT:
            raise freed_error()
        self.visited.extend(group)

    def _pull(self, call: Call, gradient: Node) -> Sequence[tuple[Node, Value | None]]:
        """(operand, its share of the gradient of `call`), for operands that pass it on."""
        flows, rule = self.cotangents.flows, call.op.vjp
        if isinstance(rule, NotDifferentiable) or (call not in self.spent and not isinstance(rule, PerOperand)):
            return pull_back(call, gradient, remakes=False)
        out, operands = self._saved(call, call), [self._saved(call, arg) for arg in call.args]
        if isinstance(rule, PerOperand):
            shares = [
                one(gradient, out, *operands, **call.attrs) if arg in flows else None
                for arg, one in zip(call.args, rule.rules, strict=True)
            ]
        else:
            shares = list(rule(gradient, out, *operands, **call.attrs))
        pairs = list(zip(call.args, shares, strict=True))
        return [(arg, demand(share)) for arg, share in pairs if share is not None and arg in flows]

    def _saved(self, call: Call, node: Node) -> Value:
        """What a rule reads: of a call that was spent, what stands for values that are gone."""
        return Poison(node.meta, "") if call in self.spent else node


def requiring(calls: Iterable[Node], trace: CaptureTrace) -> set[Node]:
    """The nodes through which gradients flow to any input that takes one."""
    ends: set[Node] = {lift.placeholder for lift in trace.lifted.values() if lift.edge is not None}
    return flowing([call for call in calls if isinstance(call, Call)], ends)


def having_history(trace: CaptureTrace) -> set[Node]:
    """The nodes that have a history: that of an input, or of a leaf that the graph makes."""
    return requiring(trace.body, trace) | flowing([n for n in trace.body if isinstance(n, Call)], {*trace.leaves})


def add_in_place(before: Tensor, gradient: Tensor) -> None:
    """`before`, a `.grad`, gets `gradient` added; who holds it sees that. Under a trace, or after a break."""
    if current_trace() is not None and before.requires_grad:
        raise refused("a .grad has a history of its own")
    before._cell.write(add_gradients(before._read(), gradient._read()))
