"""What a call of eager tensors came to before, looked up by what its arguments are (ops/remembered.py).

In: a call of a remembered function whose first argument is a Tensor. Out: its result. Two calls are alike if their
tensors of the CPU have the same dtypes and shapes, lie in order and are the same ones at the same places, and all else
are the same numbers, names, dtypes, or tuples of whole numbers. What the first of them looked at is not looked at
again: its op, or composite, is computed from the arrays, and recorded. While a trace records, where autocast acts,
while somebody looks at ops or tangents are about, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType
from compiler_core.forward import level
from compiler_core.ops import registry
from compiler_core.ops.casting import casting
from compiler_core.ops.registry import Telling, current_trace
from compiler_core.ops.remembered import Plan, Plans, learn
from compiler_core.tensor.autograd import inference
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.autograd.tape import OpNode, WholeNode, watch
from compiler_core.tensor.memory import lent
from compiler_core.tensor.memory.cell import Cell, cell_with
from compiler_core.tensor.size import Size

_TENSOR, _FLOAT, _TUPLE, _PLAIN, _OTHER = range(5)
_KINDS: dict[type, int] = dict.fromkeys((int, bool, str, type(None), DType), _PLAIN)
_KINDS.update({float: _FLOAT, tuple: _TUPLE, Size: _TUPLE})
_INTS = frozenset((int,))
_RUN = registry.run_eager  # others are in its place while somebody looks (observed.py)


def recall(known: Plans, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`."""
    if current_trace() is not None or registry.run_eager is not _RUN or level.on or casting.acting is not None:
        return function(*args, **kwargs)
    if len(args) == 1 and not kwargs and type(cell := args[0]._cell) is Cell:
        return _recall_one(known, function, args[0], cell)
    records = thread_mode.enabled
    told: list[Any] = [*kwargs]
    handles: list[Any] = []  # the tensors among the arguments; their arrays, their histories
    arrays: list[Any] = []
    edges: list[Any] = []
    for arg in (*args, *kwargs.values()) if kwargs else args:
        kind = type(arg)
        how = _KINDS.get(kind)
        if how == _TENSOR:
            cell = arg._cell
            value = cell.raw if type(cell) is Cell else cell.current() if cell.is_ordered else None
            if type(value) is not np.ndarray:
                return function(*args, **kwargs)
            told.append(value.dtype)
            told.append(value.shape)
            handles.append(arg)
            arrays.append(value)
            edges.append(arg._edge() if records else None)
            continue
        if how == _FLOAT:
            arg = arg or str(arg)  # 0.0 and -0.0 are equal
        elif how is None or how == _OTHER or (how == _TUPLE and not _INTS.issuperset(map(type, arg))):
            return _unusual(kind, known, function, args, kwargs)
        told.append(kind)
        told.append(arg)
    told.append(handles[0] is handles[1] if len(handles) == 2 else _alike(handles))
    key = tuple(told)
    plan: Any = known.get(key, False)
    if not plan:
        return function(*args, **kwargs) if plan is None else learn(known, key, function, args, kwargs)
    result = _computed(plan, handles, arrays, edges)
    return function(*args, **kwargs) if result is None else result


def _recall_one(known: Plans, function: Callable[..., Any], handle: Any, cell: Cell) -> Any:
    """`function(handle)`: as `recall` of one tensor, the usual case."""
    value = cell.raw
    if type(value) is not np.ndarray:
        return function(handle)
    key = (value.dtype, value.shape)
    plan: Any = known.get(key, False)
    if not plan:
        return function(handle) if plan is None else learn(known, key, function, (handle,), {})
    made = (plan.run or _prepare(plan, (value,)))(value)
    if made is None or plan.pick is not None:
        return function(handle)
    kept = None
    if not plan.is_op:
        made, kept = lent.all_apart(made, (handle,)) if lent.Lending.in_use else made
    result = handle._from_cell(cell_with(made))
    if thread_mode.enabled:
        edge = handle._edge()
        if edge is not None:
            _record(plan, result, (handle,), (edge,), kept)
    elif Inference.entered:
        inference.made(result._cell)
    if Telling.count:
        Telling.tell(plan.is_op, plan.what, (handle,), plan.attrs, result)
    return result


def _alike(handles: list[Any]) -> tuple[int, ...]:
    """For each tensor the first place where it stands."""
    ids = [*map(id, handles)]
    return tuple(map(ids.index, ids))


def _unusual(
    kind: type, known: Plans, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call with an argument of a class that was not met yet, or that is not remembered."""
    if kind in _KINDS:
        return function(*args, **kwargs)
    _KINDS[kind] = _TENSOR if hasattr(kind, "_cell") else _OTHER
    return recall(known, function, args, kwargs)


def _computed(plan: Plan, handles: Sequence[Any], arrays: Sequence[Any], edges: Sequence[Any]) -> Any:
    """The result of op or composite, recorded; None where the composite does not take these arrays, for once."""
    if plan.pick is not None:
        handles, arrays, edges = plan.pick([*handles, None]), plan.pick([*arrays, None]), plan.pick([*edges, None])
    made = (plan.run or _prepare(plan, arrays))(*arrays)
    if made is None:
        return None
    kept = None
    if not plan.is_op:
        made, kept = lent.all_apart(made, handles) if lent.Lending.in_use else made
    cell = cell_with(made)
    result = handles[0]._from_cell(cell)
    for edge in edges:
        if edge is not None:
            _record(plan, result, handles, edges, kept)
            break
    if Inference.entered and not thread_mode.enabled:
        inference.made(cell)
    if Telling.count:
        Telling.tell(plan.is_op, plan.what, handles, plan.attrs, result)
    return result


def _record(plan: Plan, result: Any, handles: Sequence[Any], edges: Sequence[Any], kept: Any) -> None:
    """Put the result on the tape."""
    cell = result._cell
    saved = [None if handle is None else handle._cell for handle in handles]
    if not plan.is_op:
        result._node = whole_node(plan.what, plan.attrs, edges, saved, cell, kept)
    elif cell.raw.dtype.kind not in "biu":
        result._node = OpNode(plan.what, plan.attrs, edges, saved, cell)


def _prepare(plan: Plan, arrays: Sequence[Any]) -> Callable[..., Any]:
    """What computes arrays like these: known of the plan from now on."""
    if plan.is_op:
        plan.run = partial(plan.what.eager, np, **plan.attrs)
    else:
        prepared = None if plan.what.prepare is None else plan.what.prepare(*arrays, **plan.attrs)
        plan.run = partial(plan.what.forward, **plan.attrs) if prepared is None else prepared
    return plan.run


def whole_node(composite: Any, attrs: Any, edges: Any, saved: Any, cell: Cell, kept: Any) -> WholeNode:
    """The node of a composite that was computed whole, and kept this."""
    node = WholeNode(composite, attrs, edges, saved, cell)
    node.kept = kept
    if watch.active:
        node.pack_kept()
    return node
