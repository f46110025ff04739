"""Functions of numbers that change: texts, `min`, `round`, `sum`, those of `math`, conversions, `bisect`.

In: a function and its arguments, some of them symbols. Out: a symbol, computed by the function at every call; what its
type depends on is guarded.
"""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.native import CONVERT
from compiler_core.capture.guards.sources import Argument
from compiler_core.capture.numbers.symbols import (
    NUMBERS,
    PLAIN,
    Apply,
    Input,
    SymbolText,
    applied,
    arithmetic,
    as_sizes,
    code_of,
    is_read,
    is_symbol,
    make,
    of_one_type,
    plain_of,
    render_in,
    shown_number,
    size_of,
)
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.size import Size

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers

COMPUTED = frozenset({min, max, abs, round})
COMPUTED_OF_SIZES = frozenset({min, max, abs, sum, math.prod})  # by asking them
ROUNDED = frozenset({round, math.floor, math.ceil, math.trunc})  # a size gives itself


def formatted(numbers: Numbers, value: Any, conversion: str, spec: str) -> Any:
    """An f-string's field."""
    known = value if not is_read(value) else PLAIN[type(value)](0) if type(value) is not SymbolText else ""
    shown = format(CONVERT[conversion](plain_of(known)), spec)  # raises for a spec that does not fit
    converted = {"": "{}", "s": "str({})", "r": "repr({})", "a": "ascii({})"}[conversion]
    spelled = repr(spec).replace("{", "{{").replace("}", "}}")
    return applied(numbers, shown, f"format({converted}, {spelled})", (value,))


def joined(numbers: Numbers, pieces: list[str]) -> Any:
    """The pieces of an f-string, of which one is a symbol."""
    text = "".join("" if is_read(piece) else plain_of(piece) for piece in pieces)
    return applied(numbers, text, "''.join((" + "{}, " * len(pieces) + "))", tuple(pieces))


def computed(numbers: Numbers, function: Any, args: tuple[Any, ...], form: str = "{}({})") -> Any:
    """`function(*args)`, of `math` or a builtin, of numbers of which one is a symbol. The result's type is guarded.

    form: of the call, with places for the name and the arguments.
    """
    sizes = as_sizes(numbers, *args)
    if sizes is not None and function in ROUNDED and len(sizes) == 1:
        return sizes[0]
    if sizes is not None and function in COMPUTED_OF_SIZES:
        return function(*sizes) if form == "{}({})" else function(sizes)
    if function is sum and any(map(is_read, args)):
        return reduce(lambda total, part: arithmetic(numbers, "+", operator.add, total, part), args, 0)
    if function is round and is_read(args[0]) and len(args) == 2 and type(args[1]) is int:
        return make(PLAIN[type(args[0])](0), Apply("round({}, {})", args, 1 + size_of(args[0]), is_time=True))
    name = f"__import__('math').{function.__name__}" if function.__module__ == "math" else function.__name__
    call = function if form == "{}({})" else lambda *items: function(items)
    template, value = form.format(name, ", ".join(["{}"] * len(args))), call(*map(plain_of, args))
    if type(value) is bool:  # `math.isfinite`: the answer is guarded
        code = template.format(*(render_in(numbers, arg) for arg in args))
        numbers.code.require_once(f"{code} is {value}", f"{function.__name__} of {', '.join(map(shown_number, args))}")
        return value
    return of_one_type(numbers, applied(numbers, value, template, args), call, args)


def place_among(numbers: Numbers, function: Any, items: Any, value: Any) -> Any:
    """`function(items, value)` of `bisect`, of numbers that stay what they are, and one that changes."""
    local = numbers.code.guards.let(
        "number", f"{numbers.code.guards.bind(function, 'bisect')}({tuple(items)!r}, {code_of(numbers, value)})"
    )
    text = f"{function.__name__}({list(items)}, {shown_number(value)})"
    return make(function(items, plain_of(value)), Input(Argument(local, text), value))


def is_computed_of(items: Any) -> bool:
    """Whether a list, tuple or shape of numbers, one of them a symbol."""
    return (
        type(items) in (list, tuple, Size)
        and any(map(is_symbol, items))
        and all(type(item) in NUMBERS for item in items)
    )


def is_computed(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether `computed` has a formula for a call."""
    if not any(map(is_symbol, args)) or any(type(arg) not in NUMBERS for arg in args):
        return False
    return function in COMPUTED or getattr(function, "__module__", "") == "math"


def converted(numbers: Numbers, kind: type, value: Any) -> Any:
    """`int(value)`, `float(value)`, `str(value)`."""
    if (kind is int and type(value) is Sym) or (PLAIN[type(value)] is kind and is_read(value)):
        return value
    found = applied(numbers, kind(plain_of(value)), f"{kind.__name__}({{}})", (value,))
    return of_one_type(numbers, found, kind, (value,)) if kind is int else found
