"""Rules for numbers that tensors hold (`held_numbers.py`), and for what is made before the graph.

In: the parts and a call's arguments. Out: numbers that are inputs (symbols); writes of the graph. `RULES`: callable ->
rule. Invariant: a tensor that was told to hold a number is read and written in no other way from there on (`told`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.sources import Item, Raw
from compiler_core.capture.held_numbers import (
    before_the_graph,
    changing_item,
    float_held,
    hold_number,
    is_captured,
    scalar_of,
    single,
    whole_held,
)
from compiler_core.capture.numbers.lifting import lifted
from compiler_core.capture.numbers.symbols import applied, is_symbol, plain_of, symbol
from compiler_core.capture.outside import contents_of
from compiler_core.ops.registry import use_trace

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
ROUNDED = "__import__('struct').unpack('f', __import__('struct').pack('f', {}))[0]"  # `single`, as code


def _reading(read: Any) -> Any:
    """The rule for `whole_held` or `float_held`."""

    def rule(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
        (tensor,) = args
        if tensor._cell in parts.numbers.held:
            return parts.numbers.held[tensor._cell]
        known = parts.outside.find(tensor)
        if known is None or parts.segment.trace.has_changed(tensor) or type(tensor._cell.raw) is not np.ndarray:
            raise Break("the number that a tensor holds is asked for")
        source = Raw(known.source, read)
        if source not in parts.numbers.symbols:
            with use_trace(None):
                value = read(tensor)
            parts.numbers.symbols[source] = symbol(parts.numbers, source, value)
        return parts.numbers.symbols[source]

    return rule


def _hold_number(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    tensors, number = args
    trace = parts.segment.trace
    for tensor in tensors:
        if trace.has_changed(tensor) or any(cell is tensor._cell for cell, _ in trace.lifted):
            raise Break("a tensor that holds a number is computed with, and then holds another")
        if not parts.outside.has(tensor):
            raise Break("a tensor that the graph makes is to hold a number")
    with use_trace(None):
        before = [(tensor, tensor._cell.value) for tensor in tensors]
        hold_number(tensors, plain_of(number))
    parts.record.before_numbers(before)
    parts.record.made(hold_number, tensors, number)
    for tensor in tensors:
        trace.told.add(tensor._cell)
        parts.numbers.held[tensor._cell] = number


def _scalar_of(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    number, dtype = args
    if is_symbol(number):
        return lifted(parts.numbers, number, dtype)
    return parts.native.run(scalar_of, number, dtype)


def _single(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    (number,) = args
    if not is_symbol(number):
        return single(number)
    return applied(parts.numbers, single(plain_of(number)), ROUNDED, (number,))


def _changing_item(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    table, key = args
    known = parts.outside.find(table)
    if known is not None and type(dict.get(table, key)) is float:
        parts.segment.memory.note_dynamic(Item(contents_of(known), key))
    return parts.items.get_item(table, key)


def _before_the_graph(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    fill, owner, table = args
    before = _size(table)
    with use_trace(None):
        fill(owner)
    seen = [id(part) for part in (table, *table.values()) if parts.outside.has(part)]
    read = any(part in parts.contents.whole or part in parts.segment.record.originals for part in seen)
    if read and _size(table) != before:
        raise Break("an optimizer's state is made after a look at it")


def _size(table: dict[Any, dict[str, Any]]) -> int:
    return sum(map(len, table.values()))


RULES = {
    is_captured: lambda parts, args, kwargs: True,
    whole_held: _reading(whole_held),
    float_held: _reading(float_held),
    hold_number: _hold_number,
    changing_item: _changing_item,
    scalar_of: _scalar_of,
    single: _single,
    before_the_graph: _before_the_graph,
}
