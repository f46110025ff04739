"""Hooks on a tensor's gradient, and `retain_grad()`: methods of Tensor.

In: a tensor that requires a gradient, a hook. Out: `HookHandle`. A leaf keeps its hooks itself (`LeafHooks`), another
tensor has them on the tape node that made it; of one that captured code makes, the trace keeps them, as a boundary of
the graph (`aot/tensor_hooks.py`). Hooks on tensors from outside cannot be in a graph: GraphBreak.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.aot.strategy import LeafOwner
from compiler_core.aot.tensor_hooks import TensorHooks
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.tape import Edge, GradNode, HookHandle, OutputNode
from compiler_core.tensor.nodes.hooks import NodeHooks

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class LeafHooks:
    """The hooks of a leaf: on its gradient before accumulation, and on itself after it.

    owner: called after all of them, unless the gradient was handled: who reduces it over ranks. node: hooks of its
    AccumulateGrad, on the gradient that comes and on that which went in. metadata: what programs keep with that.
    """

    __slots__ = ("accumulated", "grad", "metadata", "node", "owner")

    def __init__(self) -> None:
        self.node: NodeHooks | None = None
        self.metadata: dict[str, Any] | None = None
        self.grad: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self.accumulated: dict[int, Callable[[Tensor], None]] = {}
        self.owner: LeafOwner | None = None

    def nodes(self) -> NodeHooks:
        """The table of the AccumulateGrad's hooks, made if there was none."""
        if self.node is None:
            self.node = NodeHooks()
        return self.node


def only_owned(leaf: Tensor) -> bool:
    """Whether a leaf has no hooks, but perhaps an owner of its gradient alone."""
    hooks = leaf._hooks
    if hooks is None:
        return True
    strategies = 0 if hooks.owner is None else len(hooks.owner.strategies())
    return not (hooks.grad or hooks.accumulated or hooks.node or hooks.metadata) and strategies <= 1


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this non-leaf in `.grad`."""
    edge = self._edge()
    if edge is None:
        raise AutogradError("retain_grad() on a tensor that does not require a gradient")
    trace: Any = current_trace()
    if isinstance(edge, GradNode) and trace is not None:
        _traced_hooks(self, trace, "retain_grad()")
        trace.retaining.append(weakref.ref(self))
    elif (inner := _of_call(edge)) is not None:
        inner.kept.append(weakref.ref(self))
    elif isinstance(edge, GradNode):
        edge.retained = weakref.ref(self)


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call `hook(grad)` when this tensor's gradient is complete; what it returns, if not None, replaces it."""
    edge = self._edge()
    if edge is None:
        raise AutogradError("cannot register a hook on a tensor that does not require a gradient")
    trace: Any = current_trace()
    if trace is not None:
        return HookHandle(_traced_hooks(self, trace, "register_hook()"), hook)
    if (inner := _of_call(edge)) is not None:
        return HookHandle(inner.hooks, hook)
    if isinstance(edge, GradNode):
        return HookHandle(edge.add_hooks(), hook)
    return HookHandle(self._leaf_hooks().grad, hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call `hook(self)` each time this leaf's `.grad` is complete in a backward pass."""
    if not self.is_leaf or not self._requires_grad:
        raise AutogradError("post accumulate grad hooks can only be registered on leaf tensors that require a gradient")
    if current_trace() is not None:
        raise _outside_hook("register_post_accumulate_grad_hook()")
    return HookHandle(self._leaf_hooks().accumulated, hook)


def _of_call(edge: Edge) -> TensorHooks | None:
    """The hooks on this very tensor that a compiled call has: what is registered outside runs after them."""
    inner = edge.inner_hooks if isinstance(edge, OutputNode) else None
    return inner if isinstance(inner, TensorHooks) else None


def _traced_hooks(tensor: Tensor, trace: Any, what: str) -> dict[int, Any]:
    """The hooks of a tensor that captured code made. Raises GraphBreak for another."""
    hooks = trace.tensor_hooks(tensor) if hasattr(trace, "tensor_hooks") else None
    if hooks is None:
        raise _outside_hook(what)
    found: dict[int, Any] = hooks.hooks
    return found


def _outside_hook(what: str) -> GraphBreak:
    return GraphBreak(
        f"{what} of a tensor that the compiled function did not compute",
        where=user_location(),
        remedy="register it outside of the compiled function",
    )
