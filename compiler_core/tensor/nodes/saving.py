"""Hooks on what is saved for backward: `saved_tensors_hooks`.

In: a pack and an unpack function for a `with` block; tape nodes as they are recorded in it. Out: nodes that keep what
`pack` gave, for each value that their rule reads (`reads.py`), and nothing else; `unpack` makes a Tensor of it again
when the node computes. So what is packed away is not kept alive. Both run without recording.
A node in a block is of another class (`Packed...`), so nodes outside pay nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from compiler_core.device import device_of
from compiler_core.errors import AutogradError
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, Value, meta_of
from compiler_core.tensor.autograd.gone import Poison, absent, freed, freed_error
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.autograd.tape import Edge, GradNode, OpNode, WholeNode
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.nodes.reads import read_by

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

Pack: TypeAlias = Callable[[Any], Any]
Unpack: TypeAlias = Callable[[Any], Any]


class _Hooks(threading.local):
    """stack: the innermost pair last. forbidden: why none may be entered in this thread, empty: they may."""

    stack: tuple[tuple[Pack, Unpack], ...] = ()
    forbidden: str = ""


_hooks = _Hooks()


class saved_tensors_hooks:
    """Inside, what is saved for backward is packed by `pack_hook(tensor)`, and unpacked when it is needed."""

    def __init__(self, pack_hook: Pack, unpack_hook: Unpack) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _hooks.forbidden:
            raise AutogradError(_hooks.forbidden)
        _hooks.stack = (*_hooks.stack, (self.pack_hook, self.unpack_hook))
        watch.enter(record)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _hooks.stack = _hooks.stack[:-1]
        watch.leave(record)


class disable_saved_tensors_hooks:
    """Inside, entering `saved_tensors_hooks` is an error with this message."""

    def __init__(self, error_message: str) -> None:
        self.message = error_message

    def __enter__(self) -> None:
        self.before, _hooks.forbidden = _hooks.forbidden, self.message

    def __exit__(self, *error: object) -> None:
        _hooks.forbidden = self.before


def innermost() -> tuple[Pack, Unpack] | None:
    """The hooks that are on in this thread."""
    return _hooks.stack[-1] if _hooks.stack else None


class Packed:
    """What `pack` gave for a value. edge: where the value's own gradient goes. place: where it was."""

    __slots__ = ("dtype", "edge", "held", "place", "shape", "unpack")

    def __init__(self, tensor: Tensor, edge: Edge, hooks: tuple[Pack, Unpack]) -> None:
        meta: TensorMeta = meta_of(tensor._cell.raw)
        self.shape, self.dtype, self.edge, self.place = meta.shape, meta.dtype, edge, tensor.device
        pack, self.unpack = hooks
        with no_grad():
            self.held = pack(tensor)

    def tensor(self) -> Tensor:
        """The value again, without a history."""
        from compiler_core.tensor.tensor import Tensor

        found = self.unpack(self.held)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got {type(found).__name__}"
            )
        if meta_of(found._cell.raw) != TensorMeta(self.shape, self.dtype):
            raise AutogradError(
                "an unpack hook changed the shape or the dtype of a saved tensor",
                expected=str(TensorMeta(self.shape, self.dtype)),
                got=str(meta_of(found._cell.raw)),
            )
        return found

    def with_history(self) -> Tensor:
        """The value again, where its gradient goes on to what made it."""
        from compiler_core.tensor.tensor import Tensor

        found = self.tensor()
        if self.edge is None or found is self.edge:
            return found
        if isinstance(self.edge, GradNode):
            return Tensor._from_cell(found._cell, self.edge)
        return Tensor._from_cell(
            found._cell, OpNode(_SAME, {"shape": self.shape}, [self.edge], [found._cell], found._cell)
        )


_SAME = OPS["reshape"]


def record(node: GradNode) -> None:
    """Pack what a node that has just been recorded saves."""
    hooks = innermost()
    if hooks is None or not isinstance(node, OpNode):
        return
    reads = read_by(node)
    edges = node.edges
    node.saved = [
        _packed(node.saved_handle(k), edges[k], hooks) if k in reads else _meta_alone(saved)
        for k, saved in enumerate(node.saved)
    ]
    out: Any = _packed(node.saved_handle(-1), node, hooks) if -1 in reads else _meta_alone(node.out)
    node.out = out
    if type(node) is OpNode:
        node.__class__ = PackedNode
    elif type(node) is WholeNode:
        node.__class__ = PackedWholeNode


def pack_kept(node: Any) -> None:
    """Pack what the backward of a composite that was computed whole wants beside its operands."""
    from compiler_core.tensor.tensor import Tensor

    hooks = innermost()
    if hooks is not None:
        node.kept = tuple(a if a is None else _packed(Tensor._wrap(a), None, hooks) for a in node.kept)


def pack_context(saved: Sequence[tuple[Any, int]], handles: dict[int, Tensor]) -> list[tuple[Any, int]]:
    """What a Function's context saves, packed. handles: by id of an output as forward made it: what its caller gets."""
    hooks = innermost()
    if hooks is None:
        return list(saved)
    return [
        (
            tensor if tensor is None else Packed(handle := handles.get(id(tensor), tensor), handle._edge(), hooks),
            version,
        )
        for tensor, version in saved
    ]


def _packed(value: Any, edge: Edge, hooks: tuple[Pack, Unpack]) -> Any:
    return Packed(value, edge, hooks) if hasattr(value, "_cell") else value


def _meta_alone(saved: Any) -> Any:
    """What stands for a value that the rule does not read."""
    return freed(saved.raw) if isinstance(saved, Cell) else saved


def _unpacked(saved: Any) -> Value:
    return saved.tensor()._read() if isinstance(saved, Packed) else saved


def _as_kept(saved: Any) -> Value:
    """The same of what a definition kept, row-major: its kernels read it as they left it, and hooks may turn it."""
    array: Any = _unpacked(saved)
    if array is None or array.flags.c_contiguous:
        return array
    with device_of(array).working():
        made: Value = array.copy()
    return made


def _unpacked_tensor(saved: Any) -> Value:
    return saved.with_history() if isinstance(saved, Packed) else saved


class PackedNode(OpNode):
    """An OpNode whose values are packed."""

    __slots__ = ()

    def _restore(self, saved: Any, version: int, edge: Edge) -> Value:
        return _unpacked(saved)

    def _restore_tensor(self, saved: Any, version: int, edge: Edge) -> Value:
        return _unpacked_tensor(saved)

    def release(self) -> None:
        _drop(self)


class PackedWholeNode(WholeNode):
    """A WholeNode whose values are packed. They are unpacked once for each pass."""

    __slots__ = ()

    def apply(self, grad: Value, create_graph: bool) -> Sequence[Value | None]:
        if self.kept is None:
            raise freed_error()
        if create_graph:
            return OpNode.apply(self, grad, create_graph)
        composite = self.op
        operands = [absent(_unpacked(saved)) for saved in self.saved]
        out = _unpacked(self.out) if composite.reads_out else None
        kept = tuple(map(_as_kept, self.kept))
        needs = [edge is not None for edge in self.edges]
        grads: Any = composite.backward(needs, grad, out, kept, *operands, **self.attrs)
        return OpNode.apply(self, grad, create_graph) if grads is None else grads

    def _restore(self, saved: Any, version: int, edge: Edge) -> Value:
        return _unpacked(saved)

    def _restore_tensor(self, saved: Any, version: int, edge: Edge) -> Value:
        return _unpacked_tensor(saved)

    def release(self) -> None:
        _drop(self)
        self.kept = None


def _drop(node: OpNode) -> None:
    """Forget what was packed: a second pass says so."""
    node.saved = [_gone(saved) for saved in node.saved]
    gone: Any = _gone(node.out)
    node.out = gone


def _gone(saved: Any) -> Any:
    return Poison(TensorMeta(saved.shape, saved.dtype), "") if isinstance(saved, Packed) else saved
