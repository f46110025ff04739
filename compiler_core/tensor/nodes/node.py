"""`Tensor.grad_fn`: what made a tensor, as programs see it, and where the gradients of its operands go.

In: edges of the tape. Out: `Node`, of a class that has torch's name for it (`names.py`), the same object for the same
tape node as long as somebody holds it. What the tape keeps as an output of a call with several is the call's Node with
the output's number; a leaf is an `AccumulateGrad`. The tape's own nodes hold nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from compiler_core.errors import AutogradError
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.autograd.tape import Edge, FunctionNode, GradNode, HookHandle, OpNode, OutputNode
from compiler_core.tensor.nodes.edges import GradientEdge
from compiler_core.tensor.nodes.names import name_of
from compiler_core.tensor.nodes.reads import read_by

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_known: WeakValueDictionary[int, Node] = WeakValueDictionary()  # by id of the tape node, or of the leaf
_metadata: WeakKeyDictionary[GradNode, dict[str, Any]] = WeakKeyDictionary()
_classes: dict[str, type[Node]] = {}


class Node:
    """A node of the autograd graph."""

    __slots__ = ("__weakref__", "_call", "_edges", "_node")
    _node: Any  # the tape node, or of an AccumulateGrad the leaf
    _call: Any  # of an autograd.Function, its call
    _edges: dict[int, GradNode]  # what the tape has for the outputs of a call: by their number

    def name(self) -> str:
        """As torch names it."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each operand: what made it, and which of its outputs it is; None where no gradient goes."""
        edges = self._node.edges
        if self._call is not None:  # those of its tensors
            edges = [edge for edge, arg in zip(edges, self._call.args) if hasattr(arg, "_cell")]
        return tuple(map(node_and_number, edges))

    @property
    def metadata(self) -> dict[str, Any]:
        """Whatever programs put here; it lives as long as the node."""
        return _metadata.setdefault(self._node, {})

    def register_hook(self, fn: Callable[..., Any]) -> HookHandle:
        """Call `fn(grad_inputs, grad_outputs)` when the node has computed; what it gives, if anything, goes on."""
        return HookHandle(self._node.add_hooks().after, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> HookHandle:
        """Call `fn(grad_outputs)` before the node computes, with what it gives, if anything."""
        return HookHandle(self._node.add_hooks().before, fn)

    def _sequence_nr(self) -> int:
        return int(self._node.seq)

    def __call__(self, *grads: Tensor | None) -> Any:
        """The gradients of the operands from those of the outputs."""
        node, create_graph = self._node, thread_mode.enabled
        values = [None if g is None else g if create_graph else g._read() for g in grads]
        found = node.apply(values if isinstance(node, FunctionNode) else values[0], create_graph)
        made = tuple(_as_tensor(g) for g in found)
        return made[0] if len(made) == 1 else made

    def __getattr__(self, name: str) -> Any:
        """What the node saved (`_saved_self`), or of an autograd.Function, what its context holds."""
        if isinstance(self._node, OpNode) and name.startswith("_saved_"):
            return _saved(self._node, name)
        if self._call is not None:
            return getattr(self._call.ctx, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        names = list(super().__dir__())
        if isinstance(self._node, OpNode):
            names += [name for name, place in _PLACES.items() if place in read_by(self._node)]
        return sorted(names)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class AccumulateGrad(Node):
    """Where a gradient ends: in a leaf's `.grad`. variable: the leaf."""

    __slots__ = ()

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self) -> Tensor:
        """The leaf."""
        leaf: Tensor = self._node
        return leaf

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return ()

    @property
    def metadata(self) -> dict[str, Any]:
        hooks = self._node._leaf_hooks()
        hooks.metadata = hooks.metadata or {}
        return hooks.metadata  # type: ignore[no-any-return]

    def register_hook(self, fn: Callable[..., Any]) -> HookHandle:
        return HookHandle(self._node._leaf_hooks().nodes().after, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> HookHandle:
        return HookHandle(self._node._leaf_hooks().nodes().before, fn)

    def _sequence_nr(self) -> int:
        return (1 << 64) - 1

    def __call__(self, *grads: Tensor | None) -> None:
        if grads and grads[0] is not None:
            grad = grads[0]
            self._node._accumulate_grad(grad if thread_mode.enabled else grad._read(), thread_mode.enabled)

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def grad_fn_of(edge: Edge) -> Node | None:
    """What made a tensor, of which a gradient goes to `edge`; None for a leaf."""
    return node_and_number(edge)[0] if isinstance(edge, GradNode) else None


def node_and_number(edge: Edge) -> tuple[Node | None, int]:
    """(the Node of an edge, which of its outputs it is)."""
    if edge is None:
        return None, 0
    if isinstance(edge, OutputNode):
        call = edge.edges[0]
        assert isinstance(call, GradNode)
        node = _node_of(call, name_of(call))
        node._edges[edge.index] = edge
        return node, edge.index
    if isinstance(edge, GradNode):
        return _node_of(edge, name_of(edge)), 0
    return _node_of(edge, ""), 0


def _node_of(thing: Any, name: str) -> Node:
    """The one Node of a tape node, or of a leaf (name: "")."""
    node = _known.get(id(thing))
    if node is None:
        node = object.__new__(_class(name) if name else AccumulateGrad)
        node._node, node._edges = thing, {}
        call = getattr(getattr(thing, "backward", None), "__self__", None)
        node._call = call if hasattr(call, "ctx") else None
        _known[id(thing)] = node
    return node


def _class(name: str) -> type[Node]:
    if name not in _classes:
        _classes[name] = type(name, (Node,), {"__slots__": (), "__module__": "builtins"})
    return _classes[name]


def gradient_edge_of(tensor: Tensor) -> GradientEdge:
    """The place of a tensor's gradient. Raises AutogradError for one that requires none."""
    edge = tensor._edge()
    if edge is None:
        raise AutogradError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node, number = node_and_number(edge)
    assert node is not None
    return GradientEdge(node, number)


# ---- what a node saved

_PLACES = {"_saved_self": 0, "_saved_other": 1, "_saved_result": -1}


def _saved(node: OpNode, name: str) -> Any:
    place = _PLACES.get(name)
    if place is None or place not in read_by(node):
        raise AttributeError(f"'{name_of(node)}' object has no attribute {name!r}")
    return _as_tensor(node.saved_handle(place))


def _as_tensor(value: Any) -> Any:
    from compiler_core.tensor.tensor import Tensor

    return value if value is None or isinstance(value, Tensor) else Tensor._wrap(value)
