"""Programs with effects in calls, iterators, exceptions and context managers, around breaks. See `replay_programs`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import random
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

import distcompile as torch
from tests.compiler_core.capture.replay.replay_programs import NUMBERS, Box, Pair, program

# -- functions, caches, iterators


@program
def lru_cached_helper(log: list[Any]) -> Any:
    @functools.cache
    def table(n: int) -> Any:
        log.append(("computed", n))
        return torch.arange(float(n))

    return (lambda x: x * table(3)), lambda: table.cache_info().currsize


@program
def cached_attribute(log: list[Any]) -> Any:
    class Lazy(Box):
        @functools.cached_property
        def weight(self) -> Any:
            log.append("made")
            return torch.ones(3) * 4

    box = Lazy()
    return (lambda x: x * box.weight), box


@program
def closures_kept(log: list[Any]) -> Any:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        n = len(kept)

        def add(y: Any) -> Any:
            nonlocal n
            n += 1
            return y + x + n

        kept.append(add)
        return kept[0](x) + functools.partial(add, x)()

    return function, lambda: [add(torch.zeros(3)) for add in kept]


@program
def closure_returned(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        n = 0

        def bump() -> Any:
            nonlocal n
            n += 1
            return n

        def look() -> Any:
            return x * n

        bump()
        return [bump(), look(), bump, look]

    return function, None


@program
def generator_kept(log: list[Any]) -> Any:
    def counting() -> Iterator[int]:
        n = 0
        try:
            while True:
                log.append(("yielding", n))
                yield n
                n += 1
        finally:
            log.append("closed")

    box = Box(numbers=counting())

    def function(x: Any) -> Any:
        n = next(box.numbers)
        if n == 1:
            box.numbers.close()
            box.numbers = counting()
        return x * n

    return function, None


@program
def generator_made_inside(log: list[Any]) -> Any:
    box = Box(rows=None)

    def rows(x: Any) -> Iterator[Any]:
        for i in range(3):
            log.append(i)
            yield x * i

    def function(x: Any) -> Any:
        made = rows(x)
        first = next(made)
        total = sum(made, first)
        return total

    return function, box


@program
def iterator_from_outside(log: list[Any]) -> Any:
    numbers, items = itertools.count(1), iter([1.0, 2.0, 3.0, 4.0])

    def function(x: Any) -> Any:
        return x * next(numbers) + next(items)

    return function, lambda: (next(numbers), next(items))


@program
def iterator_left_behind(log: list[Any]) -> Any:
    box = Box(rest=None)

    def function(x: Any) -> Any:
        items = [x, x * 2, x * 3]
        rest = enumerate(items)
        _, first = next(rest)
        box.rest = rest
        return first

    return function, lambda: list(box.rest)


@program
def comprehensions_with_effects(log: list[Any]) -> Any:
    def note(value: Any) -> Any:
        log.append(value)
        return value

    def function(x: Any) -> Any:
        table = {note(i): [note(j) for j in range(i)] for i in range(3) if note(i) != 1}
        ordered = sorted([3, 1, 2], key=note)
        return x * (len(table) + ordered[0]) + sum(map(note, (1, 2)))

    return function, None


@program
def recursion_with_a_log(log: list[Any]) -> Any:
    def walk(x: Any, depth: int) -> Any:
        log.append(("in", depth))
        y = x if depth == 0 else walk(x * 2, depth - 1) + depth
        log.append(("out", depth))
        return y

    return (lambda x: walk(x, 3)), None


# -- printing, logging, breaks


@program
def printing(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        print("before", x.shape)
        y = x * 2
        print("after", y.sum().item(), file=sys.stdout)
        return y

    return function, None


@program
def logging_to_a_handler(log: list[Any]) -> Any:
    logger = logging.Logger("replay", logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)

    def function(x: Any) -> Any:
        logger.info("shape %s", tuple(x.shape))
        y = x * 2
        logger.debug("not this")
        logger.warning("mean %.2f", y.mean().item())
        return y

    return function, None


@program
def before_a_break_once(log: list[Any]) -> Any:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(x * 2)
        y = x + len(seen)
        print("woo", len(seen))
        seen.append(y)
        if y.sum() > 4:
            log.append("large")
            y = y * -1
        seen.append(y)
        return y

    return function, seen


@program
def breaks_in_a_loop(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        items: list[Any] = []
        for i in range(3):
            x = x + i
            items.append(x)
            print(i, float(items[-1].sum()))
            log.append(len(items))
        return items

    return function, None


@program
def break_below_with_and_try(log: list[Any]) -> Any:
    class Noted:
        def __enter__(self) -> Any:
            log.append("enter")
            return self

        def __exit__(self, *error: Any) -> bool:
            log.append(("exit", error[0] and error[0].__name__))
            return error[0] is KeyError

    def inner(x: Any) -> Any:
        made = Box(x=x * 2)
        print("inside")
        made.y = made.x + 1
        return made

    def function(x: Any) -> Any:
        y = x
        with Noted() as noted:
            try:
                y = inner(x).y
                if y.sum().item() > 0:
                    raise KeyError("k")
            finally:
                log.append("finally")
            log.append("not here")
        return y, noted

    return function, None


@program
def early_stop_on_the_loss(log: list[Any]) -> Any:
    w = torch.ones(3)

    def function(x: Any) -> Any:
        for step in range(10):
            loss = (x * w).sum() / (step + 1)
            log.append(step)
            if loss < 2:
                break
        return loss

    return function, None


# -- exceptions and context managers


@program
def effects_before_an_exception(log: list[Any]) -> Any:
    box = Box(n=0, last=None)

    def function(x: Any) -> Any:
        box.n += 1
        box.last = x * 2
        if box.n == 2:
            raise ValueError("second call")
        box.n += 10
        return box.last

    return function, box


@program
def exceptions_caught(log: list[Any]) -> Any:
    kept: list[Any] = []

    def risky(x: Any, n: int) -> Any:
        log.append(n)
        if n % 2:
            raise KeyError(n)
        return x * n

    def function(x: Any) -> Any:
        for n in range(4):
            try:
                x = risky(x, n) + 1
            except KeyError as error:
                kept.append(error)
                x = x + error.args[0]
            else:
                log.append("fine")
            finally:
                log.append("finally")
        return x

    return function, lambda: [error.args for error in kept]


@program
def context_managers(log: list[Any]) -> Any:
    box = Box(mode="eval")

    @contextlib.contextmanager
    def mode(value: str) -> Iterator[str]:
        before, box.mode = box.mode, value
        log.append(f"enter {value}")
        try:
            yield before
        finally:
            box.mode = before
            log.append(f"leave {value}")

    def function(x: Any) -> Any:
        with mode("train") as before, contextlib.ExitStack() as stack:
            stack.callback(log.append, "callback")
            stack.enter_context(mode("deep"))
            y = x * len(box.mode) + len(before)
        return y

    return function, box


@program
def matching(log: list[Any]) -> Any:
    def kind(thing: Any) -> str:
        match thing:
            case {"a": [first, *rest]}:
                log.append((first, rest))
                return "dict"
            case Pair(a=1, b=b):
                log.append(b)
                return "pair"
            case Box(x=x):
                log.append(x)
                return "box"
        return "none"

    def function(x: Any) -> Any:
        names = [kind(thing) for thing in ({"a": [1, 2, 3]}, Pair(1, 2), Box(x=x), None)]
        return x * sum(map(len, names))

    return function, None


# -- randomness, arrays, references


@program
def draws_under_other_names(log: list[Any]) -> Any:
    mine, state = np.random.RandomState(3), random.Random(4)

    def function(x: Any) -> Any:
        log.append(NUMBERS.randint(100))
        log.append(random.random())
        return x * float(mine.rand()) + state.random() + torch.rand(3)

    return function, lambda: (mine.rand(), state.random())


@program
def arrays_written(log: list[Any]) -> Any:
    counts = np.zeros(3)

    def function(x: Any) -> Any:
        counts[1] += 1
        counts[:] = counts + 1
        return x * float(counts[1])

    return function, counts


@program
def weak_references(log: list[Any]) -> Any:
    owner = Box(n=0)
    table: Any = weakref.WeakKeyDictionary()

    def function(x: Any) -> Any:
        table[owner] = table.get(owner, 0) + 1
        reference = weakref.ref(owner)
        reference().n += 1  # type: ignore[union-attr]
        return x * table[owner]

    return function, lambda: (owner.n, list(table.values()))


@program
def numbers_that_change(log: list[Any]) -> Any:
    box = Box(step=0, rate=1.0, history=[])

    def function(x: Any) -> Any:
        box.step += 1
        box.rate *= 0.5
        box.history.append((box.step, box.rate))
        y = x * box.rate + box.step
        return {"y": y, "step": box.step, "pair": (box.step, [box.rate])}

    return function, box


@program
def named_tuples_and_slices(log: list[Any]) -> Any:
    box = Box(pair=Pair(0, ()))

    def function(x: Any) -> Any:
        pair = box.pair._replace(a=box.pair.a + 1)
        box.pair = Pair(pair.a, (*pair.b, x[slice(0, pair.a)]))
        return box.pair

    return function, box


@program
def tensor_hook(log: list[Any]) -> Any:
    w = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        y = x * w
        y.register_hook(lambda grad: log.append(grad))
        return y.sum()

    return function, w
