"""A step in less memory: what is saved for the backward is chosen by what the backward then takes at once.

In: the budget, 0 to 1; a split of the joint graph at a given worth of a byte that is held. Out: a split. Method: the
minimum cut is asked again with bytes held worth more and more (a Lagrange multiplier on memory; Chen et al. 2016 for
the idea, AOTAutograd's activation_memory_budget for the knob), and of what it gives the first, which computes least
again, is taken that stays within the budget. What is computed again takes memory, too, at the place where it is needed:
so it is the backward's peak that counts, not what is saved.
Known limits: the peak is by the graph's order, before fusion and the arena's plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from compiler_core import log
from compiler_core.aot.recompute import HELD, is_library, is_view
from compiler_core.graph.ir import SAVED, Call, Graph, Node
from compiler_core.ops.rules import is_elementwise

WORTHS = [HELD + 1, *(HELD << k for k in range(3, 23))]  # bytes moved that a byte may be worth
Split = TypeVar("Split")


def within(budget: float, split: Callable[[int], Split], peak: Callable[[Split], int], name: str) -> Split:
    """The split to take. From HELD + 1 on more may be computed again."""
    base = split(HELD)
    if budget >= 1:
        return base
    whole = peak(base)
    found, least = base, whole
    for worth in WORTHS:
        parts = split(worth)
        takes = peak(parts)
        if takes < least:
            found, least = parts, takes
        if takes <= budget * whole:
            break
    log.emit("aot", f"{name}: the backward takes {least} bytes, of {whole} without a budget")
    if least > budget * whole:
        part = f"{least / max(whole, 1):.2f} of the memory"
        log.warn_once(
            f"budget {name} {budget}", f"memory_budget={budget:g} cannot be kept for {name}: the least is {part}"
        )
    return found


def peak_of(backward: Graph) -> int:
    """Bytes that live at once while a backward runs, at most: what was saved, and what it holds on the way.

    What fusion keeps in registers is none: elementwise values that one elementwise value reads. What is made once a
    saved value has been read for the last time may lie in its place (schedule/lending.py).
    """
    source: dict[Node, Node] = {}  # of a view, what it shows
    last: dict[Node, int] = {}
    readers: dict[Node, list[Call]] = {}
    for step, call in enumerate(backward.calls):
        source[call] = source.get(call.args[0], call.args[0]) if is_view(call) else call
        for arg in call.args:
            last[source.get(arg, arg)] = step
            readers.setdefault(arg, []).append(call)
    ending: dict[int, int] = {}
    saved = [node for node in backward.inputs if node.role in SAVED]
    live = most = sum(node.meta.nbytes for node in saved)
    for node in saved:
        if node.role == "spent" and node in last:
            ending[last[node]] = ending.get(last[node], 0) + node.meta.nbytes
    outputs = set(backward.outputs)
    for step, call in enumerate(backward.calls):
        if source[call] is call and call in last and call not in outputs and not _is_fused(call, readers[call]):
            live += call.meta.nbytes
            ending[last[call]] = ending.get(last[call], 0) + call.meta.nbytes
        most = max(most, live)
        live -= ending.get(step, 0)
    return most


def _is_fused(call: Call, readers: list[Call]) -> bool:
    first = readers[0]
    return is_elementwise(call.op.lower) and all(reader is first for reader in readers) and not is_library(first)
