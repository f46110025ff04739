"""Numbers that change, as arguments of functions of tensors: which may be 0-d tensors, so that the graph takes them.

In: a function's name and its arguments, some of them symbols. Out: arguments with 0-d tensors or constants instead.
A parameter is in the table if a 0-d tensor there means what the number would: it is computed in the dtype that the
number would be computed in, beside the tensor that comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core import dtype as dtypes
from compiler_core.capture.numbers.lifting import beside_tensor, stored
from compiler_core.capture.numbers.selections import elements
from compiler_core.capture.numbers.symbols import (
    SymbolInt,
    is_symbol,
    is_time,
    promoted,
    remade,
    specialised,
)
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_OTHER = ("input", "other")
_ARITHMETIC = ("add", "sub", "mul", "div", "multiply", "subtract", "divide", "true_divide", "rsub", "copysign", "xlogy")
_RESTS = ("floor_divide", "remainder", "fmod")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne", "less", "less_equal", "greater", "greater_equal", "not_equal")
_POWERS = ("pow", "float_power")
_PARAMETERS: dict[str, tuple[str, ...]] = {  # in order
    **dict.fromkeys(_ARITHMETIC, _OTHER),
    **dict.fromkeys(_COMPARISONS, _OTHER),
    **dict.fromkeys(_RESTS, _OTHER),
    **dict.fromkeys(_POWERS, ("input", "exponent")),
    **dict.fromkeys(("clamp", "clip"), ("input", "min", "max")),
    "at_least": ("input", "min"),
    "at_most": ("input", "max"),
    "masked_fill": ("input", "mask", "value"),
    **dict.fromkeys(("fill", "_filled"), ("input", "value")),  # fill_ is _filled
    "fill_diagonal": ("input", "fill_value"),
    "index_fill": ("input", "dim", "index", "value"),
    "lerp": ("input", "end", "weight"),
    "where": ("condition", "input", "other"),
    "_where": ("input", "condition", "other"),
    "set_item": ("input", "key", "value"),
    **dict.fromkeys(("addcmul", "addcdiv"), ("input", "tensor1", "tensor2")),
}
# parameters that are numbers in torch, and factors of a tensor
_FACTORS = {"add": "alpha", "sub": "alpha", "subtract": "alpha", "addcmul": "value", "addcdiv": "value"}
_NOT_LIFTED = frozenset({"condition", "mask", "tensor1", "tensor2", "end", "dim", "index", "key"})
# that store the number, and refuse one that does not fit
_STORING = frozenset({"fill", "_filled", "fill_diagonal", "masked_fill", "index_fill"})
_EACH = frozenset(
    {"add", "sub", "mul", "div", "lerp", "addcmul", "addcdiv"}
)  # of `_foreach_...`, with one number for all


def handed(numbers: Numbers, value: Any) -> Any:
    """An argument of a function of ours, which knows sizes: these stay, also in tuples, lists, dicts and slices. Whole
    numbers that change become sizes, if any are symbols; other numbers are constants."""
    kind: Any = type(value)
    if kind is Sym:
        return value
    if kind is SymbolInt and numbers.sizes.are_on and not is_time(value):
        return promoted(numbers, value)
    if not numbers.any_change:
        return specialised(numbers, value)
    if isinstance(value, tuple) or kind is list:
        items = [handed(numbers, item) for item in kind.__iter__(value)]
        if all(a is b for a, b in zip(items, kind.__iter__(value))):
            return value
        return items if kind is list else remade(value, items)
    if kind is dict:
        return {specialised(numbers, key): handed(numbers, item) for key, item in value.items()}
    if kind is slice:
        return slice(*(handed(numbers, bound) for bound in (value.start, value.stop, value.step)))
    return specialised(numbers, value)


def operands(numbers: Numbers, name: str, args: Args, kwargs: Kwargs) -> tuple[list[Any], Kwargs]:
    """The arguments of a function of tensors: numbers that change are 0-d tensors where they may be, else constants."""
    plain = name if name in _PARAMETERS else name.removesuffix("_")
    names = _PARAMETERS.get(plain, ()) if any(map(is_symbol, (*args, *kwargs.values()))) else ()
    beside = _beside("floor_divide" if "rounding_mode" in kwargs else plain, args)
    if name.startswith("_foreach_"):
        return _of_each(numbers, name, args, kwargs)
    if not names or beside is None:
        return [handed(numbers, arg) for arg in args], {key: handed(numbers, value) for key, value in kwargs.items()}
    lifts = {*names, _FACTORS.get(plain, "")} - _NOT_LIFTED

    def given(parameter: str, value: Any) -> Any:
        if not is_symbol(value) or parameter not in lifts:
            return handed(numbers, value)
        if parameter == _FACTORS.get(plain) and not _is_factor(value, args):
            return specialised(numbers, value)
        if plain in _STORING:
            made = stored(numbers, value, dtypes.of(beside.dtype))
            return specialised(numbers, value) if made is None else made
        return beside_tensor(numbers, value, beside, plain, is_first=parameter == "input")

    longer = (*names, *("",) * (len(args) - len(names)))
    return [given(*pair) for pair in zip(longer, args)], {key: given(key, value) for key, value in kwargs.items()}


def _of_each(numbers: Numbers, name: str, args: Args, kwargs: Kwargs) -> tuple[list[Any], Kwargs]:
    """The arguments of `torch._foreach_...`: a number for each of the tensors of one list, if these are alike."""
    plain, first = name.removeprefix("_foreach_").removesuffix("_"), args[0] if args else None
    alike = first if isinstance(first, (list, tuple)) and all(isinstance(x, Tensor) for x in first) else []
    kinds = {elements(tensor).dtype for tensor in alike}
    lifts = plain in _EACH and len(kinds) == 1 and next(iter(kinds)) in (dtypes.float32, dtypes.float64)

    def given(value: Any) -> Any:
        return beside_tensor(numbers, value, alike[0], plain) if lifts and is_symbol(value) else handed(numbers, value)

    return [given(arg) for arg in args], {key: given(value) for key, value in kwargs.items()}


def _beside(name: str, args: Args) -> Tensor | None:
    """The tensor that says in what dtype a number is computed; None where none does."""
    tensors = [elements(arg) for arg in args if isinstance(arg, Tensor)]
    if name in ("where", "_where"):  # its condition is its first or its second argument
        tensors = [tensor for tensor in tensors if tensor.dtype is not dtypes.bool_]
    if name in (*_POWERS, *_RESTS) and any(not tensor.dtype.is_floating_point for tensor in tensors):
        return None  # whole numbers to a negative power, or over 0, are an error
    return tensors[0] if tensors else None


def _is_factor(value: Any, args: Args) -> bool:
    """Whether a number scales tensors of one floating dtype: it is computed in that."""
    kinds = {elements(arg).dtype for arg in args if isinstance(arg, Tensor)}
    return len(kinds) == 1 and next(iter(kinds)).is_floating_point and all(isinstance(arg, Tensor) for arg in args)
