# ruff: noqa
"""Small programs: `match` statements. See programs_basic.py."""

import collections
import dataclasses
import enum

from bytecode_oracle import note


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def literals():
    def f(x):
        match x:
            case 1 | 2:
                return "small"
            case "a" | b"a":
                return "text"
            case None:
                return "none"
            case True:
                return "true"
            case -1.5:
                return "float"
            case 1 + 2j:
                return "complex"
            case _:
                return "other"

    return [f(x) for x in (1, 2, "a", b"a", None, True, -1.5, 1 + 2j, False, 0, [1])]


def sequences():
    def f(x):
        match x:
            case []:
                return "empty"
            case [a]:
                return ("one", a)
            case (a, b):
                return ("two", a, b)
            case [1, *rest]:
                return ("starts with 1", rest)
            case [*rest, 9]:
                return ("ends with 9", rest)
            case [first, *_, last]:
                return (first, last)
        return "no"

    tests = [[], [1], (1, 2), [1, 2, 3], [2, 3, 9], range(5), "abc", {1: 2}, collections.deque([4, 5, 6]), b"xyz", 5]
    return [f(x) for x in tests]


def mappings():
    def f(x):
        match x:
            case {"kind": "a", "value": v}:
                return ("a", v)
            case {"kind": k, **rest}:
                return (k, rest)
            case {1: [x, *_], 2: {"deep": y}}:
                return x, y
            case {}:
                return "mapping"
        return "no"

    tests = [{"kind": "a", "value": 3}, {"kind": "b", "z": 1}, {1: [5, 6], 2: {"deep": 7}}, {}, {"q": 1}, [], None]
    tests.append(collections.defaultdict(list))
    return [f(x) for x in tests]


def classes():
    def f(x):
        match x:
            case Point(0, 0):
                return "origin"
            case Point(x=0, y=y):
                return ("on y", y)
            case Point(x, y) if x == y:
                return ("diagonal", x)
            case Point(x, y=y):
                return (x, y)
            case int(n) | float(n):
                return ("number", n)
            case str() as s:
                return ("str", s)
            case [Point(a, _), Point(_, b)]:
                return a, b
            case dict(d) | set(d):
                return d
        return "no"

    tests = [
        Point(0, 0),
        Point(0, 3),
        Point(2, 2),
        Point(1, 2),
        5,
        2.5,
        "s",
        [Point(1, 2), Point(3, 4)],
        {1: 2},
        {3},
        None,
    ]
    return [f(x) for x in tests]


def values_and_captures():
    def f(x):
        match x:
            case Color.RED:
                return "red"
            case (Color.BLUE as c, n):
                return c, n
            case [Color() as c, *_]:
                return "first", c
            case y:
                return y

    return [f(x) for x in (Color.RED, (Color.BLUE, 1), [Color.RED, 2, 3], 7)]


def guards():
    out = []
    for x in range(6):
        match x:
            case n if note(n) % 2 and n > 2:
                out.append(("odd", n))
            case 0 | 4 as n if n:
                out.append(("four", n))
            case n:
                out.append(n)
    return out


def nested_patterns():
    command = {"do": ["go", {"to": ("north", 3)}], "who": [{"name": "x"}, {"name": "y"}]}
    match command:
        case {"do": ["go", {"to": (direction, int(n))}], "who": [{"name": first}, *others]}:
            return direction, n, first, others


def no_match_leaves_names():
    match [1, 2]:
        case [a, 3]:
            pass
        case _:
            pass
    return a


def too_many_positional():
    match Point(1, 2):
        case Point(1, 2, 3):
            pass


def too_many_for_builtin():
    match 5:
        case int(1, 2):
            pass


def no_match_args():
    class Plain:
        pass

    match Plain():
        case Plain(1):
            pass


def not_a_class():
    thing = 5
    match 5:
        case thing():
            pass


def attribute_repeated():
    match Point(1, 2):
        case Point(1, x=1):
            pass


def match_args_wrong():
    class Odd:
        __match_args__ = ["x"]

    match Odd():
        case Odd(1):
            pass


def subject_tuple():
    def f(*args):
        match args:
            case (int(), str()) | (str(), int()):
                return "mixed"
            case (a, b) if a == b:
                return "same"
            case ():
                return "none"
            case _:
                return "other"

    return f(1, "a"), f("a", 1), f(2, 2), f(), f(1, 2, 3)


def missing_attribute():
    class Has:
        x = 1

    match Has():
        case Has(x=1, y=2):
            return "both"
        case Has(x=1):
            return "one"
