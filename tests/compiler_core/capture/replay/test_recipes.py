"""Recipes: every kind of object that captured code may leave behind is made again, alike and new, at every call."""

from __future__ import annotations

import array
import collections
import contextlib
import datetime
import decimal
import fractions
import functools
import io
import itertools
import operator
import pathlib
import random
import string
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.frame import UNSET
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import MISSING, NativeSemantics
from compiler_core.capture.recipes.kinds import EXACT
from compiler_core.capture.recipes.plans import Part, RebuildPlan
from compiler_core.capture.recipes.recipes import CannotRebuild, Recipe
from compiler_core.dtype import float32
from compiler_core.tensor.making.creation import ones
from distcompile import nn
from tests.compiler_core.capture.replay.recipe_objects import (
    Both,
    Color,
    Frozen,
    Guarded,
    Holder,
    Key,
    MyBytes,
    MyDefault,
    MyDeque,
    MyDict,
    MyFloat,
    MyFrozenSet,
    MyInt,
    MyList,
    MyOrdered,
    MySet,
    MyStr,
    MyTuple,
    Number,
    Plain,
    Point,
    Slots,
    World,
    a_frame,
    advanced,
    an_error,
    annotated,
    bunch_and_borg,
    closure_over,
    counter,
    loop,
    ordered_by_moves,
    parent_and_child,
    recursive_function,
    shared_arrays,
    tee,
    unset_cell,
    with_attributes,
)

KINDS: dict[str, Callable[[World], Any]] = {
    "tensor": lambda w: w.traced[0],
    "containers": lambda w: [(w.traced[0], [1]), {"a": w.traced[1], 2: [w.traced[0]]}, {1, 2}, frozenset({3}), ()],
    "outside": lambda w: [w.outside[0], {"o": w.outside[1]}, w.outside[2], w.outside[3]],
    "tagged tensor": lambda w: [with_attributes(w.traced[2], tag=[1], again=w.traced[2]), w.traced[2].tag],
    "loop": lambda w: loop(),
    "constants": lambda w: [
        None, True, 1.5, -0.0, float("nan"), float("inf"), 1j, "x" * 100, b"b", ..., NotImplemented, float32, Color.RED,
        int, Holder, random, len, np.float32(2), (1, (2, "x")), range(3), slice(1, None), Point(1, 2), list[int],
        int | None, np.sum, np.add, World.check, dict.fromkeys, str.upper, ones(1).dtype, UNSET, 2**200,
    ],
    "sets of objects": lambda w: [{Key("a"), Key("b")}, frozenset({Key(("c", 1))}), {Key("d"): [1]}],
    "deque": lambda w: [collections.deque([1, [2]], 3), collections.deque([w.traced[0]]), collections.deque()],
    "ordered": lambda w: [ordered_by_moves(), collections.OrderedDict()],
    "defaultdict": lambda w: [collections.defaultdict(list, a=[1]), collections.defaultdict(None)],
    "counter": lambda w: collections.Counter("abca"),
    "user containers": lambda w: [collections.UserDict(a=[1]), collections.ChainMap({"a": 1}),
        collections.UserList([2])],
    "subclasses": lambda w: [
        MyList([1, [2]]), MyDict(a=[1]), MyTuple(([1], 2)), MySet({1}), MyFrozenSet({2}), MyInt(3), MyStr("s"),
        MyFloat(0.5), MyBytes(b"b"), MyDeque([1, [2]], 4), MyOrdered(a=[1]), MyDefault(list, a=[1]),
        *(with_attributes(thing, tag=[1]) for thing in (MyList(), MyInt(1), MyTuple((1,)), MyStr("t"), MyDict())),
    ],
    "namedtuple": lambda w: [Point([1], w.traced[0]), Point(1, 2)],
    "namespace": lambda w: types.SimpleNamespace(a=[1], b=w.traced[0]),
    "instances": lambda w: [Holder([1], w.traced[0]), Plain([1]), Frozen([2]), Frozen(1), Slots([3]), Guarded()],
    "guarded attributes": lambda w: with_attributes(Both.__new__(Both), x=[1]),
    "__dict__ shared": lambda w: bunch_and_borg(),
    "vars": lambda w: (lambda h: [h, vars(h), h.__dict__.items()])(Holder(1)),
    "parent": lambda w: parent_and_child(),
    "functions": lambda w: [*counter(), annotated([1]), recursive_function(), unset_cell()],
    "cells": lambda w: [types.CellType(), (lambda c: [c, c])(types.CellType([1]))],
    "methods": lambda w: (lambda h, x: [h, types.MethodType(annotated, h), x, x.append, x.__len__, super(Holder, h)])(
        Holder(), [1]
    ),
    "partial": lambda w: [
        functools.partial(print, [1], sep=w.traced[0]), with_attributes(functools.partial(len), tag=[1]),
        functools.partial(annotated([2])), functools.partial(print, **{"not a name": 1}),
    ],
    "descriptors": lambda w: [property(annotated([1])), staticmethod(annotated([2])), classmethod(annotated([3]))],
    "iterators": lambda w: (lambda x: [
        x, advanced(iter(x)), iter((1, [2])), iter("abc"), advanced(iter(range(5)), 2),
        advanced(reversed(x)), enumerate(x, 3), zip(x, advanced(iter(x))), zip(x, x, strict=True),
        map(annotated([1]), x), filter(None, x), reversed(x),
    ])([1, [2], 3]),
    "itertools": lambda w: [
        itertools.count(3), advanced(itertools.count(1.5, 0.5)), advanced(itertools.cycle([1, [2]])),
        advanced(itertools.cycle([1, 2]), 3), itertools.repeat([1]), itertools.repeat(1, 3),
        advanced(itertools.accumulate([1, 2, 3])), itertools.chain([1], [[2]]), advanced(itertools.chain([1], [2])),
        itertools.chain.from_iterable([[1]]), itertools.compress("abc", [1, 0, 1]), itertools.dropwhile(bool, [1, 0]),
        itertools.filterfalse(None, [1]), advanced(itertools.islice([1, 2, 3], 0, 3)), itertools.starmap(pow, [(1, 2)]),
        itertools.takewhile(bool, [1, 0]), itertools.zip_longest([1], [2, 3]), itertools.combinations([1, 2], 2),
        advanced(itertools.permutations([1, 2, 3])), advanced(itertools.product([1, 2], [3])),
        advanced(itertools.groupby("aab")),
        itertools.combinations_with_replacement([1], 2),
    ],
    "tee": lambda w: tee(),
    "views": lambda w: (
        lambda d: [d, d.keys(), d.values(), d.items(), types.MappingProxyType(d), Holder.__dict__]
    )({1: [2]}),
    "weak": lambda w: (lambda h: [h, weakref.ref(h), weakref.ref(Holder)])(Holder()),
    "arrays": lambda w: shared_arrays(),
    "buffers": lambda w: [bytearray(b"ab"), array.array("i", [1, 2])],
    "errors": lambda w: [
        an_error(), ValueError([1]), StopIteration([2]), OSError(2, "no", "file"), KeyError("k"),
        ExceptionGroup("g", [ValueError()]), UnicodeDecodeError("utf8", b"b", 0, 1, "bad"),
        AttributeError("a", name="n", obj=[1]), ImportError("i", name="n"),
    ],
    "frame": lambda w: a_frame(),
    "sentinel": lambda w: (lambda o: [o, o, object()])(object()),
    "getters": lambda w: [operator.itemgetter(Holder()), operator.methodcaller("b", [1])],
    "numbers of the library": lambda w: [fractions.Fraction(1, 3), decimal.Decimal("1.5"), datetime.date(2000, 1, 1)],
    "standard library": lambda w: [
        string.Template("$a"), pathlib.PurePosixPath("a/b"), weakref.WeakValueDictionary(), contextlib.ExitStack(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_made_again(kind: str) -> None:
    world = World()
    world.check(KINDS[kind](world))


def drained(iterators: list[Any]) -> list[Any]:
    return [list(itertools.islice(iterator, 5)) for iterator in iterators]


def test_texts_in_memory() -> None:
    file, data = io.StringIO("a\nb"), io.BytesIO(b"xy")
    assert (file.readline(), data.read(1)) == ("a\n", b"x")
    for (again, bytes_), _ in World().twice(file, data):
        assert (again.read(), bytes_.read()) == ("b", b"y")


def test_iterators_go_on_where_they_were() -> None:
    make: Callable[[], list[Any]] = lambda: [  # noqa: E731
        iter({1: 2}), advanced(iter({1: 2, 3: 4}.items())), iter({1}), advanced(iter(()), 1), advanced(iter([1]), 2),
        advanced(itertools.cycle([1, 2]), 3), advanced(zip([1, 2], "ab")), advanced(map(str, [1, 2, 3]), 2),
        advanced(iter(collections.deque([1, 2]))), reversed({1: 2}), advanced(iter("äbc")), iter(b"ab"), *tee(),
    ]  # fmt: skip
    for (made,), _ in World().twice(make()):
        assert drained(made) == drained(make())


def interpreted(*args: Any) -> Any:
    """A generator that the machine runs, advanced once."""

    def counting(items: list[int]) -> Any:
        for item in items:
            try:
                got = yield item
                items.append(got)
            finally:
                items.append(-1)
        return "end"

    machine = Machine(NativeSemantics())
    made = machine.run([make_frame(counting, args, {})])
    next(made)
    return made


def test_a_generator_goes_on_from_its_frame() -> None:
    items = [1, 2]
    running = interpreted(items)
    for (generator, again), _ in World().twice(running, items):
        assert again == [1, 2]
        assert again is not items
        assert generator.send(7) == 2
        assert again == [1, 2, 7, -1]
        assert list(itertools.islice(generator, 2)) == [7, -1]
    assert items == [1, 2]


def test_a_generator_that_waits_for_another() -> None:
    def outer(inner: Any) -> Any:
        yield from inner

    inner = interpreted([1, 2])
    generator = Machine(NativeSemantics()).run([make_frame(outer, (inner,), {})])
    assert next(generator) == 2
    for (made, within), _ in World().twice(generator, inner):
        assert made.gi_yieldfrom is within
        assert next(made) is None


def test_sentinels_of_modules_stay() -> None:
    for (made,), _ in World().twice([MISSING, object()]):
        assert made[0] is MISSING


def test_an_iterator_of_a_list_sees_what_is_appended() -> None:
    items = [1]
    for (made, iterator), _ in World().twice(items, iter(items)):
        made.append(2)
        assert list(iterator) == [1, 2]


def test_numbers_are_computed_anew() -> None:
    number = Number(7)
    recipe = Recipe(lambda thing: None, lambda t: None, lambda v: "outside[0] + 1" if v is number else None)
    recipe.root("x", [number, (number, 1), slice(number), {number: number}])
    rebuild = recipe.build("numbers")
    assert rebuild([], [3]) == ([4, (4, 1), slice(4), {4: 4}],)
    assert rebuild([], [5]) == ([6, (6, 1), slice(6), {6: 6}],)


def test_sharing_among_roots() -> None:
    items, tensor = [1], ones(1)
    recipe = Recipe(lambda thing: None, lambda t: "wrap(fresh[0])" if t is tensor else None, lambda v: None)
    recipe._namespace["wrap"] = lambda t: t * 1
    recipe.root("a", [items, tensor])
    recipe.root("b", {"x": items, "y": tensor})
    a, b = recipe.build("sharing")([ones(1)], [])
    assert a[0] is b["x"]
    assert a[1] is b["y"]


def test_one_tensor_is_handed_on() -> None:
    world, recipe = World(), World().recipe()
    recipe = world.recipe()
    recipe.root("the result", world.traced[0])
    recipe.build("plain")
    assert recipe.source == "def rebuild(fresh, outside):\n    return (fresh[0],)\n"


def test_literals_are_readable() -> None:
    world = World()
    recipe = world.recipe()
    recipe.root("the result", {"logits": world.traced[0], "n": 3, "more": [(world.outside[0], None)]})
    recipe.build("readable")
    body = "return ({'logits': fresh[0], 'n': 3, 'more': [(outside[0], None)]},)"
    assert recipe.source == f"def rebuild(fresh, outside):\n    {body}\n"


def test_long_chains_and_wide_lists() -> None:
    chain: Any = None
    for _ in range(5000):
        chain = [chain]
    wide = [[i] for i in range(5000)]
    for (made, flat), _ in World().twice(chain, wide):
        assert flat == wide
        for _ in range(5000):
            (made,) = made
        assert made is None


def test_slots_may_stay_empty() -> None:
    for (made,), _ in World().twice(Slots([1])):
        assert made.a == [1]
        assert made.a is made._Slots__private
        assert not hasattr(made, "b")


def test_attributes_of_one_owner() -> None:
    namespace = types.SimpleNamespace(a=1)
    for (made, table), _ in World().twice(namespace, vars(namespace)):
        table["b"] = 2
        assert made.b == 2


def test_bound_again() -> None:
    holder, items = Holder(1), MyList([1])
    for (made, method, append), _ in World().twice(items, types.MethodType(annotated, holder), items.append):
        append(5)
        assert made == [1, 5]
        assert method.__self__.things == (1,)
        assert method.__self__ is not holder


def test_functions_share_their_variables() -> None:
    bump, state = counter()
    bump()
    for (again, look), _ in World().twice(bump, state):
        again(2)
        n, log, function = look()
        assert (n, log) == (3, [1, 3])
        assert function is again
    assert state()[0] == 1


def test_views_of_arrays_are_views() -> None:
    for ((a, view, turned, *_),), _ in World().twice(shared_arrays()):
        a[:] = 7
        assert (view == 7).all()
        assert (turned == 7).all()


def test_effects_in_order() -> None:
    world = World()
    log, table, holder, _ = world.outside
    made = [world.traced[0]]
    recipe = world.recipe()
    recipe.root("the variable 'made'", made)
    recipe.effect(list.append, log, made)
    recipe.effect(list.insert, log, 0, "first")
    recipe.effect(setattr, holder, "things", (log, made))
    recipe.effect(dict.__setitem__, table, "k", made)
    recipe.effect(list.append, made, "late")
    rebuild = recipe.build("effects")
    for round_ in range(2):
        fresh = [ones(2)]
        log[:], holder.things = [1], None
        (again,) = rebuild(fresh, world.outside)
        assert again == [fresh[0], "late"], round_
        assert again[0] is fresh[0]
        assert log == ["first", 1, again]
        assert log[2] is again
        assert holder.things[0] is log
        assert table["k"] is again


def test_what_effects_change_is_read_before() -> None:
    number = Number(1)
    recipe = Recipe(lambda thing: 0 if thing is log else None, lambda t: None, lambda v: "len(outside[0])")
    log: list[Any] = []
    recipe.effect(list.append, log, "x")
    recipe.root("n", number)
    assert recipe.build("before")([], [log]) == (0,)


class Knot:
    """Equal and hashed by its name, which must be set before it is a key."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Knot) and other.name == self.name


def test_keys_that_hold_their_dict() -> None:
    knot = Knot("k")
    knot.table, knot.all = {knot: [knot]}, {knot}  # type: ignore[attr-defined]
    for (made,), _ in World().twice(knot):
        assert made.table[Knot("k")] == [made]
        assert Knot("k") in made.all


def test_nothing_is_run() -> None:
    calls = []

    class Noisy(dict):
        def __init__(self) -> None:
            calls.append("init")

        def __new__(cls) -> Noisy:
            calls.append("new")
            return super().__new__(cls)

        def __setitem__(self, key: Any, value: Any) -> None:
            calls.append("set")

        def __setattr__(self, name: str, value: Any) -> None:
            calls.append("attribute")

        def update(self, *args: Any, **kwargs: Any) -> None:
            calls.append("update")

    thing = Noisy()
    dict.update(thing, a=[1])
    vars(thing)["b"] = 2
    calls.clear()
    for (made,), _ in World().twice(thing):
        assert dict(made) == {"a": [1]}
        assert made.b == 2
    assert calls == []


class Optimizer:
    def zero_grad(self) -> None: ...
    def add_param_group(self, group: Any) -> None: ...


def generator() -> Any:
    yield 1


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "module": (lambda: {"m": nn.Linear(1, 1)}, "['m']"),
    "optimizer": (lambda: [Optimizer()], "[0]"),
    "file": (lambda: Holder(open("/dev/null")), ".things[0]"),  # noqa: SIM115
    "lock": (lambda: {"k": [threading.Lock()]}, "['k'][0]"),
    "event": (lambda: threading.Event(), "._cond._lock"),
    "thread": (lambda: threading.Thread(), ""),
    "generator": (lambda: map(len, generator()), "its part 1"),
    "tensor": (lambda: (1, ones(1)), "[1]"),
    "trace": (lambda: closure_over(ones(1)._cell), "its variable 'value', what it holds"),
    "cache": (lambda: functools.lru_cache(annotated([1])), ""),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_a_path(kind: str) -> None:
    make, path = REFUSED[kind]
    world = World()
    recipe = world.recipe()
    recipe.root("the variable 'v'", make())
    with pytest.raises(CannotRebuild) as caught:
        recipe.build("refused")
    assert caught.value.where.startswith("the variable 'v'")
    assert path in caught.value.where
    assert caught.value.why
    assert caught.value.remedy
    assert caught.value.where in str(caught.value)


def test_made_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """No type is known to allow this; plans of types to come may."""
    plan = lambda thing: RebuildPlan(("frozen(", Part(thing.things[0], ".part"), ")"))  # noqa: E731
    monkeypatch.setitem(EXACT, Holder, plan)
    holder = Holder()
    holder.things = (holder,)
    recipe = World().recipe()
    recipe.root("the variable 'v'", holder)
    with pytest.raises(CannotRebuild, match="part of itself"):
        recipe.build("refused")


def test_refused_in_an_effect() -> None:
    world = World()
    recipe = world.recipe()
    recipe.effect(list.append, world.outside[0], [threading.Lock()])
    with pytest.raises(CannotRebuild, match=r"an argument of append, at \[0\]"):
        recipe.build("refused")
