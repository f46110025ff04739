"""One Triton code for many sizes: of functions that differ in numbers alone, one whose parameters these numbers are.

In: the module of a graph at one of its sizes. Out: `opened(module, seen)`: the same, its launches' functions with more
parameters, and each launch with their arguments (`Launch.numbers`). Which numbers are holes says codegen/families.py;
the first code of a function has those that the module at other sizes opens.

    may be a variable    an operand of + - * // % and of comparisons, an end of a `range`, an argument of `tl.minimum`,
                         the value in `tl.full(..., value, dtype)`; of a function written by hand `Launch.sizes`
    is part of the code  all else: lanes, shapes, axes, steps of loops, stages, numbers of checks
Invariant: a function with its launch's numbers in place is the one that was given (but for comments, and brackets), and
each variable has the type that Triton gives the literal: an integer is i32 if it fits, else i64. So what is sound of a
literal is sound of it, where one operand is no literal already; reals are their bits, of f32 and f64 alone.
Two sizes share a cubin if all of the text, these types, and which numbers are compiled as multiples of 16 are the same:
those that were so far at each size; where all sizes of a call are multiples, all that are now (`Launch.multiples`).
"""

from __future__ import annotations

import ast
import copy
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from itertools import count
from math import gcd
from threading import Lock

from compiler_core.codegen.families import Families, Holes, Tokens, kind_of, word_of
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.records import dataclass

_HOLE = re.compile(r"DC_HOLE(\d+)_")
_SUFFIX = {"tl.float32": "f", "tl.float64": ""}  # of a real, for `kind_of`
_DIGEST = re.compile(r"_[0-9a-f]{12}$")  # of the name of a function written by hand, which holds all its numbers
_INT32_END = 1 << 31
SHORT = 64  # what is less counts rows, or is the length of one that is soon loaded


@dataclass
class Seen:
    """What a process has made. divisors: of all numbers that an opened function was launched with, by its text."""

    families: Families = field(default_factory=Families)
    divisors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def multiples(self, made: _Opened, are_round: bool) -> frozenset[int]:
        """The places of numbers that the function is compiled for as multiples of 16."""
        with self.lock:
            known = self.divisors.get(made.text, made.numbers)
            self.divisors[made.text] = divisors = tuple(map(gcd, known, made.numbers))
        each = zip(made.numbers, made.numbers if are_round else divisors, strict=True)
        return frozenset(place for place, (n, divisor) in enumerate(each) if divisor % 16 == 0 and n >= SHORT)


SEEN = Seen()
Others = Callable[[], Iterable[TritonModule]]  # the module at other sizes


@dataclass(frozen=True, slots=True)
class _Opened:
    """A function. types: of its further parameters, by name; numbers: their arguments, as bits."""

    name: str
    text: str
    types: dict[str, str]
    numbers: tuple[int, ...]


def opened(module: TritonModule, seen: Seen, others: Others = tuple, *, are_round: bool = True) -> TritonModule:
    """`module` with numbers that differed from size to size as arguments of its launches. are_round: so are its sizes,
    multiples of 16."""
    known: list[dict[str, Tokens]] = []

    def elsewhere(name: str) -> Iterator[dict[str, Tokens]]:
        if not known:
            known.extend({one.name: one.tokens for one in _functions(other)} for other in others())
        return ({name: tokens[name]} for tokens in known if name in tokens)

    made: dict[str, tuple[_Opened, frozenset[int]]] = {}
    lines = module.source.split("\n")
    for function in sorted(
        _functions(module), key=lambda function: -function.node.lineno
    ):  # the last of the text first
        holes = seen.families.holes({function.name: function.tokens}, partial(elsewhere, function.name))
        one = function.opened(holes or Holes({}, ()))
        made[function.node.name] = one, seen.multiples(one, are_round)
        lines[function.node.decorator_list[0].lineno - 1 : function.node.end_lineno] = [one.text]
    changed = {
        name: tuple(_launched(launch, *made[launch.function]) for launch in old)
        for name, old in module.launches.items()
    }
    return TritonModule("\n".join(lines), changed, module.messages)


def _launched(launch: Launch, made: _Opened, multiples: frozenset[int]) -> Launch:
    signature, own = launch.signature | made.types, len(launch.numbers)  # those of a function written by hand
    numbers, places = launch.numbers + made.numbers, frozenset(own + place for place in multiples)
    return replace(launch, function=made.name, signature=signature, numbers=numbers, multiples=places)


@dataclass(frozen=True)
class _Function:
    """A launched function of a module. name: without what tells its numbers."""

    node: ast.FunctionDef
    name: str
    tokens: Tokens

    def opened(self, holes: Holes) -> _Opened:
        parts = [self.tokens.pieces[0]]
        for at, (number, piece) in enumerate(zip(self.tokens.numbers, self.tokens.pieces[1:], strict=True)):
            slot = holes.slots.get(at)
            parts += [number.removesuffix("f") if slot is None else _variable(slot, number), piece]
        words = {f"n{slot}_": _word(number) for slot, number in enumerate(holes.numbers)}
        text = "".join(parts).replace("):", "".join(f", {variable}" for variable in words) + "):", 1)
        types = {variable: kind for variable, (kind, _) in words.items()}
        return _Opened(self.name, text, types, tuple(bits for _, bits in words.values()))


def _functions(module: TritonModule) -> Iterator[_Function]:
    """Those that are launched, in order of the launches."""
    nodes = {node.name: node for node in ast.parse(module.source).body if isinstance(node, ast.FunctionDef)}
    by_hand = count()
    launches = (launch for launches in module.launches.values() for launch in launches)
    for launch in {launch.function: launch for launch in launches}.values():
        is_generated = launch.shape is not None
        name = launch.function if is_generated else _DIGEST.sub(f"_{next(by_hand)}", launch.function)
        yield _Function(nodes[launch.function], name, _tokens(nodes[launch.function], name, launch.sizes))


def _tokens(node: ast.FunctionDef, name: str, sizes: Collection[str]) -> Tokens:
    numbers = _Numbers(sizes)
    whole = numbers.visit(copy.deepcopy(node))
    whole.name = name
    head, *rest = _HOLE.split(ast.unparse(whole))  # a piece, then places in `found` and pieces by turns
    return Tokens([head, *rest[1::2]], [numbers.found[int(place)] for place in rest[::2]])


class _Numbers(ast.NodeTransformer):
    """Puts a name in the place of each number that may be a variable. found: the numbers.

    sizes: keywords of calls whose values may be variables.
    """

    def __init__(self, sizes: Collection[str]) -> None:
        self.sizes = sizes
        self.found: list[str] = []

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if any(isinstance(part, ast.Name) for part in ast.walk(node)):  # not 2 * 3, which Python computes
            node.left, node.right = self._open(node.left), self._open(node.right)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if any(isinstance(part, ast.Name) for part in ast.walk(node)):
            node.left, node.comparators = self._open(node.left), [self._open(part) for part in node.comparators]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        callee = ast.unparse(node.func)
        if callee == "tl.full":
            shape, value, dtype = node.args
            node.args = [shape, self._open(value, _SUFFIX.get(ast.unparse(dtype))), dtype]
            return node
        node.func = self.visit(node.func)  # of (720*t0 + i1).to(...)
        ends = 2 if callee in ("range", "tl.range", "tl.minimum") else 0
        node.args = [self._open(arg) if k < ends else self.visit(arg) for k, arg in enumerate(node.args)]
        for keyword in node.keywords:
            keyword.value = self._open(keyword.value) if keyword.arg in self.sizes else self.visit(keyword.value)
        return node

    def _open(self, node: ast.expr, suffix: str | None = None) -> ast.expr:
        """A number's place; of anything else, the numbers in it. suffix: of a real; None: it is no variable."""
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return self._hole(str(number))
            case ast.Constant(value=float(number)) if suffix is not None:
                return self._hole(f"{number!r}{suffix}")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                node.operand = self._open(node.operand, suffix)
                return node
        return self.visit(node)  # type: ignore[no-any-return]

    def _hole(self, number: str) -> ast.expr:
        self.found.append(number)
        return ast.Name(f"DC_HOLE{len(self.found) - 1}_")


def _variable(slot: int, number: str) -> str:
    match kind_of(number):
        case "int64_t":
            return f"n{slot}_"
        case "float":
            return f"n{slot}_.to(tl.float32, bitcast=True)"
    return f"n{slot}_.to(tl.int64).to(tl.float64, bitcast=True)"


def _word(number: str) -> tuple[str, int]:
    """The type of the variable in a signature, and its bits."""
    match kind_of(number):
        case "int64_t":
            return ("i32" if int(number) < _INT32_END else "i64"), int(number)
        case "float":
            (bits,) = struct.unpack("<i", struct.pack("<f", float(number.removesuffix("f"))))
            return "i32", bits
    return "i64", word_of(number)
