"""The backward of a compiled call on the tape, by computing the call again.

For gradients that are to be differentiated, and for those of outputs that the call uses itself.

In: the pass that has come to the call, the gradients of its outputs. Out: the gradients of its inputs; hooks on outputs
run, and gradients that were asked for are noted in the pass.
Invariant: an output whose gradient is only known here (`Backward.deferred`) has had none of its hooks run before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import AutogradError
from compiler_core.tensor.autograd.tape import Edge, FunctionNode, GradNode, OutputNode

if TYPE_CHECKING:
    from compiler_core.tensor.autograd.engine import Backward


def deferred_outputs(order: Sequence[GradNode], is_wanted: Callable[[GradNode], bool]) -> dict[GradNode, GradNode]:
    """Output -> its call, of those of which a pass over `order` knows only a part of the gradient before the call runs.

    Raises AutogradError for one that cannot be known.
    """
    found: dict[GradNode, GradNode] = {}
    for call in order:
        if isinstance(call, FunctionNode) and (partial := getattr(call.backward, "partial_outputs", None)) is not None:
            came = sum(1 << n.index for n in order if isinstance(n, OutputNode) and n.edges[0] is call)
            found.update(dict.fromkeys(partial(came, is_wanted), call))
    return found


def run_again(
    run: Backward, node: FunctionNode, grads: Sequence[Any], outputs: Sequence[OutputNode], needed: Sequence[bool]
) -> list[Any]:
    """The gradients of the call `node`. outputs: those that are deferred. needed: which edges await a gradient."""
    call: Any = node.backward
    given, results = call.again(grads, node.edges)
    taken: dict[int, Edge] = {output.index: _hand_over(output, results[output.index]._edge()) for output in outputs}
    inner = [tensor._edge() for tensor in given]
    wanted: list[Any] = [edge for edge, is_needed in zip(inner, needed) if is_needed]
    asked = [output for output in outputs if run.wanted is not None and output in run.wanted]
    part = type(run)(
        retain_graph=True,
        create_graph=run.create_graph,
        wanted=[*wanted, *(taken[output.index] for output in asked)],
        capture=True,
        is_part=True,
    )
    part.run([(results[k]._edge(), grad) for k, grad in enumerate(grads) if grad is not None])
    for output in asked:
        if taken[output.index] in part.captured:
            run.captured[output] = part.captured[taken[output.index]]
    return [part.captured.get(edge) for edge in inner]


def _hand_over(output: OutputNode, edge: Edge) -> Edge:
    """Have what observes `output` observe `edge`, which is the same tensor in the call that was computed again."""
    if isinstance(edge, GradNode) and not output.is_observed:  # somebody asked for it, that is all
        return edge
    if not isinstance(edge, GradNode) or edge.is_observed:
        raise AutogradError(
            "the gradient of an output of a compiled call, which the call uses too, is not known outside of it",
            remedy="register the hook, or call retain_grad(), inside the compiled function",
        )
    edge.hooks, edge.retained = output.hooks, output.retained
    return edge
