"""What changes between calls, and where a first call was right and the next was not: programs run twice, compared.

Each program is run plainly and compiled: `run(compile, told)` is given what compiles a function, and tells what it saw.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch

Compile = Callable[[Any], Any]


def seen(run: Callable[[Compile], list[Any]], compile_: Compile) -> list[str]:
    return [repr(thing) for thing in run(compile_)]


def check(run: Callable[[Compile], list[Any]]) -> None:
    plain = seen(run, lambda function: function)
    assert seen(run, lambda function: torch.compile(function, backend="eager")) == plain


CONTAINERS_OF_NUMBERS = """
2 in [k, 3]
2 in {k}
(k, 1) == (2, 1)
sum({'a': k}.values())
any({'a': k - 2}.values())
len({k, 2})
len({k: 1, 2: 1})
repr({'a': k})
{(k, 1): 2}.get((2, 1))
{k: 'v'}.get(2)
dict([(k, 1)]).get(2)
{k} & {2}
{k}.issubset({1, 2})
[k].__contains__(2)
(k,) + (2,) == (2, 2)
[1, 2, 3, 4].pop(k % 3)
(lambda l: (l.insert(k, 'z'), l))([1, 2, 3])
(lambda l: (l.sort(), l))([k, 2, 0])
(lambda d: (d.setdefault(2, 7), d))({k: 1})
(lambda s: (s.add(2), len(s)))({k})
{'2': 5}.get(f'{k}')
heapq.nsmallest(2, [k, 2, 3])
sorted([1, 2, 3], key=lambda i: abs(i - k))
(k.__class__ is int, k.real, k.bit_length())
list(itertools.chain([k], [2])) == [2, 2]
max([1, 2, 3], key=[0, k, 2, 1].__getitem__)
"""


@pytest.mark.parametrize("expression", CONTAINERS_OF_NUMBERS.strip().splitlines())
def test_numbers_that_change_in_containers(expression: str) -> None:
    def run(compile_: Compile) -> list[Any]:
        function = eval(f"lambda x, k: {expression}", {"heapq": heapq, "itertools": itertools})
        compiled = compile_(function)
        return [compiled(torch.ones(2), k) for k in (3, 4, 5, 2, 1, 2, 0)]

    check(run)


@pytest.mark.parametrize("expression", ["x / k", "round(k, 1)", "math.copysign(1, k)", "-k", "k != k"])
def test_minus_zero_and_nan_are_values_of_their_own(expression: str) -> None:
    def run(compile_: Compile) -> list[Any]:
        compiled = compile_(eval(f"lambda x, k: {expression}", {"math": math}))
        values = (0.5, 1.5, 2.5, 0.0, -0.0, math.nan, 0.0, -0.0)
        return [compiled(torch.ones(2), k) for k in values if k or "/" not in expression or k == 0]

    check(run)


def test_classes_that_gain_attributes() -> None:
    def run(compile_: Compile) -> list[Any]:
        class First:
            k = 1

        class Second(First):
            pass

        thing, told = Second(), []
        function = compile_(lambda x: (x * thing.k, hasattr(thing, "later")))
        changes: list[Callable[[], Any]] = [
            lambda: None,
            lambda: setattr(First, "k", 2),
            lambda: setattr(Second, "k", 3),
            lambda: setattr(First, "later", 1),
            lambda: setattr(thing, "k", 4),
            lambda: setattr(Second, "k", property(lambda self: 5)),
            lambda: delattr(Second, "k"),
        ]
        for change in changes:
            change()
            told.append(function(torch.ones(2)))
        return told

    check(run)


def test_operators_read_what_their_closures_hold() -> None:
    def run(compile_: Compile) -> list[Any]:
        k = 1

        class Thing:
            def __add__(self, other: Any) -> Any:
                return other + k

            def __len__(self) -> int:
                return k

            def __bool__(self) -> bool:
                return k > 1

            def __index__(self) -> int:
                return k

            def __float__(self) -> float:
                return float(k)

            def __str__(self) -> str:
                return f"S{k}"

            def __getattr__(self, name: str) -> Any:
                return k

        thing, told = Thing(), []
        programs: list[Any] = [
            lambda x: thing + x,
            lambda x: x * len(thing),
            lambda x: bool(thing),
            lambda x: [1, 2, 3, 4][thing],  # type: ignore[call-overload]
            lambda x: list(range(thing)),  # type: ignore[call-overload]
            lambda x: math.sqrt(thing),
            lambda x: operator.index(thing),
            lambda x: operator.add(thing, x),
            lambda x: f"{thing}",
            lambda x: "%s" % thing,  # noqa: UP031
            lambda x: "{}".format(thing),  # noqa: UP032
            lambda x: x * thing.anything,
        ]
        functions = [compile_(program) for program in programs]
        for k in (1, 2, 3, 1):  # noqa: B007
            told += [function(torch.ones(2)) for function in functions]
        Thing.__add__ = lambda self, other: other - 1  # type: ignore[method-assign]
        Thing.__getattr__ = lambda self, name: 7  # type: ignore[method-assign]
        return told + [function(torch.ones(2)) for function in functions]

    check(run)


def test_generators_from_outside_go_on() -> None:
    def run(compile_: Compile) -> list[Any]:
        def counting() -> Any:
            total = 0
            while True:
                total += (yield total) or 1

        generator, count = counting(), itertools.count()
        next(generator)
        function = compile_(lambda x: (x * generator.send(2), count.__next__()))
        return [function(torch.ones(2)) for _ in range(4)]

    check(run)


def test_the_factory_of_a_defaultdict_may_change() -> None:
    import collections

    def run(compile_: Compile) -> list[Any]:
        table: Any = collections.defaultdict(int)
        function, told = compile_(lambda x: x * table["a"]), []
        for factory in (int, lambda: 5, float, lambda: 6):
            table.clear()
            table.default_factory = factory
            told.append(function(torch.ones(2)))
        return told

    check(run)


def test_keys_that_break_the_graph_are_sorted_by_their_values_of_this_call() -> None:
    def run(compile_: Compile) -> list[Any]:
        items = [torch.full((2,), float(i)) for i in (3, 1, 2)]
        function = compile_(lambda x: sorted(items, key=lambda item: item.sum().item()))
        told = [function(0)]
        for _ in range(3):
            items.append(items.pop(0))
            told.append(function(0))
        return told

    check(run)


def test_what_an_enum_of_integers_looks_like() -> None:
    import enum

    class Level(enum.IntEnum):
        LOW = 1

    def run(compile_: Compile) -> list[Any]:
        function = compile_(lambda level: (f"{level}", str(level), f"{level!r}", f"{level:03d}"))
        return [function(Level.LOW) for _ in range(2)]

    check(run)


def test_containers_are_asked_by_bound_methods() -> None:
    def run(compile_: Compile) -> list[Any]:
        ranks, log = {"a": 3, "b": 1, "c": 2}, []  # type: ignore[var-annotated]
        function = compile_(
            lambda x: (sorted(ranks, key=ranks.get), list(map(log.append, "ab")), functools.reduce(operator.add, [1]))
        )
        told = [function(0)]
        ranks["a"] = 0
        told.append(function(0))
        return [*told, log]

    check(run)


FACTS = """
x.storage_offset()
x._version
x.is_leaf
x.grad_fn is None
x._base is None
x.untyped_storage().size()
len(vars(x))
x.__dict__.get('tag')
torch.is_inference_mode_enabled()
"""


@pytest.mark.parametrize("expression", FACTS.strip().splitlines())
def test_facts_of_tensors_that_change(expression: str) -> None:
    def run(compile_: Compile) -> list[Any]:
        function = compile_(eval(f"lambda x: ((x * 2).detach(), {expression})[1]", {"torch": torch}))
        base, leaf, written, tagged = (torch.ones(4) for _ in range(4))
        told = [function(x) for x in (base, base[:2], base[2:])]
        leaf.requires_grad_()
        told += [function(leaf), function(leaf * 1), function(leaf.detach())]
        with torch.no_grad():
            told.append(function(base))
        with torch.inference_mode():
            told.append(function(base))
        written.add_(1)
        told.append(function(written))
        tagged.tag = 7
        return [*told, function(tagged)]

    check(run)


def test_functions_of_the_library_with_the_same_code() -> None:
    def run(compile_: Compile) -> list[Any]:
        holder: Any = type("Holder", (torch.nn.Module,), {"forward": lambda self, x: self.act(x)})()
        function, told = compile_(lambda x, act: act(x)), []
        compiled = compile_(holder)
        for act in (torch.relu, torch.tanh, torch.sin, torch.relu):
            holder.act = act
            told += [function(torch.ones(2), act), compiled(torch.ones(2))]
        return told

    check(run)


def test_what_exceptions_modules_and_patterns_hold() -> None:
    import re
    import types

    def run(compile_: Compile) -> list[Any]:
        module, patterns = types.ModuleType("holding"), [re.compile("a")]

        def function(x: torch.Tensor, place: int) -> Any:
            texts = []
            module.count = getattr(module, "count", 0) + 1  # type: ignore[attr-defined]
            for i in range(3):
                try:
                    texts.append(x.sum().item())
                    if i == place:
                        raise ValueError(i)
                except ValueError as error:
                    texts.append(str(error))
            return texts, module.count, bool(patterns[0].match("ab"))

        compiled = compile_(function)
        told = [compiled(torch.ones(2), place) for place in (0, 1, 2, 1)]
        patterns[0] = re.compile("b")
        del module.count  # type: ignore[attr-defined]
        return [*told, compiled(torch.ones(2), 0)]

    check(run)


def test_classes_and_objects_as_functions() -> None:
    def run(compile_: Compile) -> list[Any]:
        k, log = 1, []  # type: ignore[var-annotated]

        class Box:
            def __init__(self, x: int) -> None:
                self.x = x
                log.append(x)

        class Scale:
            def __call__(self, x: int) -> int:
                log.append("scale")
                return x * k

        scale = Scale()
        function = compile_(
            lambda x: ([b.x for b in map(Box, [3, 1])], sorted([3, 1, 2], key=scale), list(filter(scale, [0, 1])))
        )
        told = []
        for k in (1, -1, 1, 2):  # noqa: B007
            told += [function(0), list(log)]
        return told

    check(run)


def test_special_methods_change_what_their_closures_hold() -> None:
    def run(compile_: Compile) -> list[Any]:
        log: list[Any] = []

        class Meta(type):
            def __call__(cls, *args: Any) -> Any:
                log.append("call")
                return super().__call__(*args)

        class Made(metaclass=Meta):
            def __new__(cls, *args: Any) -> Any:
                log.append("new")
                return super().__new__(cls)

            def __init__(self, x: Any) -> None:
                object.__setattr__(self, "x", x)
                log.append("init")

            def __setattr__(self, name: str, value: Any) -> None:
                log.append(("set", name))
                object.__setattr__(self, name, value)

            def __contains__(self, item: Any) -> bool:
                log.append("in")
                return True

            def __add__(self, other: Any) -> Any:
                log.append("add")
                return other

            @property
            def p(self) -> int:
                log.append("get p")
                return 1

            @p.setter
            def p(self, value: int) -> None:
                log.append("set p")

        class Field:
            def __get__(self, owner: Any, cls: Any) -> int:
                log.append("get")
                return 2

            def __set__(self, owner: Any, value: Any) -> None:
                log.append("set")

        class Holder:
            field = Field()

            def __delattr__(self, name: str) -> None:
                log.append("delete")

        def function(x: Any) -> Any:
            made, holder = Made(x), Holder()
            made.y = 3  # type: ignore[attr-defined]
            made.p = made.p + 1
            holder.field = holder.field + 1
            del holder.field
            return (3 in made), made + x

        compiled = compile_(function)
        return [*(compiled(torch.ones(2)) for _ in range(3)), log]

    check(run)


class Uncounted(tuple):  # type: ignore[type-arg]
    """As e3nn's irreps: items, of which nobody may ask the number."""

    def __len__(self) -> int:
        raise NotImplementedError


def test_tuples_that_refuse_to_be_counted_are_unpacked_compared_and_held() -> None:
    def run(compile_: Compile) -> list[Any]:
        pairs = [Uncounted((1, 2)), Uncounted((3, 4))]

        def f(x: Any, held: Any) -> Any:
            made = [Uncounted((k, k + 1)) for k in range(2)]
            for first, second in (*held, *made):
                x = x * first + second
            return x.tolist(), made[0] == held[0], made[1] in held, [part[1] for part in made]

        compiled = compile_(f)
        told = [compiled(torch.ones(2), pairs)]
        pairs[0] = Uncounted((5, 6))
        return [*told, compiled(torch.ones(2), pairs), compiled(torch.ones(2), [Uncounted((5, 6))])]

    check(run)
