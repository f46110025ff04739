"""Recipes of random graphs of objects: sharing and cycles are kept, at every call."""

from __future__ import annotations

import collections
import functools
import random
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.compiler_core.capture.replay.recipe_objects import (
    Color,
    Frozen,
    Holder,
    MyDict,
    MyTuple,
    Plain,
    Point,
    Slots,
    World,
    annotated,
    closure_over,
)

# -- random graphs of objects


def random_graph(seed: int, world: World) -> list[Any]:
    """Objects of many kinds that hold each other, cycles and sharing included."""
    rng = random.Random(seed)
    pool: list[Any] = [1, "s", None, 2.5, *world.traced, *world.outside, Color.RED]
    pick = lambda: rng.choice(pool)  # noqa: E731
    for _ in range(rng.randint(2, 25)):
        pool.append(rng.choice(MAKERS)(pick, pool))
    for _ in range(rng.randint(0, 10)):  # edges back: cycles
        target, value = pick(), pick()
        if any(target is thing for thing in [*world.outside, *world.traced]):
            continue
        if isinstance(target, collections.deque | list):
            target.append(value)
        elif isinstance(target, Holder | types.FunctionType):
            setattr(target, rng.choice("abc"), value)
        elif type(target) in (dict, MyDict, collections.OrderedDict):
            target[rng.choice("xyz")] = value
        elif isinstance(target, types.CellType):
            target.cell_contents = value
    return [pick() for _ in range(rng.randint(1, 4))]


MAKERS: list[Callable[[Callable[[], Any], list[Any]], Any]] = [
    lambda pick, pool: [pick() for _ in range(3)],
    lambda pick, pool: (pick(), pick()),
    lambda pick, pool: {"a": pick(), 1: pick()},
    lambda pick, pool: Holder(pick(), pick()),
    lambda pick, pool: Plain(pick(), pick()),
    lambda pick, pool: Frozen(pick()),
    lambda pick, pool: Slots(pick()),
    lambda pick, pool: Point(pick(), pick()),
    lambda pick, pool: collections.deque([pick()], 5),
    lambda pick, pool: collections.OrderedDict(a=pick()),
    lambda pick, pool: MyDict(a=pick()),
    lambda pick, pool: MyTuple((pick(),)),
    lambda pick, pool: closure_over(pick()),
    lambda pick, pool: types.CellType(pick()),
    lambda pick, pool: functools.partial(len, pick()),
    lambda pick, pool: types.MethodType(annotated, [pick()]),
    lambda pick, pool: iter([pick(), pick()]),
    lambda pick, pool: enumerate([pick()]),
    lambda pick, pool: ValueError(pick()),
    lambda pick, pool: slice(pick(), pick()),
    lambda pick, pool: types.SimpleNamespace(a=pick()),
    lambda pick, pool: vars(next((thing for thing in pool if type(thing) is Holder), Holder())),
    lambda pick, pool: weakref.ref(next((thing for thing in pool if type(thing) is Holder), Holder)),
    lambda pick, pool: {}.fromkeys("ab", pick()).values(),
]


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs(seed: int) -> None:
    world = World()
    world.check(*random_graph(seed, world))
