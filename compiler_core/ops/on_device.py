"""Running an op on a CUDA device: every operand brought there, the op's eager rule run with CuPy.

In: an op and arrays of which at least one is CuPy's. Out: an array on that device. NumPy operands are constants that
composites made (full, iota), keys of draws, and 0-d tensors of the CPU, which may stand beside those of a device as in
torch; a CPU tensor with dims was refused before (tensor/making/placement.py). One that repeats a number is handed to a
pointwise kernel as that number. Arrays of two devices are a DeviceError.
Ops that something else computes better (cuDNN, cuBLAS, our kernels) are asked of it first. Ops that CuPy has no routine
for (`Op.host`) are computed on the CPU, with one warning an op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core import cuda, log
from compiler_core.errors import DeviceError
from compiler_core.late import Late
from compiler_core.location import user_location
from compiler_core.ops.rules import Pointwise

Array = Any

# (array module, op, operands, attributes) -> the result, or None: the op's eager rule it is
Run = Callable[[Any, Any, Sequence[Array], dict[str, Any]], "Array | None"]
CONVOLUTION: Late[Run] = Late("on a device: convolution")
PRODUCT: Late[Run] = Late("on a device: product")
ATTENTION: Late[Run] = Late("on a device: attention")
NARROW: Late[Run] = Late("on a device: 16-bit floats")
SUM: Late[Run] = Late("on a device: sum")
UNARY: Late[Run] = Late("on a device: functions of one number")
MOVES: Late[Run] = Late("on a device: moves")
COPY: Late[Callable[[Array], Array]] = Late("on a device: copies")  # a row-major copy of an array of the lone device
# (dim, arrays of the lone device) -> they one behind the other; None: CuPy does it
JOIN: Late[Callable[[int, Sequence[Array]], Array | None]] = Late("on a device: joins")
# (an int64 array of the lone device, a number) -> their sum, or None: CuPy adds
COUNTED: Late[Callable[[Array, int], Array | None]] = Late("on a device: counters")
# (an array of the lone device, a probability) -> what draws 0s and 1s like it, of (seed, offset, shard); None: ops do
CHANCE: Late[Callable[[Array, float], Callable[[int, int, int], Array | None] | None]] = Late("on a device: chance")
# (op's name, cotangent, result, operand) -> the operand's cotangent, or None: the op's rule gives it
Slope = Callable[[str, Any, Any, Any], "Array | None"]
SLOPE: Late[Slope] = Late("on a device: derivatives")
ROW_MAJOR: Late[Callable[[Array], Array]] = Late("on a device: row-major")  # an array that lies with channels last, so
_MANY = 1 << 16  # elements that CuPy's kernels read much more slowly out of order than it takes to lay them out anew
_KEYED = ("attention", "attention_backward")  # of which the last operand may be a key, which Python reads
# (a function of arrays) -> the same, of which calls are made again
MADE_AGAIN: Late[Callable[[Callable[..., Any]], Callable[..., Any]]] = Late("on a device: calls made again")


class Noted:
    """count: of threads that note a call, to make it again. spoil: tells this thread's note that CuPy computes."""

    count = 0
    spoil: Callable[[], None]


# what takes several launches op by op, forward or backward
UNARY_OPS = frozenset(("tanh", "sigmoid", "sqrt", "rsqrt", "erf", "sin", "cos"))
DEFINITIONS = {  # ops that a library or kernels compute
    **dict.fromkeys(("convolution", "convolution_input", "convolution_weight"), CONVOLUTION),
    "matmul": PRODUCT,
    **dict.fromkeys(_KEYED, ATTENTION),
    **dict.fromkeys(("add", "sub", "mul", "div", "cast"), NARROW),
    "sum": SUM,
    **dict.fromkeys(("cat", "reshape"), MOVES),
    **dict.fromkeys(UNARY_OPS, UNARY),
}

AGAIN = DEFINITIONS.keys() - set(_KEYED)  # those that launch alike for arrays that lie alike


def slope_there(op: Any, g: Any, values: Sequence[Any]) -> tuple[Array] | None:
    """The cotangents of op's operands, of g at values = (result, *operands), by one kernel; None: the op's rule."""
    if type(g) is np.ndarray or op.name not in UNARY_OPS or not cuda.is_array(g):
        return None
    found = SLOPE.get()(op.name, g, *values)
    return None if found is None else (found,)


def run_on_device(op: Any, arrays: Sequence[Array], attrs: dict[str, Any]) -> Array:
    """op(*arrays, **attrs) on the device of those that are on one."""
    alone = cuda.is_alone()
    number = 0 if alone else _number_of(arrays)
    if op.host:
        return cuda.put(_on_host(op, arrays, attrs), number)
    try:
        if alone or cuda.current() == number:
            return _run(op, arrays, attrs, number)
        with cuda.on(number):
            return _run(op, arrays, attrs, number)
    except MemoryError as error:
        if isinstance(error, DeviceError):
            raise
        cuda.raise_out_of_memory(error, number)


def _run(op: Any, arrays: Sequence[Array], attrs: dict[str, Any], number: int) -> Array:
    """The op on the current device, which is this one."""
    cupy = cuda.module()
    if Noted.count and op.name not in DEFINITIONS and op.alias is None:
        Noted.spoil()
    if op.random:  # the key is read by Python: it stays on the host
        return cupy.asarray(op.eager(cupy, *arrays, **attrs))
    brought = _brought(op, arrays, number)
    if op.name in DEFINITIONS:
        found = DEFINITIONS[op.name].get()(cupy, op, brought, attrs)
        if found is not None:
            return found
        if Noted.count:
            Noted.spoil()
    result = op.eager(cupy, *(brought if op.shares else map(_in_order, brought)), **attrs)
    return result if type(result) is cupy.ndarray or cuda.is_array(result) else cupy.asarray(result)


def _in_order(x: Any) -> Any:
    """x, row-major if it is large and lies with channels last: CuPy's kernels go along the last dim."""
    if x.ndim < 3 or x.size < _MANY or x.flags.c_contiguous:
        return x
    return ROW_MAJOR.get()(x)


def _number_of(arrays: Sequence[Array]) -> int:
    """The device of the operands. Raises DeviceError where there are two."""
    found = -1
    for array in arrays:
        if cuda.is_array(array):
            number: int = array.data.device_id
            if found not in (-1, number):
                raise _two_devices(arrays)
            found = number
    return found


def _two_devices(arrays: Sequence[Array]) -> DeviceError:
    names = " and ".join(dict.fromkeys(_place(a) for a in arrays if cuda.is_array(a)))
    return DeviceError(
        f"Expected all tensors to be on the same device, but found at least two devices, {names}!",
        got=", ".join(f"{_place(a)}{list(a.shape)}" for a in arrays),
        where=user_location(),
        remedy="move them with .to(device)",
    )


def _place(array: Array) -> str:
    return f"cuda:{array.data.device_id}" if cuda.is_array(array) else "cpu"


def _brought(op: Any, arrays: Sequence[Array], number: int) -> Sequence[Array]:
    """The operands on the device, numbers repeated as scalars where the op works element by element."""
    kind = cuda.array_types[0]
    for array in arrays:
        if type(array) is not kind:
            break
    else:
        return arrays
    if op.name in _KEYED and arrays[-1].dtype == np.uint64:
        return [*_brought(op, arrays[:-1], number), arrays[-1]]
    scalars = isinstance(op.lower, Pointwise)
    return [a if cuda.is_array(a) else _scalar(a) if scalars and _repeats(a) else cuda.put(a, number) for a in arrays]


def _repeats(array: Array) -> bool:
    """Whether a host array is one number, repeated or not, in the shape that a device operand has as well."""
    return not any(array.strides) and bool(array.size)


def _scalar(array: Array) -> Any:
    return array[(0,) * array.ndim]


def _on_host(op: Any, arrays: Sequence[Array], attrs: dict[str, Any]) -> Array:
    log.warn_once(
        f"{op.name} on host",
        f"{op.name} of a CUDA tensor is computed on the CPU: {op.host}",
    )
    return op.eager(np, *[cuda.fetch(a) if cuda.is_array(a) else a for a in arrays], **attrs)
