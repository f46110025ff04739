"""Numbers and texts from outside that change from call to call: inputs of a captured segment, not constants.

In: an int, float or str at a source that made a guard fail before. Out: a symbol: it has its value of this call, and
a formula of what it was computed from. Arithmetic on symbols gives symbols; comparing them guards the answer; beside a
tensor they become 0-d tensors, inputs of the graph; whoever else needs the value gets it as a constant (`specialise`).
Invariant: a symbol is an int, float or str, so nothing that only passes it on notices; the machine gives none to native
code without `specialise` or `plain`.
"""

from __future__ import annotations

import collections
import copy
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import dtype as dtypes
from compiler_core.bytecode.native import CONVERT
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.sources import Argument, AtEnd, Source
from compiler_core.capture.trace import Known
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.tensor.tensor import Tensor

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


SYMBOLS = (SymbolInt, SymbolFloat, SymbolText)
PLAIN = {SymbolInt: int, SymbolFloat: float, SymbolText: str}
KINDS: dict[type, type] = {plain: kind for kind, plain in PLAIN.items()}
_OF_DICT: dict[Any, Any] = {}
HOLDERS = frozenset(
    {dict, set, frozenset, collections.deque, type(_OF_DICT.keys()), type(_OF_DICT.values()), type(_OF_DICT.items())}
    | {type(iter([])), type(reversed([])), type(iter(())), zip, enumerate}
)
# operators whose result has a formula; of "/", "//" and "%" the divisor is guarded not to be 0
FORMULAS = frozenset({"+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"})
CLOSED = frozenset({"+", "-", "*", "/", "//", "%"})  # that tell by the types of operands what the result's is
LONGEST = 40  # parts of a formula; a longer one is computed once, and named
COMPUTED = frozenset({min, max, abs, round})
NUMBERS = frozenset({bool, int, float, SymbolInt, SymbolFloat})
HOLDING: tuple[Any, ...] = (list, tuple, set, frozenset, deque, *map(type, ({}.keys(), {}.values(), {}.items())))
DEEP = 8  # containers in containers that C code is looked for to read
LIFTED = frozenset({"+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!="})


def is_symbol(value: Any) -> bool:
    return type(value) in PLAIN


def plain_of(value: Any) -> Any:
    """The number or text itself."""
    return PLAIN[type(value)](value) if type(value) in PLAIN else value


def plain_parts(value: Any) -> Any:
    """A value, or one that cannot be changed and holds others (a tuple, a slice), with plain numbers and texts."""
    if type(value) in PLAIN:
        return plain_of(value)
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
    formulas = [part.formula for part in parts if is_symbol(part)]
    size = 1 + sum(formula.size if isinstance(formula, Apply) else 1 for formula in formulas)
    formula = Apply(template, parts, size, any(formula.is_time for formula in formulas))
    found = make(value, formula)
    if formula.size <= LONGEST or found is value:
        return found
    if formula.is_time:
        raise Break("much is computed of a time")
    local = numbers.code.guards.let("number", code_of(numbers, found))
    return make(value, Input(Argument(local, "a computed number"), value))


def symbol(numbers: Numbers, source: Source, value: Any) -> Any:
    """The value at `source` as a symbol; only its type is guarded."""
    numbers.code.require(
        f"type({numbers.code.local(source)}) is {type(value).__name__}", f"{source.text} is a {type(value).__name__}"
    )
    return make(value, Input(source, value))


def render(part: Any, leaf: Callable[[Input], str]) -> str:
    """Code for a formula's part."""
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
    """Code for a symbol in the check function. Raises Break for a time that is known only when the graph has run."""

    def leaf(part: Input) -> str:
        if isinstance(part.source, AtEnd):
            raise Break("a time is looked at")
        return numbers.code.local(part.source)

    return render(value, leaf)


def specialised(numbers: Numbers, value: Any, inside: tuple[int, ...] = ()) -> Any:
    """The value as a constant: guarded, once. Of a tuple that holds symbols, one that holds constants.

    A list stays the same list and holds constants from here on. Other containers, views and iterators stay as they
    are, what they hold is guarded.
    """
    kind: Any = type(value)
    if kind in (tuple, list):
        if id(value) in inside:
            return value
        items = [specialised(numbers, item, (*inside, id(value))) for item in value]
        if all(a is b for a, b in zip(items, value)):
            return value
        if kind is tuple:
            return tuple(items)
        value[:] = items
        return value
    if type(value) is slice:
        bounds = (value.start, value.stop, value.step)
        return slice(*(specialised(numbers, bound) for bound in bounds)) if any(map(is_symbol, bounds)) else value
    if kind in HOLDERS:
        if id(value) not in inside:  # one may hold itself
            for item in _held(value):
                specialised(numbers, item, (*inside, id(value)))
        return value
    if not is_symbol(value):
        return value
    if value.formula.is_time:
        raise Break("a time is needed as a constant")
    constant = plain_of(value)
    code, spelled = code_of(numbers, value), render(constant, lambda part: "")
    if isinstance(constant, float) and (not constant or constant != constant):  # 0.0 is not -0.0; NaN is NaN
        code, spelled = f"repr({code})", repr(repr(constant))
    numbers.code.require_once(f"{code} == {spelled}", f"{shown_number(value)} == {constant!r}")
    return constant


def _held(value: Any) -> list[Any]:
    """What a container, a view or an iterator that is not advanced by that, holds."""
    if type(value) is dict:
        return [*value, *value.values()]
    if type(value) in (zip, enumerate):
        return list(value.__reduce__()[1])  # iterators
    return list(copy.copy(value) if hasattr(value, "__next__") else value)


def settled(numbers: Numbers, value: Any, depth: int = 0) -> None:
    """The numbers and texts that a container holds, keys and items, are guarded: something compares or shows them."""
    if is_symbol(value) or type(value) is slice:
        specialised(numbers, value)
    elif isinstance(value, dict) and depth < DEEP:
        for part in (*dict.keys(value), *dict.values(value)):
            settled(numbers, part, depth + 1)
    elif isinstance(value, BaseException) and depth < DEEP:
        settled(numbers, value.args, depth + 1)
    elif type(value) is SimpleNamespace and depth < DEEP:
        settled(numbers, vars(value), depth + 1)
    elif isinstance(value, HOLDING) and depth < DEEP:
        for part in list(next(kind for kind in HOLDING if isinstance(value, kind)).__iter__(value)):
            settled(numbers, part, depth + 1)


def arithmetic(numbers: Numbers, op: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """`left op right` of numbers (or texts), at least one of them a symbol."""
    if op not in FORMULAS or (isinstance(left, str) and op != "+"):
        return function(specialised(numbers, left), specialised(numbers, right))
    if op in ("/", "//", "%") and not right:
        return function(specialised(numbers, left), specialised(numbers, right))
    if op in ("/", "//", "%") and is_symbol(right):
        numbers.code.require_once(f"{code_of(numbers, right)} != 0", f"{shown_number(right)} != 0")
    found = applied(numbers, function(plain_of(left), plain_of(right)), f"({{}} {op} {{}})", (left, right))
    return found if op in CLOSED else of_one_type(numbers, found, function, (left, right))


def of_one_type(numbers: Numbers, found: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A symbol `found`, the result of `function(*args)`, whose type no type of an argument tells: it is guarded.

    Of a result that is none (a bool, a complex), the arguments are constants from here on.
    """
    if not is_symbol(found):
        return function(*(specialised(numbers, arg) for arg in args))
    kind = PLAIN[type(found)].__name__
    numbers.code.require_once(f"type({code_of(numbers, found)}) is {kind}", f"{shown_number(found)} is a {kind}")
    return found


def unary(numbers: Numbers, op: str, function: Callable[[Any], Any], value: Any) -> Any:
    return applied(numbers, function(plain_of(value)), f"({op}{{}})", (value,))


def comparison(numbers: Numbers, op: str, function: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    """The answer, guarded."""
    answer = function(plain_of(left), plain_of(right))
    code = f"({render_in(numbers, left)} {op} {render_in(numbers, right)}) is {answer}"
    numbers.code.require_once(code, f"{shown_number(left)} {op} {shown_number(right)} is {answer}")
    return answer


def truth(numbers: Numbers, value: Any) -> bool:
    answer = bool(plain_of(value))
    numbers.code.require_once(
        f"bool({code_of(numbers, value)}) is {answer}", f"{shown_number(value)} is {'not ' * answer}zero"
    )
    return answer


def formatted(numbers: Numbers, value: Any, conversion: str, spec: str) -> Any:
    """An f-string's field."""
    plain = plain_of(value)
    shown = CONVERT[conversion](plain)
    converted = {"": "{}", "s": "str({})", "r": "repr({})", "a": "ascii({})"}[conversion]
    spelled = repr(spec).replace("{", "{{").replace("}", "}}")
    return applied(numbers, format(shown, spec), f"format({converted}, {spelled})", (value,))


def joined(numbers: Numbers, pieces: list[str]) -> Any:
    """The pieces of an f-string, of which one is a symbol."""
    return applied(numbers, "".join(map(plain_of, pieces)), "''.join((" + "{}, " * len(pieces) + "))", tuple(pieces))


def computed(numbers: Numbers, function: Any, args: tuple[Any, ...], form: str = "{}({})") -> Any:
    """`function(*args)`, of `math` or a builtin, of numbers of which one is a symbol. The result's type is guarded.

    form: of the call, with places for the name and the arguments.
    """
    name = f"__import__('math').{function.__name__}" if function.__module__ == "math" else function.__name__
    call = function if form == "{}({})" else lambda *items: function(items)
    found = applied(numbers, call(*map(plain_of, args)), form.format(name, ", ".join(["{}"] * len(args))), args)
    return of_one_type(numbers, found, call, args)


def place_among(numbers: Numbers, function: Any, items: Any, value: Any) -> Any:
    """`function(items, value)` of `bisect`, of numbers that stay what they are, and one that changes."""
    local = numbers.code.guards.let(
        "number", f"{numbers.code.guards.bind(function, 'bisect')}({tuple(items)!r}, {code_of(numbers, value)})"
    )
    text = f"{function.__name__}({list(items)}, {shown_number(value)})"
    return make(function(items, plain_of(value)), Input(Argument(local, text), value))


def is_computed_of(items: Any) -> bool:
    """Whether a list or tuple of numbers, one of them a symbol."""
    return type(items) in (list, tuple) and any(map(is_symbol, items)) and all(type(item) in NUMBERS for item in items)


def is_computed(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether `computed` has a formula for a call."""
    if not any(map(is_symbol, args)) or any(type(arg) not in NUMBERS for arg in args):
        return False
    return function in COMPUTED or getattr(function, "__module__", "") == "math"


def converted(numbers: Numbers, kind: type, value: Any) -> Any:
    """`int(value)`, `float(value)`, `str(value)`."""
    found = applied(numbers, kind(plain_of(value)), f"{kind.__name__}({{}})", (value,))
    return of_one_type(numbers, found, kind, (value,)) if kind is int else found


def beside_tensor(numbers: Numbers, value: Any, other: Tensor) -> Any:
    """A number as an operand of a tensor: a 0-d tensor of the dtype that the number would be computed in."""
    dtype = other.dtype
    if isinstance(value, SymbolText) or dtype in (dtypes.float16, dtypes.bfloat16) or dtype.is_complex:
        return specialised(numbers, value)
    if isinstance(value, SymbolFloat) and not dtype.is_floating_point:
        dtype = dtypes.get_default_dtype()
    elif dtype is dtypes.bool_:
        dtype = dtypes.int64
    elif isinstance(value, SymbolInt) and not dtype.is_floating_point and dtype is not dtypes.int64:
        return specialised(numbers, value)
    return lifted(numbers, value, dtype)


def beside_array(numbers: Numbers, value: Any, other: TracedArray) -> Any:
    """A number as an operand of a traced array: a 0-d one, in the dtype that NEP 50 has the number computed in."""
    if isinstance(value, SymbolText):
        return specialised(numbers, value)
    wanted = np.result_type(other.dtype, 1 if isinstance(value, SymbolInt) else 1.0)
    if wanted not in (np.float32, np.float64, np.int64):
        return specialised(numbers, value)
    return TracedArray(lifted(numbers, value, dtypes.of(wanted)), is_scalar=True)


def lifted(numbers: Numbers, value: Any, dtype: Any) -> Tensor:
    """A number as a 0-d tensor, one for each formula and dtype."""
    key = (code_of(numbers, value), dtype)
    if key not in numbers.lifted:
        numbers.lifted[key] = lift(numbers, value, dtype)
    return numbers.lifted[key]


def lift(numbers: Numbers, value: Any, dtype: Any) -> Tensor:
    """A 0-d tensor that every call makes of the number."""
    guards = numbers.code.guards
    wrap = guards.bind(_zero_d, "zero_d")
    local = guards.let("number", f"{wrap}({code_of(numbers, value)}, {guards.bind(dtype.numpy, 'dtype')})")
    handle = _zero_d(plain_of(value), dtype.numpy)
    numbers.trace.know(Known(handle, "input", shown_number(value), local, numbers.code.hand_over(local, handle)))
    return handle


def _zero_d(value: Any, dtype: Any) -> Tensor:
    return Tensor._wrap(np.asarray(value, dtype))


def render_in(numbers: Numbers, value: Any) -> str:
    return code_of(numbers, value) if is_symbol(value) else render(value, lambda part: "")


def shown_number(value: Any) -> str:
    """A number's formula in the user's words."""
    return render(value, lambda part: part.source.text) if is_symbol(value) else repr(value)
