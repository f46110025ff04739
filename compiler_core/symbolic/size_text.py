"""Sizes as text, in Python's syntax, and back.

    Declarations := sizes Symbol, Symbol ... [if Condition and Condition ...]
    Symbol       := NAME in [low, high]  |  NAME in [low, inf)
    Condition    := [not] Sum == Sum  |  [not] Sum < Sum  |  [not] Sum <= Sum         the guards, in their order
    Sum          := [-] Product + Product - ...        Product := One * One ...
    One          := NAME | NUMBER | (Sum // Sum) | (Sum % Sum)

In: the symbols of a graph. Out: `show_declarations`; `read_declarations`: symbols of which no hint is known, in a
`Sizes` that is closed. A size's own text is `Sym.show`, and `read_sum` reads it.
Invariant: nothing simplifies by what is known of symbols, so what is printed reads back as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from compiler_core.errors import GraphError
from compiler_core.symbolic.expression import Quotient, Remainder, of_factor
from compiler_core.symbolic.size import RELATIONS, SizeGuard, Sizes, SizeSymbol, Sym, SymOrInt, name_of


class Tokens(Protocol):
    """A place in a list of tokens."""

    def peek(self) -> str: ...
    def next(self, kind: str = "") -> str: ...
    def accept(self, text: str) -> bool: ...
    def expect(self, text: str) -> None: ...
    def error(self, expected: str) -> GraphError: ...


def show_declarations(symbols: Iterable[SizeSymbol]) -> str:
    """`sizes s0 in [2, inf), s1 in [2, 64] if s0 == 2*s1`; "" of no symbols."""
    used = set(symbols)
    if not used:
        return ""
    sizes = next(iter(used)).sizes
    guards = _guards_of(sizes, used)
    text = ", ".join(f"{symbol.name} in {_interval(symbol)}" for symbol in sizes.symbols if symbol in used)
    conditions = " and ".join(guard.show(name_of) for guard in guards)
    return f"sizes {text} if {conditions}" if conditions else f"sizes {text}"


def _guards_of(sizes: Sizes, used: set[SizeSymbol]) -> list[SizeGuard]:
    """The guards that say something of these symbols; afterwards these are more: also those that the guards name."""
    count = -1
    while count != len(used):
        count = len(used)
        guards = [guard for guard in sizes.guards if not used.isdisjoint(guard.symbols)]
        used.update(symbol for guard in guards for symbol in guard.symbols)
    return guards


def _interval(symbol: SizeSymbol) -> str:
    low, high = symbol.declared
    return f"[{low}, inf)" if high == math.inf else f"[{low}, {high}]"


def read_declarations(tokens: Tokens) -> dict[str, Sym]:
    """Name -> symbol, of what stands before a graph; none if it declares none."""
    symbols: dict[str, Sym] = {}
    if not tokens.accept("sizes"):
        return symbols
    sizes = Sizes()
    while not symbols or tokens.accept(","):
        name = tokens.next("word")
        tokens.expect("in")
        tokens.expect("[")
        low = int(tokens.next("number"))
        tokens.expect(",")
        high = float("inf") if tokens.accept("inf") else int(tokens.next("number"))
        tokens.expect(")" if high == math.inf else "]")
        symbols[name] = sizes.new(None, low=low, high=high, name=name)
    word = "if"
    while tokens.accept(word):
        sizes.add(_read_condition(tokens, symbols))
        word = "and"
    sizes.close()
    return symbols


def _read_condition(tokens: Tokens, symbols: dict[str, Sym]) -> SizeGuard:
    answer = not tokens.accept("not")
    left = read_sum(tokens, lambda: _one(tokens, symbols))
    relation = next((relation for relation in RELATIONS if tokens.accept(relation)), "")
    if not relation:
        raise tokens.error("==, < or <=")
    return SizeGuard(relation, left, read_sum(tokens, lambda: _one(tokens, symbols)), answer)


def _one(tokens: Tokens, symbols: dict[str, Sym]) -> SymOrInt:
    if tokens.accept("("):
        size: SymOrInt = read_sum(tokens, lambda: _one(tokens, symbols))
        tokens.expect(")")
        return size
    if tokens.peek() in symbols:
        return symbols[tokens.next()]
    return int(tokens.next("number"))


def read_sum(tokens: Tokens, one: Callable[[], Any]) -> Any:
    """What `one` reads, if no sign follows; else the sum that follows."""
    total = -_read_product(tokens, one) if tokens.accept("-") else _read_product(tokens, one)
    while tokens.peek() in ("+", "-"):
        total = total + _read_product(tokens, one) if tokens.next() == "+" else total - _read_product(tokens, one)
    return total


def _read_product(tokens: Tokens, one: Callable[[], Any]) -> Any:
    total = one()
    while tokens.peek() in ("*", "//", "%"):
        sign, right = tokens.next(), one()
        total = total * right if sign == "*" else of_factor((Quotient if sign == "//" else Remainder)(total, right))
    return total
