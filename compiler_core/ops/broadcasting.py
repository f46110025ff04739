"""How loose operands become strict ones: broadcasting, promotion, weak scalars, negative dims.

In: values and Python scalars, as a user passes them. Out: values that primitives accept, with no node added that is not
needed: an operand that already has the common shape and dtype is returned as it is.
A number, Python's or NumPy's, is weak: it takes the others' dtype (dtype.promote) and becomes one `full` of the common
shape. 0-d values are weaker than those with dims, as in torch.
Dims may be negative; a bad one raises IndexError_, as in torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import IndexError_, NumberRangeError, ShapeError
from compiler_core.meta import Shape, TensorMeta, same_shape
from compiler_core.ops import prims
from compiler_core.ops.registry import Value, current_trace, meta_of, not_a_tensor
from compiler_core.symbolic.expression import Sym, is_symbol

Scalar = bool | int | float  # and complex, where the function takes complex values
Dim = int | Sequence[int] | None
F = TypeVar("F", bound=Callable[..., Any])


def is_scalar(x: object) -> TypeGuard[Scalar]:
    """Whether x is a number, Python's or NumPy's or a size that is a symbol, and so weak."""
    return isinstance(x, _SCALARS)


_SCALARS = (bool, int, float, complex, np.generic, Sym)


def plain(x: Scalar) -> Scalar:
    """The Python number that x is: NumPy's scalars become Python's. Raises NumberRangeError beyond 64 bits."""
    kind = dt.number_type(x)
    if kind is not type(x) and is_symbol(x):
        return x
    if kind is int and not -(1 << 63) <= x < 1 << 64:
        raise NumberRangeError("int too big to convert", expected="64 bits at most", got=str(x))
    return x if kind is None or type(x) is kind else kind(x)


def as_value(x: object) -> Value:
    """x itself if it is a value; a number as a 0-d array of its dtype; a nested list as an array."""
    if hasattr(type(x), "__bind__"):
        return x
    if (hasattr(type(x), "shape") or hasattr(x, "shape")) and not isinstance(x, np.generic):  # first: calls no property
        return x
    number = dt.number_type(x)
    if number is None and hasattr(type(x), "__torch_function__"):
        raise not_a_tensor(type(x))
    if isinstance(x, Sym):
        return prims.full((), x, dt.int64)
    return np.asarray(x) if number is None else np.asarray(x, dt.of_number(number).numpy)


def loose(x: Value | Scalar) -> Value | Scalar:
    """x as a value or a Python number."""
    return plain(x) if is_scalar(x) else as_value(x)


def shape_of(x: Value) -> Shape:
    """The shape as a plain tuple; () for a scalar."""
    return () if is_scalar(x) else tuple(x.shape)


def dtype_of(x: Value) -> DType:
    """The dtype of a value."""
    dtype = x.dtype
    return dtype if type(dtype) is DType else dt.of(dtype)


def cast(x: Value, dtype: DType | None) -> Value:
    """x in `dtype` (None: as it is)."""
    return x if dtype is None or x.dtype is dtype or dtype_of(x) is dtype else prims.cast(x, dtype)


def as_new(x: Value) -> Value:
    """x as a value of its own: for a function that has nothing to do but is no view, as its result may be written."""
    return prims.cast(x, dtype_of(x))


def like(x: Value, operand: Value) -> Value:
    """A constant x as a value of operand's kind: where it is a function's result, it is a Tensor if operand is one.

    It is on operand's device then.
    """
    kind = type(operand)
    if not hasattr(kind, "_wrap") or isinstance(x, kind):
        return x
    there = operand._cell.raw
    return kind._wrap(cuda.put(x, there.data.device_id, dense=True) if cuda.is_array(there) else x)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape by NumPy's rule. Raises ShapeError where there is none.

    Symbols that are equal for certain, or stand beside a 1, are asked nothing.
    """
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for d, n in enumerate(shape, ndim - len(shape)):
            known = result[d]
            if known is n or (type(n) is int and n == 1):
                continue
            if type(known) is int and known == 1:
                result[d] = n
            elif not (known == n or n == 1):
                if known != 1:
                    raise ShapeError(
                        "shapes do not broadcast", expected="equal sizes, or 1", got=" and ".join(map(str, shapes))
                    )
                result[d] = n
    return tuple(result)


def broadcast_to(x: Value, shape: Shape) -> Value:
    """x expanded to `shape`, if it is not that already."""
    return x if same_shape(tuple(x.shape), shape) else prims.expand(x, shape)


def strict(x: Value | Scalar, shape: Shape, dtype: DType) -> Value:
    """x as a value of exactly this shape and dtype."""
    return prims.full(shape, plain(x), dtype) if is_scalar(x) else broadcast_to(cast(as_value(x), dtype), shape)


def operands(*xs: Value | Scalar, dtype: DType | None = None) -> tuple[Value, ...]:
    """The operands, broadcast and promoted to a common dtype (or cast to `dtype`)."""
    if dtype is None and _are_alike(xs):
        return xs
    xs = tuple(map(loose, xs))
    if cuda.array_types and current_trace() is None:
        xs = _together(xs)
    if dtype is None and len(xs) == 2 and is_scalar(xs[1]) and not is_scalar(xs[0]):
        meta = meta_of(xs[0])
        if dt.takes_scalar(meta.dtype, type(xs[1])):
            return xs[0], prims.full(meta.shape, xs[1], meta.dtype)
    shape = broadcast_shapes(*map(shape_of, xs))
    target = dtype or dt.promote(*xs)
    return tuple(strict(x, shape, target) for x in xs)


def _together(xs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, 0-d Tensors of the CPU that stand beside one of a CUDA device moved there."""
    place = next((x.device for x in xs if getattr(x, "is_cuda", False)), None)
    if place is None:
        return xs
    return tuple(x.to(place) if getattr(x, "is_cpu", False) and not x.shape else x for x in xs)


def _are_alike(xs: tuple[Value | Scalar, ...]) -> bool:
    """Whether all are values of one shape and dtype: the usual case, worth not going the long way."""
    first: TensorMeta | None = None
    for x in xs:
        if isinstance(x, (float, int, complex, np.generic, list)):
            return False
        try:
            meta = meta_of(x)
        except AttributeError:  # no value: `as_value` says what it should be
            return False
        if first is None:
            first = meta
        elif meta is not first:
            return False
    return True


def floating(x: Value) -> Value:
    """x if it is floating or complex, else x in the default dtype."""
    x = as_value(x)
    return x if dtype_of(x).kind in "fc" else prims.cast(x, dt.get_default_dtype())


def widened(x: Value) -> Value:
    """x in the dtype that sums and exponentials are computed in: f32 for the 16-bit floats."""
    x = floating(x)
    return cast(x, dtype_of(x).compute)


# ---- 16-bit floats, computed in float32 and rounded once a function, as torch's kernels do

NARROW = frozenset({dt.float16, dt.bfloat16, dt.float16.numpy, dt.bfloat16.numpy})  # as values of either kind say it


def is_narrow(x: object) -> bool:
    """Whether a value (no number) is of 16-bit floats."""
    return getattr(x, "dtype", None) in NARROW and not isinstance(x, np.generic)


def rounded_once(function: F) -> F:
    """A function whose 16-bit floats are computed in float32, and its results rounded to what they promote to."""

    @functools.wraps(function)
    def rounded(*args: Any, **kwargs: Any) -> Any:
        if not (any(map(is_narrow, args)) or any(map(is_narrow, kwargs.values()))):
            return function(*args, **kwargs)
        given = [x for x in (*args, *kwargs.values()) if hasattr(x, "dtype") and not isinstance(x, np.generic)]
        target = dt.promote(*(x for x in given if dtype_of(x).is_inexact))
        wide = [prims.cast(x, dt.float32) if is_narrow(x) else x for x in args]
        named = {name: prims.cast(x, dt.float32) if is_narrow(x) else x for name, x in kwargs.items()}
        return _narrowed(function(*wide, **named), target if target in NARROW else None)

    return rounded  # type: ignore[return-value]


def _narrowed(result: Any, dtype: DType | None) -> Any:
    """What a function gave in float32, in a smaller dtype."""
    if isinstance(result, tuple) and not hasattr(result, "dtype"):
        parts = [_narrowed(part, dtype) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    is_wide = dtype is not None and getattr(result, "shape", None) is not None and dtype_of(result) is dt.float32
    return prims.cast(result, dtype) if is_wide and dtype is not None else result


def level(x: Value, number: Value) -> Value:
    """A number in x's shape; where a kernel is made of a composition, a value: an argument of the kernel."""
    is_argument = hasattr(type(number), "__bind__")
    return broadcast_to(number, shape_of(x)) if is_argument else prims.full_like(x, number)


def normalize_dim(dim: int, ndim: int) -> int:
    """`dim` in 0..ndim-1; a 0-d array has one virtual dim. Raises IndexError_."""
    extent = ndim or 1
    if not -extent <= dim < extent:
        raise IndexError_(f"dim {dim} is out of range", expected=f"{-extent} <= dim < {extent}", got=str(dim))
    return dim + extent if dim < 0 else dim


def normalize_dims(dim: Dim, ndim: int) -> tuple[int, ...]:
    """The dims to reduce, ascending; None and () mean all. Raises IndexError_ on a bad or repeated dim."""
    dim = int(dim) if isinstance(dim, np.integer) else dim
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    dims = sorted(normalize_dim(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim))
    if len(set(dims)) != len(dims):
        raise IndexError_(f"a dim appears twice in {dim}", expected="distinct dims", got=str(dim))
    return tuple(dims) if ndim else ()


def kept_shape(shape: Shape, dims: Sequence[int]) -> Shape:
    """`shape` with 1 in place of `dims`: what keepdim=True gives."""
    return tuple(1 if d in dims else n for d, n in enumerate(shape))
