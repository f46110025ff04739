"""Generators that break the graph where code written in C advances them: nothing that was taken is lost."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak

EXPRESSIONS = """
collections.deque(gen(), 2), dict.fromkeys(gen()), bytes(gen()), math.prod(gen())
list(itertools.zip_longest(gen(), range(5))), list(itertools.pairwise(gen()))
[list(t) for t in itertools.tee(gen())]
','.join(str(i) for i in gen()), collections.Counter(gen())
np.fromiter(gen(), int)
Point._make(gen()), Point(*gen()), Names(gen())
{1}.union(gen()), {1}.intersection(gen()), {1, 2}.isdisjoint(gen())
updated({1, 2}, 'difference_update'), updated([1, 2], 'extend'), updated([1], '__iadd__')
list(itertools.chain.from_iterable([gen(), gen()])), list(itertools.chain.from_iterable(gen() for _ in range(2)))
list(map(operator.add, gen(), gen())), functools.reduce(operator.add, gen()), 2 in gen()
(lambda *a: a)(*gen()), [10, 20, 30][slice(*gen())], '{} {} {}'.format(*gen())
divmod(*itertools.islice(gen(), 1, None)), print(*gen(), sep='-')
sliced(gen()), dict(zip(gen(), gen())), list(zip(*[gen()] * 2))
dc.stack([t * 2 for t in tensors()]), dc.cat(tuple(tensors()))
""".strip().splitlines()


class Names(list[Any]):
    pass


Point = collections.namedtuple("Point", "a b c")


def outcome(expression: str, wrap: Callable[[Any], Any]) -> list[Any]:
    log: list[Any] = []
    scope: dict[str, Any] = {"log": log, "Point": Point, "Names": Names, **MODULES}
    exec(SOURCE.replace("EXPRESSION", expression), scope)
    function = wrap(scope["function"])
    for scale in (1, 2):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            log.append(repr(function(dc.ones(2) * scale)))
        log.append(text.getvalue())
    return log


MODULES = {m.__name__: m for m in (collections, itertools, functools, operator, math)} | {"np": np, "dc": dc}
SOURCE = """
def gen():
    for i in range(3):
        log.append(i)
        print("gives", i)
        yield i
    log.append("end")

def tensors():
    for i in range(2):
        print("gives", i)
        yield X * i

def updated(holder, name):
    return getattr(holder, name)(gen()), holder

def sliced(values):
    holder = [0] * 5
    holder[1:3] = values
    return holder

def function(x):
    global X
    X = x
    y = x * 2
    return y, (EXPRESSION), x + y
"""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_eager(expression: str) -> None:
    plain = outcome(expression, lambda function: function)
    assert outcome(expression, functools.partial(dc.compile, backend="eager")) == plain


def test_what_would_lose_items_is_an_error() -> None:
    def pair() -> Any:
        yield 1
        print("one")
        yield 2

    def function(x: Any) -> Any:
        return dict([pair()]), x + 1  # C code iterates over what a list holds

    with pytest.raises(GraphBreak, match="in a generator that code written in C advances"):
        dc.compile(function, backend="eager")(dc.ones(1))
