"""Rules for `backward()` and `autograd.grad`: traced into the graph where its history lies in what is captured.

In: the parts and a call's arguments. Out: gradients as traced tensors; for `backward()`, Enter of the polyfill that
puts them into `.grad`. `RULES`: callable -> rule. Raises Break, with nothing done, where the tape has to run: hooks,
histories from outside, DDP (whose reducer waits for the tape), anomaly mode, hooks on what is saved.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from compiler_core.aot.strategy import ReducesInGraph
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.differentiating import gradients_within, having_history, refused
from compiler_core.capture.polyfills.of_autograd import accumulate
from compiler_core.capture.tracing.native import Seam
from compiler_core.graph.ir import Node
from compiler_core.ops import prims
from compiler_core.ops.casting import casting
from compiler_core.tensor.autograd import backward as tape
from compiler_core.tensor.autograd.anomaly import state as anomaly
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.autograd.hooks import only_owned
from compiler_core.tensor.autograd.inference import is_watched
from compiler_core.tensor.autograd.tape import TRACED, GradNode
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_OWNED = "backward() of a DistributedDataParallel"
_METHOD, _BACKWARD, _GRAD = [inspect.signature(of) for of in (Tensor.backward, tape.backward, tape.grad)]


def _given(parts: Parts, signature: inspect.Signature, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """The arguments by name. What they hold counts."""
    parts.contents.read_all(args, kwargs)
    bound = signature.bind(*map(parts.numbers.specialise, args), **parts.numbers.named(kwargs))
    bound.apply_defaults()
    return bound.arguments


def _of_tensor(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    given = _given(parts, _METHOD, args, kwargs)
    return _backward(parts, given["self"], given["gradient"], given)


def _of_tensors(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    given = _given(parts, _BACKWARD, args, kwargs)
    return _backward(parts, given["tensors"], given["grad_tensors"], given)


def _backward(parts: Parts, tensors: Any, grads: Any, given: dict[str, Any]) -> Any:
    trace = parts.segment.trace
    reducer = _reducer(parts, given)

    def compute() -> tuple[list[Tensor], list[Tensor]]:
        _check_modes(parts, reducer)
        if given["create_graph"]:
            raise refused("create_graph=True: .grad would have a history of its own")
        roots = _roots(tensors, grads)
        wanted = None if given["inputs"] is None else _wanted(parts, given["inputs"])
        if wanted is not None and any(_leaf_of(parts, node) is None for node in wanted):
            raise refused("it is asked for gradients of what is no leaf")
        found = gradients_within(trace, roots, wanted, retain=bool(given["retain_graph"]))
        pairs = [(_leaf_of(parts, node), node) for node in (*trace.placeholders, *trace.leaves) if node in found]
        leaves = [(leaf, found[node]) for leaf, node in pairs if leaf is not None and leaf._requires_grad]
        if reducer is not None:  # which asks for its collectives in this order: from the last layer on
            made = {node: k for k, node in enumerate(trace.body)}
            leaves.sort(key=lambda pair: made.get(pair[1], -1))
        for leaf, _ in leaves:
            _check_leaf(parts, leaf, reducer)
        nodes = [gradient for _, gradient in leaves]
        if reducer is not None:
            nodes = reducer.reduced([leaf for leaf, _ in leaves], nodes)
        return [leaf for leaf, _ in leaves], [_finished(parts, leaf, node) for (leaf, _), node in zip(leaves, nodes)]

    try:
        leaves, gradients = _tracing(parts, compute)
    except Break as why:
        if reducer is None:
            raise
        raise Seam(f"{_OWNED}: {why.reason}") from why
    if reducer is not None:
        trace.reducing = (reducer,)
    return parts.call(accumulate, (leaves, gradients), {})


def _reducer(parts: Parts, given: dict[str, Any]) -> ReducesInGraph | None:
    """Who reduces the gradients in the graph; None: they are nobody's. Guarded. Raises Seam where the reducer must see
    the backward itself."""
    trace = parts.segment.trace
    owners = trace.gradient_owners
    if not owners and not trace.forwards_ended:
        return None
    reducer: ReducesInGraph | None = None
    if len(owners) == 1 and [*trace.forwards_ended] == [*owners] and not trace.reducing and given["inputs"] is None:
        reducer = getattr(owners[0].__gradient_strategy__(), "in_graph", None)  # type: ignore[attr-defined]
    if reducer is None or not trace.is_fullgraph:
        raise Seam(f"{_OWNED}: its graph is cut where gradients leave")
    if why := reducer.refusal():
        raise Seam(f"{_OWNED}: {why}")
    name = parts.code.guards.bind(reducer, "reducer")
    parts.code.require_once(f"not {name}.refusal()", "gradients are reduced in the graph")
    return reducer


def _grad(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    given = _given(parts, _GRAD, args, kwargs)
    trace, create = parts.segment.trace, bool(given["create_graph"])
    retain = create if given["retain_graph"] is None else bool(given["retain_graph"])

    def compute() -> tuple[Any, ...]:
        _check_modes(parts)
        if given["is_grads_batched"] or not given["only_inputs"]:
            raise refused("is_grads_batched or only_inputs is given")
        inputs = tape._sequence(given["inputs"])
        roots, wanted = _roots(given["outputs"], given["grad_outputs"]), _wanted(parts, inputs)
        found = gradients_within(trace, roots, wanted, retain=retain, recorded=create)
        for node in wanted:
            if (leaf := _leaf_of(parts, node)) is not None:
                _check_leaf(parts, leaf)
        recorded = having_history(trace) if create else set()
        given_back = [(tensor, found.get(node)) for tensor, node in zip(inputs, wanted, strict=True)]
        results = [g if g is None else _finished(parts, of, g, g in recorded) for of, g in given_back]
        unused, materialize = bool(given["allow_unused"]), given["materialize_grads"]
        pairs = enumerate(zip(inputs, results, strict=True))
        return tuple(tape._result(tensor, grad, k, unused, materialize) for k, (tensor, grad) in pairs)

    return _tracing(parts, compute)


def _tracing(parts: Parts, compute: Any) -> Any:
    """`compute()`, as the engine runs: without autocast, and with nothing recorded."""
    before, casting.acting = casting.acting, None
    try:
        with no_grad():
            compute.__name__ = "backward"
            return parts.native.hand_on(compute)
    finally:
        casting.acting = before


def _check_modes(parts: Parts, reducer: ReducesInGraph | None = None) -> None:
    """Raises GraphBreak where the tape does more than compute. The modes are guarded."""
    trace = parts.segment.trace
    if anomaly.enabled or is_watched():
        raise refused("anomaly mode, or hooks on what is saved, are on")
    if reducer is None and (trace.gradient_owners or trace.forwards_ended):
        raise refused("a module owns the gradients of its parameters (DistributedDataParallel)")
    if trace.retaining or any(not trace._hooks_of(key).is_idle for key in trace.hooked.values()):
        raise refused("there are hooks on what the graph computes")
    names = [parts.code.guards.bind(thing, "mode") for thing in (anomaly, is_watched)]
    text = "no anomaly mode, no hooks on what is saved"
    parts.code.require_once(f"not ({names[0]}.enabled or {names[1]}())", text)


def _roots(tensors: Any, grads: Any) -> list[tuple[Node, Node]]:
    """(value, first gradient) of each tensor. Raises AutogradError as the tape does."""
    outputs = tape._sequence(tensors)
    given = [None] * len(outputs) if grads is None else tape._sequence(grads)
    tape.check_count(outputs, given)
    roots = []
    for tensor, grad in zip(outputs, given, strict=True):
        if not isinstance(tensor, Tensor):
            raise refused("it starts at an edge of the tape")
        tape._root_edge(tensor)
        first = tape._root_grad(tensor, grad, create_graph=False)
        roots.append((_node_of(tensor), first))
    return roots


def _node_of(tensor: Tensor) -> Node:
    node = tensor._read()
    if not isinstance(node, Node):
        raise refused("a tensor has a part in it that is not traced")
    return node


def _wanted(parts: Parts, inputs: Any) -> list[Node]:
    found = []
    for tensor in tape._sequence(inputs):
        if not isinstance(tensor, Tensor):
            raise refused("it is asked for gradients at an edge of the tape")
        tape._root_edge(tensor)
        found.append(_node_behind(parts, tensor) or _node_of(tensor))
    return found


def _node_behind(parts: Parts, tensor: Tensor) -> Node | None:
    """What the gradient of a leaf is asked for: of one from outside its input; it may have been written to since."""
    own = next((node for node, leaf in parts.segment.trace.leaves.items() if leaf is tensor), None)
    if own is not None:
        return own
    if not tensor._cell.is_external or not tensor.is_leaf:
        return None
    lift = parts.segment.trace.lifted.get((tensor._cell, tensor))
    return None if lift is None else lift.placeholder


def _leaf_of(parts: Parts, node: Node) -> Tensor | None:
    """The leaf from outside that an input of the graph is, or that the graph has made."""
    if node in parts.segment.trace.leaves:
        return parts.segment.trace.leaves[node]
    for lift in parts.segment.trace.lifted.values():
        if lift.placeholder is node:
            return None if isinstance(lift.edge, GradNode) else lift.edge
    return None


def _check_leaf(parts: Parts, leaf: Tensor, reducer: ReducesInGraph | None = None) -> None:
    """Raises GraphBreak where the end of the sweep is not just `.grad`. Guarded. reducer: who stands for the owner."""
    if any(leaf is own for own in parts.segment.trace.leaves.values()):
        if leaf._hooks is not None:
            raise refused("there are hooks on a leaf that the graph makes")
        return
    known = parts.outside.find(leaf)
    if known is None:
        raise refused("it comes to a leaf that capture has not seen being reached")
    if reducer is not None:
        if leaf._grad is not None:
            raise refused("gradients are added to those that are there")
        if not only_owned(leaf):
            raise refused(f"there are hooks on {known.source.text}")
        name = parts.code.guards.bind(only_owned, "only_owned")
        parts.code.require_once(f"{name}({parts.code.local(known.source)})", f"{known.source.text} has no hooks")
        return
    if leaf._hooks is not None:
        raise refused(f"there are hooks on {known.source.text}")
    parts.code.require_once(f"{parts.code.local(known.source)}._hooks is None", f"{known.source.text} has no hooks")


def _finished(parts: Parts, of: Tensor, gradient: Node, recorded: bool = False) -> Tensor:
    """The gradient of a tensor, as the program gets it: where the tensor is, if it is a constant too."""
    value = gradient if recorded else prims.detach(gradient)
    parts.segment.trace.note_made(value, of.device)
    return Tensor._from_cell(Cell(value), TRACED if recorded else None)


RULES = {Tensor.backward: _of_tensor, tape.backward: _of_tensors, tape.grad: _grad}
