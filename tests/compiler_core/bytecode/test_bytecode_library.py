"""Functions of the standard library, as Python, interpreted with all that they call: results equal CPython's."""

from __future__ import annotations

import argparse
import base64
import bisect
import calendar
import collections
import configparser
import contextlib
import copy
import csv
import dataclasses
import datetime
import difflib
import enum
import fnmatch
import fractions
import functools
import graphlib
import heapq
import html
import io
import ipaddress
import itertools
import json
import operator
import pprint
import random
import re
import shlex
import statistics
import string
import sys
import textwrap
import tokenize
import types
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bytecode_oracle as oracle

TEXT = (
    "The quick brown fox, jumped over the lazy dogs. "
    "Wrap-around words of-some-length 'quoted text' and  double  spaces -- and a verylongwordthatdoesnotfit.\n\n"
) * 3


def python_version_of(name: str) -> Any:
    """A module of the library without its accelerator in C."""
    path = Path(json.__file__).parents[1] / f"{name}.py"
    module = types.ModuleType(f"pure_{name}")
    source = path.read_text()
    cut = re.sub(
        r"(?m)^(\s*)from _(functools|bisect|heapq|collections|operator|statistics) import",
        r"\1from no_c import",
        source,
    )
    with contextlib.suppress(ImportError):
        exec(compile(cut, str(path), "exec"), vars(module))
    return module


pure_heapq = python_version_of("heapq")
pure_bisect = python_version_of("bisect")
pure_functools = python_version_of("functools")


def heap() -> Any:
    h: list[int] = []
    for x in (5, 1, 8, 3, 9, 2, 7):
        pure_heapq.heappush(h, x)
    pure_heapq.heapify(h)
    popped = [pure_heapq.heappop(h), pure_heapq.heappushpop(h, 4), pure_heapq.heapreplace(h, 6)]
    return h, popped, pure_heapq.nlargest(3, h), pure_heapq.nsmallest(2, h, key=lambda x: -x)


def merged() -> Any:
    return list(heapq.merge([1, 4, 7], [2, 5], [3, 6, 8], key=lambda x: x)), list(
        heapq.merge("abc", "abd", reverse=True)
    )


def bisections() -> Any:
    a = [1, 3, 3, 5]
    pure_bisect.insort(a, 4)
    pure_bisect.insort_left(a, 3, key=lambda x: x)
    return a, pure_bisect.bisect(a, 3), pure_bisect.bisect_left(a, 3), bisect.bisect_right(a, 3)


def scanned_strings() -> Any:
    scan = json.decoder.py_scanstring
    found = [scan('abc\\n\\u0041\\ud83d\\ude00"rest', 0), scan('"', 0), scan('\\"x" y', 0)]
    for bad in ("open", "\\x", "\\u12"):
        try:
            scan(bad, 0)
        except json.JSONDecodeError as error:
            found.append(str(error))
    return found


def json_in_python() -> Any:
    from json import decoder, encoder, scanner

    value = {"a": [1, 2.5, None, True, "x\n"], "b": {"c": []}}
    coder = encoder._make_iterencode(  # type: ignore[attr-defined]
        {}, json.JSONEncoder().default, encoder.py_encode_basestring_ascii, "  ", repr, ": ", ",", True, False, False
    )
    text = "".join(coder(value, 0))
    context = decoder.JSONDecoder()
    context.parse_string = decoder.py_scanstring
    context.scan_once = scanner.py_make_scanner(context)
    return text, context.decode(text), json.dumps(value, sort_keys=True, indent=1)


def parsed_arguments() -> Any:
    parser = argparse.ArgumentParser(prog="p", description="what", exit_on_error=False)
    parser.add_argument("file", nargs="+", help="files")
    parser.add_argument("-n", "--number", type=int, default=3, choices=range(10))
    parser.add_argument("--flag", action="store_true")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--a", action="append")
    group.add_argument("--b")
    space = parser.parse_args(["x", "y", "-n", "4", "--flag", "--a=1", "--a", "2"])
    try:
        parser.parse_args(["x", "-n", "q"])
    except argparse.ArgumentError as error:
        return vars(space), str(error), parser.format_usage()
    return None


def configuration() -> Any:
    parser = configparser.ConfigParser(interpolation=configparser.ExtendedInterpolation())
    parser.read_string("[a]\nx = 1\ny = ${x}2\n[b]\nz = ${a:y}\nlong = one\n  two\n")
    out = io.StringIO()
    parser.write(out)
    return parser["b"]["z"], parser.getint("a", "x"), parser.sections(), out.getvalue(), parser["b"]["long"]


def deep_copies() -> Any:
    class Node:
        def __init__(self, value: Any) -> None:
            self.value, self.next = value, None

        def __deepcopy__(self, memo: Any) -> Any:
            made = Node(copy.deepcopy(self.value, memo))
            memo[id(self)] = made
            made.next = copy.deepcopy(self.next, memo)
            return made

    a = [1, {"k": (2, [3])}, {4}]
    a.append(a)
    b = copy.deepcopy(a)
    n = Node([1])
    n.next = n  # type: ignore[assignment]
    m = copy.deepcopy(n)
    return b[:3], b[3] is b, m.next is m, m.value, copy.copy(a)[0], copy.copy({"a": 1})


def statistical() -> Any:
    data = [1.5, 2.5, 2.5, 4, 8]
    return (
        statistics.mean(data),
        statistics.median(data),
        statistics.stdev(data),
        statistics.quantiles(data),
        statistics.mode(data),
        statistics.linear_regression([1, 2, 3], [2, 4, 7]),
        statistics.NormalDist(1, 2).cdf(2),
        statistics.fmean(data, weights=[1, 2, 3, 4, 5]),
    )


def rational() -> Any:
    f = fractions.Fraction
    a, b = f(3, 4), f("0.125")
    values = [a + b, a * b, a / b, a - 1, a**2, a**-1, -a, abs(-a), a // b, a % b, round(a, 1), a < b, a == 0.75]
    return [str(x) for x in values], f(3.5).limit_denominator(2), f(1, 3).as_integer_ratio(), hash(a) == hash(f(3, 4))


def templates() -> Any:
    t = string.Template("$who likes ${what} $$ $missing")
    found = [t.safe_substitute(who="a", what="b"), string.capwords("some words here")]
    try:
        t.substitute(who="a")
    except KeyError as error:
        found.append(str(error))
    return found, string.Formatter().format("{0:>5} {k!r} {1[2]}", 1, [1, 2, 3], k="v")


def wrapped_text() -> Any:
    wrapper = textwrap.TextWrapper(width=30, initial_indent="* ", subsequent_indent="  ", max_lines=6)
    return (
        wrapper.fill(TEXT),
        textwrap.dedent("  a\n   b\n"),
        textwrap.shorten(TEXT, 40),
        textwrap.indent("a\n\nb", "> "),
    )


def differences() -> Any:
    a, b = TEXT.split()[:30], TEXT.replace("lazy", "energetic").split()[:32]
    matcher = difflib.SequenceMatcher(None, a, b)
    return (
        matcher.get_opcodes(),
        round(matcher.ratio(), 4),
        list(difflib.unified_diff(a, b, lineterm="")),
        list(difflib.ndiff(["one", "two"], ["one", "tow"])),
        difflib.get_close_matches("appel", ["ape", "apple", "peach"]),
    )


def collections_in_python() -> Any:
    counter = collections.Counter("abracadabra")
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    user = collections.UserList([1, 2])
    user += [3]
    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    words = collections.UserDict(x=1)
    words |= {"y": 2}
    return (
        (counter + collections.Counter("a")).most_common(2),
        (counter - collections.Counter("ab")),
        sorted(counter.elements())[:4],
        (dict(chain), chain["a"], chain.new_child({"c": 1})["c"]),
        (user, user * 2, 2 in user, list(ordered), dict(words)),
    )


def functions_in_python() -> Any:
    p = pure_functools.partial(lambda *a, **k: (a, k), 1, x=2)

    @pure_functools.lru_cache(maxsize=2)
    def square(x: int) -> int:
        return oracle.note(x) * x

    @functools.total_ordering
    class Version:
        def __init__(self, v: int) -> None:
            self.v = v

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Version) and self.v == other.v

        def __lt__(self, other: Version) -> bool:
            return self.v < other.v

        __hash__ = None  # type: ignore[assignment]

    key = pure_functools.cmp_to_key(lambda a, b: b - a)
    return (
        p(3, y=4),
        [square(x) for x in (1, 2, 1, 3, 1)],
        pure_functools.reduce(operator.add, [1, 2, 3], 10),
        sorted([3, 1, 2], key=key),
        Version(1) <= Version(2),
        Version(1) > Version(2),
    )


def enumerations() -> Any:
    class Color(enum.Flag):
        RED = enum.auto()
        GREEN = enum.auto()
        BOTH = RED | GREEN

    class Planet(enum.Enum):
        EARTH = (1, 2)

        def __init__(self, a: int, b: int) -> None:
            self.a, self.b = a, b

    try:
        Planet(5)
    except ValueError as error:
        words = str(error)
    return Color.RED | Color.GREEN is Color.BOTH, Color(3).name, Planet.EARTH.b, words.partition("is")[2], len(Color)


def data_classes() -> Any:
    @dataclasses.dataclass(order=True, slots=True)
    class P:
        x: int
        y: list = dataclasses.field(default_factory=list)

    made = dataclasses.make_dataclass("M", [("a", int), ("b", int, 5)])
    return (
        repr(P(1)).rpartition(".")[2],
        P(1) < P(2),
        dataclasses.astuple(P(1, [2])),
        dataclasses.asdict(made(3)),
        made(1).b,
    )


def sorted_graph() -> Any:
    return list(graphlib.TopologicalSorter({"d": {"b", "c"}, "b": {"a"}, "c": {"a"}}).static_order())[::3]


def shell_words() -> Any:
    return (
        shlex.split('a \'b c\' "d\\" e" f\\ g # comment', comments=True),
        shlex.quote("a b"),
        shlex.join(["x", "y z"]),
    )


def web_addresses() -> Any:
    parse = urllib.parse
    address = "http://user@host:80/p/a?q=1&q=2&r=%20#frag"
    return (
        tuple(parse.urlparse(address)),
        parse.parse_qs("q=1&q=2&r=%20x"),
        parse.urljoin(address, "../z"),
        parse.quote("a b/ü"),
        parse.urlencode({"a": [1, 2]}, doseq=True),
        html.escape("<a&'>"),
        html.unescape("&lt;&eacute;&#65;"),
    )


def networks() -> Any:
    net = ipaddress.ip_network("10.0.0.0/29")
    return (
        [str(x) for x in net.hosts()][:3],
        net.num_addresses,
        ipaddress.ip_address("::1").exploded,
        str(net.supernet()),
    )


def printed() -> Any:
    return pprint.pformat({"key": list(range(30)), "other": {"x": "y" * 50, "z": ("t",) * 3}}, width=40)


def calendars() -> Any:
    return calendar.TextCalendar().formatmonth(2024, 2), calendar.monthrange(2023, 2), calendar.isleap(2000)


def dates() -> Any:
    d = datetime.date(2024, 2, 28)
    return [(d + datetime.timedelta(days=i)).isoformat() for i in range(3)], d.strftime("%Y/%m")


def patterns() -> Any:
    found = re.sub(r"(\w+)-(\d+)", lambda m: m[2] + m[1], "ab-12 cd-3")
    return found, fnmatch.translate("*.p[yx]"), fnmatch.filter(["a.py", "b.c"], "*.py"), re.split(r"[,;]", "a,b;c")


def tables() -> Any:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["a", "b"])
    writer.writeheader()
    writer.writerow({"a": 1, "b": "x,y"})
    return out.getvalue(), list(csv.DictReader(out.getvalue().splitlines()))


def tokens() -> Any:
    source = "def f(x):\n    return x + 1  # one\n"
    return [(t.type, t.string) for t in tokenize.generate_tokens(io.StringIO(source).readline)]


def encoded() -> Any:
    return base64.b85encode(b"hello world"), base64.b32encode(b"hi"), base64.a85encode(b"\0\0\0\0x")


def shuffled() -> Any:
    dice = random.Random(3)
    deck = list(range(10))
    dice.shuffle(deck)
    return (
        deck,
        dice.sample(range(100), 4),
        dice.choices("abc", [1, 2, 3], k=5),
        round(dice.gauss(0, 1), 9),
        dice.randint(1, 6),
    )


def combined() -> Any:
    return (
        [list(g) for _, g in itertools.groupby("aabbb", key=lambda c: c)],
        list(itertools.accumulate([1, 2, 3], lambda a, b: a * b)),
        list(itertools.starmap(lambda a, b: a - b, [(3, 1), (4, 2)])),
        list(itertools.takewhile(lambda x: x < 3, itertools.count())),
    )


CALLS: list[Callable[[], Any]] = [
    *(heap, merged, bisections, scanned_strings, json_in_python, parsed_arguments, configuration, deep_copies),
    *(statistical, rational, templates, wrapped_text, differences, collections_in_python, functions_in_python),
    *(enumerations, data_classes, sorted_graph, shell_words, web_addresses, networks, printed, calendars, dates),
    *(patterns, tables, tokens, encoded, shuffled, combined),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_interpreted_library_functions_answer_the_same(call: Callable[[], Any]) -> None:
    expected = oracle.outcome(call)
    assert expected[0] == "returned", expected
    assert oracle.outcome(lambda: oracle.interpret(call)) == expected
