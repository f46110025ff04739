"""Which variables of a frame may still be read: only these survive a graph break.

In: a code object. Out: `live_at(code, index)`: the slots of `Frame.locals` that some path from that instruction reads
before it writes them. Cells and free variables always count as live: closures may hold them.
Method: backward data flow over the instructions, with an edge to every handler that guards an instruction.
"""

from __future__ import annotations

from types import CodeType

from compiler_core.bytecode.instructions import Instruction, decode
from compiler_core.bytecode.kept import table, watch

_STORES = {"STORE_FAST", "STORE_FAST_MAYBE_NULL"}
_NO_NEXT = {
    *("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS"),
    *("JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
}


def live_at(code: CodeType, index: int) -> frozenset[int]:
    """The slots that are live before instruction `index` runs."""
    live = _known.get(id(code))
    if live is None:
        live = _known[watch(code)] = _live(code)
    return live[index] if index < len(live) else frozenset()


_known: dict[int, tuple[frozenset[int], ...]] = table()


def _live(code: CodeType) -> tuple[frozenset[int], ...]:
    decoded = decode(code)
    instructions = decoded.instructions
    always = frozenset(
        slot
        for slot in range(len(code.co_varnames) + len(code.co_cellvars) + len(code.co_freevars))
        if slot >= code.co_nlocals or code.co_varnames[slot] in code.co_cellvars
    )
    after: list[list[int]] = [_following(i, instruction) for i, instruction in enumerate(instructions)]
    for handler in decoded.handlers:
        for i in range(handler.start, handler.end):
            after[i].append(handler.target)
    live = [always] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(instructions))):
            reads, writes = _touched(instructions[i])
            out = always.union(*(live[k] for k in after[i]))
            new = (out - writes) | reads
            if new != live[i]:
                live[i] = new
                changed = True
    return tuple(live)


def _following(index: int, instruction: Instruction) -> list[int]:
    name = instruction.opname
    following = [] if name in _NO_NEXT else [index + 1]
    if "JUMP" in name or name in ("FOR_ITER", "SEND"):
        following.append(instruction.argval)
    return following


def _touched(instruction: Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """(slots read, slots written)."""
    name, arg = instruction.opname, instruction.arg
    if name == "STORE_FAST_STORE_FAST":
        return frozenset(), frozenset((arg >> 4, arg & 15))
    if name == "STORE_FAST_LOAD_FAST":
        read, written = arg & 15, arg >> 4
        return frozenset(() if read == written else (read,)), frozenset((written,))
    if name == "LOAD_FAST_LOAD_FAST":
        return frozenset((arg >> 4, arg & 15)), frozenset()
    if name in _STORES:
        return frozenset(), frozenset((arg,))
    if name.startswith(("LOAD_FAST", "DELETE_FAST")):
        return frozenset((arg,)), frozenset()
    return frozenset(), frozenset()
