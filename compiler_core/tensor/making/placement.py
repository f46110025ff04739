"""Where tensors are and go: the default device, `with torch.device(...)`, moving them, making them on any device.

In: a function that makes tensors, and what the caller said of a device. Out: the same function's result: of the CPU as
it is; of a CUDA device made on the CPU and moved, numbers repeated as one number, draws there, with the CPU's bits; on
"meta" by the shape rules alone, for it then runs under a trace whose every op gives a MetaValue (ops/meta_value.py), so
nothing is allocated and nothing drawn. A device that is not here raises DeviceError.
Moving is recorded: the gradient goes back to where the tensor was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from compiler_core import cuda
from compiler_core.cuda import lone
from compiler_core.device import Device, check_device, cpu, default_device, device_of, is_array, meta
from compiler_core.dtype import as_dtype, of, uint64
from compiler_core.errors import DeviceError, GraphBreak
from compiler_core.late import Late
from compiler_core.location import user_location
from compiler_core.memory_format import strided
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.composites.creation import elsewhere
from compiler_core.ops.meta_value import MetaValue, infer_value, no_data
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.random.on_device import drawing, drawing_on
from compiler_core.ops.registry import Array, Attrs, Op, Value, current_trace, meta_of, use_trace
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.making.there import zeros_of
from compiler_core.tensor.memory.cell import DeviceCell
from compiler_core.tensor.memory.layout import order_for, order_in, relaid

if TYPE_CHECKING:
    from compiler_core.ops.random.composite import Draw
    from compiler_core.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
# (name of the maker, its arguments) -> a tensor of another layout than the strided one
MADE_OF_LAYOUT: Late[Callable[..., Tensor]] = Late("sparse: creation")


def check_generator(generator: Any, place: Device) -> None:
    """Raise DeviceError for a generator of another kind of device than the one drawn for, as torch does."""
    if generator is None or place.type == "meta" or generator.device.type == place.type:
        return
    what = f"Expected a '{place.type}' device type for generator but found '{generator.device.type}'"
    raise DeviceError(what, where=user_location(), remedy=f"Generator(device={str(place)!r})")


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

    def draws_outside(self) -> bool:
        return False

    def outside_draw(self, draw: Draw) -> Value:
        return MetaValue(draw.shape, draw.dtype)


_META_TRACE = MetaTrace()


def is_meta_trace() -> bool:
    """Whether what is made now goes to device meta."""
    return current_trace() is _META_TRACE


def chosen(device: Any) -> Device:
    """The device meant by `device=`, the default one if None. Raises DeviceError for one that is not here."""
    return check_device(default_device() if device is None else device)


def place_of(value: Value) -> Device:
    """The device of a cell's value: an array's, meta, or, of a node, that which the trace says."""
    if cuda.is_array(value):
        return device_of(value)
    if isinstance(value, np.ndarray):
        return cpu
    if isinstance(value, MetaValue):
        return meta
    if type(value) is Batched:
        return place_of(value.value)
    trace: Any = current_trace()
    return trace.place_of(value) if hasattr(trace, "place_of") else cpu


def run_on(place: Device, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs), which makes tensors, on this device."""
    if place is cpu:
        return function(*args, **kwargs)
    if place.is_gpu:
        return _made_on(place, function, args, kwargs)
    if current_trace() not in (None, _META_TRACE):
        raise GraphBreak(
            "a tensor of device meta is made in a compiled function",
            where=user_location(),
            remedy="make it outside the compiled function",
        )
    with use_trace(_META_TRACE):
        return function(*args, **kwargs)


# draws of which a device makes the CPU's bits
_EXACT = ("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm")


def _made_on(place: Device, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A fresh leaf on a CUDA device: made on the CPU, moved there; most draws, and what repeats, are made there."""
    requires_grad = kwargs.pop("requires_grad", False)
    if "device" in kwargs:
        kwargs["device"] = cpu
    is_eager = current_trace() is None
    before, elsewhere.now = elsewhere.now, is_eager
    try:
        there = place.index if is_eager and function.__name__ in _EXACT else drawing.number
        with drawing_on(there, place.index):
            made = function(*args, **kwargs)
    finally:
        elsewhere.now = before
    if not hasattr(made, "_cell") and not isinstance(made, tuple):  # a value, of which the caller makes a leaf there
        return made
    made = _ramp_there(made, place) if is_eager and function.__name__ == "arange" else _all_placed(made, place)
    return made._require() if requires_grad else made


def _ramp_there(made: Any, place: Device) -> Any:
    """Whole numbers in even steps, counted on `place`: a copy would wait for the stream's work."""
    array = made._cell.raw
    if type(array) is not np.ndarray or array.dtype not in (np.int64, np.int32) or array.size < 2:
        return _all_placed(made, place)
    first, step = int(array[0]), int(array[1]) - int(array[0])
    end = first + step * array.size
    if int(array[-1]) != end - step or max(abs(first), abs(end)) >= 1 << 53:
        return _all_placed(made, place)
    from compiler_core.tensor.tensor import Tensor

    with place.working():
        return Tensor._wrap(place.xp.arange(first, end, step, dtype=array.dtype))


def _all_placed(made: Any, place: Device) -> Any:
    """What a function made on the host, on `place`: numbers that are repeated are repeated there."""
    if isinstance(made, tuple):
        parts = [_all_placed(part, place) for part in made]
        return type(made)(*parts) if hasattr(made, "_fields") else tuple(parts)
    array = made._cell.raw
    if type(array) is not np.ndarray or array.size < 2 or any(array.strides):
        return moved(made, place)
    from compiler_core.tensor.tensor import Tensor

    return Tensor._wrap(place.put(array))


def placed(function: F) -> F:
    """`function`, a maker of tensors, where `device=` may be meta, and means the default device if not given.

    What is called `f_like` stays by default on the device of its operand. pin_memory: in page-locked memory.
    """
    like = function.__name__.endswith("_like")

    @functools.wraps(function)
    def made(*args: Any, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> Any:
        if pin_memory:
            return in_pinned_memory(made(*args, device=device, **kwargs))
        if device is None and like:
            device = (args[0] if args else kwargs["input"]).device
        elif device is None and args and cuda.is_array(args[0]):
            device = device_of(args[0])
        elif device is None and args and getattr(args[0], "is_cuda", False):
            device = args[0].device
        place = chosen(device)
        if kwargs.get("generator") is not None:
            check_generator(kwargs["generator"], place)
        if isinstance(kwargs.get("dtype"), (type, str)):
            kwargs["dtype"] = as_dtype(kwargs["dtype"])
        if place is cpu:
            return function(*args, device=place, **kwargs)
        return run_on(place, function, *args, device=place, **kwargs)

    return made  # type: ignore[return-value]


def in_pinned_memory(tensor: Tensor) -> Tensor:
    """A fresh tensor, moved to page-locked memory. Raises DeviceError without a device, or for a tensor of one."""
    if tensor.device is not cpu:
        raise DeviceError("only dense CPU tensors can be pinned", got=f"a tensor on {tensor.device}")
    tensor._cell.raw = cuda.pinned(tensor._own_array("pinning its memory"))
    return tensor


def creation_names(function: F) -> F:
    """A maker of tensors, `placed`, taking NumPy's names, a memory format, and what has no meaning for it: `names`.

    What is called `f_like` lies by default in the order of its operand. layout: a sparse one gives a sparse tensor
    without elements, or an error.
    """
    inner, known = placed(numpy_names(function)), signature(function).parameters
    unused = [name for name in ("layout", "names") if name not in known]
    like, draws = function.__name__.endswith("_like"), "memory_format" in known
    is_zero = function.__name__ in ("zeros", "empty")

    @functools.wraps(function)
    def created(*args: Any, **kwargs: Any) -> Any:
        if is_zero and lone.array is not None:
            zeros = zeros_of(args, kwargs)
            if zeros is not None:
                from compiler_core.tensor.tensor import Tensor

                return Tensor._of_array(zeros)
        if kwargs.get("layout") not in (None, strided):
            return MADE_OF_LAYOUT.get()(function.__name__, *args, **kwargs)
        for name in unused:
            kwargs.pop(name, None)
        wanted = kwargs.get("memory_format") if draws else kwargs.pop("memory_format", None)
        made = inner(*args, **kwargs)
        if like:
            model = (args[0] if args else kwargs["input"])._cell
            return made if wanted is None and model.is_ordered else relaid(made, order_for(model, wanted))
        return made if wanted is None else relaid(made, order_in(wanted, made.ndim))

    return created  # type: ignore[return-value]


def on_meta(tensor: Tensor) -> Tensor:
    """A tensor of device meta, of `tensor`'s shape and dtype. Its gradient would have to leave meta: NoDataError."""
    from compiler_core.tensor.autograd.tape import FunctionNode, OutputNode
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


def moved(tensor: Tensor, place: Device, *, non_blocking: bool = False) -> Tensor:
    """`tensor` on this device: itself if it is there. Recorded. Raises NoDataError from meta elsewhere.

    non_blocking: the host does not wait for a copy out of pinned memory; it waits for one to the host all the same.
    """
    before = tensor.device
    if place is before:
        return tensor
    if tensor.is_meta:
        raise no_data(f"moving a tensor from device meta to {place}")
    if place is meta:
        return on_meta(tensor)
    trace: Any = current_trace()
    if trace is not None:
        return _moved_traced(trace, tensor, place)
    from compiler_core.tensor.autograd.tape import FunctionNode, OutputNode
    from compiler_core.tensor.tensor import Tensor

    result = Tensor._wrap(place.put(tensor._own_array(f"moving it to {place}"), non_blocking=non_blocking))
    edge = tensor._edge() if thread_mode.enabled else None
    if edge is not None:

        def backward(grads: Any) -> Any:
            return [moved(grads[0], before) if isinstance(grads[0], Tensor) else before.put(grads[0])]

        node = FunctionNode("ToCopy", (edge,), 1, backward, raw=False)
        result._node = OutputNode(node, 0, meta_of(result))
    return result


def _moved_traced(trace: Any, tensor: Tensor, place: Device) -> Tensor:
    """Under a trace: the trace says whether its graph can do that."""
    if not hasattr(trace, "move"):
        raise GraphBreak(f"a tensor is moved to {place} where it cannot be traced", where=user_location())
    return trace.move(tensor, place)  # type: ignore[no-any-return]


def on_device_of(tensor: Tensor, result: Tensor) -> Tensor:
    """`result` on the device of `tensor`."""
    return moved(result, tensor.device)


def beside(function: F) -> F:
    """`function`, computed on the host, with its results on the device of its first operand."""

    @functools.wraps(function)
    def computed(input: Any, *args: Any, **kwargs: Any) -> Any:
        return _all_moved(function(input, *args, **kwargs), input.device)

    return computed  # type: ignore[return-value]


def _all_moved(result: Any, place: Device) -> Any:
    if not place.is_gpu:
        return result
    if isinstance(result, tuple):
        parts = [_all_moved(part, place) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return moved(result, place)


def grads_beside(saved: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
    """Gradients of one op's operands, each on the device of its operand. saved: their cells, or what stands for them.

    Those that are constants were made on the CPU; those of numbers of the CPU that stood beside a device's were not.
    """
    kind = cuda.lone.array
    if kind is not None:
        for cell, g in zip(saved, grads):
            if g is None or (type(g) is kind and type(cell) is DeviceCell):
                continue
            raw = getattr(cell, "raw", cell)  # of what the tape has let go of, itself: it knows the place
            if not (type(g) is kind and (type(raw) is kind or getattr(raw, "place", cpu) is not cpu)):
                break
        else:
            return grads
    return [g if g is None else _grad_at(cell, g) for cell, g in zip(saved, grads)]


def _grad_at(saved: Any, grad: Any) -> Any:
    operand = getattr(saved, "raw", None)
    place = device_of(operand) if is_array(operand) else getattr(saved, "place", None)
    if place is None or place.type == "meta" or type(grad) is Batched:
        return grad
    return place.put(grad) if is_array(grad) else moved(grad, place)


def grad_beside(leaf: Tensor, grad: Any) -> Any:
    """`grad` on the device of the leaf that it is of: gradients that are constants are made on the CPU."""
    if type(grad) is np.ndarray is type(leaf._cell.raw):
        return grad
    from compiler_core.tensor.tensor import Tensor

    if isinstance(grad, Tensor):
        return moved(grad, leaf.device)
    return leaf.device.put(grad) if is_array(grad) and not leaf.is_meta else grad


def check_together(values: tuple[Any, ...]) -> None:
    """Raise DeviceError for Tensors of two devices, as torch does; a number (of one element, or repeated) may stand.

    A number is a Tensor whose strides are all 0: 0-d, or 0-d expanded.
    """
    from compiler_core.tensor.tensor import Tensor

    if len(values) == 1:
        return
    tensors = [v for v in values if isinstance(v, Tensor)]
    kind = type(tensors[0]._cell.raw)
    for tensor in tensors:
        if type(tensor._cell.raw) is not kind:
            break
    else:  # two CUDA devices: the op has said so
        return
    places = dict.fromkeys(t.device for t in tensors if t.device is not cpu or any(t._cell.strides()))
    if len(places) > 1:
        names = " and ".join(map(str, places))
        raise DeviceError(
            f"Expected all tensors to be on the same device, but found at least two devices, {names}!",
            got=", ".join(f"{t.device}{list(t.shape)}" for t in tensors),
            where=user_location(),
            remedy="move them with .to(device)",
        )


def as_placed(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """torch.as_tensor: `data` as a Tensor on `device`, by default the default device."""
    from compiler_core.tensor.making.creation import as_tensor
    from compiler_core.tensor.tensor import Tensor

    place = default_device() if device is None else device
    if cuda.is_array(data):
        return as_tensor(data, dtype, device)
    if isinstance(data, Tensor):
        return as_tensor(data, dtype) if device is None else as_tensor(data, dtype).to(place)
    return run_on(check_device(place), as_tensor, data, dtype)
