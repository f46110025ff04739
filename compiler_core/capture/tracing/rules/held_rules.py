"""Rules for numbers that tensors hold (`held_numbers.py`), and for what is made before the graph.

In: the parts and a call's arguments. Out: numbers that are inputs (symbols); writes of the graph. `RULES`: callable ->
rule. Invariant: a tensor that was told to hold a number is read and written in no other way from there on (`told`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import key_of
from compiler_core.capture.guards.same_items import SameTensors, ids_in_list, ids_in_state
from compiler_core.capture.guards.sources import Argument, Item, Raw
from compiler_core.capture.held_numbers import (
    before_the_graph,
    changing_attributes,
    changing_item,
    float_held,
    hold_number,
    hold_number_unless,
    is_captured,
    is_kept,
    keep_state,
    keep_tensors,
    number_of,
    put_gradients,
    scalar_of,
    single,
    whole_held,
)
from compiler_core.capture.numbers.lifting import lifted
from compiler_core.capture.numbers.reads import read_later
from compiler_core.capture.numbers.symbols import (
    Input,
    applied,
    is_symbol,
    make,
    plain_of,
    plain_parts,
    render_in,
    symbol,
)
from compiler_core.capture.outside import Outside, contents_of, own_source
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
UNKNOWN = object()  # what a tensor holds that is known when the graph has run
ROUNDED = "__import__('struct').unpack('f', __import__('struct').pack('f', {}))[0]"  # `single`, as code


def _reading(read: Any) -> Any:
    """The rule for `whole_held` or `float_held`."""

    def rule(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
        (tensor,) = args
        if tensor._cell in parts.numbers.held:
            return _known(parts.numbers.held[tensor._cell])
        known = parts.outside.find(tensor)
        if known is None or parts.segment.trace.has_changed(tensor):
            later = parts.native.hand_on(read_later, parts.numbers, tensor, "what a tensor holds then")
            if read is float_held and later is not None:
                return later
            raise Break("a number is asked for that a tensor holds when the graph has run")
        source = Raw(known.source, read)
        if source not in parts.numbers.symbols:
            with use_trace(None):
                value = read(tensor)
            parts.numbers.symbols[source] = symbol(parts.numbers, source, value)
        return parts.numbers.symbols[source]

    return rule


def _item(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    """`tensor.item()`: a held number, one that is known when the graph has run, or a graph break."""
    (tensor,) = args
    if tensor._cell in parts.numbers.held:
        return _known(parts.numbers.held[tensor._cell])
    later = parts.native.hand_on(read_later, parts.numbers, tensor, "item()")
    return parts.native.run(Tensor.item, tensor) if later is None else later


def _known(number: Any) -> Any:
    if number is UNKNOWN:
        raise Break("a step counts on one that may have been left out")
    return number


def _hold_number(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    tensors, number = args
    _check_holders(parts, tensors)
    with use_trace(None):
        before = [(tensor, tensor._cell.value) for tensor in tensors]
        hold_number(tensors, plain_of(number))
    parts.record.before_numbers(before)
    parts.record.made(hold_number, tensors, number)
    _hold(parts, tensors, number)


def _hold_number_unless(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    tensors, number, found = args
    _check_holders(parts, tensors)
    parts.record.made_later(hold_number_unless, tensors, number, found)
    _hold(parts, tensors, UNKNOWN)


def _check_holders(parts: Parts, tensors: Any) -> None:
    trace = parts.segment.trace
    for tensor in tensors:
        if trace.has_changed(tensor) or any(cell is tensor._cell for cell, _ in trace.lifted):
            raise Break("a tensor that holds a number is computed with, and then holds another")
        if not parts.outside.has(tensor):
            raise Break("a tensor that the graph makes is to hold a number")


def _hold(parts: Parts, tensors: Any, number: Any) -> None:
    for tensor in tensors:
        parts.segment.trace.told.add(tensor._cell)
        parts.numbers.held[tensor._cell] = number


def _scalar_of(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    number, dtype = args
    if is_symbol(number):
        return lifted(parts.numbers, number, dtype)
    return parts.native.run(scalar_of, number, dtype)


def _keep_tensors(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    (tensors,) = args
    if type(tensors) is list:
        _keep(parts, tensors, ids_in_list, list(tensors), [])


def _keep_state(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    (state,) = args
    tables = list(state.values())
    if all(type(table) is dict for table in tables):
        held = [value for table in tables for value in table.values()]
        _keep(parts, state, ids_in_state, [*state, *held], tables)


def _keep(parts: Parts, container: Any, identify: Any, things: list[Any], tables: list[Any]) -> None:
    """Guard a container whole, if it may hold the same at every call, and nothing has looked into it."""
    known, memory, looked = parts.outside.find(container), parts.segment.memory, parts.contents.whole
    changed = parts.segment.record.originals
    if (
        known is None
        or known.source in memory.refilled
        or any(id(part) in looked or id(part) in changed for part in (container, *tables))
    ):
        return
    if any(not isinstance(thing, Tensor) or thing in memory.unstable for thing in things):
        return
    if any(found is not None and not found.fixed for found in map(parts.outside.find, (*things, *tables))):
        return
    watch = SameTensors(identify, container, known.source, things, parts.code.guards.deaths)
    parts.code.guards.kept.append(watch)
    condition = f"{parts.code.guards.bind(watch, 'same')}({parts.code.local(contents_of(known))})"
    parts.code.guards.require_explained(condition, watch.difference, watch)
    looked.add(id(container))
    for key, item in list(enumerate(container)) if type(container) is list else list(container.items()):
        source = Item(contents_of(known), key)
        if isinstance(item, Tensor):
            parts.outside.load(source, item, fixed=True)
            continue
        parts.outside.things[id(item)] = Outside(item, source, False)
        looked.add(id(item))
        for name, tensor in item.items():
            parts.outside.load(Item(source, name), tensor, fixed=True)


def _put_gradients(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    """An effect for all of them: capture knows them, and they are the same at every call."""
    tensors, gradients = args
    parts.native.hand_on(put_gradients, tensors, gradients)
    record = parts.segment.record
    record.made(put_gradients, tensors, gradients)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        record.written[key_of(tensor, "grad")] = gradient


def _is_kept(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    known = parts.outside.find(args[0])
    return known is not None and known.fixed


def _single(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    (number,) = args
    if not is_symbol(number):
        return single(number)
    return applied(parts.numbers, single(plain_of(number)), ROUNDED, (number,))


def _changing_item(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    table, key = args
    known = parts.outside.find(table)
    if known is not None and type(table[key]) is float:
        parts.segment.memory.note_dynamic(Item(contents_of(known), key))
    return parts.items.get_item(table, key)


def _changing_attributes(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    owner, names = args
    known = parts.outside.find(owner)
    for name in names:
        if known is not None and type(vars(owner).get(name)) in (int, float):
            parts.segment.memory.note_dynamic(own_source(known, name))


def _number_of(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    function, *given = args
    if not all(map(_is_plain, given)):
        return parts.call(function, tuple(given), {})
    value = function(*map(plain_parts, given))
    if value is None or all(plain_parts(arg) is arg for arg in given):
        return value
    bound = parts.code.guards.bind(function, "formula")
    code = f"{bound}({', '.join(_code(parts, arg) for arg in given)})"
    local = parts.code.guards.let("number", code, ("number", code), function.__name__)
    parts.code.require_once(f"type({local}) is {type(value).__name__}", f"{function.__name__} gives a number")
    return make(value, Input(Argument(local, function.__name__), value))


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return is_symbol(value) or value is None or type(value) in (int, float, bool, str)


def _code(parts: Parts, value: Any) -> str:
    if type(value) is tuple:
        return f"({''.join(f'{_code(parts, item)}, ' for item in value)})"
    return render_in(parts.numbers, value)


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
    is_kept: _is_kept,
    keep_state: _keep_state,
    keep_tensors: _keep_tensors,
    put_gradients: _put_gradients,
    is_captured: lambda parts, args, kwargs: True,
    whole_held: _reading(whole_held),
    float_held: _reading(float_held),
    hold_number: _hold_number,
    hold_number_unless: _hold_number_unless,
    changing_item: _changing_item,
    changing_attributes: _changing_attributes,
    number_of: _number_of,
    scalar_of: _scalar_of,
    single: _single,
    before_the_graph: _before_the_graph,
    Tensor.item: _item,
}
