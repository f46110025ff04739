"""Where in its domain each part of an expression is evaluated, as far as index tests on single axes tell.

In: an expression with `where(axis < n, ..., ...)` in it, as padding and concatenation make them. Out: boxes: axis ->
[low, high) for every axis that a test narrows. Under its test, a padded read is inside its array, and with the narrower
range its index simplifies (symbolic/index.py) as it would have done without the padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.symbolic.index import Axis, Index, as_index, of_axis

Box: TypeAlias = dict[Axis, tuple[int, int]]


def cut_of(cond: x.Expr) -> tuple[Axis, int, bool] | None:
    """(axis, n, whether the condition holds below n) of `axis < n` or `axis >= n`."""
    if not isinstance(cond, x.IndexCompare) or cond.op not in ("lt", "ge"):
        return None
    difference: Index = cond.left - cond.right
    if len(difference.terms) != 1:
        return None
    (axis, coefficient), *_ = difference.terms.items()
    if not isinstance(axis, Axis) or coefficient != 1:
        return None
    return axis, -difference.const, cond.op == "lt"


def narrowed(box: Box, cond: x.Expr, holds: bool) -> Box:
    """The part of `box` in which `cond` holds, or does not. Tests that are no cut narrow nothing."""
    if isinstance(cond, x.Where) and isinstance(cond.other, x.Const) and not cond.other.value:  # both of two
        return narrowed(narrowed(box, cond.cond, True), cond.then, True) if holds else box
    cut = cut_of(cond)
    if cut is None:
        return box
    axis, at, below = cut
    low, high = box.get(axis, (0, axis.extent))
    at = min(max(at, low), high)
    part = (low, at) if below == holds else (at, high)
    return box if part[0] >= part[1] else {**box, axis: part}


def loads_in_boxes(value: x.Expr) -> dict[x.Load, Box]:
    """Every load of `value` (those of its indices too) with a box that holds all places where it is made."""
    found: dict[x.Load, Box] = {}
    for load, box in _loads(value, {}):
        found[load] = _hull(found[load], box) if load in found else box
    return found


def _loads(value: x.Expr, box: Box) -> Iterator[tuple[x.Load, Box]]:
    if isinstance(value, x.Load):
        yield value, box
    for index in d.indices(value):
        for atom in d.data_atoms(index):
            yield from _loads(d.data_value(atom), box)
    if isinstance(value, x.Where):
        yield from _loads(value.cond, box)
        yield from _loads(value.then, narrowed(box, value.cond, True))
        yield from _loads(value.other, narrowed(box, value.cond, False))
        return
    for child in x.children(value):
        yield from _loads(child, box)


def _hull(a: Box, b: Box) -> Box:
    return {axis: (min(a[axis][0], b[axis][0]), max(a[axis][1], b[axis][1])) for axis in a if axis in b}


def rebase(box: Box) -> tuple[Mapping[Axis, Index], Mapping[Axis, Index]]:
    """Axes that count from the box's corner: (old axis -> expression in new ones, and back)."""
    forward: dict[Axis, Index] = {}
    back: dict[Axis, Index] = {}
    for axis, (low, high) in box.items():
        new = Axis(axis.name, high - low)
        forward[axis] = of_axis(new) + low
        back[new] = of_axis(axis) - low
    return forward, back


def tighten(value: x.Expr) -> x.Expr:
    """`value` with each load's index simplified for the box in which the load is made."""
    for load, box in loads_in_boxes(value).items():
        if box and not load.index.is_linear:
            forward, back = rebase(box)
            index = d.substitute_index(d.substitute_index(load.index, forward, {}), back, {})
            if index != load.index:
                value = d.replace_load(value, load, x.Load(load.buffer, index, load.dtype))
    return value


def parts(value: x.Expr, box: Box) -> Iterator[tuple[x.Expr | None, Box]]:
    """The boxes of the domain that a chain of index tests cuts, and the value in each; None where that is no box."""
    if not isinstance(value, x.Where):
        yield value, box
        return
    cut = cut_of(value.cond)
    if cut is None:
        yield None, box
        return
    axis, at, below_is_then = cut
    low, high = box[axis]
    below, above = (value.then, value.other) if below_is_then else (value.other, value.then)
    at = min(max(at, low), high)
    if at > low:
        yield from parts(below, {**box, axis: (low, at)})
    if at < high:
        yield from parts(above, {**box, axis: (at, high)})


def joined(value: x.Expr, axes: d.Axes) -> x.Load | None:
    """The one load that a concatenation is, whose pieces lie along one line of one buffer; None if it is none.

    So the gradients of queries, keys and values are one array again, which one routine wrote.
    """
    pieces = list(parts(value, {axis: (0, axis.extent) for axis in axes}))
    cut = {axis for _, box in pieces for axis in axes if box[axis] != (0, axis.extent)}
    loads = [piece for piece, _ in pieces if isinstance(piece, x.Load) and piece.index.is_linear]
    if len(pieces) < 2 or len(cut) != 1 or len(loads) < len(pieces) or len({load.buffer for load in loads}) > 1:
        return None
    (axis,) = cut
    spans = [box[axis] for _, box in pieces]
    starts = [d.substitute_index(load.index, {axis: as_index(low)}, {}) for load, (low, _) in zip(loads, spans)]
    nexts = [d.substitute_index(load.index, {axis: as_index(low + 1)}, {}) for load, (low, _) in zip(loads, spans)]
    steps = [after - start for after, start, (low, high) in zip(nexts, starts, spans) if high - low > 1]
    across = starts[1] - starts[0]
    step = steps[0].const if steps else across.const // (spans[1][0] - spans[0][0])
    index = starts[0] + (of_axis(axis) - spans[0][0]) * step
    on_line = (d.substitute_index(index, {axis: as_index(low)}, {}) == at for at, (low, _) in zip(starts, spans))
    if any(found != as_index(step) for found in steps) or not all(on_line):
        return None
    return x.Load(loads[0].buffer, index, loads[0].dtype)
