"""What a call of eager tensors came to before, looked up by what its arguments are (ops/remembered.py).

In: a call of a remembered function whose first argument is a Tensor, or begins with one. Out: its result. Two calls are
alike if their tensors, all of the CPU or all of the one CUDA device that there is, have the same dtypes and shapes, lie
in order, or by the same strides, and are the same ones at the same places, and all else are the same numbers, names,
dtypes, slices, or tuples and lists of these, under the same default dtype, and the same autocast. What the first of
them looked at is not looked at again: its op, or composite, is computed from the arrays, and recorded; or its ops, one
after another, on the arrays where nobody records. While a trace records, while somebody looks at ops or tangents are
about, nothing is looked up; nor where autocast casts weights by themselves, for such casts are kept (ops/casting.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import is_not
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.cuda import lone
from compiler_core.dtype import Default, DType
from compiler_core.errors import DistCompileError
from compiler_core.forward import level
from compiler_core.ops import registry
from compiler_core.ops.casting import casting, casts_alike
from compiler_core.ops.on_device import AGAIN, MADE_AGAIN, run_on_device
from compiler_core.ops.primitives.movement import inverse_permutation
from compiler_core.ops.registry import OPS, Array, Attrs, Op, Telling, bind, current_trace
from compiler_core.ops.remembered import Plan, Plans, Step, key_of, learn
from compiler_core.tensor.autograd import inference
from compiler_core.tensor.autograd.by_rule import gradients
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.autograd.tape import LARGE, OpNode, WholeNode, tape_position
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.memory import lent
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell
from compiler_core.tensor.memory.layout import laid
from compiler_core.tensor.size import Size
from compiler_core.tensor.straight import shown

_TENSOR, _FLOAT, _TUPLE, _SLICE, _PLAIN, _OTHER = range(6)


class _Kinds(dict[type, int]):
    def __missing__(self, kind: type) -> int:
        return self.setdefault(kind, _TENSOR if hasattr(kind, "_cell") else _OTHER)


_KINDS = _Kinds(dict.fromkeys((int, bool, str, type(None), type(...), DType), _PLAIN))
_KINDS.update({float: _FLOAT, tuple: _TUPLE, Size: _TUPLE, list: _TUPLE, slice: _SLICE})
LONGEST = 32  # of lists by which calls are told apart
_INTS = frozenset((int,))
_ENDS = frozenset((int, type(None)))
_RUN, _PERMUTE, _RESHAPE = registry.RUN, OPS["permute"], OPS["reshape"]
_EXPAND = OPS["expand"]
_VIEWS = frozenset((_PERMUTE, _RESHAPE, _EXPAND, OPS["slice"]))
_ROOTS = (Cell, DeviceCell)


def recall(known: Plans, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`."""
    acts = casting.acting
    how = "" if acts is None else getattr(function, "__casts__", "")
    is_cpus = acts is not None and how and acts.cuda is None
    if current_trace() is not None or registry.run_eager is not _RUN or level.on or is_cpus:
        return function(*args, **kwargs)
    if acts is None and len(args) == 1 and not kwargs and hasattr(args[0], "_cell"):
        cell = args[0]._cell
        if type(cell) is Cell or type(cell) is DeviceCell:
            return _recall_one(known, function, args[0], cell)
    call = _new(_Call)
    call.records, call.told, call.kind, call.is_turned = thread_mode.enabled, [*kwargs], None, False
    call.handles, call.arrays, call.cells, call.edges = [], [], [], []
    values, drawn = key_of(args, kwargs) if "rng" in kwargs else ((*args, *kwargs.values()), ())
    if not call.reads(values) or (drawn and call.kind is not lone.array):
        return function(*args, **kwargs)
    handles = call.handles
    if len(handles) == 2:
        call.told += (handles[0] is handles[1], Default.floating)
    else:  # for each tensor the first place where it stands
        ids = [*map(id, handles)]
        call.told += (tuple(map(ids.index, ids)), Default.floating)
    if call.is_turned:  # then also repeats say how the result lies
        call.told += [type(c) not in _ROOTS and _lying(c, array) for c, array in zip(call.cells, call.arrays)]
    if acts is not None:
        call.told += (acts, how and casts_alike(how, handles, call.kind is lone.array))
        if call.told[-1] is None:
            return function(*args, **kwargs)
    if call.kind is not np.ndarray:
        call.told.append(call.kind)
    if drawn:
        call.draws(*drawn)
    key = tuple(call.told)
    plan: Any = known.get(key, False)
    if not plan:
        return function(*args, **kwargs) if plan is None else _learn(known, key, function, args, kwargs, call.is_turned)
    compute = _in_steps if plan.steps else _computed
    result = compute(plan, handles, call.arrays, call.edges, call.cells)
    return function(*args, **kwargs) if result is None else result


def _learn(
    known: Plans, key: tuple[Any, ...], function: Callable[..., Any], args: Any, kwargs: Any, is_turned: bool
) -> Any:
    return learn(known, key, function, args, kwargs, _is_laid, _order_told if is_turned else None)


def _is_laid(made: Any, result: Any) -> bool:
    """Whether `result` is what was `made`, told to lie in another order (layout.relaid)."""
    cell = getattr(result, "_cell", None)
    is_view = type(cell) is ViewCell and cell.op is _PERMUTE and result._view is None
    return is_view and cell.raw is made._cell.raw and result._node is made._node  # type: ignore[union-attr]


def _order_told(made: Any) -> tuple[int, ...] | None:
    """In which order the dims of a new value lie, () if it is row-major; None of a view, and of what is no Tensor."""
    cell = getattr(made, "_cell", None)
    if type(cell) is Cell or type(cell) is DeviceCell:
        return ()
    is_laid = type(cell) is ViewCell and cell.op is _PERMUTE and type(cell.base) in _ROOTS and made._view is None
    return inverse_permutation(cell.attrs["dims"]) if is_laid else None  # type: ignore[union-attr]


def _lying(cell: Any, value: Array) -> Any:
    """What says how a Tensor's view lies: its strides, or, where they are as easily told, those of its array."""
    is_shown = type(cell) is ViewCell and type(cell._root) is DeviceCell and cell.seen == cell._root.stamp
    if is_shown and 1 not in value.shape and value.size and cell._root.raw.flags.c_contiguous:  # they are the same
        return None, value.strides
    return cell.strides()


class _Call:
    """The arguments of a call: what they are, and, of the tensors among them, their arrays and histories.

    Made at once, in `recall`. kind: the class of all arrays. is_turned: whether the dims of one may lie in another
    order.
    """

    __slots__ = ("arrays", "cells", "edges", "handles", "is_turned", "kind", "records", "told")

    handles: list[Any]
    arrays: list[Any]
    cells: list[Any]
    edges: list[Any]
    told: list[Any]
    records: bool
    kind: type | None
    is_turned: bool

    def reads(self, arguments: Iterable[Any]) -> bool:
        """Whether all arguments are of the kinds by which calls are told apart."""
        told = self.told
        for arg in arguments:
            kind = type(arg)
            how = _KINDS[kind]
            if how == _TENSOR:
                cell: Any = arg._cell
                kind = type(cell)
                is_root = kind is Cell or kind is DeviceCell
                root = cell if is_root else cell._root if kind is ViewCell else cell.root
                is_seen = is_root or (kind is ViewCell and cell.seen == root.stamp)
                value: Any = cell.raw if is_seen else cell.current()
                kind = type(value)
                if kind is not self.kind:
                    if self.kind is not None or not (kind is np.ndarray or kind is lone.array):
                        return False
                    self.kind = kind
                told += (value.dtype, value.shape)
                if not is_root and not cell.is_ordered:
                    self.is_turned = True
                self.handles.append(arg)
                self.arrays.append(value)
                self.cells.append(cell)
                link = arg._view
                is_its = link is None or link.detached or link.stamp == root.stamp  # the history that it had
                edge = (arg._node or (arg if arg._requires_grad else None)) if is_its else arg._edge()
                self.edges.append(edge if self.records else None)
                if edge is not None and not value.size:  # an empty one hands its history on by ops of its own
                    told.append(True)
            elif how == _PLAIN:
                told += (kind, arg)
            elif how == _FLOAT:
                told += (kind, arg or str(arg))  # 0.0 and -0.0 are equal
            elif how == _TUPLE and kind is not list and _INTS.issuperset(map(type, arg)):
                told += (kind, tuple(arg))
            elif how == _OTHER or not self._reads_parts(arg, kind, how):
                return False
        return True

    def draws(self, key: Array, stream: int) -> None:
        """The key by which the call draws is another operand, behind the others, of which nothing is asked."""
        self.told.append(stream)
        for each in (self.handles, self.arrays, self.cells):
            each.append(key)
        self.edges.append(None)

    def _reads_parts(self, arg: Any, kind: type, how: int) -> bool:
        """The same of a slice, a tuple, a list."""
        if how == _SLICE:
            arg = (arg.start, arg.stop, arg.step)
            if not _ENDS.issuperset(map(type, arg)):
                return False
        elif kind is list and len(arg) > LONGEST:
            return False
        elif not _INTS.issuperset(map(type, arg)):
            self.told += (kind, len(arg))
            return self.reads(arg)
        self.told += (kind, tuple(arg))
        return True


def _recall_one(known: Plans, function: Callable[..., Any], handle: Any, cell: Cell) -> Any:
    """`function(handle)`: as `recall` of one tensor, the usual case."""
    value: Any = cell.raw
    dtype = value.dtype
    key: tuple[Any, ...]
    kind = type(value)
    if kind is np.ndarray:
        key = (dtype, value.shape) if dtype.kind == "f" else (dtype, value.shape, Default.floating)
    elif kind is lone.array:
        key = (dtype, value.shape, Default.floating, lone.array)
    else:
        return function(handle)
    plan: Any = known.get(key, False)
    if not plan:
        return function(handle) if plan is None else learn(known, key, function, (handle,), {})
    if plan.steps:
        result = _in_steps(plan, (handle,), (value,), (handle._edge() if thread_mode.enabled else None,), (cell,))
        return function(handle) if result is None else result
    made = (plan.run or _prepare(plan, (value,)))(value)
    if made is None or plan.pick is not None:
        return function(handle)
    kept = None
    if not plan.is_op:
        is_lent = lent.Lending.in_use and (lent.Lending.is_there or type(made[0]) is np.ndarray)
        made, kept = lent.all_apart(made, (handle,)) if is_lent else made
    result = handle._of_array(made)
    if thread_mode.enabled:
        edge = handle._edge()
        if edge is not None:
            record(plan, result, (cell,), (edge,), kept)
    elif Inference.entered:
        inference.made(result._cell)
    if Telling.count:
        Telling.tell(plan.is_op, plan.what, (handle,), plan.attrs, result)
    return result


def _in_steps(
    plan: Plan, handles: Sequence[Any], arrays: Sequence[Any], edges: Sequence[Any], cells: Sequence[Any]
) -> Any:
    """The result of the ops one after another; None where one refuses: who asked for them says why."""
    is_seen = bool(Telling.count) or not plan.all_ops
    for edge in edges:
        if edge is not None:
            is_seen = True
            break
    values: list[Any] = [*handles] if is_seen else [*arrays]
    try:
        for step in plan.steps:
            operands: Sequence[Any]
            operands = step.pick(values) if step.pick else [values[k] if type(k) is int else k for k in step.operands]
            made = None
            if is_seen:
                made = _view(step, operands[0]) if step.plan is None else _step(step.plan, operands)
            if made is None:
                made = _in_full(step, operands, is_seen)
                if made is None:
                    return None
            values.append(made)
    except DistCompileError:
        return None
    if is_seen:
        return values[-1]
    out = values[plan.shaped]
    if lent.Lending.in_use and (lent.Lending.is_there or type(out) is np.ndarray):
        out = lent.all_apart(out, handles)
    result = handles[0]._of_array(out)
    if plan.order:
        result._cell = laid(result._cell, plan.order)
    if Inference.entered and not thread_mode.enabled:
        inference.made(result._cell)
    return result if plan.shaped < 0 else shown(result, _RESHAPE, plan.attrs, out.reshape(plan.attrs["shape"]))


def _in_full(step: Step, operands: Sequence[Any], is_seen: Any) -> Any:
    """What the op, or composite, gives; None where a composite does not take these, for once."""
    if step.is_op:
        return bind(step.what, *operands, **step.attrs) if is_seen else _RUN(step.what, operands, step.attrs)
    made = type(operands[0]).__whole__(step.what, tuple(operands), step.attrs)
    if made is not None and Telling.count:
        Telling.tell(False, step.what, operands, step.attrs, made)
    return made


def _step(plan: Plan, operands: Sequence[Any]) -> Any:
    """The Tensor of an op, or composite, of these; None where they are not all plain, of the lone device."""
    cells: list[Any] = []
    arrays: list[Any] = []
    edges: list[Any] = []
    records, takes_turned = thread_mode.enabled, plan.is_turned or (plan.is_op and not plan.what.follows)
    for one in operands:
        cell = edge = value = None
        if type(one) is np.ndarray:
            cells.append(one)
            edges.append(None)
            if not plan.fixed:  # a key
                arrays.append(one)
            continue
        if one is not None:
            cell = root = one._cell
            if type(cell) is DeviceCell:
                value = cell.raw
            elif type(cell) is ViewCell and (cell.is_ordered or takes_turned):
                root = cell._root
                value = cell.raw if cell.seen == root.stamp else cell.current()
            if type(value) is not lone.array:
                return None
            if records:
                link = one._view
                if link is None or link.detached or link.stamp == root.stamp:
                    edge = one._node or (one if one._requires_grad else None)
                else:
                    edge = one._edge()
        cells.append(cell)
        arrays.append(value)
        edges.append(edge)
    return _computed(plan, operands if not plan.fixed else _tensors(operands), arrays, edges, cells)


def _tensors(operands: Sequence[Any]) -> list[Any]:
    return [one for one in operands if type(one) is not np.ndarray]


def _view(step: Step, base: Any) -> Any:
    """The Tensor of a view of this one, of the lone device; None of all else."""
    if not step.is_op or step.what not in _VIEWS or Telling.count:
        return None
    cell = base._cell
    kind = type(cell)
    if kind is not DeviceCell and not (kind is ViewCell and cell.is_ordered):
        return None
    value: Any = cell.raw if kind is DeviceCell or cell.seen == cell._root.stamp else cell.current()
    if type(value) is not lone.array or (step.what is _RESHAPE and not cell.is_dense):
        return None
    if step.what is _EXPAND:
        return shown(base, _EXPAND, step.attrs, cuda.module().broadcast_to(value, step.attrs["shape"]))
    return shown(base, step.what, step.attrs, step.what.eager(None, value, **step.attrs))


def _computed(
    plan: Plan, handles: Sequence[Any], arrays: Sequence[Any], edges: Sequence[Any], cells: Sequence[Any]
) -> Any:
    """The result of op or composite, recorded; None where the composite does not take these arrays, for once."""
    if plan.pick is not None:
        handles, arrays = plan.pick([*handles, None]), plan.pick([*arrays, None])
        edges, cells = plan.pick([*edges, None]), plan.pick([*cells, None])
    made = (plan.run or _prepare(plan, arrays))(*arrays)
    if made is None:
        return None
    kept = None
    if not plan.is_op:
        is_lent = lent.Lending.in_use and (lent.Lending.is_there or type(made[0]) is np.ndarray)
        made, kept = lent.all_apart(made, handles) if is_lent else made
    result = handles[0]._of_array(made)
    if plan.order:
        result._cell = laid(result._cell, plan.order)
    for edge in edges:
        if edge is not None:
            record(plan, result, cells, edges, kept)
            break
    if Inference.entered and not thread_mode.enabled:
        inference.made(result._cell)
    if Telling.count:
        Telling.tell(plan.is_op, plan.what, handles, plan.attrs, result)
    return result


def record(plan: Plan, result: Any, cells: Sequence[Any], edges: Sequence[Any], kept: Any) -> None:
    """Put the result on the tape."""
    cell = result._cell
    if plan.is_op and cell.raw.dtype.kind in "biu":
        return
    node: Any
    versions: list[int] = []
    told: list[int] = [*map(is_not, edges, _NONES)]
    if not watch.active and (type(cell) is DeviceCell or type(cell) is Cell or plan.order):
        for one in cells:  # what it lets go of depends on sizes alone
            kind = type(one)
            if kind is DeviceCell or kind is Cell:
                versions.append(one.version)
            elif kind is ViewCell:
                versions.append(one._counter.version)
                told += (len(versions), getattr(one._root.raw, "nbytes", 0) >= LARGE)
            elif one is None or kind is np.ndarray:
                versions.append(0)
            else:
                break
    if not cells or len(versions) != len(cells):
        node = _node(plan, None if watch.active else plan, cells, edges, cell)
    elif (gone := plan.gone.get(key := tuple(told))) is None:
        node = _node(plan, plan, cells, edges, cell)
        letting = [None if one is before else one for one, before in zip(node.saved, cells)]
        plan.gone[key] = letting if any(letting) else None, None if node.out is cell else node.out
    else:
        node = _new(OpNode if plan.is_op else WholeNode)
        node.edges, node.seq, node.hooks, node.retained = edges, tape_position(), None, None
        node.op, node.attrs, node.plan = plan.what if plan.is_op else plan.definition, plan.attrs, plan
        node.versions, node.out_version = tuple(versions), (cell._counter if plan.order else cell).version
        kept_cells, out = gone
        node.saved = cells
        if kept_cells is not None:
            node.saved = [one if poison is None else poison for one, poison in zip(cells, kept_cells)]
        node.out = cell if out is None else out
    result._node = node
    if not plan.is_op:
        node.kept = kept
        if watch.active:
            node.pack_kept()


def _node(plan: Plan, of: Plan | None, cells: Sequence[Any], edges: Sequence[Any], cell: Cell) -> OpNode:
    """The node, which says itself what it lets go of."""
    if plan.is_op:
        return OpNode(plan.what, plan.attrs, edges, cells, cell, of)
    return WholeNode(plan.definition, plan.attrs, edges, cells, cell, of)


_new: Callable[..., Any] = object.__new__  # a class that is called calls its `__init__` the long way
_NONES = repeat(None)


def _prepare(plan: Plan, arrays: Sequence[Any]) -> Callable[..., Any]:
    """What computes arrays like these: known of the plan from now on."""
    on_host = all(array is None or type(array) is np.ndarray for array in arrays)
    if plan.is_op:
        plan.run = partial(plan.what.eager, np, **plan.attrs) if on_host else partial(_there, plan.what, plan.attrs)
        if plan.fixed:
            plan.run = partial(_filled, plan.run, plan.fixed)
        if _are_there(arrays):
            if plan.what.name in AGAIN:
                plan.run = MADE_AGAIN.get()(plan.run)
            plan.back = _back_of(plan.what, plan.attrs, plan.fixed)
        return plan.run
    definition = plan.what if on_host else plan.what.on_device()
    prepared = None if definition.prepare is None else definition.prepare(*arrays, **plan.attrs)
    plan.definition = definition
    if definition.prepare_backward is not None and _are_there(arrays):
        plan.back = definition.prepare_backward(plan.attrs)
    plan.run = partial(definition.forward, **plan.attrs) if prepared is None else prepared
    return plan.run


def _filled(compute: Callable[..., Any], fixed: Sequence[Any], *arrays: Any) -> Any:
    """`compute` of arrays and, in their places, constants."""
    others = iter(arrays)
    return compute(*[next(others) if one is None else one for one in fixed])


def _back_of(op: Op, attrs: Attrs, fixed: Sequence[Any]) -> Callable[..., Any]:
    """The gradients of the op's operands, of arrays of the lone device, made again: (needs, g, (result, *operands)).

    fixed: the constants among the operands, None elsewhere; empty if there are none.
    """
    known: dict[tuple[bool, ...], Callable[..., Any]] = {}

    def back(needs: tuple[bool, ...], grad: Array, values: Sequence[Any]) -> Any:
        found = known.get(needs)
        if found is None:

            def compute(grad: Array, *values: Any) -> Any:
                return gradients(op, attrs, needs, grad, values)

            found = MADE_AGAIN.get()(partial(_filled, compute, (None, None, *fixed)) if fixed else compute)
            known[needs] = found
        return found(grad, *(_tensors(values) if fixed else values))

    return back


def _are_there(arrays: Sequence[Any]) -> bool:
    """Whether all are arrays of the lone device."""
    return all(array is None or type(array) is lone.array for array in arrays)


def _there(op: Op, attrs: Attrs, *arrays: Array) -> Array:
    made: Array = run_on_device(op, arrays, attrs)
    return made


def whole_node(composite: Any, attrs: Any, edges: Any, saved: Any, cell: Cell, kept: Any) -> WholeNode:
    """The node of a composite that was computed whole, and kept this."""
    node = WholeNode(composite, attrs, edges, saved, cell)
    node.kept = kept
    if watch.active:
        node.pack_kept()
    return node
