"""Python's operators on Tensors.

In: a Tensor and a Tensor, NumPy array or number. Out: a Tensor; NotImplemented for anything else, so that Python asks
the other operand. Comparisons are elementwise. The augmented forms (`+=`) write in place, as in torch.
Beside a NumPy array promotion is NumPy's (NEP 50), as in torch, where NumPy computes such an expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from compiler_core.dtype import of
from compiler_core.ops import broadcasting
from compiler_core.ops import functional as F
from compiler_core.ops.registry import OPS, Value, current_trace
from compiler_core.tensor.inplace import in_place

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_FULL = OPS["full"]
Binary: TypeAlias = "Callable[[Tensor, object], Tensor]"
Unary: TypeAlias = "Callable[[Tensor], Tensor]"


def _binary(function: Callable[..., Value]) -> Binary:
    def operator(self: Any, other: object) -> Any:
        if isinstance(other, np.ndarray):
            return function(*_by_numpy(function, self, other))
        return function(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return operator


def _by_numpy(function: Callable[..., Value], a: Any, b: Any) -> tuple[Value, Value]:
    """A Tensor and a NumPy array in the dtype that NumPy would compute in."""
    dtypes = tuple(x.dtype if isinstance(x, np.ndarray) else x.dtype.numpy for x in (a, b))
    common = np.divide.resolve_dtypes((*dtypes, None))[0] if function is F.true_divide else np.result_type(*dtypes)
    return broadcasting.cast(a, of(common)), broadcasting.cast(b, of(common))


def _arithmetic(function: Callable[..., Value], name: str) -> Binary:
    """As `_binary`; the usual cases go straight to primitive `name`: floating Tensors that are alike, and numbers."""
    primitive, general = OPS[name], _binary(function)

    def operator(self: Any, other: object) -> Any:
        if isinstance(other, Operators):
            a, b = self._cell.value, other._cell.value  # type: ignore[attr-defined]
            if a.shape == b.shape and a.dtype is b.dtype and a.dtype.kind in "fc":
                return self.__bind__(primitive, (self, other), {})
        elif type(other) in (float, int) and self._cell.value.dtype.kind == "f" and current_trace() is None:
            value = self._cell.value
            constant = _FULL.eager(np, shape=value.shape, value=float(other), dtype=of(value.dtype))  # type: ignore[arg-type]
            return self.__bind__(primitive, (self, constant), {})
        return general(self, other)

    return operator


def _reflected(function: Callable[..., Value]) -> Binary:
    def operator(self: Any, other: object) -> Any:
        if isinstance(other, np.ndarray):
            return function(*_by_numpy(function, other, self))
        return function(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    return operator


def _augmented(function: Callable[..., Value]) -> Binary:
    method = in_place(function)

    def operator(self: Any, other: object) -> Any:
        return method(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return operator


class Operators:
    """The table of the operators."""

    __slots__ = ()
    __add__, __radd__, __iadd__ = _arithmetic(F.add, "add"), _reflected(F.add), _augmented(F.add)
    __sub__, __rsub__, __isub__ = _arithmetic(F.sub, "sub"), _reflected(F.sub), _augmented(F.sub)
    __mul__, __rmul__, __imul__ = _arithmetic(F.mul, "mul"), _reflected(F.mul), _augmented(F.mul)
    __truediv__, __rtruediv__, __itruediv__ = (
        _arithmetic(F.true_divide, "div"),
        _reflected(F.true_divide),
        _augmented(F.true_divide),
    )
    __floordiv__, __rfloordiv__ = _binary(F.floor_divide), _reflected(F.floor_divide)
    __ifloordiv__ = _augmented(F.floor_divide)
    __mod__, __rmod__, __imod__ = _binary(F.remainder), _reflected(F.remainder), _augmented(F.remainder)
    __pow__, __rpow__, __ipow__ = _binary(F.pow), _reflected(F.pow), _augmented(F.pow)
    __matmul__, __rmatmul__ = _binary(F.matmul), _reflected(F.matmul)
    __and__, __rand__, __iand__ = _binary(F.bitwise_and), _reflected(F.bitwise_and), _augmented(F.bitwise_and)
    __or__, __ror__, __ior__ = _binary(F.bitwise_or), _reflected(F.bitwise_or), _augmented(F.bitwise_or)
    __xor__, __rxor__, __ixor__ = _binary(F.bitwise_xor), _reflected(F.bitwise_xor), _augmented(F.bitwise_xor)
    __lt__, __le__, __gt__, __ge__ = _binary(F.lt), _binary(F.le), _binary(F.gt), _binary(F.ge)
    __eq__ = cast("Callable[[object, object], Any]", _binary(F.eq))
    __ne__ = cast("Callable[[object, object], Any]", _binary(F.ne))
    __hash__ = object.__hash__
    __neg__, __pos__ = cast("Unary", F.neg), cast("Unary", F.positive)
    __abs__, __invert__ = cast("Unary", F.abs), cast("Unary", F.bitwise_not)


_OPERANDS = (Operators, bool, int, float, complex, np.ndarray, np.generic)
