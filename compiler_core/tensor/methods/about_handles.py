"""Tensor methods about the handle (sizes, dtype conversion, copies), and those unlike the function of their name.

In: Tensors. Out: the class `Methods` that Tensor inherits. Methods that are functions of compiler_core/ops as they
are stand in `methods/of_functions.py`, in-place methods in `inplace.py`, those that need the data in `interop.py` and
`selection.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.cuda import lone
from compiler_core.device import Device, check_device, copy_of, cpu
from compiler_core.dtype import DType, as_dtype
from compiler_core.errors import AutogradError, DeviceError, DTypeError, ShapeError
from compiler_core.forward import level
from compiler_core.memory_format import contiguous_format, preserve_format
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.batching.value import levels
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.on_device import COPY
from compiler_core.ops.registry import OPS, Array, current_trace, meta_of
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.autograd.grad_mode import taping, thread_mode
from compiler_core.tensor.autograd.inference import made
from compiler_core.tensor.autograd.tape import OpNode
from compiler_core.tensor.batching import of_each
from compiler_core.tensor.making.placement import in_pinned_memory, moved
from compiler_core.tensor.memory.cell import Cell, ViewCell, cell_of, note_copy
from compiler_core.tensor.memory.layout import laid, lies_in, order_for, order_in, relaid, suggested
from compiler_core.tensor.memory.own_views import own_view, strict_view
from compiler_core.tensor.methods.inplace import at_least, at_most
from compiler_core.tensor.size import told
from compiler_core.tensor.straight import array_of, fresh
from compiler_core.tensor.torch_arguments import with_tensors
from compiler_core.tensor.torch_names import load

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Size, Tensor


_RESHAPE = OPS["reshape"]


# ---- about the handle


def _size(self: Tensor, dim: int | None = None) -> Size | int:
    """The shape, or one size of it."""
    shape = self.shape
    return told(shape if dim is None else shape[dim])


def _dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


def _numel(self: Tensor) -> int:
    """The number of elements."""
    return told(meta_of(self).numel)


def _element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return self.dtype.itemsize


def _stride(self: Tensor, dim: int | None = None) -> tuple[int, ...] | int:
    """The strides in elements (`layout.py`)."""
    strides = self._cell.strides()
    return told(strides if dim is None else strides[dim])


def _is_contiguous(self: Tensor, memory_format: object = contiguous_format) -> bool:
    """Whether the elements lie in this memory format, row-major by default."""
    sizes = next((n.sizes for n in self._cell.raw.shape if isinstance(n, Sym)), None)
    with nullcontext() if sizes is None else sizes.heeding_layout():
        return lies_in(self._cell, memory_format)


def _is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is floating."""
    return self.dtype.is_floating_point


def _is_complex(self: Tensor) -> bool:
    """Whether the dtype is complex."""
    return self.dtype.is_complex


def _is_conj(self: Tensor) -> bool:
    """Whether it is a conjugate that torch would put off: a view of what it is the conjugate of."""
    cell, conjugates = self._cell, 0
    while isinstance(cell, ViewCell):
        conjugates += cell.op.name == "conj"
        cell = cell.base
    return conjugates % 2 == 1


def _is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return self.dtype.is_signed


def _is_nonzero(self: Tensor) -> bool:
    """Whether the one element is not zero."""
    return bool(self)


# ---- copies and conversions


def _clone(self: Tensor, *, memory_format: object = None) -> Tensor:
    """A tensor with its own copy of the data; the gradient flows back to this one."""
    before = self._cell
    array = array_of(self)
    if array is not None:
        is_plain = memory_format is contiguous_format or (memory_format is None and before.is_ordered)
        if is_plain and type(array) is lone.array:
            return fresh(self, _RESHAPE, {"shape": array.shape}, COPY.get()(array))
        return _cloned(self, array, memory_format)
    same = prims.reshape(self, before.value.shape)  # records the identity
    value = same._cell.current()
    trace = current_trace()
    if trace is not None:
        note_copy(trace, value)
    cell = Cell(value) if trace is not None else made(cell_of(copy_of(value)))
    if memory_format is not None or not before.is_ordered:
        cell = laid(cell, order_for(before, memory_format))
    copied: Tensor = type(same)._from_cell(cell, same._node)
    if level.on:
        level.carry(same, copied)
    return copied


def _cloned(self: Tensor, array: Array, memory_format: object) -> Tensor:
    """The same of a tensor that shows this array, while nobody looks."""
    before, cell = self._cell, made(cell_of(copy_of(array)))
    if memory_format is not None or not before.is_ordered:
        cell = laid(cell, order_for(before, memory_format))
    copied = self._from_cell(cell)
    if thread_mode.enabled and array.dtype.kind not in "biu":
        edge = self._edge()
        if edge is not None:
            copied._node = OpNode(_RESHAPE, {"shape": array.shape}, [edge], [before], cell)
    return copied


def _contiguous(self: Tensor, memory_format: object = contiguous_format) -> Tensor:
    """This tensor if it lies in this memory format, else a copy that does."""
    return self if lies_in(self._cell, memory_format) else _clone(self, memory_format=memory_format)


@own_view
@numpy_names
def _reshape(self: Tensor, *shape: Any) -> Tensor:
    """This tensor in another shape: a view where torch gives one, else a copy."""
    return F.reshape(self, *shape)  # type: ignore[no-any-return]


@strict_view
@numpy_names
def _view(self: Tensor, *shape: Any, dtype: DType | None = None, size: Any = None) -> Tensor:
    """`reshape` without a copy; with a dtype, the same bytes read as elements of that: see ops/primitives/bits.py."""
    if len(shape) == 1 and isinstance(shape[0], (DType, type)):
        dtype, shape = as_dtype(shape[0]), ()
    if dtype is not None:
        _check_reading(self, dtype)
        return prims.bitcast(self.detach(), dtype)  # type: ignore[no-any-return]
    return F.reshape(self, *(shape if size is None else (size,)))  # type: ignore[no-any-return]


def _check_reading(self: Tensor, dtype: DType) -> None:
    """Raises ShapeError if bytes that do not lie side by side would be elements of `dtype`."""
    strides, own, new = self._cell.strides(), self.dtype.itemsize, dtype.itemsize
    if own == new or not strides:
        return
    aim = f"to view {self.dtype.name} as {dtype.name} (different element sizes)"
    if strides[-1] != 1:
        raise ShapeError(f"self.stride(-1) must be 1 {aim}", got=str(strides))
    for what, step in (
        ("self.storage_offset()", self._cell.offset()),
        *((f"self.stride({d})", step) for d, step in enumerate(strides[:-1])),
    ):
        if step * own % new:
            raise ShapeError(f"{what} must be divisible by {new // own} {aim}", got=str(step))


def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """This tensor in another dtype (or that of another tensor): itself if nothing changes and copy is False.

    to(dtype), to(device), to(device, dtype), to(other); dtype=, device=, copy=, non_blocking=.
    """
    copy, dtype = kwargs.pop("copy", False), kwargs.pop("dtype", None)
    devices = [kwargs.pop("device", None)]
    flags = [arg for arg in args if type(arg) is bool]  # non_blocking, copy
    non_blocking = kwargs.pop("non_blocking", bool(flags and flags[0]))
    copy = copy or flags[1:2] == [True]
    wanted = kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"to() got unexpected keyword arguments {sorted(kwargs)}")
    for arg in args:
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, (str, Device)) or type(arg) is int:
            devices.append(arg)
        elif hasattr(arg, "_cell"):
            dtype = arg.dtype
            devices.append(arg.device)
        elif arg is not None and type(arg) is not bool:
            dtype = as_dtype(arg)
    dtype = None if dtype is None else as_dtype(dtype)
    before = self
    for device in devices:
        self = _moved(self, device, non_blocking)
    if dtype is not None and dtype is not self.dtype:
        made_anew: Tensor = prims.cast(self, dtype)
        return made_anew if wanted in (None, preserve_format) else relaid(made_anew, order_in(wanted, self.ndim))
    if copy and self is before:
        return _clone(self, memory_format=wanted)
    return self if wanted is None else _in_format(self, wanted)


def _in_format(self: Tensor, wanted: object) -> Tensor:
    """This tensor if its strides are taken for this memory format already, else a copy in it."""
    if wanted is preserve_format or suggested(self._cell) is wanted:
        return self
    return _clone(self, memory_format=wanted)


def _moved(self: Tensor, device: Any, non_blocking: bool = False) -> Tensor:
    """This tensor on `device`, where it is if None. Raises NoDataError from meta to the CPU."""
    return self if device is None else moved(self, check_device(device), non_blocking=non_blocking)


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Tensor | str:
    """This tensor in `dtype` (a dtype, torch.FloatTensor, or its name); without one, the name of its type."""
    from compiler_core.tensor.making.legacy_types import device_of_type, dtype_of_type, type_name

    if dtype is None:
        return type_name(self.dtype).replace("torch.", "torch.cuda." if self.is_cuda else "torch.")
    return _to(self, device=device_of_type(dtype), dtype=dtype_of_type(dtype))


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in other's dtype."""
    return _to(self, other.dtype)


def _converter(dtype: DType) -> Callable[..., Tensor]:
    def convert(self: Tensor, memory_format: object = preserve_format) -> Tensor:
        return _to(self, dtype, memory_format=memory_format)

    convert.__doc__ = f"This tensor as {dtype.name}."
    return convert


def _chalf(self: Tensor, memory_format: object = None) -> Tensor:
    """Raises DTypeError: there is no complex32."""
    raise DTypeError("there is no complex32 (chalf): NumPy has none", expected="complex64 or complex128")


def _cpu(self: Tensor, memory_format: object = None) -> Tensor:
    """This tensor on the CPU: itself if it is there. Raises NoDataError for one of device meta."""
    return _moved(self, "cpu") if memory_format is None else _in_format(_moved(self, "cpu"), memory_format)


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: object = None) -> Tensor:
    """This tensor on a CUDA device, the current one if not said. Raises DeviceError where there is none, and why."""
    place = Device("cuda" if device is None else device)
    if not place.is_gpu:
        raise DeviceError("Invalid device, must be cuda device", got=str(place))
    return _moved(self, place, non_blocking)


def _get_device(self: Tensor) -> int:
    """The number of its CUDA device; -1 on the CPU."""
    index = self.device.index
    return -1 if index is None else index


# ---- more of torch's names


def _as(self: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Options of creation, where not given this tensor's."""
    given = {name: value for name, value in options.items() if value is not None}
    return {"dtype": self.dtype, "device": self.device, **given}


def _new_full(self: Tensor, size: Any, fill_value: Any, **options: Any) -> Tensor:
    """`full` with this dtype, unless one is given. Options: dtype, device, requires_grad."""
    from compiler_core.tensor.making.creation import full

    return of_each(full(size, fill_value, **_as(self, options)), self)


def _new_zeros(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """`zeros` with this dtype, unless one is given."""
    from compiler_core.tensor.making.creation import zeros

    return of_each(zeros(*size, **_as(self, options)), self)


def _new_ones(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """`ones` with this dtype, unless one is given."""
    from compiler_core.tensor.making.creation import ones

    return of_each(ones(*size, **_as(self, options)), self)


def _new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """`tensor(data)` with this dtype, unless one is given."""
    from compiler_core.tensor.making.creation import tensor

    return tensor(data, **_as(self, options))


def _new(self: Tensor, *given: Any) -> Tensor:
    """torch's old constructor, with this dtype: of sizes (filled with zeros), of a Size, or of data."""
    from compiler_core.tensor.making.creation import is_size

    if isinstance(given[0] if given else None, type(self.shape)) or all(map(is_size, given)):
        return _new_zeros(self, *(given or (0,)))
    if len(given) > 1:
        raise DTypeError("new(): data must be a sequence", got=f"{len(given)} arguments")
    if hasattr(given[0], "_cdata"):  # a storage, whose memory it shares
        return _new_zeros(self, 0).set_(given[0])  # type: ignore[no-any-return]
    return _new_tensor(self, given[0])


def _equal(self: Tensor, other: Tensor) -> bool:
    """Whether shape and all elements are the same, as a Python bool."""
    if meta_of(self).shape != meta_of(other).shape:
        return False
    return bool(F.all(F.eq(self, other)))


def _allclose(self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as a Python bool."""
    return bool(F.all(F.isclose(self, other, rtol, atol, equal_nan)))


def _late(module: str, name: str) -> Any:
    """The function `name` of a module of compiler_core/tensor that needs Tensor itself: loaded at its first use."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return load((f"compiler_core.tensor.{module}", name))(self, *args, **kwargs)

    method.__doc__ = f"See compiler_core.tensor.{module}.{name}."
    return method


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition holds, else other."""
    return F.where(condition, self, other)  # type: ignore[no-any-return]


def _pin_memory(self: Tensor, device: object = None) -> Tensor:
    """A copy of this tensor in page-locked memory; itself if it lies there. Raises DeviceError without a device."""
    return self if _is_pinned(self) else in_pinned_memory(_clone(self))


def _record_stream(self: Tensor, stream: Any) -> None:
    """Work of `stream` uses this tensor's memory: once nobody refers to it, it is given back when that work is done.

    stream: a cuda.Stream of this tensor's device. Raises DeviceError for a tensor of the CPU.
    """
    if not self.device.is_gpu:
        raise DeviceError("record_stream: this tensor is not on a CUDA device", got=f"a tensor on {self.device}")
    cuda.record_stream(self._own_array("record_stream()"), stream._stream)


def _is_pinned(self: Tensor, device: object = None) -> bool:
    """Whether it lies in page-locked memory (`pin_memory`). What is written in place lies in new memory."""
    return current_trace() is None and self.device is cpu and cuda.is_pinned(self._cell.value)


def _is_cuda(self: Tensor) -> bool:
    raw = self._cell.raw
    return type(raw) is cuda.lone.array or cuda.is_array(raw) or self.device.is_gpu


class Methods:
    """The table."""

    __slots__ = ()

    def requires_grad_(self: Any, requires_grad: bool = True) -> Tensor:
        """Ask for (or no longer ask for) a gradient.

        Raises AutogradError on a non-leaf, if the dtype has none, or inside a function that is transformed.
        """
        if taping.closed or levels():
            raise AutogradError(
                "You are attempting to call Tensor.requires_grad_() inside of a function being transformed by a "
                "functorch transform (vmap, grad, jvp, ...). This is unsupported, please attempt to use the transform "
                "itself, or call requires_grad_() outside of it"
            )
        return self._require(requires_grad)  # type: ignore[no-any-return]

    @property
    def T(self: Any) -> Tensor:
        """All dimensions in reverse order."""
        return F.permute(self, tuple(range(self.ndim))[::-1])  # type: ignore[no-any-return]

    @property
    def real(self: Any) -> Tensor:
        """The real part, a view; a real tensor itself. Assigning writes through it."""
        return prims.real(self) if self.dtype.is_complex else self  # type: ignore[no-any-return]

    @real.setter
    def real(self: Any, value: Any) -> None:
        self.real.copy_(value)

    @property
    def imag(self: Any) -> Tensor:
        """The imaginary part, a view. Raises DTypeError for a real tensor. Assigning writes through it."""
        from compiler_core.ops.composites.complex import imag

        return imag(self)  # type: ignore[no-any-return]

    @imag.setter
    def imag(self: Any, value: Any) -> None:
        self.imag.copy_(value)

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged."""
        return F.transpose(self, -2, -1)  # type: ignore[no-any-return]

    @property
    def H(self: Any) -> Tensor:
        """The conjugate transpose of a matrix."""
        if self.ndim not in (0, 2):
            raise ShapeError("tensor.H is of matrices", expected="2 dims", got=str(self.ndim), remedy="use mH")
        return prims.conj(F.transpose(self, -2, -1)) if self.ndim else prims.conj(self)  # type: ignore[no-any-return]

    @property
    def mH(self: Any) -> Tensor:
        """The conjugate with its last two dimensions exchanged."""
        return prims.conj(F.transpose(self, -2, -1))  # type: ignore[no-any-return]

    size, dim, ndimension, numel, nelement = _size, _dim, _dim, _numel, _numel
    element_size, stride, is_contiguous = _element_size, _stride, _is_contiguous
    data_ptr, untyped_storage = _late("memory.storage", "data_ptr"), _late("memory.storage", "untyped_storage")
    is_inference = _late("autograd.inference", "is_inference")
    set_, is_shared = _late("memory.storage", "set_"), _late("memory.shared_memory", "is_shared_tensor")
    storage, _typed_storage = _late("memory.typed_storage", "storage"), _late("memory.typed_storage", "typed_storage")
    storage_type, share_memory_ = (
        _late("memory.typed_storage", "storage_type"),
        _late("memory.shared_memory", "share_memory_"),
    )
    itemsize, nbytes = property(_element_size), property(lambda self: told(meta_of(self).nbytes))
    is_cuda = property(_is_cuda)
    is_cpu, get_device = property(lambda self: self.device.is_host), _get_device
    is_floating_point, is_complex, is_conj = _is_floating_point, _is_complex, _is_conj
    clone, contiguous, reshape, view, to, type, type_as = _clone, _contiguous, _reshape, _view, _to, _type, _type_as
    cpu, cuda, pin_memory = _cpu, _cuda, _pin_memory
    record_stream = _record_stream
    __dlpack__, __dlpack_device__ = _late("memory.lending", "lend"), _late("memory.lending", "to_device_number")
    is_pinned = _is_pinned
    is_signed, is_nonzero = _is_signed, _is_nonzero
    clamp_min, clamp_max, where = with_tensors(at_least), with_tensors(at_most), _where
    float, double, half = _converter(dt.float32), _converter(dt.float64), _converter(dt.float16)
    bfloat16, long, int = _converter(dt.bfloat16), _converter(dt.int64), _converter(dt.int32)
    cfloat, cdouble, chalf = _converter(dt.complex64), _converter(dt.complex128), _chalf
    short, char, byte, bool = _converter(dt.int16), _converter(dt.int8), _converter(dt.uint8), _converter(dt.bool_)
    equal, allclose = _equal, _allclose
    new = _new
    new_full, new_zeros, new_ones, new_empty, new_tensor = _new_full, _new_zeros, _new_ones, _new_zeros, _new_tensor
