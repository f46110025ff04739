"""Idioms of the standard library in research code: parsing, queues, flags, signatures, templates, weak observers."""

from __future__ import annotations

import bisect
import contextlib
import contextvars
import enum
import functools
import heapq
import inspect
import itertools
import operator
import re
import string
import weakref
from collections import ChainMap, UserList, defaultdict, namedtuple
from dataclasses import field, make_dataclass
from functools import partial, partialmethod, reduce
from typing import TypeVar

from tests.programs.harness import attempt, program

T = TypeVar("T")


@program
def scopes_by_context_variables(torch, compile):
    precision = contextvars.ContextVar("precision", default="full")
    depth = contextvars.ContextVar("depth")

    @contextlib.contextmanager
    def using(value):
        token = precision.set(value)
        try:
            yield
        finally:
            precision.reset(token)

    @compile
    def run(x):
        y = x / 3
        return y.half().float() if precision.get() == "half" else y, depth.get(None)

    yield run(torch.ones(2))
    with using("half"):
        yield run(torch.ones(2))
        depth.set(2)
        yield run(torch.ones(2))
    yield run(torch.ones(2))


@program
def expressions_parsed_from_text(torch, compile):
    token = re.compile(r"\s*(?:(?P<number>\d+\.?\d*)|(?P<name>[a-z]+)|(?P<op>[-+*/()]))")

    def tokens(text):
        for match in token.finditer(text):
            yield match.lastgroup, match.group(match.lastgroup)

    def parse(text, names):
        stream = list(tokens(text))[::-1]

        def atom():
            kind, value = stream.pop()
            if kind == "number":
                return float(value)
            if kind == "name":
                return names[value]
            inner = expression()
            stream.pop()
            return inner

        def term():
            left = atom()
            while stream and stream[-1][1] in "*/":
                op = {"*": operator.mul, "/": operator.truediv}[stream.pop()[1]]
                left = op(left, atom())
            return left

        def expression():
            left = term()
            while stream and stream[-1][1] in "+-":
                op = {"+": operator.add, "-": operator.sub}[stream.pop()[1]]
                left = op(left, term())
            return left

        return expression()

    @compile
    def run(x, y, text):
        return parse(text, {"x": x, "y": y})

    for text in ("x + 2 * y", "(x + 2) * y / 4", "x + 2 * y", "y - x - 1.5"):
        yield run(torch.ones(2), torch.arange(2.0), text)
    yield attempt(run, torch.ones(2), torch.ones(2), "x + z")


@program
def priority_queue_of_nodes(torch, compile):
    @functools.total_ordering
    class Node:
        ids = itertools.count()

        def __init__(self, cost, path):
            self.cost, self.path, self.id = cost, path, next(Node.ids)

        def __eq__(self, other):
            return (self.cost, self.id) == (other.cost, other.id)

        def __lt__(self, other):
            return (self.cost, self.id) < (other.cost, other.id)

    graph = {"a": [("b", 2), ("c", 1)], "b": [("d", 1)], "c": [("b", 0.5), ("d", 5)], "d": []}

    @compile
    def shortest(x, start, goal):
        heap, done = [(0.0, 0, start, (start,))], set()
        order = itertools.count(1)
        while heap:
            cost, _, name, path = heapq.heappop(heap)
            if name == goal:
                return x * cost, path
            if name in done:
                continue
            done.add(name)
            for other, length in graph[name]:
                heapq.heappush(heap, (cost + length, next(order), other, (*path, other)))
        return x, ()

    yield shortest(torch.ones(2), "a", "d")
    graph["c"].append(("d", 0.25))
    yield shortest(torch.ones(2), "a", "d")
    yield shortest(torch.ones(2), "d", "a")
    yield sorted([Node(2, "x"), Node(1, "y")])[0].path


@program
def signatures_decide_what_is_passed(torch, compile):
    def call_with_known(fn, **available):
        wanted = inspect.signature(fn).parameters
        return fn(**{name: value for name, value in available.items() if name in wanted})

    def plain(x):
        return x + 1

    def masked(x, mask):
        return x * mask

    def scaled(x, *, scale=2.0):
        return x * scale

    @compile
    def run(fn, x, mask):
        return call_with_known(fn, x=x, mask=mask, scale=3.0)

    for fn in (plain, masked, scaled, plain, lambda mask: mask - 1):
        yield run(fn, torch.ones(2), torch.tensor([1.0, 0.0]))


@program
def observers_held_weakly(torch, compile):
    class Subject:
        def __init__(self):
            self.observers = []

        def attach(self, method):
            self.observers.append(weakref.ref(method.__self__))

        def notify(self, value):
            live = [ref() for ref in self.observers]
            for observer in live:
                if observer is not None:
                    observer.update(value)
            return sum(observer is not None for observer in live)

    class Observer:
        def __init__(self):
            self.seen = []

        def update(self, value):
            self.seen.append(value)

    subject, first, second = Subject(), Observer(), Observer()
    subject.attach(first.update)
    subject.attach(second.update)

    @compile
    def run(x):
        y = x * 2
        return y, subject.notify(y)

    yield run(torch.ones(1)), first.seen
    del second
    yield run(torch.ones(1)), first.seen
    del first
    yield run(torch.ones(1))


@program
def flags_bit_fields_and_tables(torch, compile):
    class Mode(enum.IntFlag):
        NORM = enum.auto()
        SHIFT = enum.auto()
        CLIP = enum.auto()
        ALL = NORM | SHIFT | CLIP

    steps = {Mode.NORM: lambda x: x / x.norm(), Mode.SHIFT: lambda x: x + 1, Mode.CLIP: lambda x: x.clamp(max=1)}

    @compile
    def run(x, mode):
        for flag, step in steps.items():
            if flag in mode:
                x = step(x)
        return x, int(mode & Mode.CLIP), bool(mode & Mode.NORM), Mode(mode).name, int(mode)

    for mode in (Mode.NORM | Mode.CLIP, Mode.ALL, Mode.SHIFT, Mode.NORM | Mode.CLIP, Mode(0)):
        yield run(torch.arange(1.0, 3.0), mode)


@program
def buckets_by_bisection(torch, compile):
    edges = [2, 4, 8]
    Bucket = namedtuple("Bucket", "size items")  # noqa: PYI024

    @compile
    def bucketed(rows):
        buckets = defaultdict(list)
        for row in rows:
            place = bisect.bisect_left(edges, len(row))
            buckets[edges[place] if place < len(edges) else None].append(row)
        made = [Bucket(size, items) for size, items in sorted(buckets.items(), key=lambda kv: kv[0] or 99)]
        pad = torch.nn.functional.pad
        return {b.size: torch.stack([pad(row, (0, b.size - len(row))) for row in b.items]) for b in made if b.size}, [
            (b.size, len(b.items)) for b in made
        ]

    yield bucketed([torch.ones(n) for n in (1, 2, 3, 5)])
    yield bucketed([torch.ones(n) for n in (3, 3, 9)])
    yield bucketed([torch.ones(n) for n in (1, 2, 3, 5)])


@program
def templates_and_layered_settings(torch, compile):
    layers = ChainMap({}, {"lr": 0.1}, {"lr": 1.0, "name": "base", "n": 2})
    template = string.Template("$name-$n")

    class Steps(UserList):
        def total(self):
            return sum(self, start=0)

    @compile
    def run(x, **overrides):
        settings = layers.new_child(overrides)
        steps = Steps(range(settings["n"])) + [settings["n"]]
        return x * settings["lr"] + steps.total(), template.substitute(settings), len(settings), list(steps)

    yield run(torch.ones(1))
    yield run(torch.ones(1), lr=0.5)
    layers.maps[0]["n"] = 4
    yield run(torch.ones(1), name="other")
    yield attempt(run, torch.ones(1), n="x")


@program
def methods_made_from_parts(torch, compile):
    class Stage:
        def _apply(self, x, *, by, op):
            self.log.append(op.__name__)
            return op(x, by)

        double = partialmethod(_apply, by=2.0, op=operator.mul)
        lower = partialmethod(_apply, by=1.0, op=operator.sub)

        def __init__(self):
            self.log = []

    Point = make_dataclass("Point", [("x", float), ("y", float, field(default=1.0))])
    compose = lambda *fns: reduce(lambda f, g: lambda x: g(f(x)), fns)  # noqa: E731

    @compile
    def run(x, stage):
        point = Point(2.0)
        whole = compose(stage.double, stage.lower, partial(torch.clamp, min=point.y))
        return whole(x), point == Point(2.0, 1.0), repr(point)

    stage = Stage()
    for k in range(3):
        yield run(torch.arange(2.0) + k, stage), stage.log
