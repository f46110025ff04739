"""The ways into the tape: backward, grad, record_function for compiled calls, and Function for a user's own rules.

In: Tensors with a history. Out: `.grad` of leaves, gradients, or one tape node for a whole call.
Names, arguments and errors follow torch.autograd.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core import observe
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Level, running
from compiler_core.ops.registry import Array, Value, current_trace, meta_of
from compiler_core.tensor.autograd.engine import Backward, queue_callback, turned_back
from compiler_core.tensor.autograd.given import value_of
from compiler_core.tensor.autograd.grad_mode import taping
from compiler_core.tensor.autograd.tape import HANDLED, Edge, FunctionNode, Gradient, GradNode, OutputNode
from compiler_core.tensor.batching import entered, left
from compiler_core.tensor.making.placement import grad_beside
from compiler_core.tensor.nodes.edges import GradientEdge, meta_at, tape_edge

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

__all__ = ["HANDLED", "Gradient", "attach_node", "backward", "grad", "queue_callback", "record_function"]


def _sequence(tensors: Any) -> list[Any]:
    """One tensor, or any iterable of them: torch takes `model.parameters()` too."""
    is_one = hasattr(tensors, "_cell") or isinstance(tensors, GradientEdge)
    return [tensors] if is_one or not isinstance(tensors, Iterable) else list(tensors)


def _roots(tensors: Sequence[Tensor], grads: Sequence[Tensor | None], create_graph: bool) -> list[tuple[Edge, Value]]:
    """(edge, first gradient) of each tensor. Raises AutogradError where there is none."""
    if current_trace() is not None and not taping.depth:
        raise GraphBreak(
            "backward() cannot be traced", where=user_location(), remedy="call it outside the compiled function"
        )
    check_count(tensors, grads)
    return [(_root_edge(t), _root_grad(t, g, create_graph)) for t, g in zip(tensors, grads)]


def check_count(tensors: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
    """Raises AutogradError where there is not one gradient, or None, for each tensor."""
    if len(grads) != len(tensors):
        raise AutogradError("one gradient for each tensor, please", expected=str(len(tensors)), got=str(len(grads)))


def _root_edge(tensor: Any) -> Edge:
    edge: Edge = tape_edge(tensor) if isinstance(tensor, GradientEdge) else tensor._edge()
    if edge is None:
        raise AutogradError(
            "backward from a tensor that does not require a gradient and has no history",
            remedy="was it made under no_grad(), or detached?",
        )
    return edge


def _wrapped(value: Value) -> Tensor:
    from compiler_core.tensor.tensor import Tensor

    return Tensor._wrap(value)


def _root_grad(tensor: Tensor, grad: Tensor | None, create_graph: bool) -> Value:
    meta = meta_at(tensor)
    if grad is None:
        if meta.numel != 1:
            raise AutogradError(
                "a gradient can be implied only for a scalar",
                expected="one element",
                got=str(meta),
                remedy="pass gradient=",
            )
        if meta.dtype.is_complex:
            raise AutogradError(
                "a gradient can be implied only for real outputs", got=str(meta), remedy="pass gradient="
            )
        ones = prims.full(meta.shape, 1, meta.dtype)
        ones = ones if isinstance(tensor, GradientEdge) else grad_beside(tensor, ones)
        return _wrapped(ones) if create_graph else ones
    given = meta_of(grad._cell.raw)
    if given.shape != meta.shape:
        raise AutogradError("the gradient's shape is not the tensor's", expected=str(meta), got=str(given))
    if given.dtype.is_complex and not meta.dtype.is_complex:
        raise AutogradError("the gradient of a real tensor is real", expected=str(meta), got=str(given))
    fitting = grad if given.dtype is meta.dtype else prims.cast(grad, meta.dtype)
    return fitting if create_graph else value_of(fitting)


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Accumulate gradients into the leaves (or into `inputs` alone). As torch.autograd.backward.

    Raises AutogradError without a history, twice over freed values, or over a saved value that was changed in place.
    """
    outputs = _sequence(tensors)
    grads = [None] * len(outputs) if grad_tensors is None else _sequence(grad_tensors)
    wanted = None if inputs is None else _sequence(inputs)
    if wanted is not None and not wanted:
        raise AutogradError("backward(inputs=...) was given no inputs")
    edges = None if wanted is None else [_root_edge(t) for t in wanted]
    retain = create_graph if retain_graph is None else retain_graph
    run = Backward(retain_graph=retain, create_graph=create_graph, wanted=edges)
    with observe.phase("backward"):
        run.run(_roots(outputs, grads, create_graph))
    for tensor, edge in zip(wanted or (), edges or ()):
        if isinstance(edge, GradNode) and edge in run.captured:
            tensor._accumulate_grad(run.captured[edge], create_graph)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`; `.grad` is not touched. As torch.autograd.grad.

    only_inputs=False means nothing, as in torch, which warns. is_grads_batched: each of grad_outputs has one more
    dim in front, and so have the gradients: one backward under vmap. Raises AutogradError for an input that the
    outputs do not depend on, unless allow_unused or materialize_grads.
    """
    if not only_inputs:
        warnings.warn("only_inputs means nothing: autograd.grad never touches .grad; call backward() to fill it",
                      FutureWarning, stacklevel=2)  # fmt: skip
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    outs, ins = _sequence(outputs), _sequence(inputs)
    grads = [None] * len(outs) if grad_outputs is None else _sequence(grad_outputs)
    edges = [_root_edge(t) for t in ins]
    retain = create_graph if retain_graph is None else retain_graph
    run = Backward(retain_graph=retain, create_graph=create_graph, wanted=edges, capture=True)
    run.run(_roots(outs, grads, create_graph))
    return tuple(
        _result(tensor, run.captured.get(edge), k, bool(allow_unused), materialize_grads)
        for k, (tensor, edge) in enumerate(zip(ins, edges))
    )


def _batched(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool | None,
    materialize: bool,
) -> tuple[Tensor | None, ...]:
    """One backward under vmap, which maps the rows of grad_outputs; each input's gradients as rows."""
    rows = _sequence(grad_outputs)
    count = min((len(g) for g in rows if g is not None), default=0)
    if not count:
        raise AutogradError("is_grads_batched takes a row, or more, of gradients in grad_outputs")
    level = Level(count)
    with running(level):
        each = [None if g is None else entered(g, level, 0) for g in rows]
        found = grad(outputs, inputs, each, retain_graph, create_graph,
                     allow_unused=allow_unused, materialize_grads=materialize)  # fmt: skip
        return tuple(None if g is None else left(g, level, 0) for g in found)


def _result(tensor: Tensor, grad: Value | None, number: int, allow_unused: bool, materialize: bool) -> Tensor | None:
    from compiler_core.tensor.tensor import Tensor

    if grad is not None:
        return turned_back(tensor, grad) if isinstance(grad, Tensor) else Tensor._wrap(grad)
    if materialize:
        zeros = prims.full(meta_at(tensor).shape, 0, meta_at(tensor).dtype)
        return Tensor._wrap(zeros if isinstance(tensor, GradientEdge) else grad_beside(tensor, zeros))
    if allow_unused:
        return None
    raise AutogradError(
        f"input {number} was not used in computing the outputs", remedy="pass allow_unused=True to get None for it"
    )


def attach_node(node: FunctionNode, outputs: Sequence[Any], order: Sequence[int] = ()) -> None:
    """Make `node` the history of those `outputs` that are floating tensors; they must be fresh ones, else `rebound`.

    order: in which they were made; (): as they stand.
    """
    for index in order or range(len(outputs)):
        output = outputs[index]
        if hasattr(output, "_node"):
            value = output._cell.raw
            if value.dtype.kind not in "biu":
                output._node = OutputNode(node, index, meta_of(value))


def record_function(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    backward: Callable[[Sequence[Array | None]], Sequence[Gradient]],
    order: Sequence[int] = (),
) -> None:
    """Record one tape node for a whole (compiled) call that made `outputs` from `inputs`.

    backward: the gradient of each output (None where none came) -> of each input: an array, None, or HANDLED when its
    owner has put it into `.grad` already (hooks after accumulation still run). It runs once: saved values are freed.
    order: in which the outputs were made; (): as they stand.
    """
    node = FunctionNode(name, tuple([t._edge() for t in inputs]), len(outputs), backward, raw=True)
    attach_node(node, outputs, order)
