"""Iteration: over containers, which count whole from then on, and by iterators, C's and the program's own.

In: what is iterated over. Out: iterators, items, containers made of them; or `Enter` where the program's `__iter__`
or `__next__` runs. Iterators from outside are not advanced under capture: the machine's caller does that, one step at a
time (`RunBetween`); an `itertools.count` is, for its state is a number.
"""

from __future__ import annotations

import itertools
import operator
from collections import deque
from typing import Any

from compiler_core.bytecode.frame import Enter
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.semantics import STOP, Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.capture.guards.kinds import CONTAINERS, VIEWS
from compiler_core.capture.guards.sources import Raw
from compiler_core.capture.numbers.symbols import arithmetic, is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.attributes import Attributes
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.containers import Containers, is_interpreted
from compiler_core.capture.tracing.items import Items
from compiler_core.capture.tracing.keys import Keys
from compiler_core.capture.tracing.lookup import ABSENT, lookup
from compiler_core.capture.tracing.native import Call, Native, drives_program
from compiler_core.capture.tracing.part import Part
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor


class RunBetween(Break):
    """Not a graph break: the instruction advances something from outside, and is done between two segments.

    is_builtin: whether it runs no code of the program's.
    """

    def __init__(self, reason: str, *, is_builtin: bool = False) -> None:
        super().__init__(reason)
        self.is_builtin = is_builtin


@dataclass(eq=False, repr=False)
class Iteration(Part):
    """See the head of this file."""

    native: Native
    classes: Classes
    attributes: Attributes
    keys: Keys
    containers: Containers
    items: Items
    call: Call

    def iterate(self, value: Any) -> Any:
        value = self.numbers.specialise(value) if is_symbol(value) else value
        self.contents.read_view(value)
        if is_opaque(value) or (isinstance(value, Tensor) and self.classes.program_method(value, "__iter__") is None):
            return self.native.run(iter, value)
        if self.classes.method_of(value, "__iter__") is not None and not is_interpreted(value):
            return self.call(self.attributes.load_attr(value, "__iter__"), (), {})
        if isinstance(value, (*CONTAINERS, dict)) and self.outside.has(value):
            self.contents.read_whole(value)
        elif self.classes.method_of(value, "__getitem__") is not None and lookup(type(value), "__iter__")[0] is ABSENT:
            return self.call(polyfills.iterate_by_index, (value,), {})
        if not hasattr(type(value), "__next__"):  # an iterator is its own
            self.classes.vouch(value, "__iter__", "__getitem__")
            self.contents.read_data(value)
        return iter(value)

    def advance(self, iterator: Any) -> Any:
        if self.outside.has(iterator):
            if type(iterator) is itertools.count:
                return self.next_number(iterator)
            raise RunBetween("an iterator from outside is advanced", is_builtin=not drives_program(iterator))
        if type(iterator) is InterpretedGenerator:
            frame = iterator.resume()
            return STOP if frame is None else Enter(frame)
        method = self.classes.method_of(iterator, "__next__")
        if method is not None:
            return self.call(polyfills.advance_, (self.attributes.load_attr(iterator, "__next__"),), {})
        return self.native.run(next, iterator, STOP)

    def next_number(self, counter: Any) -> Any:
        """The next number of an `itertools.count` from outside: one that changes from call to call."""
        known = self.outside.find(counter)
        assert known is not None
        try:
            first = number_of(counter)
        except ValueError:
            raise RunBetween("an iterator from outside is advanced") from None
        place = (id(counter), "the next number")
        if place not in self.record.written:
            self.record.written[place] = self.outside.load(Raw(known.source, number_of), first)
        number = self.record.written[place]
        following = arithmetic(self.numbers, "+", operator.add, number, 1) if is_symbol(number) else number + 1
        self.record.written[place] = following
        next(counter)
        self.record.made(next, counter)
        return number

    def unpack(self, value: Any, count: int, after: int) -> Any:
        value = self.numbers.specialise(value) if is_symbol(value) else value
        if isinstance(value, (*CONTAINERS, dict)) and self.outside.has(value):
            if isinstance(value, (list, tuple)):
                self.contents.read_length(value)
                length = tuple.__len__(value) if isinstance(value, tuple) else len(value)  # its class may not count
                value = [self.contents.read_item(value, place) for place in range(length)]
            else:
                self.contents.read_whole(value)
        elif isinstance(value, Tensor):
            value = self.native.run(list, value)
        elif self.containers.runs_python(value):
            return self.call(polyfills.unpack, (value, count, after), {})
        return polyfills.unpack(value, count, after)

    def contains(self, item: Any, container: Any) -> Any:
        if self.classes.method_of(container, "__contains__") is not None:
            return self.call(
                polyfills.contains, (self.classes.method_of(container, "__contains__"), container, item), {}
            )
        if isinstance(container, Tensor):
            return self.native.run(Tensor.__contains__, container, item)
        self.numbers.settle(container, compared=True)
        container = self.numbers.specialise(container) if is_symbol(container) else container
        if type(item) is not Sym or isinstance(container, (dict, set, frozenset, range, *VIEWS)):
            item = self.items.looked_for(container, item)
        if is_symbol(item) and isinstance(container, (set, frozenset)):
            return False
        self.contents.read_view(container)
        if isinstance(container, (dict, set, frozenset)):
            self.keys.key_in(container, item)
        elif isinstance(container, CONTAINERS):
            self.keys.tell_apart(item, container)
        if isinstance(container, (*CONTAINERS, dict)):
            if self.outside.has(container):
                if isinstance(container, dict):
                    return self.items.has_key(container, item)
                self.contents.read_deeply(container)
            if isinstance(container, (list, tuple, deque)) and any(
                self.containers.compares_in_python(x) for x in (item, *container)
            ):
                return self.call(polyfills.contains_by_iteration, (container, item), {})
        elif self.containers.runs_python(container):
            return self.call(polyfills.contains_by_iteration, (container, item), {})
        self.classes.vouch(container, "__contains__")
        self.contents.read_deeply(container)
        self.contents.read_deeply(item)
        return self.native.run(_is_in, item, container)

    def collect(self, target: Any, name: str, *values: Any) -> None:
        """Into a list, set or dict under construction: one from outside, if a graph break came in between."""
        self.containers.change(target, name, values, {})

    def as_tuple(self, items: list[Any]) -> tuple[Any, ...]:
        """A list under construction is from outside, and what it holds counts, if a graph break came in between."""
        self.contents.read_whole(items)
        return tuple(items)

    def extend(self, target: Any, values: Any) -> Any:
        if isinstance(values, (*CONTAINERS, dict)) and self.outside.has(values):
            self.contents.read_whole(values)
        if isinstance(values, Tensor):
            values = self.native.run(list, values)
        elif self.containers.runs_python(values):
            return self.call(
                polyfills.extend_list if isinstance(target, list) else polyfills.extend_set, (target, values), {}
            )
        self.collect(target, "extend" if isinstance(target, list) else "update", values)
        return None

    def merge(self, target: dict[Any, Any], mapping: Any, call: Any) -> Any:
        if isinstance(mapping, dict) and self.outside.has(mapping):
            self.contents.read_whole(mapping)
        elif not isinstance(mapping, dict):
            return self.call(polyfills.merge, (target, mapping, call), {})
        if self.outside.has(target) and (call is None or target.keys().isdisjoint(mapping)):
            self.collect(target, "update", mapping)
        else:
            polyfills.merge(target, mapping, call)
        return None


def number_of(counter: Any) -> int:
    """The number that an `itertools.count` gives next. Raises ValueError for one that counts otherwise than by 1."""
    return int(repr(counter).removeprefix("count(").removesuffix(")"))


def _is_in(item: Any, container: Any) -> bool:
    return item in container
