"""What torch refuses although a result could be computed: mixed dtypes, whole numbers where it wants floats, and so on.

In: a function's name and its operands. Out: nothing, or DTypeError or ShapeError, which are RuntimeErrors as torch's.
Numbers and nested lists have no dtype of their own and pass.
"""

from __future__ import annotations

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError, NoKernelError, NumberRangeError, ShapeError
from compiler_core.ops.broadcasting import Scalar, dtype_of, is_scalar, loose, plain
from compiler_core.ops.registry import Value


def _whole(dtype: DType) -> bool:
    return dtype.kind in "biu"


def need_floating(name: str, x: Value, dtype: DType | None = None) -> None:
    """x, or the dtype it is to be taken in, holds whole numbers only: refused."""
    found = dt.of(x.dtype) if dtype is None else dtype
    if _whole(found):
        raise NoKernelError(
            f"{name}: expected a floating point or complex dtype", got=found.name, remedy="use float() or dtype="
        )


def need_kind(name: str, kinds: str, *xs: Value) -> None:
    """Dtypes of other kinds (of "b", "i", "u", "f", "c") are refused, where torch has no kernel for them."""
    for x in xs:
        if not is_scalar(x) and x.dtype.kind not in kinds and dtype_of(x).kind not in kinds:
            raise NoKernelError(f"\"{name}\" not implemented for '{dtype_of(x).name}'", remedy="convert it with to()")


def need_one_dtype(name: str, *xs: Value) -> None:
    """Operands of two dtypes are refused."""
    first = xs[0].dtype
    for x in xs:
        if x.dtype is not first and dtype_of(x) is not dt.of(first):
            names = " and ".join(dtype_of(x).name for x in xs)
            raise DTypeError(f"{name}: expected operands of the same dtype", got=names, remedy="convert one with to()")


def need_parameters_dtype(name: str, x: Value, *parameters: Value | None) -> None:
    """Parameters of two dtypes, or of another than x's are refused; beside 16-bit floats float32 is taken."""
    own = x.dtype
    for one in parameters:
        if one is not None and one.dtype is not own:
            break
    else:
        return
    found = {dtype_of(one) for one in parameters if one is not None}
    taken = {dt.of(own), dt.float32} if own.itemsize == 2 else {dt.of(own)}
    if len(found) > 1 or not found <= taken:
        raise DTypeError(
            f"{name}: mixed dtype: input and parameters must have one dtype",
            expected=" or ".join(sorted(one.name for one in taken)),
            got=" and ".join(sorted(one.name for one in found)),
            remedy="convert the input or the module with to()",
        )


def need_dims(name: str, ndim: int, *xs: Value) -> None:
    """Operands of another number of dims are refused."""
    for x in xs:
        if len(x.shape) != ndim:
            raise ShapeError(f"{name} takes {ndim}-d operands", expected=f"{ndim} dims", got=str(tuple(x.shape)))


def need_index(name: str, index: Value) -> None:
    """An index that does not hold int64 or int32 is refused."""
    found = dt.of(index.dtype)
    if found not in (dt.int64, dt.int32):
        raise DTypeError(f"{name}: expected dtype int32 or int64 for the index", got=found.name)


def need_mask(name: str, mask: Value) -> None:
    """A mask that is not bool is refused."""
    found = dt.of(mask.dtype)
    if found is not dt.bool_:
        raise DTypeError(f"{name}: only boolean masks are supported", got=found.name)


def check_factor(name: str, dtype: DType, factor: Scalar) -> None:
    """`alpha` of add and sub: no fraction where the result is whole, and bool only where it is bool."""
    kind = dt.number_type(factor)
    if kind is bool and dtype is not dt.bool_:
        raise DTypeError(f"{name}: boolean alpha is only supported for boolean results", got=dtype.name)
    if kind is float and _whole(dtype):
        raise DTypeError(f"{name}: for integral operands alpha must not be a floating point number", got=str(factor))


def check_fits(dtype: DType, number: Value | Scalar) -> None:
    """A number that is to be stored, but is out of the dtype's range, is refused; a value is not."""
    if is_scalar(number) and not dt.fits(dtype, plain(number)):
        raise NumberRangeError(f"value cannot be converted to type {dtype.name} without overflow", got=str(number))


def refuse_bools(name: str, *xs: Value | Scalar) -> None:
    """Subtraction and negation of truth values are refused."""
    for x in map(loose, xs):
        if dt.promote(x) is dt.bool_:
            raise DTypeError(
                f"{name}, the `-` operator, with a bool tensor is not supported",
                remedy="use ~ or logical_not() to invert a mask, ^ or logical_xor() to compare two",
            )
