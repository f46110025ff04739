"""Numbers and texts from outside that change from call to call: inputs of a captured segment, not constants.

In: an int, float or str at a source that made a guard fail before. Out: a symbol: it has its value of this call, and
a formula of what it was computed from. Arithmetic on symbols gives symbols; comparing them guards the answer; beside a
tensor they become 0-d tensors, inputs of the graph; whoever else needs the value gets it as a constant (`specialise`).
A size of a tensor whose sizes the call decides is a symbol too: a `Sym` (`symbolic/size.py`), which guards for itself
what is asked of it. What Syms and whole numbers give by + - * // % is a Sym; a number from outside becomes one there
(`promoted`). All else of Syms is as of other symbols, with the Sym as a part of the formula.
Invariant: a symbol that is no Sym is an int, float or str, so nothing that only passes it on notices; the machine gives
none to native code without `specialise` or `plain`. A Sym is no int, so native code reads none in silence; but its hash
and its text are not those of its number, so C code that hashes or shows what it is given gets none.
"""

from __future__ import annotations

import collections
import copy
import math
import operator
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import VIEWS, viewed
from compiler_core.capture.guards.sources import Argument, AtEnd, Source
from compiler_core.capture.numbers.sourced_sizes import source_of
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sym, SymOrInt, hint_of

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers


@dataclass(frozen=True, slots=True)
class Input:
    """The number or text at `source`. is_time: a clock's, another at every call."""

    source: Source
    value: Any
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """template: code with a place for each part. parts: symbols or constants. size: its code's, in parts. is_time:
    computed of a clock's."""

    template: str
    parts: tuple[Any, ...]
    size: int
    is_time: bool


Formula = Input | Apply


class SymbolInt(int):
    formula: Formula


class SymbolFloat(float):
    formula: Formula


class SymbolText(str):
    formula: Formula


KINDS: dict[type, type] = {int: SymbolInt, float: SymbolFloat, str: SymbolText}
PLAIN: dict[type, type] = {**{kind: plain for plain, kind in KINDS.items()}, Sym: int}
WHOLE = (SymbolInt, Sym)
_OF_DICT: dict[Any, Any] = {}
HOLDERS = frozenset(
    {dict, set, frozenset, collections.deque, type(_OF_DICT.keys()), type(_OF_DICT.values()), type(_OF_DICT.items())}
    | {type(iter([])), type(reversed([])), type(iter(())), zip, enumerate}
)
# operators whose result has a formula; of "/", "//" and "%" the divisor is guarded not to be 0
FORMULAS = frozenset({"+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"})
CLOSED = frozenset({"+", "-", "*", "/", "//", "%"})  # that tell by the types of operands what the result's is
OF_SIZES = frozenset({"+", "-", "*", "//", "%"})  # of sizes and whole numbers gives a size
BY_TEMPLATE: dict[str, Callable[..., Any]] = {
    "({} + {})": operator.add,
    "({} - {})": operator.sub,
    "({} * {})": operator.mul,
    "({} // {})": operator.floordiv,
    "({} % {})": operator.mod,
    "(-{})": operator.neg,
}
HIGHEST = 4  # power of a size that is a size
LONGEST = 40  # parts of a formula; a longer one is computed once, and named
NUMBERS = frozenset({bool, int, float, SymbolInt, SymbolFloat, Sym})
PLACED: tuple[Any, ...] = (list, dict, deque)  # what stands at a place can be replaced
HOLDING = (tuple, set, frozenset)
DEEP = 8  # containers in containers that C code is looked for to read


def is_symbol(value: Any) -> bool:
    return type(value) in PLAIN


def plain_of(value: Any) -> Any:
    """The number or text itself. Raises Break for one that is known when the graph has run."""
    if type(value) is Sym:
        return value.at(hint_of)
    if type(value) not in PLAIN:
        return value
    if value.formula.is_time:
        require_known(value)
    return PLAIN[type(value)](value)


def plain_parts(value: Any) -> Any:
    """A value, or one that cannot be changed and holds others (a tuple, a slice), with plain numbers and texts. What is
    known when the graph has run stays a symbol."""
    if type(value) in PLAIN:
        return value if is_read(value) else plain_of(value)
    if isinstance(value, (tuple, frozenset)):
        parts = [plain_parts(part) for part in value]
        if all(a is b for a, b in zip(parts, value)):
            return value
        make: Any = tuple.__new__ if isinstance(value, tuple) else frozenset.__new__
        return make(type(value), parts)
    if type(value) is slice:
        return slice(*map(plain_parts, (value.start, value.stop, value.step)))
    return value


def make(value: Any, formula: Formula) -> Any:
    """A symbol of this value; a value of another type (a bool, a complex) has none."""
    kind = KINDS.get(type(value))
    if kind is None:
        return value
    made = kind(value)
    made.formula = formula
    return made


def applied(numbers: Numbers, value: Any, template: str, parts: tuple[Any, ...]) -> Any:
    """A symbol of this value, computed by `template` of `parts`; the check function names what is long, once."""
    changing = [part for part in parts if is_symbol(part)]
    size = 1 + sum(map(size_of, changing))
    formula = Apply(template, parts, size, any(map(is_time, changing)))
    found = make(value, formula)
    if formula.size <= LONGEST or found is value:
        return found
    if formula.is_time:
        raise Break("much is computed of a time")
    local = numbers.code.guards.let("number", code_of(numbers, found))
    return make(value, Input(Argument(local, "a computed number"), value))


def size_of(part: Any) -> int:
    """How long the code of a symbol is, in parts."""
    if type(part) is Sym:
        return len(part.terms)
    return part.formula.size if isinstance(part.formula, Apply) else 1


def is_time(value: Any) -> bool:
    """Whether a symbol is a clock's, or computed of one."""
    return type(value) is not Sym and bool(value.formula.is_time)


def is_read(value: Any) -> bool:
    """Whether it is the symbol of a number that the graph computes, or computed of one."""
    return type(value) in PLAIN and is_time(value) and any(map(_is_of_graph, leaves_of(value)))


def _is_of_graph(leaf: Sym | Input) -> bool:
    return isinstance(leaf, Input) and isinstance(leaf.source, AtEnd) and leaf.source.is_read


def require_known(value: Any) -> None:
    """Raise Break for a number that the graph computes, or that is computed of one: it is looked at before."""
    read = next(filter(_is_of_graph, leaves_of(value)), None)
    if isinstance(read, Input):
        remedy = "return it, put it in a list or an attribute, or look at it outside"
        raise Break(f"a number is needed that the graph computes: {read.source.text}", remedy)


def symbol(numbers: Numbers, source: Source, value: Any) -> Any:
    """The value at `source` as a symbol; only its type is guarded."""
    numbers.code.require(
        f"type({numbers.code.local(source)}) is {type(value).__name__}", f"{source.text} is a {type(value).__name__}"
    )
    return make(value, Input(source, value))


def render(part: Any, leaf: Callable[[Input], str]) -> str:
    """Code for a formula's part."""
    if type(part) is Sym:
        return f"({part.show(lambda symbol: leaf(Input(source_of(symbol), symbol.hint)))})"
    if type(part) in PLAIN:
        part = part.formula
    if isinstance(part, Input):
        return leaf(part)
    if isinstance(part, Apply):
        return part.template.format(*(render(inner, leaf) for inner in part.parts))
    if isinstance(part, float) and not math.isfinite(part):
        return f"float({str(part)!r})"
    return f"({part!r})"


def code_of(numbers: Numbers, value: Any) -> str:
    """Code for a symbol in the check function. Raises Break for a time that is known only when the graph has run.

    An exported graph has no such function: its sizes are constants from here on, which whoever declared them is told.
    """
    if numbers.trace.exports:
        _fix_sizes(numbers, value)

    def leaf(part: Input) -> str:
        if isinstance(part.source, AtEnd):
            require_known(value)
            raise Break("a time is looked at")
        return numbers.code.local(part.source)

    return render(value, leaf)


def _fix_sizes(numbers: Numbers, part: Any) -> None:
    if type(part) is Sym:
        numbers.sizes.fix(part)
    elif type(part) in PLAIN:
        _fix_sizes(numbers, part.formula)
    elif isinstance(part, Apply):
        for inner in part.parts:
            _fix_sizes(numbers, inner)


def specialised(numbers: Numbers, value: Any, inside: tuple[int, ...] = ()) -> Any:
    """The value as a constant: guarded, once. Of a tuple that holds symbols, one that holds constants.

    A list, a dict and a deque stay the same and hold constants from here on. Other containers, views and iterators stay
    as they are, what they hold is guarded.
    """
    kind: Any = type(value)
    if kind is Sym:
        return numbers.sizes.fix(value)
    if kind is slice:
        bounds = (value.start, value.stop, value.step)
        return slice(*(specialised(numbers, bound) for bound in bounds)) if any(map(is_symbol, bounds)) else value
    if kind in HOLDERS or kind is list or isinstance(value, tuple):
        return value if id(value) in inside else _holding_constants(numbers, value, (*inside, id(value)))
    if not is_symbol(value):
        return value
    if value.formula.is_time:
        require_known(value)
        raise Break("a time is needed as a constant")
    constant = plain_of(value)
    if isinstance(value, SymbolText):
        leaves = leaves_of(value)
        for leaf in leaves:
            if isinstance(leaf, Sym):
                numbers.sizes.fix(leaf)
        if not any(isinstance(leaf, Input) for leaf in leaves):
            return constant
    code, spelled = code_of(numbers, value), render(constant, lambda part: "")
    if isinstance(constant, float) and (not constant or constant != constant):  # 0.0 is not -0.0; NaN is NaN
        code, spelled = f"repr({code})", repr(repr(constant))
    numbers.code.require_once(f"{code} == {spelled}", f"{shown_number(value)} == {constant!r}")
    return constant


def _holding_constants(numbers: Numbers, value: Any, inside: tuple[int, ...]) -> Any:
    """`specialised`, of a container."""
    if isinstance(value, tuple):
        items = [specialised(numbers, item, inside) for item in tuple.__iter__(value)]
        return value if all(a is b for a, b in zip(items, tuple.__iter__(value))) else remade(value, items)
    if type(value) in PLACED:
        for place, item in list(places_of(value)):
            specialised(numbers, place)
            if (constant := specialised(numbers, item, inside)) is not item:
                value[place] = constant
        return value
    for item in _held(value):
        specialised(numbers, item, inside)
    return value


def remade(value: Any, items: list[Any]) -> Any:
    """A tuple of the same class and attributes that holds `items`."""
    made: Any = tuple.__new__(type(value), items)
    if getattr(value, "__dict__", None):
        vars(made).update(vars(value))
    return made


def places_of(value: Any) -> Any:
    """Pairs of a place and what stands there, of a list, a dict or a deque."""
    return (
        dict.items(value) if isinstance(value, dict) else enumerate(_kind_among((list, deque), value).__iter__(value))
    )


def _kind_among(kinds: tuple[Any, ...], value: Any) -> Any:
    return next(kind for kind in kinds if isinstance(value, kind))


def _held(value: Any) -> list[Any]:
    """What a set, a view or an iterator that is not advanced by that, holds."""
    if type(value) in (zip, enumerate):
        return list(value.__reduce__()[1])  # iterators
    return list(copy.copy(value) if hasattr(value, "__next__") else value)


def settled(numbers: Numbers, value: Any, depth: int = 0, *, compared: bool = False) -> None:
    """The numbers and texts that a container holds, keys and items, are guarded: something compares or shows them.

    Where it stays the same object it holds constants from here on. compared: and does no more with them: sizes, which
    answer for themselves, stay.
    """
    if is_symbol(value) or type(value) is slice:
        if not compared or type(value) is not Sym:
            specialised(numbers, value)
    elif depth == DEEP:
        return
    elif isinstance(value, BaseException):
        settled(numbers, value.args, depth + 1, compared=compared)
        if not compared and (args := specialised(numbers, value.args)) is not value.args:
            value.args = args
    elif isinstance(value, VIEWS):
        settled(numbers, viewed(value), depth + 1, compared=compared)
    elif type(value) is SimpleNamespace:
        settled(numbers, vars(value), depth + 1, compared=compared)
    elif isinstance(value, PLACED):
        kind = _kind_among(PLACED, value)
        for place, part in list(places_of(value)):
            settled(numbers, place, depth + 1, compared=compared)
            settled(numbers, part, depth + 1, compared=compared)
            if not compared and (constant := _constant_part(numbers, part)) is not part:
                kind.__setitem__(value, place, constant)
    elif isinstance(value, HOLDING):
        for part in list(_kind_among(HOLDING, value).__iter__(value)):
            settled(numbers, part, depth + 1, compared=compared)


def _constant_part(numbers: Numbers, part: Any) -> Any:
    """What a container that can be changed is to hold in the place of a part that cannot."""
    return specialised(numbers, part) if is_symbol(part) or isinstance(part, (tuple, slice)) else part


def leaves_of(part: Any) -> list[Sym | Input]:
    """The sizes and numbers from outside that a formula's part reads."""
    if isinstance(part, Sym | Input):
        return [part]
    if is_symbol(part):
        return leaves_of(part.formula)
    return [leaf for inner in part.parts for leaf in leaves_of(inner)] if isinstance(part, Apply) else []


def as_sizes(numbers: Numbers, *values: Any) -> tuple[SymOrInt, ...] | None:
    """Whole numbers, a size among them, as sizes; None of any others."""
    if not any(type(value) is Sym for value in values):
        return None
    if any(not isinstance(value, (int, Sym)) or (is_symbol(value) and is_time(value)) for value in values):
        return None
    return tuple(promoted(numbers, value) if type(value) is SymbolInt else value for value in values)


def promoted(numbers: Numbers, value: SymbolInt) -> SymOrInt:
    """A whole number that changes, as a size of its own, or computed of such; a constant, if it is less than 2."""
    formula = value.formula
    if (
        isinstance(formula, Apply)
        and formula.template in BY_TEMPLATE
        and all(type(p) in (int, *WHOLE) for p in formula.parts)
    ):
        sizes = [promoted(numbers, part) if type(part) is SymbolInt else part for part in formula.parts]
        size: SymOrInt = BY_TEMPLATE[formula.template](*sizes)
        return size
    if value < 2:
        constant: int = specialised(numbers, value)
        return constant
    code, text = code_of(numbers, value), shown_number(value)
    numbers.code.require_once(f"{code} >= 2", f"{text} >= 2")
    source = formula.source if isinstance(formula, Input) else None
    if source is None:
        source = Argument(numbers.code.guards.let("number", code, ("size", code), text), text)
    return numbers.sizes.symbol(source, plain_of(value))


def arithmetic(numbers: Numbers, op: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """`left op right` of numbers (or texts), at least one of them a symbol."""
    if is_read(left) or is_read(right):
        return _of_reads(op, left, right)
    if op not in FORMULAS or (isinstance(left, str) and op != "+"):
        return function(specialised(numbers, left), specialised(numbers, right))
    if op in ("/", "//", "%") and not right:
        return function(plain_of(left), specialised(numbers, right))  # raises, whatever is divided
    sizes = as_sizes(numbers, left, right)
    if sizes is not None and (op in OF_SIZES or (op == "**" and type(right) is int and 0 <= right <= HIGHEST)):
        return function(*sizes)
    if op in ("/", "//", "%") and is_symbol(right) and type(right) is not Sym and not numbers.trace.exports:
        numbers.code.require_once(f"{code_of(numbers, right)} != 0", f"{shown_number(right)} != 0")
    found = applied(numbers, function(plain_of(left), plain_of(right)), f"({{}} {op} {{}})", (left, right))
    return found if op in CLOSED else of_one_type(numbers, found, function, (left, right))


def _of_reads(op: str, left: Any, right: Any) -> Any:
    """`left op right`, of which one is known when the graph has run: where that raises nothing, and tells its type."""
    sides = (left, right)
    plain = all(type(side) in (int, float, SymbolInt, SymbolFloat) for side in sides)
    known_divisor = not (is_symbol(right) and is_time(right)) and bool(right)
    parts = sum(map(size_of, filter(is_symbol, sides)))
    if not plain or parts >= LONGEST or not (op in ("+", "-", "*") or (op == "/" and known_divisor)):
        for side in sides:
            if is_symbol(side):
                require_known(side)
    whole = op != "/" and not any(isinstance(side, float) for side in sides)
    return make(0 if whole else 0.0, Apply(f"({{}} {op} {{}})", sides, 1 + parts, is_time=True))


def of_one_type(numbers: Numbers, found: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A symbol `found`, the result of `function(*args)`, whose type no type of an argument tells: it is guarded.

    Of a result that is none (a bool, a complex), the arguments are constants from here on.
    """
    if not is_symbol(found):
        return function(*(specialised(numbers, arg) for arg in args))
    kind = PLAIN[type(found)].__name__
    if numbers.trace.exports and kind == "float":  # powers of sizes, which are positive
        return found
    numbers.code.require_once(f"type({code_of(numbers, found)}) is {kind}", f"{shown_number(found)} is a {kind}")
    return found


def unary(numbers: Numbers, op: str, function: Callable[[Any], Any], value: Any) -> Any:
    if type(value) is Sym:
        return function(value)
    if is_read(value) and op == "-":
        return make(PLAIN[type(value)](0), Apply("(-{})", (value,), 1 + size_of(value), is_time=True))
    return applied(numbers, function(plain_of(value)), f"({op}{{}})", (value,))


def comparison(numbers: Numbers, op: str, function: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    """The answer, guarded."""
    sizes = as_sizes(numbers, left, right)
    if sizes is not None:
        return function(*sizes)
    answer = function(plain_of(left), plain_of(right))
    code = f"({render_in(numbers, left)} {op} {render_in(numbers, right)}) is {answer}"
    numbers.code.require_once(code, f"{shown_number(left)} {op} {shown_number(right)} is {answer}")
    return answer


def truth(numbers: Numbers, value: Any) -> bool:
    if type(value) is Sym:
        return bool(value)
    answer = bool(plain_of(value))
    numbers.code.require_once(
        f"bool({code_of(numbers, value)}) is {answer}", f"{shown_number(value)} is {'not ' * answer}zero"
    )
    return answer


def render_in(numbers: Numbers, value: Any) -> str:
    return code_of(numbers, value) if is_symbol(value) else render(value, lambda part: "")


def shown_number(value: Any) -> str:
    """A number's formula in the user's words."""
    return render(value, lambda part: part.source.text) if is_symbol(value) else repr(value)
