"""The eager tape: one node for each recorded op application, linked to the nodes that made its operands.

In: ops applied to Tensors that require a gradient (`tensor.py` records them). Out: nodes that `engine.py` runs
backward. An edge is the GradNode that made an operand, the leaf Tensor itself, or None (needs no gradient).
Invariants: `seq` grows with time, so descending `seq` is a reverse topological order; a node keeps cells, not values,
with the version it saw. A rule meets a `Poison` in place of a value that was replaced since, or freed; if a gradient
that is needed comes out poisoned, AutogradError is raised. So in-place writes to values that no rule needs are legal,
as in torch, without a list of which op saves what. Of large values a node keeps only those that its rule reads.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import is_not
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from compiler_core.aot.strategy import HANDLED, Gradient
from compiler_core.cuda import lone
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims, registry
from compiler_core.ops.batching.whole import takes
from compiler_core.ops.registry import (
    Attrs,
    NotDifferentiable,
    Op,
    Value,
    bind,
    current_trace,
    meta_of,
)
from compiler_core.tensor.autograd.by_rule import gradients
from compiler_core.tensor.autograd.gone import Poison, absent, freed, freed_error, freed_values
from compiler_core.tensor.autograd.grad_mode import taping
from compiler_core.tensor.autograd.handles import RemovableHandle
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell, read
from compiler_core.tensor.memory.journal import note_entry
from compiler_core.tensor.nodes.hooks import NodeHooks
from compiler_core.tensor.nodes.reads import read_by

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

__all__ = [
    "HANDLED", "TRACED", "Edge", "FunctionNode", "GradNode", "Gradient", "HookHandle", "OpNode", "OutputNode",
    "SpentNode", "WholeNode", "is_traced",
]  # fmt: skip

Edge: TypeAlias = "GradNode | Tensor | None"
Saved: TypeAlias = "Cell | Poison | Value"
# a number greater than `seq` of all nodes recorded so far, and less than that of all to come; no Python frame
tape_position: Callable[[], int] = itertools.count().__next__


class HookHandle(RemovableHandle):
    """Of a hook on a gradient, which is registered at once."""

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        super().__init__(hooks)
        self.hooks = hooks
        note_entry(hooks, self.id)
        hooks[self.id] = hook

    def remove(self) -> None:
        trace: Any = current_trace()
        if trace is not None and self.id in self.hooks and not (hasattr(trace, "owns") and trace.owns(self.hooks)):
            raise GraphBreak("a hook is removed that was registered before", where=user_location())
        note_entry(self.hooks, self.id)
        self.hooks.pop(self.id, None)

    def __getstate__(self) -> Any:
        return super().__getstate__()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        super().__setstate__(state)
        self.hooks = state[0]


class GradNode:
    """What produced a Tensor, as far as backward is concerned.

    edges: where the gradient of each operand goes. hooks: called with the output's gradient, may replace it.
    retained: the Tensor whose `.grad` is kept although it is not a leaf. keeps: what is to live as long as the node.
    """

    __slots__ = ("__weakref__", "edges", "hooks", "keeps", "retained", "seq")
    keeps: object  # not set but where it is used

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = edges
        self.seq = tape_position()
        self.hooks: NodeHooks | None = None
        self.retained: weakref.ref[Tensor] | None = None
        if watch.active:
            watch.tell(self)

    @property
    def next_functions(self) -> tuple[tuple[Edge, int], ...]:
        """As in torch: (edge, output number), the number being always 0 (see OutputNode)."""
        return tuple((edge, 0) for edge in self.edges)

    @property
    def is_observed(self) -> bool:
        """Whether there is a hook on its gradient, or a tensor that retains it."""
        return bool(self.hooks) or (self.retained is not None and self.retained() is not None)

    def add_hooks(self) -> NodeHooks:
        """The table of its hooks, made if there was none."""
        if self.hooks is None:
            self.hooks = NodeHooks()
        return self.hooks

    def name(self) -> str:
        """The name torch would give it, e.g. MulBackward0."""
        return type(self).__name__

    def apply(self, grad: Any, create_graph: bool) -> Sequence[Any]:
        """One gradient (or None) per edge, from the gradient of the output."""
        raise NotImplementedError

    def release(self) -> None:
        """Free what was saved for backward."""

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def is_traced(node: Edge) -> bool:
    """Whether `node` only says that a traced tensor requires a gradient."""
    return type(node) is GradNode


TRACED = GradNode(())  # the history of every result that requires a gradient while tracing


LARGE = 1 << 18  # bytes of a value from which on it is worth asking whether the rule reads it


def _is_large(saved: Any) -> bool:
    """Whether much memory lives as long as this cell."""
    kind = type(saved)
    if kind is not DeviceCell and kind is not Cell:
        if not isinstance(saved, Cell):
            return False
        saved = saved._root if isinstance(saved, ViewCell) else saved
    return getattr(saved.raw, "nbytes", 0) >= LARGE


def unlifted(edge: Edge) -> Edge:
    """The history of an operand that is read again, which has a sum over the batch of its own: one sum of what is and
    of what is not summed would count the former for each example."""
    return edge.edges[0] if isinstance(edge, LiftNode) else edge


class OpNode(GradNode):
    """One application of a primitive. Backward is the op's vjp, on arrays, or on Tensors to differentiate again.

    plan: of a call that is remembered, with what is known of its backward (ops/remembered.py).
    """

    __slots__ = ("attrs", "op", "out", "out_version", "plan", "saved", "versions")

    def __init__(
        self,
        op: Op,
        attrs: Attrs,
        edges: Sequence[Edge],
        saved: Sequence[Saved],
        out: Cell,
        plan: Any = None,
    ) -> None:
        self.edges = edges
        self.seq = tape_position()
        self.hooks = None
        self.retained = None
        self.op, self.attrs, self.saved, self.out, self.plan = op, attrs, saved, out, plan
        versions: list[int] = []
        s: Any
        for s in saved:
            kind = type(s)
            if kind is DeviceCell or kind is Cell:
                versions.append(s.version)
            else:
                versions.append(s._counter.version if kind is ViewCell else s.version if isinstance(s, Cell) else 0)
        self.versions = tuple(versions)  # of numbers alone: the garbage collector lets go of it
        self.out_version = out.version
        if watch.active:
            watch.tell(self)
        kind = type(out)
        root = out if kind is DeviceCell or kind is Cell else out.root
        if getattr(root.raw, "nbytes", 0) >= LARGE or _is_large(saved[0]):
            self._keep_what_is_read()

    def _keep_what_is_read(self) -> None:
        """Let go of what is large, or part of that, and the rule does not read."""
        reads = read_by(self)
        if not reads and len(self.saved) == 1:  # a view's, whose operand is as large
            *self.saved, self.out = freed_values((*self.saved, self.out))
            return
        kept: list[Any] = []
        for k, s in enumerate(self.saved):
            kept.append(freed(s.raw) if k not in reads and _is_large(s) else s)  # type: ignore[union-attr]
        self.saved = kept
        if -1 not in reads and _is_large(self.out):
            self.out = freed(self.out.raw)  # type: ignore[assignment]

    def name(self) -> str:
        return self.op.name.title().replace("_", "") + "Backward0"

    def apply(self, grad: Value, create_graph: bool) -> Sequence[Value | None]:
        op, edges, plan = self.op, self.edges, self.plan
        if plan is not None and plan.is_op and plan.back is not None and type(grad) is lone.array and not create_graph:
            made = self._made_again(plan, grad)
            if made is not None:
                return made
        if type(op.vjp) is NotDifferentiable:  # piecewise constant
            return [None if e is None else self._zeros(s) for e, s in zip(edges, self.saved)]
        if create_graph:
            operands = [self._restore_tensor(self.out, self.out_version, self)]
            operands += map(self._restore_tensor, self.saved, self.versions, map(unlifted, edges))
        else:
            operands = self._restored()
        if op.remakes_out and type(operands[0]) is Poison and operands[0].changed:
            operands[0] = bind(op, *operands[1:], **self.attrs)
        return gradients(op, self.attrs, tuple(map(is_not, edges, _NONES)), grad, operands)

    def _made_again(self, plan: Any, grad: Value) -> Sequence[Value | None] | None:
        """`apply`, of arrays of the lone device; None where they are not, or somebody looks at ops."""
        if registry.run_eager is not registry.RUN or current_trace() is not None:
            return None
        values: Any = self._restored()
        for value in values:
            kind = type(value)
            if kind is lone.array or (kind is np.ndarray and plan.fixed):
                continue
            if kind is not Poison or value.changed:
                return None
        made: Sequence[Value | None] = plan.back(tuple(map(is_not, self.edges, _NONES)), grad, values)
        return made

    def _restored(self) -> list[Value]:
        """The result and the operands, as arrays."""
        is_plain = not taping.depth or current_trace() is None
        values: list[Value] = []
        saved: Any
        for saved, version in zip((self.out, *self.saved), (self.out_version, *self.versions)):
            kind = type(saved)
            if is_plain and (kind is DeviceCell or kind is Cell) and saved.version == version:
                values.append(saved.raw)
            elif kind is Poison:
                values.append(saved)
            else:
                values.append(self._restore(saved, version, None))
        return values

    def _restore(self, saved: Saved, version: int, edge: Edge) -> Value:
        if not isinstance(saved, Cell):
            return saved
        if saved.version != version:
            meta = meta_of(saved.value)
            return Poison(meta, f"{meta} of {self.op.name} is at version {saved.version}, was saved at {version}")
        return saved.current() if not taping.depth or current_trace() is None else read(saved)

    def saved_handle(self, place: int) -> Value:
        """Operand `place` (-1: the result) as a Tensor with its history; what is no Tensor as it is."""
        if place < 0:
            return self._restore_tensor(self.out, self.out_version, self)
        return self._restore_tensor(self.saved[place], self.versions[place], unlifted(self.edges[place]))

    @staticmethod
    def _zeros(saved: Saved) -> Value:
        meta = meta_of(saved.value if isinstance(saved, Cell) else saved)
        return prims.full(meta.shape, 0, meta.dtype)

    def _restore_tensor(self, saved: Saved, version: int, edge: Edge) -> Value:
        if not isinstance(saved, Cell):  # a constant stays an array, which an op moves to its other operands
            return saved
        value = self._restore(saved, version, edge)
        if isinstance(value, Poison):
            return value
        from compiler_core.tensor.tensor import Tensor

        if isinstance(edge, Tensor) and edge._cell is saved:
            return edge
        cell = Cell(value) if taping.depth and saved.is_external and current_trace() is not None else saved
        return Tensor._from_cell(cell, edge if isinstance(edge, GradNode) else None)

    def release(self) -> None:
        plan = self.plan
        if plan is None:
            gone: Any = self.out
            if type(gone) is Poison and type(self.saved[0]) is Poison and len(self.saved) == 1:
                return
            *self.saved, self.out = freed_values((*self.saved, self.out))
            return
        if plan.freed is None:
            *saved, out = freed_values((*self.saved, self.out))
            if np.ndarray in map(type, saved):  # a key: this node's own
                self.saved, self.out = saved, out
                return
            plan.freed = tuple(saved), out
        self.saved, self.out = plan.freed


_NONES = repeat(None)


class LiftNode(OpNode):
    """An operand that is one for all examples of a batch: see tensor/batching.py."""


class WholeNode(OpNode):
    """One application of a composite that was computed whole. kept: what its backward wants beside the operands.

    Where its backward cannot run (gradients of gradients, values that were changed or freed) the composition's rules
    do, as if it had been recorded op by op.
    """

    __slots__ = ("kept",)
    op: Any  # a Composite, which has an op's name and vjp
    kept: Any  # a tuple of arrays; None: freed

    def pack_kept(self) -> None:
        """Pack `kept`, if hooks on what is saved are on."""
        from compiler_core.tensor.nodes.saving import pack_kept

        pack_kept(self)

    def apply(self, grad: Value, create_graph: bool) -> Sequence[Value | None]:
        composite = self.op
        out = None
        kind = type(grad)
        is_array = kind is lone.array or kind is np.ndarray
        if self.kept is None and composite.spends:
            raise freed_error()
        if create_graph or self.kept is None or not (is_array or takes(composite, grad)):
            return super().apply(grad, create_graph)
        if composite.reads_out:
            if self.out.version != self.out_version:
                return super().apply(grad, create_graph)
            out = self.out.current()
        operands: list[Any] = []
        needs: list[bool] = []
        saved: Any
        for edge, saved, version in zip(self.edges, self.saved, self.versions):
            kind = type(saved)
            if kind is DeviceCell or kind is Cell or isinstance(saved, Cell):
                if saved.version != version and (composite.reads is None or len(operands) in composite.reads):
                    return super().apply(grad, create_graph)
                operands.append(saved.raw if kind is DeviceCell or kind is Cell else saved.current())
            else:
                operands.append(saved if kind is not Poison else absent(saved))
            needs.append(edge is not None)
        grads: Any
        if self.plan is not None and self.plan.back is not None and type(grad) is lone.array:
            grads = self.plan.back(needs, grad, out, self.kept, operands)
        else:
            grads = composite.backward(needs, grad, out, self.kept, *operands, **self.attrs)
        return super().apply(grad, create_graph) if grads is None else grads

    def release(self) -> None:
        super().release()
        self.kept = None


class FunctionNode(GradNode):
    """Several outputs made in one go: a compiled call, an autograd.Function, an in-place overwrite.

    backward: one gradient (array or Tensor, None where no gradient came) per output -> one per edge.
    raw: backward takes and gives arrays, and cannot be differentiated again. runs_anyway: also if no gradient came.
    """

    __slots__ = ("backward", "label", "n_outputs", "raw", "runs_anyway")

    def __init__(
        self,
        label: str,
        edges: tuple[Edge, ...],
        n_outputs: int,
        backward: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        raw: bool,
        runs_anyway: bool = False,
    ) -> None:
        super().__init__(edges)
        self.label, self.n_outputs, self.raw, self.runs_anyway = label, n_outputs, raw, runs_anyway
        self.backward: Callable[[Sequence[Any]], Sequence[Any]] | None = backward

    def name(self) -> str:
        return f"{self.label}Backward"

    @property
    def turns(self) -> Sequence[int] | None:
        """Of a compiled call, the edges in the order in which their gradients are complete."""
        return getattr(self.backward, "turns", None)

    @property
    def is_compiled(self) -> bool:
        """Whether it is a compiled call, which is told whether it runs for the last time."""
        return hasattr(self.backward, "is_last")

    @property
    def has_hooks(self) -> bool:
        """Whether it is a compiled call that runs hooks in the course of its backward."""
        return bool(getattr(self.backward, "hooks", None))

    def apply(self, grad: Sequence[Any], create_graph: bool, tape: Any = None) -> Sequence[Any]:
        """tape: the pass, for a call that has hooks."""
        if self.backward is None:
            raise freed_error()
        if self.raw and create_graph:
            raise AutogradError(
                f"{self.label} cannot be differentiated twice: its backward is compiled",
                remedy="run the function eager where create_graph=True is needed",
            )
        backward: Any = self.backward
        grads: Sequence[Any] = backward(grad) if tape is None else backward(grad, tape)
        if len(grads) != len(self.edges):
            raise AutogradError(
                f"the backward of {self.label} returned a wrong number of gradients",
                expected=f"{len(self.edges)}, one for each input of forward",
                got=str(len(grads)),
            )
        return grads

    def release(self) -> None:
        release = getattr(self.backward, "release", None)  # of a compiled call
        if release is None or not release():
            self.backward = None


class SpentNode(GradNode):
    """The history of what a compiled call computed and has gone back through itself: its saved values are freed."""

    __slots__ = ("of",)

    def __init__(self, of: str) -> None:
        super().__init__(())
        self.of = of

    def name(self) -> str:
        return f"{self.of}Backward"

    def apply(self, grad: Any, create_graph: bool) -> Sequence[Any]:
        raise freed_error()


class OutputNode(GradNode):
    """Output number `index` of a FunctionNode, its only edge.

    inner: (hooks of a compiled call, number) where the call has a hook on this very tensor.
    """

    __slots__ = ("index", "inner", "meta")

    def __init__(self, parent: FunctionNode, index: int, meta: TensorMeta) -> None:
        super().__init__((parent,))
        self.index, self.meta = index, meta
        self.inner: tuple[Sequence[Any], int] | None = None

    @property
    def leads_to(self) -> Sequence[Edge]:
        """Where its gradient goes: of a compiled call, to the inputs that it reaches."""
        parent = self.edges[0]
        leads = getattr(getattr(parent, "backward", None), "leads", None)
        if leads is None or not isinstance(parent, GradNode):
            return self.edges
        return [parent.edges[k] for k in leads[self.index]]

    @property
    def inner_hooks(self) -> Any:
        """The `aot.tensor_hooks.TensorHooks` of a compiled call whose hooks on this very tensor come first."""
        return None if self.inner is None else self.inner[0][self.inner[1]]

    def inner_hook(self, grad: Tensor) -> Tensor | None:
        """The hooks of the call on this very tensor, as one."""
        replaced: Sequence[Tensor] | None = self.inner_hooks(grad)
        return None if replaced is None else replaced[0]

    def name(self) -> str:
        return self.edges[0].name() if isinstance(self.edges[0], GradNode) else "OutputNode"
