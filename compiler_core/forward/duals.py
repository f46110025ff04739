"""Operations on tensors that carry tangents: what stands in the tensor's own places while a level is on.

In: operations in a thread that is in a level. Out: the same results, carrying their tangents (`rules.py`). `begin` puts
these functions in the place of Tensor's own when the first level of any thread begins, `end` takes them away: outside
of levels nothing is looked at. Composites are computed op by op. What a tape node saves keeps its tangent, so that a
backward in the level carries them on (forward over reverse): the engine computes with Tensors there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from compiler_core.errors import AutogradError
from compiler_core.forward import level
from compiler_core.forward.level import give, resting, tangent_of
from compiler_core.forward.rules import tangent, zeros_like
from compiler_core.ops.registry import Attrs, NotDifferentiable, Op, Value, bind
from compiler_core.tensor.autograd.gone import demand
from compiler_core.tensor.autograd.tape import OpNode
from compiler_core.tensor.memory.cell import ViewCell
from compiler_core.tensor.methods import operators
from compiler_core.tensor.tensor import Tensor

_PLACES: tuple[tuple[Any, str], ...] = (
    (Tensor, "__bind__"),
    (Tensor, "__whole__"),
    (Tensor, "__pieces__"),
    (Tensor, "_snapshot"),
    (Tensor, "_assign"),
    (operators, "_result"),
    (operators, "_result_of_number"),
)
_own = {name: vars(owner)[name] for owner, name in _PLACES}


def begin() -> None:
    """Put the functions of this file in their places."""
    for owner, name in _PLACES:
        setattr(owner, name, _OURS[name])


def end() -> None:
    """Put back what was there."""
    for owner, name in _PLACES:
        setattr(owner, name, _own[name])


Carried = list[tuple[level.Level, list[Any]]]


def _tangents(values: Sequence[Value]) -> Carried:
    """By level, the outermost first: a tangent or None for each value. Those without any are left out."""
    found = [(one, [tangent_of(value, one) for value in values]) for one in level.levels()]
    return [(one, tangents) for one, tangents in found if any(t is not None for t in tangents)]


def _carrying(op: Op, values: tuple[Value, ...], attrs: Attrs, result: Any, carried: Carried) -> Any:
    """`result`, with its tangents; its node keeps those of what it saves."""
    is_view = carried and result._view is not None and isinstance(result._cell, ViewCell)
    for inner, tangents in carried:
        with resting(inner):
            made = bind(op, tangents[0], **attrs) if is_view else tangent(op, values, attrs, result, tangents)
        give(result, made, inner)
        tangents.append(made)
    node = result._node
    if carried and type(node) is OpNode:
        node.__class__ = DualNode
        node.keeps = carried
    return result


class DualNode(OpNode):
    """An OpNode of which values that it saves carry tangents. keeps: by level, one for each operand, the result's."""

    __slots__ = ()

    def apply(self, grad: Value, create_graph: bool) -> Sequence[Value | None]:
        counts = level.levels()
        carried = [(one, tangents) for one, tangents in self.keeps if one in counts]  # type: ignore[attr-defined]
        rule = self.op.vjp
        if not carried or isinstance(rule, NotDifferentiable):
            return super().apply(grad, create_graph)
        restored = [self.saved_handle(place) for place in (*range(len(self.saved)), -1)]
        for one, tangents in carried:
            for handle, edge, given in zip(restored, (*self.edges, None), tangents):
                if handle is not edge and isinstance(handle, Tensor):
                    give(handle, given, one)
        *operands, out = restored
        grads = rule(grad, out, *operands, **self.attrs)
        return [None if edge is None else demand(g) for edge, g in zip(self.edges, grads)]


def _bind(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Any:
    result = _own["__bind__"].__func__(op, values, attrs)
    return result if op.name == "detach" else _carrying(op, values, attrs, result, _tangents(values))


def _whole(composite: Any, operands: tuple[Value, ...], attrs: Attrs) -> Any:
    return None if _tangents(operands) else _own["__whole__"].__func__(composite, operands, attrs)


def _pieces(self: Tensor, dim: int) -> Any:
    return None if _tangents((self,)) else _own["__pieces__"](self, dim)


def _result(a: Any, b: Any, out: Any, op: Op) -> Any:
    return _carrying(op, (a, b), {}, _own["_result"](a, b, out, op), _tangents((a, b)))


def _result_of_number(value: Any, constant: Any, symbol: Any, op: Op) -> Any:
    made = _own["_result_of_number"](value, constant, symbol, op)
    return _carrying(op, (value, constant), {}, made, _tangents((value, constant)))


def _snapshot(self: Any) -> Any:
    made = _own["_snapshot"](self)
    for one in level.levels():
        carried = tangent_of(self, one)
        if carried is not None and made is not self:
            give(made, _own["_snapshot"](carried), one)
    return made


def _assign(self: Any, result: Any) -> None:
    new = [(one, tangent_of(result, one)) for one in level.levels()]
    _own["_assign"](self, result)
    for one, given in new:
        if given is None and tangent_of(self, one) is None:
            continue
        place = _place_for(self, one)
        with resting(one):
            _own["_assign"](place, zeros_like(self) if given is None else given)


def _place_for(tensor: Any, one: level.Level) -> Any:
    """The tangent of `tensor` to write to, made of zeros where there is none: of a view, a view of its base's."""
    found = tangent_of(tensor, one)
    if found is not None:
        return found
    link, cell = tensor._view, tensor._cell
    if link is not None and isinstance(cell, ViewCell):
        base = _place_for(link.base, one)
        with resting(one):
            found = bind(cell.op, base, **cell.attrs)
    else:
        with resting(one):
            found = zeros_like(tensor)
    give(tensor, found, one)
    return found


_OURS = {
    "__bind__": staticmethod(_bind),
    "__whole__": staticmethod(_whole),
    "__pieces__": _pieces,
    "_snapshot": _snapshot,
    "_assign": _assign,
    "_result": _result,
    "_result_of_number": _result_of_number,
}


# ---- what programs call


@contextmanager
def pushing() -> Iterator[level.Level]:
    """A level of its own."""
    made = level.enter(begin)
    try:
        yield made
    finally:
        level.leave(made, end)


def make_dual(primal: Tensor, tangent: Tensor) -> Tensor:
    """A view of `primal` that carries `tangent`."""
    if level.current() is None:
        raise AutogradError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    if tangent_of(primal) is not None:
        raise AutogradError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    _check(primal, tangent)
    with resting(level.current()):
        made: Tensor = primal.view_as(primal)
    level.carry(primal, made)
    give(made, tangent)
    return made


def _check(primal: Tensor, given: Tensor) -> None:
    for what, tensor in (("primal", primal), ("tangent", given)):
        if not tensor.dtype.is_inexact:
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {tensor.dtype}")
    if primal.shape != given.shape:
        raise AutogradError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(primal.shape)} while the given forward gradient is of size "
            f"{list(given.shape)}."
        )


def unpack_dual(tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    """(the tensor without its tangent, the tangent)."""
    carried = tangent_of(tensor)
    if carried is None:
        return tensor, None
    with resting(level.current()):
        return tensor.view_as(tensor), carried
