"""Numbers that 0-d tensors hold, as numbers of the program's: an optimizer's step count, read and written.

In: tensors. Out: the number of one, an input of the call where it is captured, so that no call compiles anew for the
next one (a device that holds it is waited for, as eager code does); `hold_number`, which writes one, an effect there
(`hold_number_unless`: where the graph's data says so).
`tracing/rules/held_rules.py` has what capture does instead.
`before_the_graph`: what is done once, for real, before anything is captured. `keep_tensors`, `keep_state`,
`put_gradients`: guards and effects of many tensors at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from compiler_core.device import device_of
from compiler_core.dtype import DType
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, Value, current_trace
from compiler_core.tensor.tensor import Tensor


def is_captured() -> bool:
    """Whether the function that asks is being captured, frame by frame."""
    return False


def whole_held(tensor: Tensor) -> int:
    """The whole number that a 0-d tensor holds."""
    return int(tensor._cell.value)


def float_held(tensor: Tensor) -> float:
    """The number that a 0-d tensor holds."""
    return float(tensor._cell.value)


def single(number: float) -> float:
    """A number, rounded as float32 holds it."""
    return float(np.float32(number))


def hold_number(tensors: Iterable[Tensor], number: Any) -> None:
    """Let 0-d tensors hold this number from now on; they share the array."""
    arrays: dict[Any, Array] = {}
    for tensor in tensors:
        cell = tensor._cell
        dtype = cell.raw.dtype
        if dtype not in arrays:
            arrays[dtype] = np.asarray(number, dtype)
        value = arrays[dtype]
        cell.write(value if type(cell.raw) is np.ndarray else device_of(cell.raw).put(value))


def hold_number_unless(tensors: Iterable[Tensor], number: Any, found: Tensor) -> None:
    """`hold_number` where `found`, bool[], does not hold. Captured, it is known when the graph has run."""
    if not bool(found):
        hold_number(tensors, number)


def keep_tensors(tensors: list[Tensor]) -> None:
    """A list of tensors that is the same at every call, as an optimizer's parameters: captured, it is guarded whole."""


def keep_state(state: dict[Tensor, dict[str, Any]]) -> None:
    """The same, of what an optimizer keeps of each parameter."""


def is_kept(tensor: Tensor) -> bool:
    """Whether a tensor, where it is captured, is the same at every call."""
    return False


def put_gradients(tensors: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
    """Give each tensor its `.grad`, of which it is known that it fits."""
    if current_trace() is not None:
        for tensor, gradient in zip(tensors, gradients):
            tensor.grad = gradient
    else:
        for tensor, gradient in zip(tensors, gradients):
            tensor._grad = gradient


def changing_item(table: Any, key: Any) -> Any:
    """`table[key]`, of a dict or a sequence; captured, a number there is an input from the first call on."""
    return table[key]


def changing_attributes(owner: Any, names: tuple[str, ...]) -> None:
    """Numbers that attributes of `owner` hold, where it is captured, are inputs from the first call on."""


def number_of(function: Callable[..., float], *args: Any) -> Any:
    """`function(*args)`, pure. Captured, a number that comes with every call anew, whichever way the function takes."""
    return function(*args)


def scalar_of(number: Any, dtype: DType) -> Value:
    """A number, or a Tensor of one, as a 0-d value of this dtype to compute with."""
    if isinstance(number, Tensor):
        return prims.cast(prims.reshape(number.detach(), ()), dtype)
    return np.array(float(number), dtype.numpy)


def before_the_graph(fill: Callable[[Any], None], owner: Any, table: dict[Any, dict[str, Any]]) -> None:
    """`fill(owner)`, which adds to `table` and its dicts: what is captured finds that as if it was there before."""
    fill(owner)
