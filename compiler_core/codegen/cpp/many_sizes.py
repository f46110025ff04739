"""One code for many sizes: of sources that differ in numbers alone, one that reads these numbers from a table.

In: sources of one graph at several sizes, printed for that (`program.print_source(opened=True)`), one after the other.
Out: `Filled`: the source to compile, and the table of numbers that makes it the source that was given.

    skeleton   the tokens of a source, without comments, every number left out
    hole       a number of a skeleton that was not the same in all of its sources so far; it is read from `dc_n`.
               Holes that held equal numbers in each of these sources share a slot of the table. Integers from LARGE on
               are holes as soon as there are any: offsets in the arena, which differ sooner or later, and long loops

The first source of a skeleton has no holes. One whose numbers differ at other places than those known opens more of
them: that is another code to compile. Mostly the second opens all that there are.
Invariant: the code with its table's numbers in their slots is, token for token, the source that was given. So nothing
is assumed of sizes: each is lowered by itself, and only the C++ compiler's work is shared.
A number that cannot be a variable (one with a suffix, say) keeps its source apart: `fill` gives it without holes.
What must stay a constant (an argument of a template, the extent of an array) is printed in hexadecimal, which is never
a hole. Nothing that a hole may stand in is `static`: that would keep the numbers of the first call.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock

LARGE = 4096
MARK = "DC_NUMBERS"  # a line of its own at the beginning of each function that `dc_n` reaches
TABLE = ("  const int64_t* const dc_n = (const int64_t*)lib[-1];", f"  {MARK}")  # of a function that is given `lib`
PARALLEL_WORK = 32768  # innermost iterations below which starting threads costs more than it saves
PRELUDE = f"""\
template <class F> static inline void dc_share(int64_t work, int64_t n, const F& f) {{
  if (work < {PARALLEL_WORK}) f((int64_t)0, n); else dc_parallel(n, 1, f);
}}
static inline double dc_real(int64_t bits) {{ double x; __builtin_memcpy(&x, &bits, sizeof x); return x; }}
"""
_TOKEN = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<kept>"(?:[^"\\]|\\.)*" | [A-Za-z_]\w* | 0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?\w*)
      | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?\w*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_FIXING = frozenset({"static", "thread_local", "constexpr", "enum", "extern"})  # what a declaration begins with
_INT = re.compile(r"\d+")
_REAL = re.compile(r"((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(f?)")


@dataclass(frozen=True, slots=True)
class Filled:
    """units: file stem -> the text to compile. numbers: its table, words of 64 bits; reals as the bits of doubles.

    plain: the text without holes.
    """

    units: dict[str, str]
    numbers: tuple[int, ...]
    plain: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A unit: what stands between its numbers, and the numbers. The text is each piece and the number after it.

    reached[i]: number i is in a function that `dc_n` reaches, and in no declaration that lasts longer than its call.
    """

    pieces: list[str]
    numbers: list[str]
    reached: list[bool]

    @staticmethod
    def of(text: str) -> _Tokens:
        made, piece, is_reached, is_fixed = _Tokens([], [], []), [""], False, False
        for match in _TOKEN.finditer(text):
            token = match.group()
            if match.lastgroup == "number":
                made.pieces.append("".join(piece))
                made.numbers.append(token)
                made.reached.append(is_reached and not is_fixed)
                piece = []
                continue
            if match.lastgroup == "gap":
                token = "\n" + token.rpartition("\n")[2] if token[0].isspace() and "\n" in token else " "
            elif token == MARK:
                is_reached, is_fixed = True, False
            elif token in _FIXING:
                is_fixed = True
            elif token == ";":
                is_fixed = False
            elif token == "}" and piece[-1:] == ["\n"]:  # of a function
                is_reached = False
            piece.append(token)
        made.pieces.append("".join(piece))
        return made


@dataclass
class _Family:
    """The sources of one skeleton. columns: the numbers of those that opened holes, the first source's first.

    columns[k][i]: number i in source k. reached[i]: it may be a hole.
    """

    reached: list[bool]
    columns: list[list[str]]
    slots: dict[int, int] = field(default_factory=dict)  # number that is a hole -> its slot

    def takes(self, numbers: Sequence[str]) -> bool:
        """Whether the holes that there are make the code of a source with these numbers."""
        held: dict[int, str] = {}
        first = self.columns[0]
        for place, number in enumerate(numbers):
            slot = self.slots.get(place)
            if slot is None:
                if number != first[place]:
                    return False
            elif _kind(number) != _kind(first[place]) or held.setdefault(slot, number) != number:
                return False
        return True

    def open(self, numbers: Sequence[str]) -> None:
        """Have holes wherever a source with these numbers, too, asks for one."""
        self.columns.append(list(numbers))
        self.slots = {}
        known: dict[tuple[str, ...], int] = {}
        for place, column in enumerate(zip(*self.columns)):
            if self.reached[place] and (len(set(column)) > 1 or _is_large(column[0])):
                self.slots[place] = known.setdefault(column, len(known))

    def table(self, numbers: Sequence[str]) -> tuple[int, ...]:
        found = {slot: numbers[place] for place, slot in self.slots.items()}
        return tuple(_word(found[slot]) for slot in range(len(found)))


class ManySizes:
    """The families of sources that a process has seen."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._lock = Lock()

    def fill(self, units: Mapping[str, str]) -> Filled:
        """The code of a source, and its table."""
        tokens = {stem: _Tokens.of(text) for stem, text in units.items()}
        numbers = [number for unit in tokens.values() for number in unit.numbers]
        plain = _written(tokens, {})
        with self._lock:
            reached = [known for unit in tokens.values() for known in unit.reached]
            family = self._families.setdefault(_skeleton(tokens), _Family(reached, [numbers]))
            if not family.takes(numbers):
                if not _may_differ(family, numbers):
                    return Filled(plain, (), plain)
                family.open(numbers)
            return Filled(_written(tokens, family.slots), family.table(numbers), plain)


def _skeleton(tokens: Mapping[str, _Tokens]) -> str:
    digest = sha256()
    for stem, unit in tokens.items():
        digest.update(f"\0{stem}\0".encode())
        for piece in unit.pieces:
            digest.update(" ".join(piece.split()).encode() + b"\1")
    return digest.hexdigest()


def _may_differ(family: _Family, numbers: Sequence[str]) -> bool:
    """Whether all numbers that differ are of one kind at each place, and can be variables."""
    sides = zip(family.columns[0], numbers, family.reached)
    return all(a == b or (reached and _kind(a) == _kind(b) != "") for a, b, reached in sides)


def _is_large(number: str) -> bool:
    return number.isdecimal() and LARGE <= int(number) < 1 << 63


def _kind(number: str) -> str:
    """The type of the variable that may stand for it; empty: none may."""
    if _INT.fullmatch(number) and int(number) < 1 << 63:
        return "int64_t"
    real = _REAL.fullmatch(number)
    return "" if real is None else "float" if real.group(2) else "double"


def _word(number: str) -> int:
    if _kind(number) == "int64_t":
        return int(number)
    value: int = struct.unpack("<q", struct.pack("<d", float(number.removesuffix("f"))))[0]
    return value


def _written(tokens: Mapping[str, _Tokens], slots: Mapping[int, int]) -> dict[str, str]:
    """The units' text, holes read from the table; each function declares those that it reads."""
    units, first = {}, 0
    for stem, unit in tokens.items():
        parts = [unit.pieces[0]]
        kinds: dict[int, str] = {}
        for place, (number, piece) in enumerate(zip(unit.numbers, unit.pieces[1:]), first):
            slot = slots.get(place)
            if slot is not None:
                kinds[slot] = _kind(number)
            parts += [number if slot is None else f"n{slot}_", piece]
        first += len(unit.numbers)
        units[stem] = "".join(_declared("".join(parts), kinds))
    return units


def _declared(text: str, kinds: Mapping[int, str]) -> Iterable[str]:
    head, *functions = text.split(MARK)
    yield head
    for function in functions:
        used = sorted({int(slot) for slot in re.findall(r"\bn(\d+)_\b", function)} if kinds else ())
        yield " ".join(_declaration(slot, kinds[slot]) for slot in used) + function


def _declaration(slot: int, kind: str) -> str:
    value = f"dc_n[{slot}]" if kind == "int64_t" else f"({kind})dc_real(dc_n[{slot}])"
    return f"const {kind} n{slot}_ = {value};"
