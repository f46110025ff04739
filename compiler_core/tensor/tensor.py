"""Tensor: a handle on a cell, with what belongs to the handle alone: its place on the tape, its `.grad`, its hooks.

In: array values through `Tensor._wrap`, ops through `__bind__`. Out: Tensors; recorded tape nodes; graph nodes while
tracing. Aliasing: `detach()` and `.data` share the cell; a view has a ViewCell and a `ViewLink` to the Tensor it was
taken from. An in-place method computes a new value and `_assign`s it: into the cell, or, through a view, into the
base by `views.scatter`; the base then has the history of that scatter, and every other view takes its history from
the base anew (by version). While tracing nothing is recorded: results carry `TRACED` as their history, so that
requires_grad is right. Methods and operators are attached by the files of `methods/`; subclasses (Parameter) are
operands only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core import births
from compiler_core.cuda import lone
from compiler_core.device import Device, cpu
from compiler_core.dtype import BY_VALUES, DType, of
from compiler_core.errors import AutogradError, DTypeError, GraphBreak
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.running import recorded
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.primitives.arithmetic import add_gradients
from compiler_core.ops.registry import OPS, Array, Attrs, Op, Trace, Value, current_trace, meta_of, run_eager
from compiler_core.ops.whole import Composite
from compiler_core.overrides.state import disabled, other_layouts
from compiler_core.overrides.subclasses import as_subclass, backwards, iterate, make_subclass, torch_function
from compiler_core.overrides.surface import make_overridable
from compiler_core.overrides.switch import turn_on
from compiler_core.tensor import straight
from compiler_core.tensor.autograd import hooks, inference, taped
from compiler_core.tensor.autograd.grad_mode import Inference, taping, thread_mode
from compiler_core.tensor.autograd.hooks import LeafHooks
from compiler_core.tensor.autograd.tape import TRACED, Edge, GradNode, OpNode, OutputNode, is_traced
from compiler_core.tensor.batching import lifted
from compiler_core.tensor.making.placement import check_together, place_of
from compiler_core.tensor.memory import copying, layout, lent, views, writing
from compiler_core.tensor.memory.cell import Cell, DataCell, DeviceCell, ViewCell, cell_of, memory_of, read, shown
from compiler_core.tensor.memory.journal import note_change, note_outside
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.memory.view_link import ViewLink
from compiler_core.tensor.methods.about_handles import Methods
from compiler_core.tensor.methods.indexing import get_item, set_item
from compiler_core.tensor.methods.inplace import InPlaceMethods
from compiler_core.tensor.methods.interop import Interop
from compiler_core.tensor.methods.of_functions import FunctionMethods
from compiler_core.tensor.methods.of_layouts import ACCUMULATE, LayoutMethods
from compiler_core.tensor.methods.operators import Operators
from compiler_core.tensor.methods.rare import RareMethods
from compiler_core.tensor.operands import looked_at
from compiler_core.tensor.pieces import pieces
from compiler_core.tensor.recalling import recall, whole_node
from compiler_core.tensor.size import Size, told

__all__ = ["Size", "Tensor", "ViewLink"]


class Tensor(Operators, Methods, FunctionMethods, InPlaceMethods, RareMethods, Interop, LayoutMethods):
    """An n-dimensional array with torch's methods, aliasing and autograd.

    Make one with `tensor`, `zeros`, `randn`, ...
    """

    __slots__ = (
        "__dict__", "__weakref__", "_cell", "_dual", "_grad", "_hooks", "_node", "_requires_grad", "_view", "_watches"
    )  # fmt: skip
    __bind_priority__ = 2
    printed_as = "tensor"
    __array_priority__ = 1000
    _cell: Cell
    _grad: Tensor | None
    _hooks: LeafHooks | None
    _node: GradNode | None
    _requires_grad: bool
    _view: ViewLink | None

    def __new__(cls, *data: Any, requires_grad: bool = False) -> Any:
        """`Tensor(cell, requires_grad)`; or, as the old torch.Tensor, `Tensor(2, 3)`, `Tensor([1.0, 2.0])`, or a handle
        of this class on another Tensor's memory."""
        if data and isinstance(data[0], Cell):
            self = _new(cls)
            self._cell = data[0]
            requires_grad = bool(data[1]) if len(data) > 1 else requires_grad
        elif len(data) == 1 and isinstance(data[0], Tensor):
            return as_subclass(data[0], cls)
        else:
            from compiler_core.tensor.making.creation import legacy_value

            self = _new(cls)
            self._cell = Cell(legacy_value(data))
        self._node = None
        self._view = self._grad = self._hooks = None
        self._requires_grad = False
        if cls.__torch_function__ is not disabled and cls is not Tensor:
            turn_on()
        return self._require() if requires_grad else self

    @staticmethod
    def _from_cell(cell: Cell, node: GradNode | None = None) -> Tensor:
        """A handle on `cell` whose history is `node`."""
        self = _new(Tensor)
        self._cell = cell
        self._node = node
        self._view = self._grad = self._hooks = None
        self._requires_grad = False
        return self

    @staticmethod
    def _wrap(value: Value) -> Tensor:
        """A handle on a new cell that holds `value`."""
        cell = cell_of(value)
        return Tensor._from_cell(inference.made(cell) if Inference.entered else cell)

    @staticmethod
    def _of_array(array: Array) -> Tensor:
        """`_wrap` of an array outside of inference mode, in one call."""
        kind: Any = type(array)
        if kind is not np.ndarray and kind is not lone.array:
            return Tensor._from_cell(cell_of(array))
        self = _new(Tensor)
        cell = self._cell = _new_cell(Cell if kind is np.ndarray else DeviceCell)
        cell.raw = array
        cell.stamp = cell.version = 0
        self._node = self._view = self._grad = self._hooks = None
        self._requires_grad = False
        return self

    # ---- the value

    def _read(self) -> Value:
        """The array, or under a trace the node."""
        return read(self._cell, self)

    def _array(self, what: str) -> Array:
        """The array, on the host: that of a device is copied there.

        Raises GraphBreak if it is traced; `what` says who needs it.
        """
        value = self._own_array(what)
        return value if type(value) is np.ndarray else cpu.put(value)

    def _own_array(self, what: str) -> Array:
        """The array where it is. Raises GraphBreak if it is traced; `what` says who needs it."""
        if current_trace() is not None:
            raise GraphBreak(
                f"{what} needs the data of a traced tensor",
                where=user_location(),
                remedy="keep data-dependent Python out of the compiled function, or compile with fullgraph=False",
            )
        value = shown(self._cell)
        if hasattr(value, "no_data"):
            raise value.no_data(what)
        return value  # type: ignore[no-any-return]

    @property
    def shape(self) -> Size:
        """Sizes, outermost first."""
        raw = self._cell.raw  # whose shape is known, also of a value that is on its way
        kind = type(raw)
        return Size(raw.shape if kind is np.ndarray or kind is lone.array else told(raw.shape))

    @property
    def dtype(self) -> DType:
        """The element type."""
        dtype = self._cell.raw.dtype
        return BY_VALUES.get(dtype) or of(dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._cell.raw.shape)

    @property
    def device(self) -> Device:
        """Where the data lives."""
        raw = self._cell.raw
        return cpu if type(raw) is np.ndarray else place_of(raw)

    @property
    def is_meta(self) -> bool:
        """Whether it has a shape and a dtype, and no data."""
        return type(self._cell.raw) is MetaValue

    @property
    def _version(self) -> int:
        return inference.version_of(self)

    # ---- history

    def _edge(self) -> Edge:
        """Where a gradient of this tensor goes: the node that made it, itself if it is a leaf, None if nowhere."""
        link = self._view
        if link is not None and not link.detached and link.stamp != self._cell.root.stamp:
            self._refresh_history(link)
        node = self._node
        return node if node is not None else self if self._requires_grad else None

    def _refresh_history(self, link: ViewLink) -> None:
        """Take a view's history from its base again: a write may have given the base another one."""
        cell = self._cell
        for note in (note_change, note_outside) if cell.is_external else (note_change,):
            note(link, "stamp", "edge")
            note(self, "_node")
        link.stamp = cell.root.stamp
        edge = link.holder(cell)._edge()
        if edge is link.edge:
            return
        link.edge = edge
        assert isinstance(cell, ViewCell)
        if edge is None:
            self._node = None
        elif is_traced(edge) or (current_trace() is not None and not cell.is_external and not taping.depth):
            self._node = TRACED
        else:
            cell.current()
            self._node = OpNode(cell.op, cell.attrs, [edge], [cell.base], cell)

    @property
    def requires_grad(self) -> bool:
        """Whether backward computes a gradient for it."""
        return self._edge() is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._require(value)

    def _require(self, requires_grad: bool = True) -> Tensor:
        """`requires_grad_`, also inside of transforms."""
        if not requires_grad and self._edge() is not None and not self.is_leaf:
            raise AutogradError("you can only change requires_grad of leaf tensors", remedy="use detach()")
        if requires_grad and not self.dtype.is_inexact:
            raise AutogradError(
                "only tensors of floating point and complex dtype can require gradients",
                expected="such a dtype",
                got=repr(self.dtype),
            )
        if requires_grad and Inference.in_use:
            inference.check_required(self)
        if self._node is None and self._requires_grad is not requires_grad:
            writing.note_requiring(self, requires_grad)
            note_change(self, "_requires_grad")
            self._requires_grad = requires_grad
            rebound(self)
        return self

    @property
    def grad_fn(self) -> Any:
        """The `nodes.node.Node` that made this tensor, None for a leaf."""
        from compiler_core.tensor.nodes.node import grad_fn_of

        return grad_fn_of(self._edge())

    @property
    def output_nr(self) -> int:
        """Which output of its `grad_fn` it is."""
        edge = self._edge()
        return edge.index if isinstance(edge, OutputNode) else 0

    @property
    def retains_grad(self) -> bool:
        """Whether it is no leaf, and keeps its gradient."""
        edge = self._edge()
        return isinstance(edge, GradNode) and edge.retained is not None and edge.retained() is self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it."""
        return not isinstance(self._edge(), GradNode)

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.root()

    def detach(self) -> Tensor:
        """A handle on the same cell, without history. Under a trace: a view through the detach op."""
        if current_trace() is not None and self.requires_grad:
            cell = ViewCell(self._cell, OPS["detach"], {}, prims.detach(self._read()))
            view = Tensor._from_cell(cell)
            view._view = ViewLink(self, None, cell.seen, detached=True)
            return view
        same = Tensor._from_cell(self._cell)
        if current_trace() is not None and self._view is not None:  # so that capture finds what it is a view of
            same._view = ViewLink(self, None, self._cell.root.stamp, detached=True)
        return same

    _detach = detach

    @property
    def data(self) -> Tensor:
        """As `detach()`, but what is written through it is not noticed by who saved this tensor for backward.

        Assigning makes this handle share the other tensor's memory.
        """
        if current_trace() is None:
            return Tensor._from_cell(DataCell(self._cell, self._cell.raw))
        value = self._read()
        same = Tensor._from_cell(DataCell(self._cell, prims.detach(value) if self.requires_grad else value))
        same._view = ViewLink(self, None, self._cell.root.stamp, detached=True)
        return same

    @data.setter
    def data(self, other: Tensor) -> None:
        writing.check_data(self, other)
        if current_trace() is not None:
            writing.set_data(self, other)
            return
        cell = memory_of(other._cell)
        if memory_of(self._cell) is not cell or self._view is not None:
            self._cell, self._view = cell, None
            rebound(self)

    # ---- gradient and hooks

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf (or after retain_grad), else None."""
        return self._grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        if grad is not None and not isinstance(grad, Tensor):
            raise DTypeError("a gradient must be a Tensor or None", got=type(grad).__name__)
        if grad is not None and meta_of(grad) != meta_of(self):
            raise AutogradError(
                "a gradient must have its tensor's shape and dtype", expected=str(meta_of(self)), got=str(meta_of(grad))
            )
        if grad is not None and type(grad._cell.raw) is not type(self._cell.raw) and grad.device != self.device:
            raise AutogradError(
                "a gradient must be on its tensor's device", expected=str(self.device), got=str(grad.device)
            )
        note_change(self, "_grad")
        self._grad = grad

    def _accumulate_grad(self, grad: Value, create_graph: bool) -> None:
        """Add to `.grad`. The handle stays the same one, unless the sum itself has a history."""
        before = self._grad
        if create_graph:
            self._grad = grad if before is None else prims.add(before, grad)
        elif before is None:
            if (kind := type(grad)) is np.ndarray or kind is lone.array:
                made = Tensor._of_array(grad) if not Inference.entered else Tensor._wrap(grad)
            else:
                made = grad.detach() if isinstance(grad, Tensor) else Tensor._wrap(grad)
            if not self._cell.is_ordered and made._cell.is_ordered and current_trace() is None and self.is_leaf:
                made._cell = layout.cell_of_grad(made._cell, self._cell)
            self._grad = made
        elif (
            ((kind := type(grad)) is np.ndarray or kind is lone.array)
            and type(cell := before._cell) is (Cell if kind is np.ndarray else DeviceCell)
            and current_trace() is None
        ):
            cell.value = add_gradients(cell.value, grad)
            cell.touch()
        elif type(grad) in other_layouts or type(before) in other_layouts:
            ACCUMULATE.get()(self, grad)
        else:
            now = before._read() if current_trace() is not None else before._cell.current()
            before._cell.write(add_gradients(now, grad._read() if isinstance(grad, Tensor) else grad))

    retain_grad, register_hook = hooks.retain_grad, hooks.register_hook
    register_post_accumulate_grad_hook = hooks.register_post_accumulate_grad_hook

    def _leaf_hooks(self) -> LeafHooks:
        if self._hooks is None:
            self._hooks = LeafHooks()
        return self._hooks

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Accumulate the gradients of this tensor into the leaves.

        `gradient` defaults to 1 for a one-element tensor.
        """
        from compiler_core.tensor.autograd.backward import backward

        backward(self, gradient, retain_graph, create_graph, inputs)

    __lay__ = layout.lay
    _check_in_place, _snapshot, _assign = writing.check_in_place, writing.snapshot, writing.assign

    # ---- ops

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Tensor:
        """Run (or, under a trace, record) a primitive on values of which at least one is a Tensor."""
        trace = current_trace()
        if trace is not None:
            return taped.record(_bind_traced(trace, op, values, attrs), trace, op, values, attrs)
        if op is _DETACH:
            tensor: Tensor = values[0]
            return tensor.detach()
        records = thread_mode.enabled
        arrays, edges, saved, is_recorded, is_ordered, _, is_there = looked_at(values, records)
        out: Any = run_eager(op, arrays, attrs)
        is_simple = is_there or type(out) is np.ndarray  # no levels of vmap, all on one device
        if not is_simple:
            check_together(values)
        if op.shares and isinstance(values[0], Tensor):
            base = values[0]._cell
            if op.alias is not None and views.aliases(op, attrs, base):
                return straight.shown(values[0], op, attrs, out)
            if lent.is_lent(base):
                out = lent.apart(out, base)
        cell = cell_of(out)
        if op.follows and not is_ordered:
            cell = layout.cell_as(cell, values)
        result = Tensor._from_cell(cell)
        if is_recorded and out.dtype.kind not in "biu":
            result._node = OpNode(op, attrs, edges if is_simple else lifted(edges, saved, out), saved, cell)
        elif Inference.entered and not records:
            inference.made(cell)
        return result

    @staticmethod
    def __whole__(composite: Composite, operands: tuple[Value, ...], attrs: Attrs) -> Tensor | None:
        """`composite` computed whole and recorded as one node; None where that cannot be: then op by op."""
        if current_trace() is not None:
            return None
        records = thread_mode.enabled
        arrays, edges, saved, is_recorded, is_ordered, on_host, is_there = looked_at(operands, records)
        definition: Any = composite
        if not on_host:
            definition = composite.on_device() if is_there else composite.elsewhere(arrays)
        made = None if definition is None else definition.forward(*arrays, **attrs)
        if made is None:
            return None
        out, kept = made
        if lent.Lending.is_there if is_there else lent.Lending.in_use:
            out, kept = lent.all_apart(made, operands)
        cell = cell_of(out)
        if composite.lies and not is_ordered:
            cell = layout.cell_by(composite.lies, cell, operands)
        result = Tensor._from_cell(cell)
        if is_recorded:
            ends = edges if on_host or is_there else lifted(edges, saved, out)
            result._node = whole_node(definition, attrs, ends, saved, cell, kept)
        elif Inference.entered and not records:
            inference.made(cell)
        return result

    # ---- copies

    __copy__, __deepcopy__, __reduce_ex__ = copying.shallow_copy, copying.deep_copy, copying.reduced
    _rebuild_as, __setstate__ = staticmethod(copying.rebuild_as), copying.set_state

    __getitem__, __setitem__ = get_item, set_item
    __torch_function__, _make_subclass = classmethod(torch_function), staticmethod(make_subclass)
    as_subclass, __iter__, __reversed__, __pieces__ = as_subclass, iterate, backwards, pieces
    __recall__ = staticmethod(recall)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from compiler_core.tensor.printing import format_tensor

        return format_tensor(self, tensor_contents=tensor_contents)


make_overridable(Tensor, Size)
_new: Callable[[type[Tensor]], Tensor] = object.__new__
_new_cell: Callable[[type[Cell]], Cell] = object.__new__
_DETACH = OPS["detach"]


def _bind_traced(trace: Trace, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Tensor:
    """Record `op` in the graph under construction; the result's history says only whether it requires a gradient."""
    differentiable = any(isinstance(v, Tensor) and v.requires_grad for v in values)
    if differentiable and not thread_mode.enabled:
        values = tuple(v.detach() if isinstance(v, Tensor) else v for v in values)
        differentiable = False
    if differentiable:
        writing.check_leaves(values)
    if op.name == "detach" and isinstance(values[0], Tensor):
        return values[0].detach()
    node = recorded(trace, op, tuple(v._read() if isinstance(v, Tensor) else v for v in values), attrs)
    history = TRACED if differentiable and of(node.dtype).is_inexact else None
    if op.alias is None or not isinstance(values[0], Tensor) or not views.aliases(op, attrs, values[0]._cell):
        fresh = Cell(node)
        if op.follows and not all(v._cell.is_ordered for v in values if isinstance(v, Tensor)):
            fresh = layout.cell_as(fresh, values)
        return Tensor._from_cell(fresh, history)
    cell = ViewCell(values[0]._cell, op, attrs, node)
    result = Tensor._from_cell(cell, history)
    result._view = ViewLink(values[0], values[0]._edge(), cell.seen, detached=not thread_mode.enabled)
    return result


births.note([Tensor])
