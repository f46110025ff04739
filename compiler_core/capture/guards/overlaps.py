"""Guards on how the tensors of a call share memory, as far as the captured graph depends on it.

In: a trace that is over, the tensors known to it. Out: conditions. Tensors that were one must be one again; where
something is written, memory that is not shared must not be shared later; where several cells of one root were used
beside a write, each must lie in it where it lay. Lent memory of one root may overlap that of another (two arrays of
NumPy's), and must not do so beside a write. Conditions are as many as tensors, not as pairs of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial

from compiler_core.capture.guards.guards import Guards
from compiler_core.capture.outside_memory import Known, OutsideMemory, memory_place
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.lent import Lending, any_overlap


def guard_memory(guards: Guards, trace: OutsideMemory, known: Sequence[Known]) -> None:
    """Add the conditions. known: arguments (with code) in call order, and others."""
    cells = {id(entry): trace.outside_cell(entry.handle) for entry in known}
    used = {cell.root for cell, _ in trace.lifted} | {cell.root for cell in trace.written}
    bound = {cell: entry for entry in known if not entry.code and (cell := cells[id(entry)]).root in used}
    arguments: dict[Cell, Known] = {}  # of those that are one tensor the first
    for entry in known:
        if entry.code:
            _guard_same(guards, entry, cells[id(entry)], arguments, bound)
    if trace.written:
        alone = [entry for cell, entry in arguments.items() if cell not in bound]
        _guard_apart(guards, {cell.root for cell in trace.written}, {cells[id(e)]: e for e in alone}, bound)
        _guard_lent(guards, [entry for entry in alone if cells[id(entry)].root in used], bound)
    for entry, place in trace.places():
        if entry.code:
            where, wanted = guards.bind(memory_place, "place"), guards.bind(place, "place")
            guards.require(
                f"{where}({entry.code}._cell) == {wanted}", f"{entry.source} lies where it lay in its memory"
            )


def _guard_same(
    guards: Guards, entry: Known, cell: Cell, arguments: dict[Cell, Known], bound: dict[Cell, Known]
) -> None:
    """An argument that was another one, or a tensor that is the same in every call, is that one again."""
    other = bound.get(cell) or arguments.setdefault(cell, entry)
    if other is not entry:
        same = f"{other.code}._cell" if other.code else guards.bind(cell, "cell")
        guards.require(f"{entry.code}._cell is {same}", f"{entry.source} and {other.source} are the same tensor")
    arguments.setdefault(cell, entry)


def _guard_apart(guards: Guards, written: set[Cell], arguments: dict[Cell, Known], bound: dict[Cell, Known]) -> None:
    """Arguments share memory with each other, and with what is the same in every call, where they did, nowhere else."""
    fixed = {cell.root for cell in bound}
    homes = {cell.root: (str(id(cell.root)), entry.source) for cell, entry in bound.items()}
    alone: dict[Cell, Known] = {}
    for cell, entry in arguments.items():
        if cell.root in homes:
            home, source = homes[cell.root]
            guards.require(f"{_root(entry)} == {home}", f"{entry.source} and {source} share memory")
        else:
            alone[cell.root] = entry
            homes[cell.root] = _root(entry), entry.source
    _guard_distinct(guards, list(alone.values()))
    _guard_disjoint(guards, [entry for root, entry in alone.items() if root in written], fixed)
    _guard_disjoint(guards, [entry for root, entry in alone.items() if root not in written], fixed & written)


def _guard_distinct(guards: Guards, entries: Sequence[Known]) -> None:
    """No two of these share memory."""
    text = f"{', '.join(entry.source for entry in entries)} do not share memory"
    if len(entries) == 2:
        guards.require(" != ".join(map(_root, entries)), text)
    elif len(entries) > 2:
        guards.require(f"len({{{', '.join(map(_root, entries))}}}) == {len(entries)}", text)


def _guard_disjoint(guards: Guards, entries: Sequence[Known], fixed: Set[Cell]) -> None:
    """None of these is on memory that is the same in every call."""
    if entries and fixed:
        taken = guards.bind(frozenset(map(id, fixed)), "taken")
        text = f"{', '.join(entry.source for entry in entries)}: no memory of what the function itself has"
        guards.require(f"{taken}.isdisjoint(({', '.join(map(_root, entries))},))", text)


def _guard_lent(guards: Guards, entries: Sequence[Known], bound: Mapping[Cell, Known]) -> None:
    """No memory of these that was lent overlaps that of others."""
    if len(entries) + len(bound) < 2 or not entries:
        return
    state, meet = guards.bind(Lending, "lending"), guards.bind(partial(any_overlap, tuple(bound)), "overlap")
    cells = ", ".join(f"{entry.code}._cell" for entry in entries)
    text = f"{', '.join(entry.source for entry in entries)}: no lent memory that overlaps others'"
    guards.require(f"not {state}.in_use or not {meet}({cells})", text)


def _root(entry: Known) -> str:
    """Code for what tells the memory of a tensor that comes anew with every call."""
    return f"id({entry.code}._cell.root)"
