"""Guards on how the tensors of a call share memory, as far as the captured graph depends on it.

In: a trace that is over, the tensors known to it. Out: conditions. Tensors that were one must be one again; where
something is written, memory that is not shared must not be shared later; where several cells of one root were used
beside a write, each must lie in it where it lay.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.capture.guards.guards import Guards
from compiler_core.capture.memory import Known, OutsideMemory, memory_place


def guard_memory(guards: Guards, trace: OutsideMemory, known: Sequence[Known]) -> None:
    """Add the conditions. known: arguments (with code) in call order, and others."""
    cells = {id(entry): trace.outside_cell(entry.handle) for entry in known}
    used = {cell.root for cell, _ in trace.lifted} | {cell.root for cell in trace.written}
    written = {cell.root for cell in trace.written}
    arguments = [entry for entry in known if entry.code]
    bound = [entry for entry in known if not entry.code and cells[id(entry)].root in used]
    for i, a in enumerate(arguments):
        mine = cells[id(a)]
        for b in (*arguments[:i], *bound):
            theirs = cells[id(b)]
            other = f"{b.code}._cell" if b.code else guards.bind(theirs, "cell")
            if mine is theirs:
                guards.require(f"{a.code}._cell is {other}", f"{a.source} and {b.source} are the same tensor")
            elif written and (b.code or theirs.root in written):
                shared = mine.root is theirs.root
                guards.require(
                    f"({a.code}._cell.root is {other}.root) is {shared}",
                    f"{a.source} and {b.source} {'' if shared else 'do not '}share memory",
                )
    for entry, place in trace.places():
        if entry.code:
            where, wanted = guards.bind(memory_place, "place"), guards.bind(place, "place")
            guards.require(
                f"{where}({entry.code}._cell) == {wanted}", f"{entry.source} lies where it lay in its memory"
            )
