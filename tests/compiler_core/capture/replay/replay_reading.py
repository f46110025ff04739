"""Programs that reach objects from outside by ways that C code goes, and change them. See `replay_programs`."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import operator
from collections import OrderedDict, deque
from typing import Any

import distcompile as torch
from tests.compiler_core.capture.replay.replay_programs import Box, program


def boxes() -> list[Any]:
    return [Box(n=3, items=[1]), Box(n=1, items=[2]), Box(n=2, items=[3])]


@program
def shallow_copies(log: list[Any]) -> Any:
    box = Box(n=0, items=[1], inner=Box(n=5))

    def function(x: Any) -> Any:
        other = copy.copy(box)
        other.n += 1
        other.items.append(other.n)
        other.inner.n += 1
        box.n = other.n
        return x * len(box.items) + other.inner.n

    return function, box


@program
def deep_copies(log: list[Any]) -> Any:
    box = Box(n=0, items=[1, [2]])

    def function(x: Any) -> Any:
        other = copy.deepcopy(box)
        other.items[1].append(box.n)
        box.n += 1
        log.append(other.items)
        return x * (len(other.items[1]) + box.n)

    return function, box


@program
def copies_of_containers(log: list[Any]) -> Any:
    table, rows = {"a": [1], "b": [2]}, [[1], [2]]

    def function(x: Any) -> Any:
        first, second, third = table.copy(), {**table}, dict(table)
        fourth, fifth, sixth = rows[:], list(rows), rows + [[3]]
        first["a"].append(1)
        second["b"].append(2)
        third["c"] = 3
        fourth[0].append(4)
        fifth[-1].append(5)
        sixth[1].append(6)
        head, *rest = rows
        rest[0].append(len(head))
        return x * sum(map(len, table.values())) + sum(map(len, rows))

    return function, (table, rows)


@program
def getters(log: list[Any]) -> Any:
    things = boxes()
    number, content, first = operator.attrgetter("n"), operator.attrgetter("items"), operator.itemgetter(0)
    add = operator.methodcaller("append", 7)

    def function(x: Any) -> Any:
        things[0].n += 1
        total = number(things[0]) + sum(map(number, things))
        content(things[1]).append(total)
        add(content(things[2]))
        first(things).items.append(0)
        return x * total

    return function, things


@program
def sorted_by_keys(log: list[Any]) -> Any:
    things = boxes()

    def function(x: Any) -> Any:
        ordered = sorted(things, key=lambda thing: thing.n)
        ordered[0].n += 2
        smallest = min(things, key=operator.attrgetter("n"))
        smallest.items.append(len(ordered))
        things.sort(key=lambda thing: -thing.n)
        log.append([thing.n for thing in things])
        return x * smallest.n

    return function, things


@program
def formatted_objects(log: list[Any]) -> Any:
    box = Box(n=0, t=(1, 2))

    class Shown:
        n = 0

        def __str__(self) -> str:
            log.append("shown")
            return f"n={self.n}"

        __repr__ = __str__

    shown = Shown()

    def function(x: Any) -> Any:
        box.n += 1
        shown.n += 1
        log.append("{.n} {}".format(box, shown))  # noqa: UP032
        log.append("%s|%r" % (shown, box.t))  # noqa: UP031
        log.append(f"{shown!s:>6} {box.n:03d}")
        log.append(", ".join(map(str, [shown, box.n])))
        log.append(json.dumps({"n": box.n, "t": box.t}))
        return x * len(log[0])

    return function, (box, lambda: shown.n)


@program
def elements_changed_in_loops(log: list[Any]) -> Any:
    rows, table, pairs = [[1], [2]], {"a": [1], "b": [2]}, ([1], [2])

    def function(x: Any) -> Any:
        for row in rows:
            row.append(len(row))
        for i, (key, row) in enumerate(table.items()):
            row.append(key)
            table[key] = [*row, i]
        for a, b in zip(rows, reversed(pairs)):
            a.extend(b)
            b.append(len(a))
        next(iter(table.values())).append("first")
        pairs[0].append(sum(pairs[1]))
        return x * len(rows[0]) + sum(len(row) for row in table.values())

    return function, (rows, table, pairs)


@program
def chained_and_flattened(log: list[Any]) -> Any:
    rows = [[Box(n=1)], [Box(n=2), Box(n=3)]]

    def function(x: Any) -> Any:
        for thing in itertools.chain(*rows):
            thing.n += 1
        for thing in itertools.chain.from_iterable(rows):
            thing.n += 1
        flat = sum(rows, [])  # noqa: RUF017
        flat[-1].n += 10
        last = functools.reduce(lambda a, b: b if b.n > a.n else a, flat)
        last.n += 100
        return x * sum(thing.n for thing in flat)

    return function, rows


@program
def keys_that_are_objects(log: list[Any]) -> Any:
    first, second = Box(n=1), Box(n=2)
    table, members = {first: [1], second: [2]}, {first}

    def function(x: Any) -> Any:
        table[first].append(len(table))
        table[second] = [*table[second], 0]
        if second not in members:
            members.add(second)
        for thing in table:
            thing.n += 1
        return x * first.n + len(members) + len(table[first])

    return function, lambda: (list(table.values()), first.n, second.n, len(members))


@program
def views_kept(log: list[Any]) -> Any:
    table = {"a": 1}
    keys, values = table.keys(), table.values()

    def function(x: Any) -> Any:
        table[f"k{len(keys)}"] = len(values)
        return x * len(keys) + sum(values)

    return function, table


@program
def ends_of_containers(log: list[Any]) -> Any:
    queue, table, rows = deque([[1], [2]]), OrderedDict(a=[1], b=[2]), [[1], [2], [3]]

    def function(x: Any) -> Any:
        queue[0].append(0)
        queue.rotate()
        queue[0].append(1)
        table["a"].append(len(queue[0]))
        table.move_to_end("a")
        [*table.values()][0].append("first")  # noqa: RUF015
        rows[-1].append(len(table))
        rows.append(rows.pop(0))
        rows[0], rows[1] = rows[1], rows[0]
        return x * len(rows[0]) + len(queue[-1])

    return function, (queue, table, rows)


@program
def found_by_identity(log: list[Any]) -> Any:
    things = boxes()
    box = Box(chosen=things[1], things=things)

    def function(x: Any) -> Any:
        place = things.index(box.chosen)
        things.remove(box.chosen)
        things.append(box.chosen)
        box.chosen.n += 1
        log.append((place, box.chosen in things, box.chosen is things[-1], box.things is things))
        box.chosen = things[0]
        return x * things[-1].n + place

    return function, box


@program
def pieces_of_tuples(log: list[Any]) -> Any:
    pair = ([1], {"n": 1}, Box(n=1))

    def function(x: Any) -> Any:
        items, table, box = pair
        items += [len(items)]
        table["n"] += 1
        box.n += table["n"]
        return x * box.n + len(pair[0])

    return function, pair


@program
def objects_that_share_state(log: list[Any]) -> Any:
    shared = {"n": 0}
    first, second = Box(), Box()
    first.__dict__ = second.__dict__ = shared

    def function(x: Any) -> Any:
        first.n += 1
        second.m = second.n * 2
        shared["k"] = first.m + 1
        return x * second.k + first.n

    return function, shared


@program
def made_then_published(log: list[Any]) -> Any:
    box = Box(kept=[])

    def function(x: Any) -> Any:
        made = {"items": [1]}
        box.kept.append(made)
        made["items"].append(2)
        box.kept[-1]["items"].append(x)
        box.last = made["items"]
        box.last.append(4)
        made["self"] = made
        return len(box.kept[-1]["items"]) * x

    return function, box


@program
def taken_then_replaced(log: list[Any]) -> Any:
    box = Box(items=[1], n=0)

    def function(x: Any) -> Any:
        before = box.items
        box.items = []
        before.append(box.n)
        box.items.append(before)
        box.n += 1
        box.items.append(len(before))
        return x * box.n, before

    return function, box


@program
def numbers_through_containers(log: list[Any]) -> Any:
    box = Box(step=0, log=[], table={})

    def function(x: Any) -> Any:
        box.step += 1
        box.log.append(box.step)
        box.table[box.step] = [box.step * 2]
        half = box.log[-1] / 2
        names = {f"s{step}": step for step in box.log}
        box.table[box.step].append(half)
        text = f"{box.step}/{len(names)}"
        log.append((text, half, box.step in box.table, max(box.log), sorted(names)))
        return x * box.table[box.step][0] + half

    return function, box


@program
def numbers_as_indices(log: list[Any]) -> Any:
    box = Box(at=0, rows=[torch.ones(3) * i for i in range(4)], names=["a", "b", "c", "d"])

    def function(x: Any) -> Any:
        row, name = box.rows[box.at], box.names[box.at]
        box.at = (box.at + 1) % len(box.rows)
        box.rows[box.at] = row + x[: box.at + 1].sum()
        log.append((name, box.names[box.at :], list(range(box.at))))
        return row * box.at

    return function, box


@program
def contents_compared(log: list[Any]) -> Any:
    rows = [[3], [1], [2]]
    box = Box(wanted=[1], pair=(1, [2]), kinds=[(1, 2)])

    def function(x: Any) -> Any:
        found = (box.wanted in rows, [2] in rows, rows.count([2]), max(rows), sorted(rows), sum(rows, []))  # noqa: RUF017
        log.append(found)
        rows[1][0] += 1
        box.wanted[0] += 2
        box.kinds[0] = (box.kinds[0][0] + 1, 2)
        rows.sort()
        log.append((box.pair == (1, [2]), len(set(box.kinds) | {(2, 2)}), rows.index(max(rows))))
        return x * rows[0][0]

    return function, (rows, box)


@program
def generators_left(log: list[Any]) -> Any:
    def numbers(name: str, n: int) -> Any:
        try:
            while n:
                yield n
                n -= 1
        finally:
            print("closing", name)
            log.append(name)

    def first() -> Any:
        for thing in numbers("b", 3):
            return thing

    def function(x: Any) -> Any:
        for i in numbers("a", 5):
            if i == 4:
                break
        x = x + i + first()
        log.append("after b")
        list(numbers("c", 2))
        return x

    return function, None


@program
def generators_dropped(log: list[Any]) -> Any:
    def numbers(x: Any) -> Any:
        try:
            while True:
                yield x
        finally:
            log.append("closing")
            print("closing", float(x.sum()))
            log.append("closed")

    def function(x: Any) -> Any:
        kept = numbers(x * 2)
        y = next(kept)
        del kept
        return y + 1

    return function, None
