"""Python's operators on Tensors.

In: a Tensor and a Tensor, NumPy array or number. Out: a Tensor; NotImplemented for anything else, so that Python asks
the other operand. Comparisons are elementwise. The augmented forms (`+=`) write in place, as in torch.
Beside a NumPy array promotion is NumPy's (NEP 50), as in torch, where NumPy computes such an expression.
"""

from __future__ import annotations

import operator as by
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from compiler_core.cuda import are_here, is_alone, lone
from compiler_core.device import is_array
from compiler_core.dtype import of, promote
from compiler_core.forward import level
from compiler_core.names.torch_table import TORCH
from compiler_core.ops import broadcasting, registry
from compiler_core.ops import functional as F
from compiler_core.ops.quiet import restore, silence
from compiler_core.ops.registry import OPS, Array, Op, Value, current_trace
from compiler_core.ops.remembered import Plans
from compiler_core.ops.spent import repeated
from compiler_core.overrides.switch import met
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.autograd.inference import made
from compiler_core.tensor.autograd.tape import OpNode
from compiler_core.tensor.memory.cell import Cell, DeviceCell, cell_with
from compiler_core.tensor.methods.inplace import in_place
from compiler_core.tensor.recalling import recall
from compiler_core.tensor.recalling_there import there
from compiler_core.tensor.torch_names import load

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_RUN = registry.RUN
_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_WHOLE = (-(1 << 63), 1 << 64)  # beyond which a whole number is refused
_NUMBERS = frozenset((int, float))
_REFUSED = (TypeError, ValueError, MemoryError)  # arrays of two devices, or a full one: the general way says so
Binary: TypeAlias = "Callable[[Tensor, object], Tensor]"
Unary: TypeAlias = "Callable[[Tensor], Tensor]"


def _binary(function: Callable[..., Value]) -> Binary:
    def operator(self: Any, other: object) -> Any:
        if isinstance(other, Operators):  # the usual case
            return function(self, other)
        if isinstance(other, _NUMPYS):
            if isinstance(other, np.ndarray):
                return function(*_by_numpy(function, self, other))
            other = _held(other, self)
        return function(self, other) if isinstance(other, _OPERANDS) else met(operator, self, other)

    return operator


def over(a: Any, b: Any) -> Any:
    """a / b, where a is a number: as torch has it, a times the reciprocal."""
    reciprocal = F.reciprocal(b)
    return reciprocal if type(a) in (int, float) and a == 1 else F.mul(reciprocal, a)


def _held(other: Any, beside: Any) -> Any:
    """An operand as it is; the Tensor of one that is traced by NumPy's rules. If that stands for a number, it is in the
    dtype that the number would be computed in."""
    held = getattr(other, "__tensor__", None)
    if held is None:
        return other
    if not other.is_scalar:
        return held
    dtype = promote(beside, _LIKE[held.dtype.kind])
    return broadcasting.cast(held, dtype if not beside.ndim else dtype.compute)


_LIKE: dict[str, complex] = {"b": 1.0, "i": 1, "u": 1, "f": 1.0, "c": 1j}  # numbers of these kinds


def _by_numpy(function: Callable[..., Value], a: Any, b: Any) -> tuple[Value, Value]:
    """A Tensor and a NumPy array in the dtype that NumPy would compute in."""
    dtypes = tuple(x.dtype if isinstance(x, np.ndarray) else x.dtype.numpy for x in (a, b))
    common = np.divide.resolve_dtypes((*dtypes, None))[0] if function is F.true_divide else np.result_type(*dtypes)
    return broadcasting.cast(a, of(common)), broadcasting.cast(b, of(common))


_MANY = 1 << 16  # elements of a device's array, from which on kernels of ours are faster than CuPy's


def _arithmetic(function: Callable[..., Value], name: str, symbol: Callable[[Any, Any], Any]) -> Binary:
    """As `_binary`; the usual cases go straight to primitive `name`: Tensors of f32 or f64 that are alike, and numbers.

    symbol: what the primitive's eager rule computes, as Python's operator: CuPy's arrays take long to find their own by
    NumPy's ufunc. Nothing then is left to check, to look up or to convert.
    """
    primitive, general, keeps_integers = OPS[name], _binary(function), name != "div"
    known: Plans = {}  # what calls of two tensors, or of tensors of a CUDA device, came to

    def operator(self: Any, other: Any) -> Any:
        if current_trace() is not None:
            return general(self, other)
        if isinstance(other, Operators):
            mine, its = self._cell, other._cell  # type: ignore[attr-defined]
            a = mine.raw if type(mine) is DeviceCell or type(mine) is Cell else mine.current()
            b = its.raw if type(its) is DeviceCell or type(its) is Cell else its.current()
            dtype = a.dtype
            if (
                (dtype is _F32 or dtype is _F64)
                and b.dtype is dtype
                and a.shape == b.shape
                and mine.is_ordered
                and its.is_ordered
                and (type(a) is type(b) is np.ndarray or (a.size < _MANY and are_here(a, b)))
            ):
                before = silence()
                try:
                    out = symbol(a, b)
                except _REFUSED:
                    return general(self, other)
                finally:
                    restore(before)
                return _result(self, other, out, primitive)
        elif (type(other) is float or (type(other) is int and _WHOLE[0] <= other < _WHOLE[1])) and _is_plain(self):
            return _with_number(self, float(other), symbol, primitive)
        elif type(other) is int and keeps_integers and (made_of := _of_integers(self, other, symbol)) is not None:
            return made_of
        if isinstance(other, Operators) or type(self._cell.raw) is lone.array:
            return recall(known, general, (self, other), {})
        return general(self, other)

    vars(general)["outer"] = operator
    return operator


def _is_plain(tensor: Any) -> bool:
    """Whether NumPy or CuPy computes it with a number: a floating dtype, not narrow, and not much on a device."""
    value = tensor._cell.value
    dtype = value.dtype
    is_one = type(value) is np.ndarray or (is_array(value) and value.size < _MANY)
    return is_one and dtype.kind == "f" and dtype.itemsize != 2


def _with_number(a: Any, number: float, symbol: Callable[[Any, Any], Any], op: Op) -> Any:
    """The Tensor that `op` makes of one of a floating dtype that is not narrow and a number."""
    value = a._cell.value
    is_usual = a._cell.is_ordered and (value.dtype is _F32 or value.dtype is _F64)
    if is_usual and type(value) is np.ndarray and registry.run_eager is _RUN and not level.on:
        return _of_number(a, number, symbol, op)
    constant = repeated(value.shape, number, of(value.dtype))
    if is_usual and type(value) is not np.ndarray and is_alone():
        with suppress(MemoryError):  # the general way says more
            return _result_of_number(a, constant, symbol, op)
    return a.__bind__(op, (a, constant), {})


def _of_number(a: Any, number: float, symbol: Callable[[Any, Any], Any], op: Op, *, is_first: bool = False) -> Any:
    """The Tensor that `op` makes of one of the CPU and a number, in its dtype, recorded; while nobody looks.

    is_first: the number is the first operand.
    """
    value = a._cell.current()
    before = silence()
    try:
        out = symbol(number, value) if is_first else symbol(value, number)
    finally:
        restore(before)
    cell = cell_with(out if type(out) is np.ndarray else np.asarray(out))
    result = a._from_cell(cell)
    if thread_mode.enabled:
        edge = a._edge()
        if edge is not None:
            constant = repeated(value.shape, number, of(value.dtype))
            edges, cells = ((None, edge), (constant, a._cell)) if is_first else ((edge, None), (a._cell, constant))
            result._node = OpNode(op, {}, edges, cells, cell)
    elif Inference.entered:
        made(cell)
    return result


def _of_integers(a: Any, number: int, symbol: Callable[[Any, Any], Any]) -> Any:
    """The Tensor of int64 that `symbol` makes of one of the CPU and a number, around which it wraps; None of others."""
    value = a._cell.current()
    is_plain = type(value) is np.ndarray and value.dtype is _I64 and a._cell.is_ordered
    if not is_plain or not _WHOLE[0] <= number < -_WHOLE[0]:
        return None
    before = silence()
    try:
        cell = Cell(np.asarray(symbol(value, number)))
    finally:
        restore(before)
    if not thread_mode.enabled and Inference.entered:
        made(cell)
    return a._from_cell(cell)


def _result(a: Any, b: Any, out: Array, op: Op) -> Any:
    """The Tensor of the array `out` that `op` made of Tensors a and b, recorded."""
    cell = cell_with(out) if type(out) is np.ndarray else DeviceCell(out) if is_array(out) else Cell(np.asarray(out))
    result = a._from_cell(cell)
    if thread_mode.enabled:
        edge, other = a._edge(), b._edge()
        if edge is not None or other is not None:
            result._node = OpNode(op, {}, (edge, other), (a._cell, b._cell), cell)
    elif Inference.entered:
        made(cell)
    return result


def _result_of_number(a: Any, constant: Array, symbol: Callable[[Any, Any], Any], op: Op) -> Any:
    """The same of a Tensor of the only CUDA device and a number, repeated in its shape and of its dtype."""
    value = a._cell.current()
    cell = DeviceCell(symbol(value, constant.dtype.type(constant.flat[0]) if constant.size else constant.dtype.type(0)))
    result = a._from_cell(cell)
    edge = a._edge() if thread_mode.enabled else None
    if edge is not None:
        result._node = OpNode(op, {}, (edge, None), (a._cell, constant), cell)
    made(cell)
    return result


def _from_number(a: Any, number: float) -> Any:
    """number - a, as `_of_number` makes it; None where it does not."""
    value = a._cell.value
    is_usual = a._cell.is_ordered and (value.dtype is _F32 or value.dtype is _F64)
    if not is_usual or (type(number) is int and not _WHOLE[0] <= number < _WHOLE[1]):
        return None
    return _of_number(a, float(number), by.sub, _SUB, is_first=True)


_SUB = OPS["sub"]


def _reflected(function: Callable[..., Value], usual: Callable[[Any, Any], Any] | None = None) -> Binary:
    """usual: what gives the same of a tensor of the CPU and an int or float after it, or None."""
    known: Plans = {}  # what calls of tensors of the lone CUDA device and numbers came to

    def turned(self: Any, other: Any) -> Value:
        return function(other, self)

    def operator(self: Any, other: object) -> Any:
        if type(other) in _NUMBERS and current_trace() is None:
            kind: Any = type(self._cell.raw)
            if kind is lone.array:
                return recall(known, turned, (self, other), {})
            if kind is np.ndarray and usual is not None and registry.run_eager is _RUN and not level.on:
                made_of = usual(self, other) if type(other) is float or type(other) is int else None
                if made_of is not None:
                    return made_of
        if isinstance(other, _NUMPYS):
            if isinstance(other, np.ndarray):
                return function(*_by_numpy(function, other, self))
            other = _held(other, self)
        return function(other, self) if isinstance(other, _OPERANDS) else met(operator, self, other)

    return operator


def _augmented(function: Callable[..., Value], is_arithmetic: bool = False) -> Binary:
    """is_arithmetic: calls of tensors of the lone CUDA device are remembered."""
    method = in_place(there(function) if is_arithmetic else function)

    def operator(self: Any, other: object) -> Any:
        other = _held(other, self)
        return method(self, other) if isinstance(other, _OPERANDS) else met(operator, self, other)

    return operator


def _comparison(function: Callable[..., Value], symbol: Callable[[Any, Any], Any]) -> Binary:
    """As `_binary`; of a tensor of the CPU and a number, while nobody looks, NumPy answers."""
    general = _binary(there(function))

    def operator(self: Any, other: Any) -> Any:
        if type(other) in _NUMBERS and current_trace() is None and registry.run_eager is _RUN and not level.on:
            value = self._cell.current()
            if type(value) is np.ndarray and self._cell.is_ordered and _is_alike(value.dtype, other):
                cell = cell_with(np.asarray(symbol(value, other)))
                if not thread_mode.enabled and Inference.entered:
                    made(cell)
                return self._from_cell(cell)
        return general(self, other)

    vars(general)["outer"] = operator
    return operator


def _is_alike(dtype: np.dtype[Any], number: float) -> bool:
    """Whether a number is compared in this dtype, which holds it or rounds it as torch does."""
    if type(number) is int and not _WHOLE[0] <= number < _WHOLE[1]:
        return False
    if dtype is _F32:
        return abs(number) < _FINITE  # beyond which NumPy warns
    return dtype is _F64 or (dtype is _I64 and type(number) is int and number < -_WHOLE[0])


_FINITE = 1e38


def _late(name: str) -> Callable[..., Value]:
    """The function that torch_table.py lists under `name`, whose file is loaded when it is first used."""

    def function(*args: Any, **kwargs: Any) -> Value:
        return load(TORCH[name].place)(*args, **kwargs)

    function.__name__ = name
    return function


_SHIFT_LEFT, _SHIFT_RIGHT = _late("bitwise_left_shift"), _late("bitwise_right_shift")


_ADDED, _TIMES = _arithmetic(F.add, "add", by.add), _arithmetic(F.mul, "mul", by.mul)
_MINUS = _arithmetic(F.sub, "sub", by.sub)


class Operators:
    """The table of the operators."""

    __slots__ = ()
    __add__, __radd__, __iadd__ = _ADDED, _reflected(F.add, _ADDED), _augmented(F.add, True)
    __sub__, __rsub__, __isub__ = _MINUS, _reflected(F.sub, _from_number), _augmented(F.sub, True)
    __mul__, __rmul__, __imul__ = _TIMES, _reflected(F.mul, _TIMES), _augmented(F.mul, True)
    __truediv__, __rtruediv__, __itruediv__ = (
        _arithmetic(F.true_divide, "div", by.truediv),
        _reflected(over),
        _augmented(F.true_divide, True),
    )
    __floordiv__, __rfloordiv__ = _binary(F.floor_divide), _reflected(F.floor_divide)
    __ifloordiv__ = _augmented(F.floor_divide)
    __mod__, __rmod__, __imod__ = _binary(F.remainder), _reflected(F.remainder), _augmented(F.remainder)
    __pow__, __rpow__, __ipow__ = _binary(F.pow), _reflected(F.pow), _augmented(F.pow)
    __matmul__, __rmatmul__ = _binary(F.matmul), _reflected(F.matmul)
    __and__, __rand__, __iand__ = _binary(F.bitwise_and), _reflected(F.bitwise_and), _augmented(F.bitwise_and)
    __or__, __ror__, __ior__ = _binary(F.bitwise_or), _reflected(F.bitwise_or), _augmented(F.bitwise_or)
    __xor__, __rxor__, __ixor__ = _binary(F.bitwise_xor), _reflected(F.bitwise_xor), _augmented(F.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _binary(_SHIFT_LEFT), _reflected(_SHIFT_LEFT), _augmented(_SHIFT_LEFT)
    __rshift__, __rrshift__, __irshift__ = _binary(_SHIFT_RIGHT), _reflected(_SHIFT_RIGHT), _augmented(_SHIFT_RIGHT)
    __lt__, __le__ = _comparison(F.lt, by.lt), _comparison(F.le, by.le)
    __gt__, __ge__ = _comparison(F.gt, by.gt), _comparison(F.ge, by.ge)
    __eq__ = cast("Callable[[object, object], Any]", _comparison(F.eq, by.eq))
    __ne__ = cast("Callable[[object, object], Any]", _comparison(F.ne, by.ne))
    __hash__ = object.__hash__
    __neg__, __pos__ = cast("Unary", F.neg), cast("Unary", F.positive)
    __abs__, __invert__ = cast("Unary", F.abs), cast("Unary", F.bitwise_not)


_NUMPYS = (np.ndarray, np.generic)  # an array that is traced passes for one, and holds a Tensor (`__tensor__`)
_OPERANDS = (Operators, bool, int, float, complex, np.ndarray, np.generic, Sym)
