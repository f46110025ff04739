"""Which arguments of a function must be tensors: where torch takes no number, neither do we.

In: a function as users call it. Out: `tensor_parameters`, and `check_tensors` of one call. What a function needs is
read off its annotations: a parameter that is a Value (or a Tensor) takes no number; `input` takes none either, but of
the functions whose kind in the table is `numbers`, of whose operands one must be a tensor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from compiler_core.dtype import number_type
from compiler_core.errors import ArgumentTypeError
from compiler_core.names.torch_table import ROWS

NUMBER_FIRST = frozenset(row.inner for row in ROWS if "numbers" in row.kinds)
_NEVER_NUMBERS = ("Value", "Tensor")
_TWO_TENSORS = "Operand"


class Wanted(NamedTuple):
    """tensors: (place, name) of parameters that take no number. either: of those of which one must be a tensor."""

    tensors: tuple[tuple[int, str], ...]
    either: tuple[tuple[int, str], ...]


@functools.cache
def tensor_parameters(function: Callable[..., Any]) -> Wanted:
    """What a function wants to be tensors."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # of C
        return Wanted((), ())
    name = getattr(function, "__name__", "")
    plain = [(k, p) for k, p in enumerate(parameters) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    never = [(k, p.name) for k, p in plain if p.annotation in _NEVER_NUMBERS]
    operands = [(k, p.name) for k, p in plain if p.annotation == _TWO_TENSORS and k < 2]
    if operands and operands[0][0] == 0 and name not in NUMBER_FIRST:
        return Wanted((operands[0], *never), ())
    return Wanted(tuple(never), tuple(operands) if len(operands) == 2 and name in NUMBER_FIRST else ())


def is_of_first(wanted: Wanted) -> bool:
    """Whether nothing but the first argument is asked about, which a look at it settles in most calls."""
    return not wanted.either and all(place == 0 for place, _ in wanted.tensors)


def _is_number(value: object) -> bool:
    return not hasattr(value, "_cell") and number_type(value) is not None  # of a Tensor, quickly no


def check_tensors(name: str, wanted: Wanted, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise ArgumentTypeError for a number where a tensor is wanted."""
    tensors, either = wanted
    for place, parameter in tensors:
        value = args[place] if place < len(args) else kwargs.get(parameter)
        if not hasattr(value, "_cell") and _is_number(value):
            what = f"{name}(): argument '{parameter}' (position {place + 1}) must be Tensor, not {type(value).__name__}"
            raise ArgumentTypeError(what)
    if either and all(
        _is_number(args[place] if place < len(args) else kwargs.get(parameter)) for place, parameter in either
    ):
        kinds = ", ".join(type(value).__name__ for value in args)
        raise ArgumentTypeError(f"{name}() received an invalid combination of arguments - got ({kinds})")


def need_a_tensor(*operands: Any) -> None:
    """Raise ArgumentTypeError if all are numbers."""
    if all(number_type(operand) is not None for operand in operands):
        kinds = ", ".join(type(operand).__name__ for operand in operands)
        raise ArgumentTypeError(f"the function received an invalid combination of arguments - got ({kinds})")


def with_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that takes no number where torch's takes none."""
    wanted, name = tensor_parameters(function), getattr(function, "__name__", "")
    of_first = is_of_first(wanted)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not (of_first and args and hasattr(args[0], "_cell")):
            check_tensors(name, wanted, args, kwargs)
        return function(*args, **kwargs)

    return checked
