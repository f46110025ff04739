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
    SymbolFloat,
    SymbolText,
    code_of,
    plain_of,
    shown_number,
    specialised,
)
from compiler_core.capture.trace import Known
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers

LIFTED = frozenset({"+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!="})


def beside_tensor(numbers: Numbers, value: Any, other: Tensor) -> Any:
    """A number as an operand of a tensor: a 0-d tensor of the dtype that the number would be computed in."""
    dtype = other.dtype
    if isinstance(value, SymbolText) or dtype in (dtypes.float16, dtypes.bfloat16) or dtype.is_complex:
        return specialised(numbers, value)
    if isinstance(value, SymbolFloat) and not dtype.is_floating_point:
        dtype = dtypes.get_default_dtype()
    elif dtype is dtypes.bool_:
        dtype = dtypes.int64
    elif isinstance(value, WHOLE) and not dtype.is_floating_point and dtype is not dtypes.int64:
        return specialised(numbers, value)
    return lifted(numbers, value, dtype)


def beside_array(numbers: Numbers, value: Any, other: TracedArray) -> Any:
    """A number as an operand of a traced array: a 0-d one, in the dtype that NEP 50 has the number computed in."""
    if isinstance(value, SymbolText):
        return specialised(numbers, value)
    wanted = np.result_type(other.dtype, 1 if isinstance(value, WHOLE) else 1.0)
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
