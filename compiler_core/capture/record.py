"""The record of changes: what captured code changed of what was there before, but tensors.

In: a change, told before it is made (`before...`: what is lost by it) and after (`made`: what was done). It is made for
real at once. Out: what later calls do again, in order (`replayed`); how all is as it was (`take_back`), for a call that
fullgraph=True refuses; and, for what the code reads afterwards, what it wrote itself, which needs no guard (`written`),
and what a container held before, which does (`original`).
Two records, and why: tensors are the trace's (`outside_memory.py`, and its journal). What is done to them is in the
graph, and is taken back to any mark, after each native call that cannot be traced. What is here goes back all together.
Known limits: an `itertools.count` that was advanced stays so, and so do the caches of functions with `lru_cache`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import CellType
from typing import Any

from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.capture.guards.kinds import _key, is_registry, own_attributes, plain_copy, raw_item
from compiler_core.capture.guards.sources import Item, Source
from compiler_core.capture.held_numbers import put_gradients
from compiler_core.capture.numbers.symbols import KINDS, is_read, plain_of, plain_parts
from compiler_core.capture.outside import Outside, contents_of, own_source
from compiler_core.ops.registry import Array, use_trace
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor

COUNTED = frozenset({int, float, Sym, *(kind for plain, kind in KINDS.items() if plain is not str)})
NOTHING = object()  # an attribute that was not there


@dataclass(frozen=True, slots=True)
class Change:
    """One change: `function(target, *args)`."""

    function: Callable[..., Any]
    target: Any
    args: tuple[Any, ...]


class Record:
    """See the head of this file.

    written: (id of the owner, attribute or key) -> value as recorded. originals: id of a changed container -> a copy of
    what it held. moved: ids of changed containers in which `written` does not tell every place. numbers_in: id of a
    container -> symbols of which it holds plain copies. counters: where numbers are that this code changes: the next
    capture takes them as inputs. generators: from outside, in whose bodies the segment starts: how far they have come
    is told at the end. later: changes that this very call makes when its graph has run. put_off: frames of generators
    that were dropped and could not be closed under capture, and why.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.is_replayed = True
        self.written: dict[tuple[int, Any], Any] = {}
        self.originals: dict[int, Any] = {}
        self.moved: set[int] = set()
        self.numbers_in: dict[int, list[Any]] = {}
        self.counters: list[Source] = []
        self.generators: list[InterpretedGenerator] = []
        self.put_off: list[tuple[Frame, str]] = []
        self.later: list[Change] = []
        self._back: list[Callable[[], None]] = []  # brings back what was before each change

    def count(self) -> tuple[int, int]:
        """How much was changed so far."""
        return len(self.changes), len(self._back)

    # -- before

    def before(self, container: Any) -> None:
        """A container from outside is about to be changed."""
        if id(container) not in self.originals:
            original = self.originals[id(container)] = plain_copy(container)
            self._back.append(partial(_restore, container, original))

    def before_attribute(self, owner: Any, name: str) -> None:
        """A class, or an object with slots, is about to get something else under `name`."""
        self._back.append(_attribute(owner, name))

    def before_variable(self, cell: CellType) -> None:
        """A cell from outside is about to hold something else."""
        self._back.append(_variable(cell))

    def before_registry(self, table: dict[Any, Any]) -> None:
        """A registry of a module is about to change, as an attribute is set: `written` tells what is read then."""
        self._back.append(partial(_restore, table, dict(table)))

    def before_numbers(self, before: Sequence[tuple[Tensor, Array]]) -> None:
        """Tensors that hold numbers have got others; these are those before."""
        self._back.append(partial(_hold_again, before))

    # -- after

    def made(self, function: Callable[..., Any], target: Any, *args: Any) -> None:
        """`function(target, *args)` has just been done."""
        self.changes.append(Change(function, target, args))

    def made_later(self, function: Callable[..., Any], target: Any, *args: Any) -> None:
        """`function(target, *args)` is done when the graph has run, by this call too."""
        self.later.append(Change(function, target, args))
        self.changes.append(self.later[-1])

    def forget_written(self, container: Any) -> None:
        """What was written to its places is no longer there."""
        for key in [key for key in self.written if key[0] == id(container)]:
            del self.written[key]

    def note_numbers(self, container: Any, values: Iterable[Any]) -> None:
        """Plain copies of numbers that change from call to call were put into a container from outside."""
        for value in values:
            if plain_parts(value) is not value:
                self.numbers_in.setdefault(id(container), []).append(value)
            elif isinstance(value, dict):
                self.note_numbers(container, (*value, *value.values()))
            elif isinstance(value, (list, set, deque)):
                self.note_numbers(container, value)

    def note_number(self, known: Outside | None, key: Any, value: Any, is_attribute: bool = False) -> None:
        """A value was put into an object from outside, as an attribute or an item: another number than was there?"""
        if known is None or type(value) not in COUNTED:
            return
        owner = known.thing
        own = own_attributes(owner)
        if isinstance(owner, (list, dict, deque)) and not is_attribute:
            source: Source = Item(contents_of(known), key)
        elif own is not None:
            source, owner = own_source(known, key), own
        else:
            return
        try:
            before = self.written.get((id(owner), _key(key)), raw_item(self.original(owner), key))
        except LookupError:
            before = None
        if type(before) not in COUNTED or is_read(before) or is_read(value) or plain_of(before) != plain_of(value):
            self.counters.append(source)

    # -- what it tells

    def original(self, container: Any) -> Any:
        """What a container from outside held before the captured code changed it."""
        return self.originals.get(id(container), container)

    def has_places(self, container: Any) -> bool:
        """Whether a sequence from outside has its items in their places as before; some may have been assigned."""
        return id(container) not in (self.moved if isinstance(container, (list, deque)) else self.originals)

    def replayed(self) -> list[Change]:
        """What later calls do again. Of what is put into one `.grad`, or one item of a dictionary, the last: nothing
        looks at it in between. (`functional_call` puts tensors in a module, which need not outlive the call.)"""
        if not self.is_replayed:
            return []
        kept: list[Change] = []
        given: set[int] = set()  # ids of tensors whose `.grad` a later change tells
        put: set[tuple[int, Any]] = set()  # ids of dictionaries, and keys, whose items a later change tells
        tables = self._only_put()
        for change in reversed(self.changes):
            if id(change.target) in tables:
                item = id(change.target), _key(change.args[0])
                if item not in put or not dict.__contains__(self.originals[item[0]], change.args[0]):
                    kept.append(change)
                put.add(item)
            elif change.function is put_gradients:
                left = [pair for pair in zip(change.target, *change.args, strict=True) if id(pair[0]) not in given]
                given.update(id(tensor) for tensor, _ in left)
                if left:
                    kept.append(Change(put_gradients, [tensor for tensor, _ in left], ([new for _, new in left],)))
            elif change.function is setattr and isinstance(change.target, Tensor) and change.args[0] == "grad":
                if id(change.target) not in given:
                    given.add(id(change.target))
                    kept.append(change)
            else:
                kept.append(change)
        return kept[::-1]

    def _only_put(self) -> set[int]:
        """The ids of dictionaries from outside in which only items are put, and that nothing else is done with."""
        found = {id(change.target) for change in self.changes if _puts(change)} & self.originals.keys()
        for change in self.changes:
            if not _puts(change):
                found.discard(id(change.target))
            found.difference_update(map(id, change.args))
        return found

    def take_back(self) -> None:
        """Containers, attributes, cells and globals from outside are as they were."""
        for bring_back in reversed(self._back):
            bring_back()


def _puts(change: Change) -> bool:
    """Whether an item is put in a dictionary, by no code of the program's."""
    if not isinstance(change.target, dict):
        return False
    known = change.function in (dict.__setitem__, OrderedDict.__setitem__)
    return known or (change.function is type(change.target).__setitem__ and is_registry(change.target))


def _hold_again(before: Sequence[tuple[Tensor, Array]]) -> None:
    with use_trace(None):  # to their memory, not to what a trace has of it
        for tensor, value in before:
            tensor._cell.write(value)


def _attribute(owner: Any, name: str) -> Callable[[], None]:
    """What brings back what `owner` itself, a class or an object with slots, has under `name` now."""
    old = vars(owner).get(name, NOTHING) if isinstance(owner, type) else getattr(owner, name, NOTHING)
    return partial(delattr, owner, name) if old is NOTHING else partial(setattr, owner, name, old)


def _variable(cell: CellType) -> Callable[[], None]:
    """What brings back what a cell holds now, if it holds anything: a variable may be set for the first time."""
    try:
        return partial(setattr, cell, "cell_contents", cell.cell_contents)
    except ValueError:
        return partial(delattr, cell, "cell_contents")


def _restore(container: Any, before: Any) -> None:
    """Make a container hold what it held, by the methods of its C type."""
    if isinstance(container, dict):
        _restore_table(container, before)
    elif isinstance(container, list):
        list.__setitem__(container, slice(None), before)
    elif isinstance(container, set):
        set.clear(container)
        set.update(container, before)
    elif isinstance(container, deque):
        deque.clear(container)
        deque.extend(container, before)


def _restore_table(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    kind: Any = OrderedDict if isinstance(table, OrderedDict) else dict
    if is_registry(table):
        kind = type(table)  # whoever watches it is told
    stays = [key for key in kind.keys(table) if key in before]
    in_order = stays == list(before)[: len(stays)]
    for key in list(kind.keys(table)):
        if not in_order or key not in before:
            kind.__delitem__(table, key)
    for key, value in before.items():
        if not kind.__contains__(table, key) or kind.__getitem__(table, key) is not value:
            kind.__setitem__(table, key, value)
