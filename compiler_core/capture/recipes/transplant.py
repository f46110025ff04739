"""After a graph ran: the handles that the program holds become the real tensors, and its numbers plain ones.

In: a handle whose cell holds a node of the trace, and the tensor that the graph computed for it. Out: that very handle,
with the value, the history and the view's base of the real one; what the program gave the handle stays: its class,
attributes, hooks, `.grad`, that it is a leaf, and every reference to it, weak ones too. (That its gradient is retained
is a boundary of the graph: `aot/tensor_hooks.py`.)
A handle that stands for a batch (vmap) gets what the graph computed for all examples, as one of them sees it.
A view takes its history from its base, and writes go there: so views of a real tensor become views of its handle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    shown: dict[int, Tensor] = {}
    follows = [_follows(handle, real, become, shown) for handle, real in zip(handles, reals)]
    for handle, real, may_follow in zip(handles, reals, follows, strict=True):
        transplant(handle, real, may_follow)
    for handle in handles:
        while handle._view is not None:
            link = handle._view
            handle = link.base = become.get(id(link.base), link.base)


def transplant(handle: Tensor, real: Tensor, may_follow: bool = False) -> None:
    """Make `handle` be what `real` is; `real` itself must not be used any more. Runs without a trace.

    may_follow: a handle without a history takes the one that its base may get.
    """
    if handle is real:
        return
    with enable_grad():
        for level in () if is_selection(handle) else reversed(levels_of(handle._cell.raw)):
            real = entered(real, level, 0)
    traced = handle._node
    leaf = traced is None and handle._requires_grad
    detached = traced is None and not leaf and not _is_stale(handle) and not may_follow
    handle._cell, handle._node, handle._view = real._cell, real._node, real._view
    handle._requires_grad = real._requires_grad
    if leaf:
        handle._node, handle._requires_grad = None, True
    elif detached:
        _cut(handle)
    rebound(handle)


def _follows(handle: Tensor, real: Tensor, become: Mapping[int, Tensor], shown: dict[int, Tensor]) -> bool:
    """Whether neither has a history, and the handle is a view of what `real` will be a view of.

    become: the handle of a real tensor, by id. shown: what the handles of a real tensor's views show, added to.
    """
    of, really_of = _without_history(handle), _without_history(real)
    if of is None or really_of is None:
        return False
    return shown.setdefault(id(really_of), become.get(id(really_of), of)) is of


def _without_history(tensor: Tensor) -> Tensor | None:
    """What it is a view of, by views that are not detached; None where it is none, or that has a history."""
    link = tensor._view
    if link is None or link.base._edge() is not None:
        return None
    while link is not None and not link.detached:
        tensor = link.base
        link = tensor._view
    return tensor if link is None else None


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
