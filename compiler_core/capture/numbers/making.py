"""Tensors that functions make of numbers that change: filled with one, of nested lists, in even steps, of two numbers.

In: a function of ours and its arguments, some of them symbols. Out: what is called instead, with 0-d tensors in the
place of the numbers: in the dtype that the function stores them in, so that it rounds nothing twice. None where they
must be constants: numbers that do not fit the dtype, whole ramps, which are sizes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core import dtype as dtypes
from compiler_core.capture.numbers.lifting import stored
from compiler_core.capture.numbers.symbols import (
    NUMBERS,
    SymbolFloat,
    SymbolInt,
    arithmetic,
    comparison,
    is_symbol,
    is_time,
    plain_of,
    render_in,
    shown_number,
)
from compiler_core.dtype import DType
from compiler_core.tensor.making.creation import arange, tensor
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Made = tuple[Callable[..., Any], Args, Kwargs]
# parameters in order; the number is the last one, or `data`
_FILLED = {
    "full": ("size", "fill_value"),
    "full_like": ("input", "fill_value"),
    "_new_full": ("input", "size", "fill_value"),
    "scalar_tensor": ("s",),
}
_LISTED = {"tensor": ("data",), "_new_tensor": ("input", "data"), "as_placed": ("data", "dtype", "device")}
_ENDS = {"arange": ("start", "end", "step"), "linspace": ("start", "end", "steps")}
_EXACT = 1 << 53  # whole numbers up to here are floats


def made_of(numbers: Numbers, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Made | None:
    """What to call in the place of `function(*args, **kwargs)`: (function, args, kwargs)."""
    name = function.__name__
    if name in _FILLED or name in _LISTED:
        return _of_value(numbers, function, args, kwargs)
    if name in _ENDS:
        return _of_ends(numbers, name, args, kwargs)
    if name == "where" and not kwargs and len(args) == 3 and not any(isinstance(arg, Tensor) for arg in args[1:]):
        return _of_two(numbers, function, *args)
    return None


def _of_two(numbers: Numbers, where: Callable[..., Any], condition: Any, one: Any, other: Any) -> Made | None:
    """`where` of two numbers."""
    dtype = _dtype_of_numbers((one, other))
    if dtype is None or not (is_symbol(one) or is_symbol(other)):
        return None
    pair = [_in_place_of(numbers, value, dtype) for value in (one, other)]
    return None if any(part is None for part in pair) else (where, (condition, *pair), {})


def _dtype_of_numbers(value: Any) -> DType | None:
    """The dtype of a number, or of nested lists of them; None where anything else is in them."""
    leaves = list(_leaves(value))
    if any(type(leaf) not in NUMBERS for leaf in leaves):
        return None
    is_float = any(isinstance(leaf, float) for leaf in leaves)
    return dtypes.get_default_dtype() if is_float else dtypes.int64


def _leaves(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _in_place_of(numbers: Numbers, value: Any, dtype: DType) -> Any:
    """Nested lists with 0-d tensors in the places of symbols; None if some must be constants."""
    if isinstance(value, (list, tuple)):
        parts = [_in_place_of(numbers, part, dtype) for part in value]
        return None if any(part is None for part in parts) else parts
    return stored(numbers, value, dtype) if is_symbol(value) else value


def _of_value(numbers: Numbers, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Made | None:
    """Filled with a number, or of nested lists."""
    name = function.__name__
    names = _FILLED.get(name) or _LISTED[name]
    given = {**dict(zip(names, args)), **kwargs}
    key = "data" if name in _LISTED else names[-1]
    value = given.get(key)
    if len(args) > len(names) or not any(map(is_symbol, _leaves(value))):
        return None
    found = _dtype_of_numbers(value)
    dtype = _dtype_asked(name, given) or found
    if found is None or dtype is None:
        return None
    is_narrow = dtype.kind == "f" and dtype.itemsize == 2 and name in _LISTED  # rounded to float32 on the way
    if is_narrow and isinstance(value, (list, tuple)):
        return None
    made = _in_place_of(numbers, value, dtypes.float32 if is_narrow else dtype)
    if made is None:
        return None
    given |= {key: made, "dtype": dtype}
    first = (given.pop("input"),) if "input" in names else ()
    return tensor if name == "as_placed" else function, first, given


def _dtype_asked(name: str, given: Kwargs) -> DType | None:
    """The dtype that the arguments say, or a model."""
    asked = given.get("dtype")
    if asked is not None:
        return dtypes.as_dtype(asked)
    if isinstance(given.get("input"), Tensor):
        return dtypes.of(given["input"].dtype)
    return dtypes.get_default_dtype() if name == "scalar_tensor" else None


# ---- even steps


def _of_ends(numbers: Numbers, name: str, args: Args, kwargs: Kwargs) -> Made | None:
    """`arange` or `linspace` of floats, of which some change. How many numbers there are is guarded."""
    given = {**dict(zip(_ENDS[name], args)), **kwargs}
    dtype = dtypes.as_dtype(given.pop("dtype", None) or dtypes.get_default_dtype())
    device = given.pop("device", None)
    if not given.keys() <= {*_ENDS[name]} or dtype.kind != "f" or not all(map(_is_plain, given.values())):
        return None
    found = (_steps if name == "arange" else _spaces)(numbers, **given)
    if found is None:
        return None
    count, *pair = found
    parts = [stored(numbers, part, dtypes.float64) if is_symbol(part) else part for part in pair]
    return ramp, (count, *parts, dtype, device), {}


def _is_plain(value: Any) -> bool:
    """Whether a number that is no size; None is that of an argument that is not given."""
    return type(value) in (int, float, type(None)) or (type(value) in (SymbolInt, SymbolFloat) and not is_time(value))


def _steps(numbers: Numbers, start: Any = None, end: Any = None, step: Any = 1) -> tuple[Any, Any, Any] | None:
    """(how many numbers, the first, the step) of `arange`; None as the first: it is 0, and not added."""
    start, end = (0, start) if end is None else (start or 0 if start is None else start, end)
    ends = (start, end, step)
    if not any(type(value) is SymbolFloat for value in ends) or any(value is None for value in ends):
        return None
    if any(isinstance(value, int) and (is_symbol(value) or abs(value) > _EXACT) for value in (start, step)):
        return None
    count = steps_between(*map(plain_of, ends))
    if count < 0:
        return None
    between = numbers.code.guards.bind(steps_between, "steps_between")
    code = f"{between}({', '.join(render_in(numbers, value) for value in ends)}) == {count}"
    numbers.code.require_once(code, f"arange({', '.join(map(shown_number, ends))}) has {count} numbers")
    if is_symbol(start):
        is_zero = comparison(numbers, "==", operator.eq, start, 0)
        return count, None if is_zero else start, step
    return count, start or None, step


def steps_between(start: float, end: float, step: float) -> int:
    """How many numbers `arange` gives; -1 where it raises."""
    if not all(map(math.isfinite, (start, end, step))) or step == 0 or (end - start) * step < 0:
        return -1
    return max(0, math.ceil((end - start) / step))


def _spaces(numbers: Numbers, start: Any, end: Any, steps: Any) -> tuple[Any, Any, Any] | None:
    """(how many numbers, the first, the step) of `linspace`."""
    if type(steps) is not int or steps < 2 or start is None or end is None:
        return None
    span = arithmetic(numbers, "-", operator.sub, end, start)
    gap = arithmetic(numbers, "/", operator.truediv, span, steps - 1)
    return steps, start if is_symbol(start) else float(start), gap


def ramp(count: int, start: Any, step: Any, dtype: DType, device: Any) -> Tensor:
    """start + step * k for k below count, in float64, then in dtype: as `arange` and `linspace` do. start None: 0."""
    places = arange(count, dtype=dtypes.float64, device=device) * step
    made: Tensor = (places if start is None else places + start).to(dtype)
    return made
