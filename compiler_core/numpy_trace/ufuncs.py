"""NumPy's ufuncs on traced arrays: one table, `ufunc -> function of Tensors`, for all that ufuncs can be asked.

In: a ufunc, how it is called (`__call__`, `reduce`, `accumulate`, `outer`, `at`), its operands and options. Out: traced
arrays. NumPy itself says which loop it would run (`resolve_dtypes`: NEP 50, dtype=, casting=, what out= takes);
operands are cast to that loop's dtypes, the function runs on Tensors of these, and its result is cast to the loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core.errors import DTypeError, GraphBreak
from compiler_core.names.torch_table import ROWS
from compiler_core.numpy_trace.array import TracedArray, not_traced
from compiler_core.numpy_trace.dispatch import computed, fresh, traced_in, without_rule, written_out
from compiler_core.numpy_trace.operands import cast, dtype_here, dtype_in, filled, is_number, tensor_of, torch_function
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor

Rule = Callable[..., Any]


def _named(name: str) -> Rule:
    return lambda *operands: torch_function(name, of_numbers=True)(*operands)


def _absolute(x: Tensor) -> Tensor:
    return x if x.dtype.kind == "b" else F.abs(x)


def _cbrt(x: Tensor) -> Tensor:
    root = F.pow(F.abs(x), 1 / 3)
    better = F.sub(root, F.div(F.sub(F.mul(F.mul(root, root), root), F.abs(x)), F.mul(F.mul(root, root), 3)))
    return F.mul(F.sign(x), F.where(F.logical_and(F.gt(root, 0), F.isfinite(root)), better, root))  # type: ignore[no-any-return]


def _power(x: Any, y: Any) -> Tensor:
    """Whole numbers to negative powers are an error in NumPy: only exponents that are known are taken."""
    like = x if isinstance(x, Tensor) else y
    if like.dtype.kind in "iu":
        if isinstance(y, Tensor):
            raise not_traced("np.power of whole numbers with traced exponents")
        if y < 0:
            raise ValueError("Integers to negative integer powers are not allowed.")
    return F.pow(x, y)  # type: ignore[no-any-return]


def _floor_divide(x: Any, y: Any) -> Tensor:
    return _whole_division(F.floor_divide, x, y)


def _remainder(x: Any, y: Any) -> Tensor:
    rest = _whole_division(F.remainder, x, y)
    if not rest.dtype.is_floating_point:
        return rest
    return F.where(F.eq(rest, 0), torch_function("copysign")(rest, y), rest)  # type: ignore[no-any-return]  # torch has x's sign


def _fmod(x: Any, y: Any) -> Tensor:
    return _whole_division(F.fmod, x, y)


def _whole_division(function: Rule, x: Any, y: Any) -> Tensor:
    """Of whole numbers, that by zero is 0 in NumPy, with a warning, and an error here."""
    like = x if isinstance(x, Tensor) else y
    if like.dtype.is_inexact:
        return function(x, y)  # type: ignore[no-any-return]
    if not isinstance(y, Tensor):
        return function(x, y) if y else F.mul(x, 0)  # type: ignore[no-any-return]
    zero = F.eq(y, 0)
    return F.masked_fill(function(x, F.masked_fill(y, zero, 1)), zero, 0)  # type: ignore[no-any-return]


def _divmod(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    return _floor_divide(x, y), _remainder(x, y)


def _modf(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = F.trunc(x)
    rest = F.where(F.isinf(x), F.mul(F.sign(x), 0.0), F.sub(x, whole))
    return torch_function("copysign")(rest, x), whole


def _reciprocal(x: Tensor) -> Tensor:
    return F.reciprocal(x) if x.dtype.is_inexact else _floor_toward_zero(x)


def _floor_toward_zero(x: Tensor) -> Tensor:
    """1/x of whole numbers, without the fraction."""
    return F.where(F.eq(F.abs(x), 1), x, F.mul(x, 0))  # type: ignore[no-any-return]


def _matmul(x: Any, y: Any) -> Tensor:
    for operand in (x, y):
        if not isinstance(operand, Tensor) or not operand._cell.raw.shape:
            raise ValueError("matmul: Input operand does not have enough dimensions (has 0, needs 1 or more)")
    if x.dtype.kind == "b":
        return F.ne(F.matmul(cast(x, np.int64), cast(y, np.int64)), 0)  # type: ignore[no-any-return]
    return F.matmul(x, y)  # type: ignore[no-any-return]


def _logical(function: Rule) -> Rule:
    return lambda *xs: function(*(x if not isinstance(x, Tensor) else cast(x, np.bool_) for x in xs))


def _of_floats(function: Rule, instead: Rule) -> Rule:
    """`function` of floats; of whole numbers `instead`."""
    return lambda x: function(x) if x.dtype.is_inexact else instead(x)


def _same(x: Tensor) -> Tensor:
    return x


def _never(x: Tensor) -> Tensor:
    return F.ne(x, x)  # type: ignore[no-any-return]


def _always(x: Tensor) -> Tensor:
    return F.eq(x, x)  # type: ignore[no-any-return]


def _degrees(x: Tensor) -> Tensor:
    return F.mul(x, 180.0 / np.pi)  # type: ignore[no-any-return]


def _radians(x: Tensor) -> Tensor:
    return F.mul(x, np.pi / 180.0)  # type: ignore[no-any-return]


def _conjugate(x: Tensor) -> Tensor:
    return prims.conj(x).clone() if x.dtype.is_complex else x


# those that are more, or less, than the function of torch's that has their name
_UNLIKE: dict[np.ufunc, Rule] = {
    np.divide: F.true_divide, np.power: _power, np.float_power: F.pow, np.floor_divide: _floor_divide,
    np.remainder: _remainder, np.fmod: _fmod, np.divmod: _divmod, np.absolute: _absolute,
    np.rint: _of_floats(F.round, _same), np.floor: _of_floats(F.floor, _same), np.ceil: _of_floats(F.ceil, _same),
    np.trunc: _of_floats(F.trunc, _same), np.conjugate: _conjugate, np.square: lambda x: F.mul(x, x),
    np.cbrt: _cbrt, np.reciprocal: _reciprocal, np.modf: _modf,
    np.degrees: _degrees, np.rad2deg: _degrees, np.radians: _radians, np.deg2rad: _radians,
    np.isnan: _of_floats(F.isnan, _never), np.isinf: _of_floats(F.isinf, _never),
    np.isfinite: _of_floats(F.isfinite, _always),
    np.logical_and: _logical(F.logical_and), np.logical_or: _logical(F.logical_or),
    np.logical_xor: _logical(F.logical_xor), np.logical_not: _logical(F.logical_not), np.matmul: _matmul,
}  # fmt: skip


def _of_rows() -> dict[np.ufunc, Rule]:
    """The ufuncs that are functions of torch's, by NumPy's names in the table."""
    found: dict[np.ufunc, Rule] = {}
    for row in (row for row in ROWS if row.module.startswith("compiler_core.ops.")):
        ufuncs = [getattr(np, name, None) for name in (*row.ufuncs, *(n for n in row.names if n in row.bare))]
        rule = getattr(F, row.place[1]) if row.place[0] == F.__name__ else _named(row.place[1])
        found.update({ufunc: rule for ufunc in ufuncs if isinstance(ufunc, np.ufunc)})
    return found


UFUNCS: dict[np.ufunc, Rule] = _of_rows() | _UNLIKE
COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)
REDUCED: dict[np.ufunc, Callable[..., Any]] = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min, np.logical_and: np.all,
    np.logical_or: np.any,
}  # fmt: skip
ACCUMULATED: dict[np.ufunc, Callable[..., Any]] = {np.add: np.cumsum, np.multiply: np.cumprod}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy asks `__array_ufunc__`."""
    if method == "__call__" and ufunc in UFUNCS:
        return _call(ufunc, inputs, **kwargs)
    if method == "reduce" and ufunc in REDUCED:
        return REDUCED[ufunc](inputs[0], *inputs[1:], **{"axis": 0, **_given(kwargs)})
    if method == "accumulate" and ufunc in ACCUMULATED:
        return ACCUMULATED[ufunc](inputs[0], *inputs[1:], **{"axis": 0, **_given(kwargs)})
    if method == "outer" and ufunc in UFUNCS:
        a, b = inputs
        left = np.reshape(a, np.shape(a) + (1,) * np.ndim(b))
        return ufunc(left, b, **kwargs)
    if method == "at":
        return _at(ufunc, *inputs)
    whole = getattr(ufunc, method)
    if method == "__call__":
        return without_rule(ufunc, inputs, kwargs)
    if current_trace() is not None:
        raise not_traced(f"np.{ufunc.__name__}.{method}")
    return without_rule(whole, inputs, kwargs)


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if value is not None or key == "axis"}


def _call(
    ufunc: np.ufunc,
    inputs: tuple[Any, ...],
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    casting: Any = "same_kind",
    order: str = "K",
    subok: bool = True,
    signature: Any = None,
    **others: Any,
) -> Any:
    """The ufunc of whole arrays. Raises NumPy's errors for dtypes that it does not take."""
    if others or (signature is not None and dtype is not None):
        raise not_traced(f"np.{ufunc.__name__} with {', '.join(others)}")
    outs = (*inputs[ufunc.nin :], *(out or ()))
    inputs = inputs[: ufunc.nin]
    gives_tensor = any(isinstance(x, Tensor) for x in inputs)
    outs = tuple(None if type(one) is TracedArray and one.is_scalar else one for one in outs)
    if not outs and where is True and dtype is None and signature is None:
        done = computed(ufunc, inputs, {}, list(traced_in(list(inputs))))
        if done is not None:
            return done
    beyond = [x for x in inputs if type(x) is int and not _fits(x, [dtype_in(other) for other in inputs])]
    if ufunc in COMPARISONS and beyond and not outs:
        return _compared_beyond(ufunc, inputs)
    loop = _loop(ufunc, inputs, outs, dtype, signature, casting)
    if current_trace() is None:  # what is written over is saved for the gradient as it was
        inputs = tuple(x.tensor._snapshot() if any(x is one for one in outs) else x for x in inputs)
    operands = _operands(inputs, loop)
    try:
        results = UFUNCS[ufunc](*operands)
    except DTypeError:  # complex numbers that NumPy compares, and the like
        return without_rule(ufunc, inputs, {})
    single = not isinstance(results, tuple)
    several = (results,) if single else results
    finished = [_finished(result, wanted, operands, where) for result, wanted in zip(several, loop[ufunc.nin :])]
    if any(one is not None for one in outs):
        finished = [a if o is None else _written(o, a, where) for o, a in zip(outs, finished)]
    handed = [part.tensor for part in finished] if gives_tensor else finished  # as torch: who gives a Tensor gets one
    return handed[0] if single else tuple(handed)


def _operands(inputs: Sequence[Any], loop: Sequence[np.dtype[Any]]) -> list[Any]:
    """The inputs in the loop's dtypes; at least one is a Tensor."""
    operands = [_operand(x, wanted) for x, wanted in zip(inputs, loop)]
    if not any(isinstance(operand, Tensor) for operand in operands):
        operands[0] = tensor_of(operands[0])
    return operands


def _loop(
    ufunc: np.ufunc, inputs: Any, outs: Any, dtype: Any, signature: Any, casting: Any
) -> tuple[np.dtype[Any], ...]:
    """The dtypes that NumPy would compute in: of operands, then of results."""
    kinds = tuple(type(x) if is_number(x) else dtype_in(x) for x in inputs)
    given = tuple(None if one is None else one.dtype for one in outs) or (None,) * ufunc.nout
    if dtype is not None:
        signature = (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)
    return _resolved(ufunc, (*kinds, *given), signature, casting)


def _compared_beyond(ufunc: np.ufunc, inputs: Sequence[Any]) -> TracedArray:
    """A comparison of whole numbers with one that their dtype does not have: the answer is one for all."""
    (array,) = (x for x in inputs if type(x) is not int)
    answer = ufunc(*(x if type(x) is int else 0 for x in inputs))
    result = filled(np.shape(array), answer, np.bool_)
    return TracedArray(result, is_scalar=not result._cell.raw.shape)


def _fits(number: int, kinds: Sequence[Any]) -> bool:
    """Whether the whole dtypes among `kinds` all have this number."""
    whole = [np.iinfo(kind) for kind in kinds if isinstance(kind, np.dtype) and kind.kind in "iu"]
    return all(info.min <= number <= info.max for info in whole)


@lru_cache(maxsize=4096)
def _resolved(ufunc: np.ufunc, kinds: tuple[Any, ...], signature: Any, casting: Any) -> tuple[np.dtype[Any], ...]:
    if all(not isinstance(kind, np.dtype) for kind in kinds[: ufunc.nin]):
        kinds = tuple(np.dtype(kind) if kind is not None else None for kind in kinds)
    kinds = tuple(np.dtype(bool) if kind is bool else kind for kind in kinds)  # the one Python number that is not weak
    options = {} if signature is None else {"signature": signature}
    return ufunc.resolve_dtypes(kinds, casting=casting, **options)


def _operand(x: Any, wanted: np.dtype[Any]) -> Any:
    """x in the loop's dtype; a number that is not an array stays one."""
    if is_number(x) or issubclass(type(x), np.generic):
        number = wanted.type(x).item() if wanted.kind != "V" else x
        return number if wanted.kind in "biuf" else tensor_of(np.asarray(x, wanted))
    dtype_here(wanted)
    return cast(tensor_of(x), wanted)


def _finished(result: Tensor, wanted: np.dtype[Any], operands: Sequence[Any], where: Any) -> TracedArray:
    """The result in the loop's dtype, with memory of its own."""
    result = fresh(cast(result, wanted), [operand for operand in operands if isinstance(operand, Tensor)])
    if where is not True:  # what is left out is anything, in NumPy
        result = F.expand(result, np.broadcast_shapes(result.shape, np.shape(where))).clone()
    return TracedArray(result, is_scalar=not result._cell.raw.shape)


def _written(out: Any, result: TracedArray, where: Any) -> Any:
    if type(out) is not TracedArray:
        raise GraphBreak("a traced result is written into an array that is not traced (out=)")
    if np.broadcast_shapes(result.shape, out.shape) != out.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast shape {result.shape}"
        )
    value = cast(F.expand(result.tensor, out.shape), out.dtype)
    if where is not True:
        value = F.where(cast(tensor_of(where), np.bool_), value, out.tensor)
    return written_out(out, value)


def _at(ufunc: np.ufunc, array: Any, index: Any, value: Any = None) -> None:
    """ufunc.at: unbuffered, so that an index that appears twice counts twice."""
    if type(array) is not TracedArray:
        raise not_traced(f"np.{ufunc.__name__}.at on an array that is not traced")
    if ufunc not in (np.add, np.subtract) or value is None:
        raise not_traced(f"np.{ufunc.__name__}.at")
    from compiler_core.numpy_trace.indexing import add_at

    add_at(array, index, value if ufunc is np.add else np.negative(value))
