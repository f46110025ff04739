"""Numbers that change, beside tensors: 0-d tensors, inputs of the graph.

In: a number that is a symbol, and the tensor or the traced array that it is computed with. Out: a 0-d one of the dtype
that the number would be computed in, one for each formula and dtype; a constant where none would give the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import dtype as dtypes
from compiler_core.capture.numbers.symbols import (
    WHOLE,
    Apply,
    SymbolFloat,
    SymbolText,
    code_of,
    plain_of,
    shown_number,
    specialised,
)
from compiler_core.capture.trace import Known
from compiler_core.dtype import DType
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.ops import prims
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers

LIFTED = frozenset({"+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="})
# of which a 0-d tensor may be no operand beside whole numbers: those to a negative power, or over 0, are an error
OF_FLOATS = frozenset({"**", "//", "%"})
UNROUNDED = frozenset({"*", "/", "mul", "multiply", "div", "divide", "true_divide"})
ROUNDED = frozenset({"+", "-", "<", "<=", ">", ">=", "==", "!=", "add", "sub", "lt", "le", "gt", "ge", "eq", "ne"})


def beside_tensor(numbers: Numbers, value: Any, other: Tensor, op: str = "", *, is_first: bool = False) -> Any:
    """A number as an operand of a tensor: a 0-d tensor of the dtype that the number would be computed in.

    op: the operator, or the function's name. is_first: the number is the first operand.
    """
    dtype = other.dtype
    if isinstance(value, SymbolText) or dtype.is_complex:
        return specialised(numbers, value)
    if dtype in (dtypes.float16, dtypes.bfloat16):
        made = _beside_narrow(numbers, value, other, op, is_first=is_first)
        return specialised(numbers, value) if made is None else made
    if isinstance(value, SymbolFloat) and not dtype.is_floating_point:
        dtype = dtypes.get_default_dtype()
    elif dtype is dtypes.bool_:
        dtype = dtypes.int64
    elif isinstance(value, WHOLE) and not dtype.is_floating_point and dtype is not dtypes.int64:
        made = stored(numbers, value, dtypes.of(dtype))
        return specialised(numbers, value) if made is None else made
    return _lifted_or_constant(numbers, value, dtypes.float64 if op == "lerp" else dtype)


def _beside_narrow(numbers: Numbers, value: Any, other: Tensor, op: str, *, is_first: bool) -> Tensor | None:
    """A number beside 16-bit floats: products and quotients compute with it unrounded, sums and comparisons do not."""
    if op in UNROUNDED and other.ndim and not (is_first and op not in ("*", "mul", "multiply")):
        return lifted(numbers, value, dtypes.float32)
    return stored(numbers, value, dtypes.of(other.dtype)) if op in ROUNDED else None


def stored(numbers: Numbers, value: Any, dtype: DType) -> Tensor | None:
    """A number as a 0-d tensor of the dtype in which a function stores it: guarded to fit; None if it does not."""
    if isinstance(value, SymbolText) or not dtypes.fits(dtype, plain_of(value)):
        return None
    if dtype.kind != "b" and dtype is not dtypes.float64 and not numbers.trace.exports:
        guards = numbers.code.guards
        code = f"{guards.bind(dtypes.fits, 'fits')}({guards.bind(dtype, 'dtype')}, {code_of(numbers, value)})"
        numbers.code.require_once(code, f"{shown_number(value)} fits {dtype.name}")
    return lifted(numbers, value, dtype)


def _lifted_or_constant(numbers: Numbers, value: Any, dtype: Any) -> Any:
    made = lifted(numbers, value, dtype)
    return specialised(numbers, value) if made is None else made


def beside_array(numbers: Numbers, value: Any, other: TracedArray) -> Any:
    """A number as an operand of a traced array: a 0-d one, in the dtype that NEP 50 has the number computed in."""
    if isinstance(value, SymbolText):
        return specialised(numbers, value)
    wanted = np.result_type(other.dtype, 1 if isinstance(value, WHOLE) else 1.0)
    if wanted not in (np.float32, np.float64, np.int64):
        return specialised(numbers, value)
    made = _lifted_or_constant(numbers, value, dtypes.of(wanted))
    return TracedArray(made, is_scalar=True) if isinstance(made, Tensor) else made


def lifted(numbers: Numbers, value: Any, dtype: Any) -> Tensor | None:
    """A number as a 0-d tensor, one for each formula and dtype; None: a graph that stands alone cannot compute it."""
    if numbers.trace.exports:
        return computed(value, dtype)
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


_FUNCTIONS: dict[str, Any] = {
    "({} + {})": prims.add, "({} - {})": prims.sub, "({} * {})": prims.mul, "({} / {})": prims.div,
    "({} ** {})": prims.pow, "(-{})": prims.neg, "float({})": lambda x: x,
}  # fmt: skip


def computed(value: Any, dtype: Any) -> Tensor | None:
    """A number of sizes as a 0-d tensor that the graph itself computes, in float64 as Python does; None: it cannot."""
    if type(value) is Sym:
        return Tensor._wrap(prims.full(shape=(), value=value, dtype=dtype))
    made = _formula(value)
    return None if made is None else Tensor._wrap(prims.cast(made, dtype=dtype))


def _formula(value: Any) -> Any:
    if not isinstance(value, SymbolFloat):
        is_number = type(value) in (int, float, Sym)
        return prims.full(shape=(), value=value, dtype=dtypes.float64) if is_number else None
    formula = value.formula
    if not isinstance(formula, Apply) or formula.template not in _FUNCTIONS:
        return None
    parts = [_formula(part) for part in formula.parts]
    return None if any(part is None for part in parts) else _FUNCTIONS[formula.template](*parts)


def _zero_d(value: Any, dtype: Any) -> Tensor:
    return Tensor._wrap(np.asarray(value, dtype))
