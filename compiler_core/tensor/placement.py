"""Where new tensors go: the default device, `with torch.device(...)`, and making tensors on device "meta".

In: a function that makes tensors, and what the caller said of a device. Out: the same function's result: of the CPU as
it is; on "meta" by the shape rules alone, for it then runs under a trace whose every op gives a MetaValue
(ops/meta_value.py), so nothing is allocated and nothing drawn. A device that is not here raises DeviceError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from compiler_core.device import Device, check_device, cpu, default_device
from compiler_core.dtype import of, uint64
from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.ops.meta_value import MetaValue, infer_value, no_data
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.registry import Array, Attrs, Op, Value, current_trace, use_trace

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class MetaTrace:
    """The trace under which a function gives meta tensors."""

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        return infer_value(op, values, attrs)

    def read_cell(self, cell: Any, handle: Any) -> Value:
        return MetaValue(tuple(cell.value.shape), of(cell.value.dtype))

    def write_cell(self, cell: Any, node: Value) -> None:
        raise no_data("writing to a tensor while others are made on device meta")

    def note_copy(self, node: Value) -> None:
        """Nothing is to be kept for later."""

    def constant(self, array: Array) -> Value:
        return MetaValue(array.shape, of(array.dtype))

    def next_rng(self) -> tuple[Value, int]:
        return MetaValue((3,), uint64), 0


_META_TRACE = MetaTrace()


def is_meta_trace() -> bool:
    """Whether what is made now goes to device meta."""
    return current_trace() is _META_TRACE


def chosen(device: Any) -> Device:
    """The device meant by `device=`, the default one if None. Raises DeviceError for one that is not here."""
    return check_device(default_device() if device is None else device)


def run_on(place: Device, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs), which makes tensors, on this device."""
    if place is cpu:
        return function(*args, **kwargs)
    if current_trace() not in (None, _META_TRACE):
        raise GraphBreak(
            "a tensor of device meta is made in a compiled function",
            where=user_location(),
            remedy="make it outside the compiled function",
        )
    with use_trace(_META_TRACE):
        return function(*args, **kwargs)


def placed(function: F) -> F:
    """`function`, a maker of tensors, where `device=` may be meta, and means the default device if not given.

    What is called `f_like` stays by default on the device of its operand.
    """
    like = function.__name__.endswith("_like")

    @functools.wraps(function)
    def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None and like:
            device = (args[0] if args else kwargs["input"]).device
        place = chosen(device)
        if place is cpu:
            return function(*args, device=place, **kwargs)
        return run_on(place, function, *args, device=place, **kwargs)

    return made  # type: ignore[return-value]


_LAYOUTS = ("layout", "memory_format", "names", "pin_memory")


def creation_names(function: F) -> F:
    """A maker of tensors, `placed`, taking NumPy's names, and what has no meaning here: layouts, pinned memory."""
    inner = placed(numpy_names(function))

    @functools.wraps(function)
    def created(*args: Any, **kwargs: Any) -> Any:
        for name in _LAYOUTS:
            kwargs.pop(name, None)
        return inner(*args, **kwargs)

    return created  # type: ignore[return-value]


def on_meta(tensor: Tensor) -> Tensor:
    """A tensor of device meta, of `tensor`'s shape and dtype. Its gradient would have to leave meta: NoDataError."""
    from compiler_core.tensor.tape import FunctionNode, OutputNode
    from compiler_core.tensor.tensor import Tensor

    value = MetaValue(tuple(tensor.shape), tensor.dtype)
    if not tensor.requires_grad:
        return Tensor._wrap(value)

    def backward(grads: Any) -> Any:
        raise no_data("the gradient of a tensor that was moved to device meta")

    node = FunctionNode("ToMeta", (tensor._edge(),), 1, backward, raw=True)
    result = Tensor._wrap(value)
    result._node = OutputNode(node, 0, value)  # type: ignore[arg-type]
    return result


def check_together(values: tuple[Any, ...]) -> None:
    """Raise DeviceError where a Tensor of the CPU stands beside one of device meta, as torch does; a number may."""
    from compiler_core.errors import DeviceError
    from compiler_core.tensor.tensor import Tensor

    tensors = [v for v in values if isinstance(v, Tensor)]
    if any(t.is_meta for t in tensors) and any(not t.is_meta and any(t._cell.strides()) for t in tensors):
        raise DeviceError(
            "Expected all tensors to be on the same device, but found at least two devices, meta and cpu!",
            got=", ".join(f"{t.device}{list(t.shape)}" for t in tensors),
        )


def as_placed(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """torch.as_tensor: `data` as a Tensor on `device`, by default the default device."""
    from compiler_core.tensor.creation import as_tensor
    from compiler_core.tensor.tensor import Tensor

    place = default_device() if device is None else device
    if isinstance(data, Tensor):
        return as_tensor(data, dtype) if device is None and place is cpu else as_tensor(data, dtype).to(place)
    return run_on(check_device(place), as_tensor, data, dtype)
