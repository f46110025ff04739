"""The engine: runs the tape backward from some outputs, and accumulates into leaves or hands gradients back.

In: (edge, gradient) pairs. Out: `.grad` of leaves, or the gradients of the edges that were asked for. Nodes run in
descending sequence number, each once, after all its users; a leaf is finished as soon as its last contribution came
(its hooks run then, so DDP may send early), not at the end. Gradients are plain arrays, unless create_graph asks for
Tensors, on which the same rules record themselves. A thread runs its own passes; callbacks and passes nest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from compiler_core.aot.strategy import DELIVERED, HANDLED
from compiler_core.cuda import lone
from compiler_core.errors import AutogradError
from compiler_core.memory_format import strided
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.casting import casting
from compiler_core.ops.registry import Value, current_trace, meta_of
from compiler_core.tensor.autograd.again import deferred_outputs, run_again
from compiler_core.tensor.autograd.anomaly import check
from compiler_core.tensor.autograd.anomaly import state as anomaly
from compiler_core.tensor.autograd.given import LentGradient, apart, only_reads
from compiler_core.tensor.autograd.gone import Poison
from compiler_core.tensor.autograd.grad_mode import enable_grad, thread_mode
from compiler_core.tensor.autograd.shown_back import VIEWS, shown_back
from compiler_core.tensor.autograd.tape import Edge, FunctionNode, GradNode, OpNode, OutputNode, WholeNode
from compiler_core.tensor.autograd.windows import SLICE, Windows, added, window_of
from compiler_core.tensor.making.placement import grad_beside, grads_beside
from compiler_core.tensor.nodes.hooks import run_after, run_before

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def turned_back(tensor: Any, grad: Any) -> Any:
    """A recorded gradient of tensor: row-major where tensor is, though the product of a transposed operand is not."""
    if getattr(grad, "layout", None) is not strided or grad._cell.is_ordered or not hasattr(tensor, "is_contiguous"):
        return grad
    if not tensor.is_contiguous() or grad.is_contiguous() or 0 in grad.stride():
        return grad
    with enable_grad():
        return grad.contiguous()


class _Passes(threading.local):
    def __init__(self) -> None:
        self.running: list[Backward] = []


_passes = _Passes()


def queue_callback(callback: Callable[[], None]) -> None:
    """Run `callback` at the end of the backward pass that is running in this thread.

    Raises AutogradError outside of backward.
    """
    if not _passes.running:
        raise AutogradError(
            "queue_callback outside of a backward pass", remedy="call it from a hook that runs in backward()"
        )
    _passes.running[-1].callbacks.append(callback)


def running_backwards() -> Sequence[Backward]:
    """The backward passes that run in this thread, the innermost last."""
    return _passes.running


class Backward:
    """One backward pass.

    retain_graph: keep what was saved. create_graph: gradients are Tensors with a history.
    wanted: the edges whose gradient is asked for; None: all leaves. capture: give the wanted gradients back in
    `captured` instead of accumulating them into `.grad`. is_part: it runs inside a node of another pass and belongs to
    that one: callbacks, and who reduces gradients over ranks, see only the whole.
    """

    reaches_all = True  # whether gradients go to all that an edge leads to

    def __init__(
        self,
        *,
        retain_graph: bool,
        create_graph: bool,
        wanted: Iterable[Edge] | None = None,
        capture: bool = False,
        is_part: bool = False,
    ) -> None:
        self.is_part = is_part and bool(_passes.running)
        self.retain_graph, self.create_graph, self.capture = retain_graph, create_graph, capture
        self.wanted: set[Edge] | None = None if wanted is None else set(wanted)
        self.captured: dict[Edge, Value] = {}
        self.callbacks: list[Callable[[], None]] = []
        self.grads: dict[Edge, Any] = {}  # what has come so far; a list with one place an output for a FunctionNode
        self.pending: dict[Edge, int] = {}  # leaf -> contributions still to come
        self.active: set[GradNode] = set()  # nodes that have something to do
        self.there = frozenset((lone.array, type(None)))  # classes of gradients that are where their operands are
        self.lent: list[Any] = []  # given gradients that are memory of others, shown to compiled calls
        self.deferred: dict[GradNode, GradNode] = {}  # output -> compiled call that knows its gradient (`again.py`)

    def run(self, roots: Sequence[tuple[Edge, Value]]) -> None:
        """Run the pass from `roots`."""
        order = self._plan([edge for edge, _ in roots])
        is_usual = self.wanted is None and self.reaches_all and not self.create_graph
        before, cast_to = thread_mode.enabled, casting.acting
        thread_mode.enabled, casting.acting = self.create_graph, None
        if not self.is_part:
            _passes.running.append(self)
        try:
            for edge, grad in roots:
                self._deliver(edge, grad if type(grad) is not LentGradient else self._given(edge, grad, roots))
            for node in order:
                kind = type(node)
                if (kind is OpNode or kind is WholeNode) and is_usual and node.hooks is None and node.retained is None:
                    self._pass_through(node)  # type: ignore[arg-type]
                else:
                    self._visit(node)
            for callback in self.callbacks:  # may grow while it runs
                callback()
        finally:
            if not self.is_part:
                _passes.running.pop()
            thread_mode.enabled, casting.acting = before, cast_to

    def _given(self, edge: Edge, grad: LentGradient, roots: Sequence[tuple[Edge, Value]]) -> Value:
        """The array of a gradient on memory of others, which a compiled call may read in place."""
        is_sole = sum(root is edge for root, _ in roots) == 1 and not any(type(g) is Batched for _, g in roots)
        if not is_sole or edge in (self.wanted or ()) or not only_reads(edge, self.deferred.values()):
            return grad.taken()
        self.lent.append(grad.shown())
        return self.lent[-1]

    def _plan(self, roots: Sequence[Edge]) -> list[GradNode]:
        """The nodes to visit, in order; fills `active` and `pending`."""
        if self.wanted is None:
            self._find_all(roots)
            order = sorted(self.active, key=_seq, reverse=True)
            self.deferred = deferred_outputs(order, self._is_wanted)
            return order
        order = sorted(_reachable(roots), key=_seq, reverse=True)
        self.deferred = deferred_outputs(order, self._is_wanted)
        calls = {call for output, call in self.deferred.items() if output in self.wanted}
        for node in reversed(order):
            edges = node.leads_to if isinstance(node, OutputNode) and node.edges[0] not in calls else node.edges
            if node in calls or any(e in self.wanted or e in self.active for e in edges if e is not None):
                self.active.add(node)
        for edge in roots:
            self._expect(edge)
        for node in order:
            if node in self.active:
                for edge in node.edges:
                    self._expect(edge)
        return order

    def _find_all(self, roots: Sequence[Edge]) -> None:
        """Fill `active` and `pending` with all that the roots depend on."""
        active, pending, todo = self.active, self.pending, [roots]
        while todo:
            for edge in todo.pop():
                if edge is None:
                    continue
                if not isinstance(edge, GradNode):
                    pending[edge] = pending.get(edge, 0) + 1
                elif edge not in active:
                    active.add(edge)
                    todo.append(edge.edges)

    def _is_wanted(self, node: GradNode) -> bool:
        return node.is_observed or (self.wanted is not None and node in self.wanted)

    def _expect(self, edge: Edge) -> None:
        if edge is not None and not isinstance(edge, GradNode) and edge in self.wanted:  # type: ignore[operator]
            self.pending[edge] = self.pending.get(edge, 0) + 1

    def _deliver(self, edge: Edge, grad: Any) -> None:
        if isinstance(edge, GradNode):
            if grad is not None and (edge in self.active or self._is_awaited(edge)):
                self._accumulate(edge, grad)
            return
        left = self.pending.get(edge)
        if left is None:
            return
        self.pending[edge] = left - 1
        before = self.grads.get(edge)
        if grad is None or (grad is HANDLED and before is not None):
            grad = before
        elif before is not None and before is not HANDLED:
            grad = added(before, grad)
        if left > 1:
            if grad is not None:
                self.grads[edge] = grad
            return
        if before is not None:
            del self.grads[edge]
        self._finish_leaf(edge, grad)  # type: ignore[arg-type]

    def _is_awaited(self, node: GradNode) -> bool:
        return node in self.active or (self.wanted is not None and node in self.wanted)

    def _accumulate(self, edge: Edge, grad: Value) -> None:
        before = self.grads.get(edge)
        self.grads[edge] = grad if before is None or before is HANDLED else added(before, grad)

    def _visit(self, node: GradNode) -> None:
        grad = self.grads.pop(node, None)
        if type(grad) is Windows:
            grad = grad.joined()
        call = node if isinstance(node, FunctionNode) else None
        is_seen = node.hooks or node.retained is not None or self.wanted is not None
        if is_seen and grad is not None and call is None and node not in self.deferred:
            grad = self._arrived(node, grad)
        if node not in self.active:
            return
        if isinstance(node, OutputNode):
            parent = node.edges[0]
            assert isinstance(parent, FunctionNode)
            if grad is not None:
                self.grads.setdefault(parent, [None] * parent.n_outputs)[node.index] = grad
            return
        hooks = node.hooks
        if hooks is not None and hooks.before and grad is not None:
            grad = self._run_before(node, hooks.before, grad)
        if grad is None and call is not None and call.runs_anyway:
            grad = [None] * call.n_outputs
        if grad is not None and call is not None and call.is_compiled:
            # hooks after it, and a check, may fail: then, as in torch, nothing was freed
            may_fail = bool(hooks is not None and hooks.after) or (anomaly.enabled and anomaly.check_nan)
            call.backward.is_last = not self.retain_graph and not may_fail  # type: ignore[union-attr]
        if grad is None:
            grads: Sequence[Any] = (None,) * len(node.edges)
        elif call is not None and self._is_run_again(call, grad):
            outputs = [output for output, owner in self.deferred.items() if owner is call]
            grads = run_again(self, call, grad, outputs, [self.computes(edge) for edge in call.edges])  # type: ignore[arg-type]
        elif call is not None and call.has_hooks:
            grads = call.apply(grad, self.create_graph, _PassOfCall(self, call))
        elif type(node) is OpNode and node.op is SLICE and (window := self._window(node, grad)) is not None:
            grads = (window,)
        else:
            grads = node.apply(grad, self.create_graph)
            grads = apart(grads, self.lent) if self.lent and call is not None else grads
            if type(grad) is not np.ndarray and isinstance(node, OpNode) and current_trace() is None:
                grads = grads_beside(node.saved, grads)
        if hooks is not None and hooks.after and grad is not None:
            grads = run_after(hooks.after, grads, grad if call is not None else (grad,))
        if anomaly.enabled and anomaly.check_nan and grad is not None:
            check(node, grads)
        turns = None if call is None else call.turns
        if grad is not None and not self.retain_graph:
            node.release()
        pairs = zip(node.edges, grads) if turns is None else [(node.edges[k], grads[k]) for k in turns]
        for edge, g in pairs:
            if edge is not None and g is not DELIVERED:
                self._deliver(edge, g)

    def _pass_through(self, node: OpNode) -> None:
        """`_visit` of an op that nobody observes, in a pass to all leaves, of arrays."""
        grads = self.grads
        if anomaly.enabled or grads.get(node) is None:
            self._visit(node)
            return
        grad = grads.pop(node)
        if type(grad) is Windows:
            grad = grad.joined()
        op = node.op
        if op is SLICE and (window := self._window(node, grad)) is not None:
            found: Sequence[Any] = (window,)
        elif op in VIEWS and (shown := shown_back(node, grad)) is not None:
            found = (shown,)
        else:
            found = node.apply(grad, False)
            is_there = node.plan is not None and self.there.issuperset(map(type, found))
            if type(grad) is not np.ndarray and not is_there and current_trace() is None:
                found = grads_beside(node.saved, found)
        if not self.retain_graph:
            plan = node.plan
            if plan is None:
                saved, out = node.saved, cast("Any", node.out)
                if type(out) is not Poison or len(saved) != 1 or type(saved[0]) is not Poison:  # else nothing is
                    node.release()
            elif plan.freed is None:
                node.release()
            else:
                node.saved, node.out = plan.freed
                if type(node) is WholeNode:
                    node.kept = None
        for edge, g in zip(node.edges, found):
            if edge is None:
                continue
            if not isinstance(edge, GradNode):
                self._deliver(edge, g)
            elif g is not None:
                before = grads.get(edge)
                grads[edge] = g if before is None else added(before, g)

    def _window(self, node: OpNode, grad: Any) -> Windows | None:
        """The gradient of a slice's operand as that of a part, where nobody sees it before it is whole."""
        if self.create_graph:
            return None
        is_seen = node.hooks is not None or anomaly.enabled or not isinstance(node.edges[0], GradNode)
        return None if is_seen else window_of(node, grad)

    @staticmethod
    def _run_before(node: GradNode, hooks: dict[int, Any], grad: Any) -> Any:
        """The gradient (of a call: the gradients) with which `node` computes."""
        if isinstance(node, FunctionNode):
            return list(run_before(hooks, grad))
        return run_before(hooks, (grad,))[0]

    def _is_run_again(self, node: FunctionNode, grads: Any) -> bool:
        """Whether the call is to be computed on the tape."""
        if node in self.deferred.values():
            return True
        if not node.raw or getattr(node.backward, "replay", None) is None:
            return False
        return self.create_graph or any(type(grad) is Batched for grad in grads)

    def computes(self, edge: Edge) -> bool:
        """Whether somebody waits for the gradient of `edge`: whether the pass computes it."""
        return self._is_awaited(edge) if isinstance(edge, GradNode) else edge in self.pending

    def _arrived(self, node: GradNode, grad: Value) -> Value:
        """The gradient of a node's output is complete: hooks, retain_grad, and whoever asked for it.

        As torch has it, who asked for it gets what came to the hooks, if gradients are needed behind the node, else
        what they made of it.
        """
        came = grad
        if self.wanted is not None and isinstance(node, OutputNode) and node.inner and node not in self.active:
            grad = self._run_hooks({0: node.inner_hook}, grad)  # the call, whose hooks they are, does not run
        if node.hooks:
            grad = self._run_hooks(node.hooks, grad)
        tensor = None if node.retained is None else node.retained()
        if tensor is not None:
            tensor._accumulate_grad(grad, self.create_graph)
        if self.wanted is not None and node in self.wanted:
            self.captured[node] = came if node in self.active else grad
        return grad

    def _finish_leaf(self, leaf: Tensor, grad: Any) -> None:
        """All contributions to a leaf have come: hooks, accumulation, hooks after accumulation."""
        if grad is None:
            return
        hooks = leaf._hooks
        if grad is not HANDLED:
            if type(grad) is not type(leaf._cell.raw):
                grad = grad_beside(leaf, grad)
            if self.create_graph:
                grad = turned_back(leaf, grad)
            if hooks is not None and hooks.grad:
                grad = self._run_hooks(hooks.grad, grad)
            if self.capture:
                self.captured[leaf] = grad
                return
            if hooks is not None and hooks.node is not None:
                grad = run_before(hooks.node.before, (grad,))[0]
            if leaf._requires_grad:  # not frozen since it was used
                leaf._accumulate_grad(grad, self.create_graph)
        if hooks is not None:
            for hook in list(hooks.accumulated.values()):
                hook(leaf)
            if hooks.node is not None and grad is not HANDLED:
                run_after(hooks.node.after, (), (grad,))
            if hooks.owner is not None and grad is not HANDLED:
                hooks.owner(leaf)

    def _run_hooks(self, hooks: dict[int, Callable[[Tensor], Tensor | None]], grad: Value) -> Value:
        from compiler_core.tensor.tensor import Tensor

        for hook in list(hooks.values()):
            given = grad if isinstance(grad, Tensor) else Tensor._wrap(grad)
            replaced = hook(given)
            if replaced is None:
                if given is not grad and given._cell.stamp:  # it wrote to the gradient in place
                    grad = given._read()
                continue
            if meta_of(replaced) != meta_of(grad):  # rules read its memory as what it was
                raise AutogradError(
                    "a gradient hook changed the shape or the dtype of the gradient",
                    expected=str(meta_of(grad)),
                    got=str(meta_of(replaced)),
                )
            grad = replaced if self.create_graph else replaced._read()
        return grad


class _PassOfCall:
    """What a compiled call with hooks sees of the pass (`aot.halt.TapePass`): what is asked for, and who takes it."""

    def __init__(self, run: Backward, node: FunctionNode) -> None:
        self.run, self.edges = run, node.edges
        needed = [k for k, edge in enumerate(node.edges) if run.computes(edge)]
        self.needed = None if run.wanted is None else needed

    def deliver(self, place: int, gradient: Any) -> bool:
        """Take the gradient of an input now, if it is a leaf's that has hooks."""
        leaf = self.edges[place]
        if leaf is None or isinstance(leaf, GradNode):
            return False
        hooks = leaf._hooks
        if hooks is None or not (hooks.grad or hooks.accumulated):
            return False
        self.run._deliver(leaf, gradient)
        return True


_seq = attrgetter("seq")


def _reachable(roots: Iterable[Edge]) -> set[GradNode]:
    """All nodes that the roots depend on."""
    todo = [edge for edge in roots if isinstance(edge, GradNode)]
    seen = set(todo)
    while todo:
        for edge in todo.pop().edges:
            if isinstance(edge, GradNode) and edge not in seen:
                seen.add(edge)
                todo.append(edge)
    return seen
