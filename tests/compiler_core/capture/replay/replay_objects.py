"""Programs whose effects go through object graphs, aliases and protocols. See `replay_programs`."""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import distcompile as torch
from tests.compiler_core.capture.replay.replay_programs import Box, Color, Pair, program

# -- aliases and object graphs


@program
def nested_containers(log: list[Any]) -> Any:
    box = Box(table={"a": {"b": []}}, rows=[[0], [1]])

    def function(x: Any) -> Any:
        box.table["a"]["b"].append(x)
        box.table["a"]["n"] = box.table["a"].get("n", 0) + len(box.table["a"]["b"])
        box.rows[0][0] += 1
        box.rows[-1].append(box.rows[0][0])
        return x * box.table["a"]["n"] + sum(box.rows[1])

    return function, box


@program
def two_names_for_one_list(log: list[Any]) -> Any:
    shared: list[Any] = [1]
    box = Box(a=shared, b=shared)

    def function(x: Any) -> Any:
        box.a.append(len(box.b))
        box.b[0] += 10
        log.append(box.a is box.b)
        return x * (len(box.a) + box.a[0] + sum(box.b))

    return function, box


@program
def attributes_swapped(log: list[Any]) -> Any:
    box = Box(a=[1], b=[2, 3], t=torch.ones(3), u=torch.zeros(3))

    def function(x: Any) -> Any:
        box.a, box.b = box.b, box.a
        box.t, box.u = box.u + x, box.t
        box.a.append(len(box.b))
        return box.t * len(box.a) + box.u

    return function, box


@program
def items_moved_between_lists(log: list[Any]) -> Any:
    source, target = [1, 2, 3, 4], [0]

    def function(x: Any) -> Any:
        target.append(source.pop())
        source.insert(0, target[0])
        target[0], target[-1] = target[-1], target[0]
        return x * target[0] + source[0]

    return function, (source, target)


@program
def lists_replaced_and_extended(log: list[Any]) -> Any:
    box = Box(items=[1], more=[1], same=None)
    box.same = box.more

    def function(x: Any) -> Any:
        box.items = box.items + [len(box.items)]
        box.more += [len(box.more)]
        box.more *= 1
        return x * len(box.items) + len(box.same)

    return function, box


@program
def linked_list(log: list[Any]) -> Any:
    box = Box(head=None, size=0)

    def function(x: Any) -> Any:
        box.head = Box(value=x * 2, rest=box.head)
        box.size += 1
        node, total = box.head, x
        while node is not None:
            total = total + node.value
            node = node.rest
        return total

    return function, box


@program
def ring_of_objects(log: list[Any]) -> Any:
    box = Box(ring=None)

    def function(x: Any) -> Any:
        first, second = Box(x=x), Box(x=x + 1)
        first.next, second.next = second, first
        first.seen = [second, first]
        box.ring = first
        return box.ring.next.next.x

    return function, box


@program
def least_recently_used(log: list[Any]) -> Any:
    cache: collections.OrderedDict[int, Any] = collections.OrderedDict()
    state = Box(n=0)

    def get(key: int, x: Any) -> Any:
        if key in cache:
            cache.move_to_end(key)
            return cache[key]
        log.append(("miss", key))
        cache[key] = x * key
        if len(cache) > 2:
            log.append(cache.popitem(last=False)[0])
        return cache[key]

    def function(x: Any) -> Any:
        state.n += 1
        return get(state.n, x) + get(1, x) + get(state.n % 2, x)

    return function, cache


@program
def keys_deleted_while_iterating(log: list[Any]) -> Any:
    table = {f"k{i}": i for i in range(6)}

    def function(x: Any) -> Any:
        for key in list(table):
            if table[key] % 3 == 0:
                del table[key]
            else:
                table[key] += 1
        return x * sum(table.values())

    return function, table


@program
def sets_changed(log: list[Any]) -> Any:
    names, more = {1, 2}, {5}

    def function(x: Any) -> Any:
        nonlocal names
        names |= {len(names) + 1}
        names -= {1}
        more.update(names)
        more.discard(5)
        if 3 in more:
            more.remove(3)
        return x * len(names) + len(more)

    return function, lambda: (sorted(names), sorted(more))


@program
def heap(log: list[Any]) -> Any:
    queue: list[Any] = [3, 5]

    def function(x: Any) -> Any:
        heapq.heappush(queue, len(queue))
        return x * heapq.heappop(queue)

    return function, queue


@program
def default_tables(log: list[Any]) -> Any:
    table: Any = collections.defaultdict(lambda: collections.defaultdict(int))
    lists: Any = collections.defaultdict(list)

    def function(x: Any) -> Any:
        table["a"]["b"] += 1
        lists[table["a"]["b"]].append(x)
        return x * table["a"]["b"] + len(lists)

    return function, lambda: (dict(table["a"]), dict(lists))


@program
def texts_and_tuples_that_grow(log: list[Any]) -> Any:
    box = Box(text="", rows=(), flags=frozenset(), data=b"")

    def function(x: Any) -> Any:
        box.text += f"{len(box.rows)},"
        box.rows = (*box.rows, len(box.text))
        box.flags |= {len(box.rows)}
        box.data += b"x"
        return x * len(box.text) + sum(box.rows) + len(box.flags)

    return function, box


@program
def slots(log: list[Any]) -> Any:
    class Slotted:
        __slots__ = ("last", "n")

        def __init__(self) -> None:
            self.n = 0

    thing = Slotted()

    def function(x: Any) -> Any:
        thing.n += 1
        thing.last = x * thing.n
        return thing.last + (thing.n if hasattr(thing, "last") else 0)

    return function, lambda: (thing.n, thing.last)


@program
def dataclasses_changed(log: list[Any]) -> Any:
    @dataclasses.dataclass
    class State:
        n: int = 0
        kept: list[Any] = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True)
    class Fixed:
        n: int
        x: Any = None

    box = Box(state=State(), fixed=Fixed(0))

    def function(x: Any) -> Any:
        box.state.n += 1
        box.state.kept.append(x)
        box.fixed = dataclasses.replace(box.fixed, n=box.fixed.n + 1, x=x * 2)
        other = State(box.state.n)
        other.kept.append(box.fixed)
        return other, box.fixed.x + len(box.state.kept)

    return function, box


@program
def dictionaries_of_objects(log: list[Any]) -> Any:
    box = Box(n=0)

    def function(x: Any) -> Any:
        vars(box).update(a=x, n=box.n + 1)
        box.__dict__["b"] = box.n * 2
        box.c = vars(box)["b"] + 1
        log.append(sorted(vars(box)))
        return box.a * box.b + box.c

    return function, box


@program
def enumerations_and_pairs(log: list[Any]) -> Any:
    box = Box(color=Color.RED, pair=Pair(0, 1), table={Color.RED: 0})

    def function(x: Any) -> Any:
        box.color = Color.BLUE if box.color is Color.RED else Color.RED
        box.pair = Pair(box.pair.b, box.pair.a + box.pair.b)
        box.table[box.color] = box.table.get(box.color, 0) + 1
        return x * box.pair.b + box.color.value

    return function, box


# -- functions and callbacks


@program
def attributes_of_functions(log: list[Any]) -> Any:
    def helper(x: Any) -> Any:
        helper.calls += 1  # type: ignore[attr-defined]
        helper.last = x  # type: ignore[attr-defined]
        return x * helper.calls  # type: ignore[attr-defined]

    helper.calls = 0  # type: ignore[attr-defined]
    return (lambda x: helper(x) + helper(x)), lambda: vars(helper)


@program
def counting_decorator(log: list[Any]) -> Any:
    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            log.append((function.__name__, calls, len(args), sorted(kwargs)))
            return function(*args, **kwargs)

        return wrapper

    @counted
    def scale(x: Any, by: int = 2, *, plus: int = 0) -> Any:
        return x * by + plus

    return (lambda x: scale(x) + scale(x, 3, plus=1)), None


@program
def callbacks(log: list[Any]) -> Any:
    class Model:
        def __init__(self) -> None:
            self.listeners: list[Any] = []
            self.n = 0

        def fire(self, x: Any) -> Any:
            for listener in self.listeners:
                x = listener(x, self)
            return x

        def count(self, x: Any, model: Any) -> Any:
            model.n += 1
            return x + model.n

    model = Model()
    model.listeners += [model.count, lambda x, m: log.append(m.n) or x * 2, functools.partial(lambda k, x, m: x + k, 3)]

    def function(x: Any) -> Any:
        y = model.fire(x)
        if model.n == 2:
            model.listeners.append(model.count)
        return y

    return function, lambda: model.n


@program
def two_levels_of_variables(log: list[Any]) -> Any:
    total = 0

    def outer(x: Any) -> Any:
        inside = 0

        def inner(y: Any) -> Any:
            nonlocal total, inside
            inside += 1
            total += inside
            return y * total

        z = inner(x) + inner(x)
        log.append(inside)
        return z

    return outer, lambda: total


@program
def generators_sent_to(log: list[Any]) -> Any:
    def averaging() -> Iterator[Any]:
        total, n = 0, 0
        value = yield None
        while True:
            total, n = total + value, n + 1
            value = yield total / n

    def function(x: Any) -> Any:
        average = averaging()
        next(average)
        found = [average.send(x), average.send(x * 3)]
        average.close()
        try:
            average.send(x)
        except StopIteration:
            log.append("closed")
        return found

    return function, None


@program
def generator_with_finally(log: list[Any]) -> Any:
    def rows(x: Any) -> Iterator[Any]:
        try:
            for i in range(5):
                yield x * i
        except ValueError:
            log.append("thrown")
            yield x * 100
        finally:
            log.append("done")

    def function(x: Any) -> Any:
        first = rows(x)
        next(first)
        y = first.throw(ValueError)
        for z in rows(x):
            if len(log) > 3:
                break
            y = y + z
        first.close()
        return y

    return function, None


@program
def iterators_kept_outside(log: list[Any]) -> Any:
    items = [1, 2, 3, 4, 5, 6]
    box = Box(pairs=enumerate(items), chained=itertools.chain([7], iter(items)), zipped=zip(items, "abcdef"))

    def function(x: Any) -> Any:
        place, item = next(box.pairs)
        number, letter = next(box.zipped)
        log.append((place, letter, next(box.chained)))
        return x * item + number

    return function, lambda: (list(box.pairs), list(box.zipped), list(box.chained))


@program
def iterators_made_and_kept(log: list[Any]) -> Any:
    box = Box(chunks=None, n=0)

    def function(x: Any) -> Any:
        if box.chunks is None or box.n == 2:
            box.chunks = iter([x, x * 2, x * 3])
        box.n += 1
        return next(box.chunks) + box.n

    return function, lambda: list(box.chunks)
