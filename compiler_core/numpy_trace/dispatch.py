"""NumPy's functions on traced arrays: one table, `np function -> rule on Tensors`, and how a call goes through it.

In: a function of NumPy and its arguments, at least one of them traced. Out: traced arrays (or what else it returns).
A rule has NumPy's signature; it takes what the user gave and returns Tensors, which are wrapped here: what is not a
view gets memory of its own, what has no axes left is a scalar, unless the rule says otherwise; `out=` is written to.
Where all that is traced is known, NumPy computes, and the result is known too. Rules register in the files imported at
the end of `__init__.py`. A function without a rule, or arguments that its rule does not take, are a GraphBreak that
names it; outside of a trace (`wrap_numpy` without `compile`) NumPy itself is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import numpy as np

from compiler_core.errors import DTypeError, GraphBreak
from compiler_core.numpy_trace.array import TracedArray, View, not_traced
from compiler_core.numpy_trace.known import constant, known_value
from compiler_core.ops.registry import current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """What answers a function. view: the result may share memory. keeps_0d: a result without axes is an array.

    effect: it changes an argument.
    """

    function: Callable[..., Any]
    view: bool
    keeps_0d: bool
    effect: bool


RULES: dict[Any, Rule] = {}
_signature = cache(inspect.signature)  # of the few rules that a program calls


def answers(
    *functions: Any, view: bool = False, keeps_0d: bool = False, effect: bool = False
) -> Callable[[Function], Function]:
    """Register the decorated rule for these functions of NumPy."""

    def register(rule: Function) -> Function:
        entry = Rule(rule, view, keeps_0d or view, effect)
        RULES.update(dict.fromkeys(functions, entry))
        return rule

    return register


def name_of(function: Any) -> str:
    """How the user would write it."""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{(module.removeprefix('numpy').lstrip('.') and module) or 'np'}.{function.__name__}".replace(
        "numpy.", "np."
    )


def call_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `function(*args, **kwargs)` gives."""
    rule = RULES.get(function)
    if rule is None:
        return without_rule(function, args, kwargs)
    try:
        bound = _signature(rule.function).bind(*args, **kwargs)
    except TypeError as error:
        raise not_traced(f"{name_of(function)} with such arguments ({error})") from None
    traced = list(traced_in((args, kwargs)))
    if not rule.view and not rule.effect and (done := computed(function, args, kwargs, traced)) is not None:
        return done
    out = bound.arguments.pop("out", None)
    try:
        result = rule.function(*bound.args, **bound.kwargs)
    except DTypeError:  # complex numbers that NumPy compares, and the like
        return without_rule(function, args, kwargs)
    if out is not None:
        return written_out(out, result)
    result = wrapped(result, rule, traced)
    return regained(result, traced, function, args, kwargs) if rule.view else result


def regained(result: Any, traced: list[TracedArray], function: Any, args: Any, kwargs: Any) -> Any:
    """Views that are copies, or views of such, told where they come from."""
    if type(result) in (tuple, list):
        return type(result)(_with_view(part, traced, function, args, kwargs, k) for k, part in enumerate(result))
    return _with_view(result, traced, function, args, kwargs, None)


def _with_view(part: Any, traced: list[TracedArray], function: Any, args: Any, kwargs: Any, place: int | None) -> Any:
    if type(part) is not TracedArray:
        return part
    root = part._held._cell.root
    source = next((array for array in traced if array.stands_for and array._held._cell.root is root), None)
    if source is not None and source.stands_for is not None:
        root = source.stands_for.root
    elif part.stands_for is None:
        return part
    else:
        root = part.stands_for.root
    return TracedArray(part._held, stands_for=View(root, root.stamp, function, args, kwargs, place))


def computed(function: Any, args: Any, kwargs: Any, traced: list[TracedArray]) -> Any:
    """What NumPy computes where all that is traced is known; None where it is not (or nothing is being traced)."""
    if current_trace() is None or any(known_value(array.tensor) is None for array in traced):
        return None
    if kwargs.get("out") is not None or (isinstance(function, np.ufunc) and function.nin < len(args)):
        return None
    return made(function(*natively(args), **natively(kwargs)))


def made(result: Any) -> Any:
    """Arrays that NumPy made while tracing, as traced ones that are known; its numbers are constants as they are."""
    if type(result) in (tuple, list):
        return type(result)(map(made, result))
    if type(result) is np.ndarray and result.dtype.kind in "biufc":
        return TracedArray(constant(result))
    return result


def without_rule(function: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's own answer where nothing is being traced. Raises GraphBreak under a trace, unless all is known."""
    if current_trace() is None:
        return function(*natively(args), **natively(kwargs))
    done = computed(function, args, kwargs, list(traced_in((args, kwargs))))
    if done is None:
        raise not_traced(
            name_of(function), remedy="keep it out of the compiled function, or write it with other functions"
        )
    return done


def natively(tree: Any) -> Any:
    """Arguments with NumPy's arrays and scalars in place of traced ones. Raises AutogradError for a gradient's."""
    if type(tree) is TracedArray:
        array = np.asarray(tree)
        return array[()] if tree.is_scalar else array
    if type(tree) in (list, tuple):
        return type(tree)(map(natively, tree))
    return {key: natively(value) for key, value in tree.items()} if type(tree) is dict else tree


def traced_in(tree: Any) -> Iterator[TracedArray]:
    """The traced arrays in nested tuples, lists and dicts."""
    if type(tree) is TracedArray:
        yield tree
    elif type(tree) in (list, tuple, dict):
        for part in tree.values() if type(tree) is dict else tree:
            yield from traced_in(part)


def wrapped(result: Any, rule: Rule, traced: Iterable[TracedArray]) -> Any:
    """A rule's result with its Tensors as arrays."""
    if isinstance(result, Tensor):
        if rule.view:
            return TracedArray(result)
        result = fresh(result, (array.tensor for array in traced))
        return TracedArray(result, is_scalar=not rule.keeps_0d and not result._cell.raw.shape)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(wrapped(part, rule, traced) for part in result))
    return type(result)(wrapped(part, rule, traced) for part in result) if type(result) in (list, tuple) else result


def fresh(tensor: Tensor, operands: Iterable[Tensor]) -> Tensor:
    """The tensor, with memory of its own: rules may give back an operand where there is nothing to do."""
    return tensor.clone() if any(tensor._cell.root is operand._cell.root for operand in operands) else tensor


def written_out(out: Any, result: Any) -> Any:
    """Write `result` into `out` (an array, or a tuple of one), and return that. Raises NumPy's errors."""
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if isinstance(out, tuple):
        return tuple(one if one is None else written_out(one, part) for one, part in zip(out, result))
    if type(out) is not TracedArray:
        raise (
            GraphBreak("out= is an array that is not traced, and the result is")
            if current_trace()
            else not_traced("out= beside traced arrays")
        )
    tensor = result.tensor if type(result) is TracedArray else result
    if tuple(tensor.shape) != out.shape:
        raise ValueError(f"output array has shape {out.shape}, and the result {tuple(tensor.shape)}")
    if not np.can_cast(tensor.dtype.numpy, out.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast the result from {tensor.dtype.numpy!r} to {out.dtype!r} with casting rule 'same_kind'"
        )
    from compiler_core.numpy_trace.operands import cast

    out.written(cast(tensor, out.dtype))
    return out
