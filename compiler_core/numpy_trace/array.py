"""TracedArray: stands for an ndarray while code written with NumPy is captured (or differentiated), on a Tensor.

In: a Tensor. Out: what looks like an ndarray to the user's code (`isinstance` says so too): NumPy's own dispatch
protocols (NEP 13, NEP 18) hand `np.f(traced)` to `dispatch.py` and `ufuncs.py`, operators are the ufuncs that NumPy
says they are (as in numpy.lib.mixins), methods are the functions of their name. What an ndarray can do and is not
traced is a GraphBreak that names it.
Invariants: memory is shared as in NumPy: a view has a view's Tensor, a copy one of its own. `is_scalar` marks what
NumPy gives as a number of its own (np.float64(...)): immutable, its class is that. Where NumPy has a view that Tensors
cannot (a reversed axis, a row found by a traced number), there is a copy that knows what it stands for: writing to it,
or reading it after the memory was written, is a GraphBreak; where it outlives the trace, NumPy makes the view (`View`).
Limit: results lie in row-major order, where NumPy keeps the order of a transposed operand (`strides` tells).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.numpy_trace.known import known_value
from compiler_core.ops.registry import Array, Attrs, Op, Value, bind, current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor


def not_traced(what: str, remedy: str = "") -> GraphBreak:
    """The break for something of NumPy's that has no rule."""
    return GraphBreak(f"{what} is not traced", where=user_location(), remedy=remedy)


@dataclass(frozen=True, slots=True)
class View:
    """A view that is a copy here. root, stamp: the memory that it shows. It is `function(*args, **kwargs)`, or of
    that the item at `place`."""

    root: Cell
    stamp: int
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: int | None = None


class TracedArray:
    """See the head of this file. tensor: what it holds. is_outside: whether that memory was there before the trace.

    made: how many there have been, so that a trace knows whether it made any.
    """

    __slots__ = ("__weakref__", "_held", "_stands_for", "is_outside", "is_scalar")
    __array_priority__ = 0.0
    __bind_priority__ = 3
    made = 0

    def __init__(self, tensor: Tensor, is_scalar: bool = False, stands_for: View | None = None) -> None:
        self._held, self.is_scalar, self._stands_for = tensor, is_scalar, stands_for
        self.is_outside = tensor._cell.root.is_external
        TracedArray.made += 1

    @property
    def tensor(self) -> Tensor:
        """The Tensor. Raises GraphBreak for a copy in a view's place, once what it shows has been written."""
        stands_for = self._stands_for
        if stands_for is not None and stands_for.root.stamp != stands_for.stamp:
            raise not_traced(
                "reading an array, reversed or found by a traced index, after the memory that it shows was written",
                remedy="copy() it first",
            )
        return self._held

    __tensor__ = tensor  # the protocol by which Tensors, and functions that make them, know an array that holds one

    @property
    def stands_for(self) -> View | None:
        """What a copy in a view's place is; None for all others."""
        return self._stands_for

    def written(self, value: Any) -> None:
        """Put `value`, broadcast and cast, into the memory. Raises GraphBreak where this is no true view."""
        self.writable().copy_(value)

    def writable(self) -> Tensor:
        """The Tensor, to be written to."""
        if self.is_scalar:
            raise TypeError(f"'{self.dtype.type.__name__}' object does not support item assignment")
        if self._stands_for is not None:
            raise not_traced("writing through an array that is reversed, or was found by a traced index")
        return self._held

    def data(self, what: str) -> Array:
        """The array, where it is known. Raises GraphBreak if it is traced; `what` says who needs it."""
        if current_trace() is not None:
            value = known_value(self.tensor)
            if value is not None:
                return value
        return self.tensor._array(what)

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Tensor:
        """An op of Tensors that is given one of these: on the Tensors that they hold."""
        return bind(op, *(v.tensor if type(v) is TracedArray else v for v in values), **attrs)  # type: ignore[no-any-return]

    # ---- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from compiler_core.numpy_trace.ufuncs import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        from compiler_core.numpy_trace.dispatch import call_function

        return call_function(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self.tensor.requires_grad and current_trace() is None:
            raise AutogradError("a NumPy function without a rule is given an array that requires a gradient")
        array = self.data("np.asarray, or a function of NumPy that is not traced,")
        return array.astype(dtype or array.dtype)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What `isinstance` goes by."""
        return self.dtype.type if self.is_scalar else np.ndarray

    # ---- about the array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, NumPy's."""
        return self._held.dtype.numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, outermost first."""
        return tuple(self._held._cell.raw.shape)

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape, dtype=np.int64)))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""
        return tuple(step * self.dtype.itemsize for step in self._held._cell.strides())

    @property
    def T(self) -> Any:
        """All axes in reverse order, a view."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        """The last two axes exchanged, a view."""
        return np.matrix_transpose(self)

    @property
    def real(self) -> Any:
        """The real part, a view."""
        return np.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary part: a view; zeros of a real array."""
        return np.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.dtype.type if self.is_scalar else np.ndarray, name):
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}", name=name, obj=self)
        raise not_traced(f"ndarray.{name}")

    # ---- items

    def __getitem__(self, index: Any) -> Any:
        from compiler_core.numpy_trace.indexing import get_item

        return get_item(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from compiler_core.numpy_trace.indexing import set_item

        set_item(self, index, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return iter([self[i] for i in range(self.shape[0])])

    def __contains__(self, element: object) -> bool:
        return bool(np.any(self == element))

    def __hash__(self) -> int:
        if not self.is_scalar:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return hash(self.data("hash()")[()])

    # ---- Python's numbers and texts: these need the data

    def item(self, *args: Any) -> Any:
        """One element as a Python number."""
        return self.data("item()").item(*args)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.data("tolist()").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The bytes."""
        return self.data("tobytes()").tobytes(order)

    def __bool__(self) -> bool:
        return bool(self.data("bool()"))

    def __int__(self) -> int:
        return int(self.data("int()"))

    def __float__(self) -> float:
        return float(self.data("float()"))

    def __complex__(self) -> complex:
        return complex(self.data("complex()"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return operator.index(self.data("using it as an index"))

    def __round__(self, ndigits: int | None = None) -> Any:
        of_any: Any = np.round
        number: Any = self.data("round()")[()] if ndigits is None else None
        return round(number) if ndigits is None else of_any(self, ndigits)

    def __repr__(self) -> str:
        return repr(self._as_numpy("repr()"))

    def __str__(self) -> str:
        return str(self._as_numpy("str()"))

    def __format__(self, spec: str) -> str:
        return format(self._as_numpy("format()"), spec)

    def __reduce__(self) -> Any:
        return self._as_numpy("pickling").__reduce__()

    def _as_numpy(self, what: str) -> Any:
        array = self.data(what)
        return array[()] if self.is_scalar else array

    # ---- copies

    def copy(self, order: str = "C") -> Any:
        """A copy with memory of its own."""
        of_any: Any = np.copy
        return of_any(self, order=order)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return np.copy(self)

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """A copy in another dtype; with copy=False the array itself if nothing changes."""
        if not np.can_cast(self.dtype, dtype, casting):
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {np.dtype(dtype)!r} according to the rule '{casting}'"
            )
        of_any: Any = np.astype
        return of_any(self, np.dtype(dtype), copy=copy)

    def view(self, dtype: Any = None, type: Any = None) -> Any:
        """A view of the same memory as the same dtype."""
        if type is not None or (dtype is not None and dtype is not np.ndarray and np.dtype(dtype) != self.dtype):
            raise not_traced("ndarray.view as another dtype")
        return np.reshape(self, self.shape)

    def flatten(self, order: Any = "C") -> Any:
        """A copy with one axis."""
        return np.copy(np.ravel(self, order=order))

    def fill(self, value: Any) -> None:
        """Set all elements."""
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> None:
        """Sort in place."""
        self[...] = np.sort(self, axis=axis, kind=kind, order=order)

    def reshape(self, *shape: Any, order: Any = "C", copy: bool | None = None) -> Any:
        """The same elements in another shape: a view where that is possible."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Any:
        """A view with its axes permuted; reversed if none are named."""
        if not axes or axes == (None,):
            return np.transpose(self)
        return np.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


def _method(function: Callable[..., Any]) -> Any:
    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, f"np.{function.__name__} of this array."
    return method


for _name in (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "conj", "conjugate", "cumprod"),
    *("cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero", "prod", "put", "ravel", "repeat", "round"),
    *("searchsorted", "squeeze", "std", "sum", "swapaxes", "take", "trace", "var"),
):
    setattr(TracedArray, _name, _method(getattr(np, _name)))


def _operator(name: str, ufunc: np.ufunc, how: str) -> Any:
    """The method of an operator. how: "" for `self op other`, "r" for `other op self`, "i" in place, "1" of one."""

    def plain(self: Any, other: Any) -> Any:
        return NotImplemented if _is_other(other) else ufunc(self, other)

    def reflected(self: Any, other: Any) -> Any:
        return NotImplemented if _is_other(other) else ufunc(other, self)

    def in_place(self: Any, other: Any) -> Any:
        return ufunc(self, other) if self.is_scalar else ufunc(self, other, out=(self,))

    def of_one(self: Any) -> Any:
        return ufunc(self)

    method = {"": plain, "r": reflected, "i": in_place, "1": of_one}[how]
    method.__name__ = name
    return method


def _is_other(other: Any) -> bool:
    """Whether the operator is the other operand's: a Tensor's, or of what opts out of ufuncs."""
    return isinstance(other, Tensor) or getattr(type(other), "__array_ufunc__", True) is None


_NUMERIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "matmul": np.matmul, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "lshift": np.left_shift,
    "rshift": np.right_shift, "and": np.bitwise_and, "xor": np.bitwise_xor, "or": np.bitwise_or, "divmod": np.divmod,
}  # fmt: skip
_COMPARED = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_OF_ONE = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
for _name, _ufunc in _NUMERIC.items():
    for _how in ("", "r") if _name == "divmod" else ("", "r", "i"):
        setattr(TracedArray, f"__{_how}{_name}__", _operator(f"__{_how}{_name}__", _ufunc, _how))
for _name, _ufunc in _COMPARED.items():
    setattr(TracedArray, f"__{_name}__", _operator(f"__{_name}__", _ufunc, ""))
for _name, _ufunc in _OF_ONE.items():
    setattr(TracedArray, f"__{_name}__", _operator(f"__{_name}__", _ufunc, "1"))


def numpy_of(tensor: Tensor, *, force: bool = False) -> TracedArray:
    """What `tensor.numpy()` is in captured code: an array on the same memory. Raises AutogradError as that does."""
    if tensor.requires_grad and is_grad_enabled() and not force:
        raise AutogradError("numpy() on a tensor that requires a gradient", remedy="use tensor.detach().numpy()")
    return TracedArray(tensor.detach() if tensor.requires_grad else tensor)


def as_traced(tensor: Tensor) -> TracedArray:
    """`tensor` as code written with NumPy sees it, on the same memory."""
    return TracedArray(tensor)
