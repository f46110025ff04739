"""After a graph ran: the handles that the program holds become the real tensors, and its numbers plain ones.

In: a handle whose cell holds a node of the trace, and the tensor that the graph computed for it. Out: that very handle,
with the value, the history and the view's base of the real one; what the program gave the handle stays: its class,
attributes, hooks, `.grad`, that it is a leaf, and every reference to it, weak ones too. (That its gradient is retained
is a boundary of the graph: `aot/tensor_hooks.py`.)
A handle that stands for a batch (vmap) gets what the graph computed for all examples, as one of them sees it.
A view takes its history from its base, and writes go there: so views of a real tensor become views of its handle.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.capture.numbers.selections import is_selection
from compiler_core.ops.batching.value import levels_of
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.batching import entered
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.tensor import Tensor, ViewLink

__all__ = ["classed", "transplant", "transplant_each"]


def transplant_each(handles: Sequence[Tensor], reals: Sequence[Tensor]) -> None:
    """Make each handle what the real tensor at its place is; views of one another among them stay so."""
    become = {id(real): handle for handle, real in zip(handles, reals, strict=True)}
    for handle, real in zip(handles, reals, strict=True):
        transplant(handle, real)
    for handle in handles:
        while handle._view is not None:
            link = handle._view
            handle = link.base = become.get(id(link.base), link.base)


def transplant(handle: Tensor, real: Tensor) -> None:
    """Make `handle` be what `real` is; `real` itself must not be used any more. Runs without a trace."""
    if handle is real:
        return
    with enable_grad():
        for level in () if is_selection(handle) else reversed(levels_of(handle._cell.raw)):
            real = entered(real, level, 0)
    traced = handle._node
    leaf = traced is None and handle._requires_grad
    detached = traced is None and not leaf and not _is_stale(handle)
    handle._cell, handle._node, handle._view = real._cell, real._node, real._view
    handle._requires_grad = real._requires_grad
    if leaf:
        handle._node, handle._requires_grad = None, True
    elif detached:
        _cut(handle)
    rebound(handle)


def classed(real: Tensor, kind: type[Tensor]) -> Tensor:
    """`real`, made a Parameter or whatever else the captured code had made of it."""
    real.__class__ = kind
    return real


def _is_stale(handle: Tensor) -> bool:
    """Whether a write has changed what the handle is a view of, so that its history is still to be taken from there."""
    link = handle._view
    return link is not None and not link.detached and link.stamp != handle._cell.root.stamp


def _cut(handle: Tensor) -> None:
    """No history: what was computed without gradients, or detached, in the trace."""
    link = handle._view
    handle._node, handle._requires_grad = None, False
    if link is not None:
        handle._view = ViewLink(link.base, None, handle._cell.root.stamp, detached=True)
