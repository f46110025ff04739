"""One code for many sizes: of sources that differ in numbers alone, one that reads these numbers from a table.

In: sources of one graph at several sizes, printed for that (`program.print_source(opened=True)`), one after the other.
Out: `Filled`: the source to compile, and the table of numbers that makes it the source that was given.
Which numbers are holes says codegen/families.py; they are read from `dc_n`. Integers from LARGE on are as soon as there
are any: offsets in the arena, which differ sooner or later, and long loops.

Invariant: the code with its table's numbers in their slots is, token for token, the source that was given.
A number that cannot be a variable (one with a suffix, say) keeps its source apart: `fill` gives it without holes.
What must stay a constant (an argument of a template, the extent of an array) is printed in hexadecimal, which is never
a hole. Nothing that a hole may stand in is `static`: that would keep the numbers of the first call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from compiler_core.codegen.families import Families, Tokens, kind_of, word_of
from compiler_core.records import dataclass

LARGE = 4096
MARK = "DC_NUMBERS"  # a line of its own at the beginning of each function that `dc_n` reaches
TABLE = ("  const int64_t* const dc_n = (const int64_t*)lib[-1];", f"  {MARK}")  # of a function that is given `lib`
PARALLEL_WORK = 32768  # innermost iterations below which starting threads costs more than it saves
REAL = """\
static inline double dc_real(int64_t bits) { double x; __builtin_memcpy(&x, &bits, sizeof x); return x; }
"""
PRELUDE = f"""\
template <class F> static inline void dc_share(int64_t work, int64_t n, const F& f) {{
  if (work < {PARALLEL_WORK}) f((int64_t)0, n); else dc_parallel(n, 1, f);
}}
{REAL}"""
_REACHED = re.compile(rf"{MARK}.*?\n}}", re.DOTALL)  # what is left of a function that `dc_n` reaches
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_STRING = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(  # of a function; all else is between. kept: also what a declaration that lasts longer begins with
    rf"""(?P<comment>{_COMMENT})
      | (?P<kept>{_STRING} | \b(?:static|thread_local|constexpr|enum|extern)\b[^;]*)
      | (?<![\w.])(?!0[xX])(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?\w*)""",
    re.VERBOSE | re.DOTALL,
)
_APART = re.compile(f"{_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Filled:
    """units: file stem -> the text to compile. numbers: its table, words of 64 bits; reals as the bits of doubles."""

    units: dict[str, str]
    numbers: tuple[int, ...]


def _tokens(text: str) -> Tokens:
    """A unit, its comments left out. Numbers are those in functions that `dc_n` reaches, but for what keeps the first
    call's; all others are text."""
    made, piece, end = Tokens([], []), list[str](), 0
    for function in _REACHED.finditer(text):
        piece.append(_uncommented(text[end : function.start()]))
        begin, end = function.span()
        for match in _TOKEN.finditer(text, begin, end):
            if match.lastgroup == "comment":
                piece += [text[begin : match.start()], " "]
                begin = match.end()
            elif match.lastgroup == "number":
                made.pieces.append("".join([*piece, text[begin : match.start()]]))
                made.numbers.append(match.group())
                piece, begin = [], match.end()
        piece.append(text[begin:end])
    made.pieces.append("".join([*piece, _uncommented(text[end:])]))
    return made


@lru_cache(maxsize=256)  # helpers are long, and mostly the same
def _uncommented(text: str) -> str:
    return _APART.sub(lambda match: " " if match["comment"] else match.group(), text)


def _tokens_of(units: Mapping[str, str]) -> dict[str, Tokens]:
    return {stem: _tokens(text) for stem, text in units.items()}


def plain(units: Mapping[str, str]) -> dict[str, str]:
    """The text of a source without holes."""
    return _written(_tokens_of(units), {})


class ManySizes:
    """What the sources of a process have opened."""

    def __init__(self) -> None:
        self._families = Families(LARGE)

    def fill(self, units: Mapping[str, str], others: Callable[[], Iterable[Mapping[str, str]]] = tuple) -> Filled:
        """The code of a source, and its table. others: asked of a new skeleton for the source at other sizes, so that
        the first code has the holes that these open."""
        tokens = _tokens_of(units)
        holes = self._families.holes(tokens, lambda: map(_tokens_of, others()))
        if holes is None:
            return Filled(_written(tokens, {}), ())
        return Filled(_written(tokens, holes.slots), tuple(map(word_of, holes.numbers)))


def _written(tokens: Mapping[str, Tokens], slots: Mapping[int, int]) -> dict[str, str]:
    """The units' text, holes read from the table; each function declares those that it reads."""
    units, first = {}, 0
    for stem, unit in tokens.items():
        functions: list[tuple[list[str], dict[int, str]]] = [([], {})]  # (text, kinds of the slots in it)
        places = [None, *(slots.get(place) for place in range(first, first + len(unit.numbers)))]
        for number, slot, piece in zip(["", *unit.numbers], places, unit.pieces):
            text, kinds = functions[-1]
            if slot is not None:
                kinds[slot] = kind_of(number)
            before, *others = piece.split(MARK)
            text += [number if slot is None else f"n{slot}_", before]
            functions += [([other], {}) for other in others]
        first += len(unit.numbers)
        units[stem] = "".join("".join([_declared(kinds), *text]) for text, kinds in functions)
    return units


def _declared(kinds: Mapping[int, str]) -> str:
    return " ".join(_declaration(slot, kind) for slot, kind in sorted(kinds.items()))


def _declaration(slot: int, kind: str) -> str:
    value = f"dc_n[{slot}]" if kind == "int64_t" else f"({kind})dc_real(dc_n[{slot}])"
    return f"const {kind} n{slot}_ = {value};"
