"""torch's old tensor types: torch.FloatTensor, LongTensor, BoolTensor, ...: names for annotations, tests and making.

In: `FloatTensor(2, 3)`, `FloatTensor([1.0])`, `isinstance(x, FloatTensor)`, `x.type(FloatTensor)`, `x.type()`. Out:
Tensors of that dtype, on the CPU; a class of its own there is not: every Tensor has the one class. Those of GPUs
(`gpu_type`) make Tensors on the current CUDA device; where there is none, making one raises TypeError.
"""

from __future__ import annotations

from typing import Any

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.device import check_device
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError, TypeNameError
from compiler_core.tensor.making.creation import empty, is_size, tensor
from compiler_core.tensor.tensor import Size, Tensor

_NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
    "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
}  # fmt: skip


def type_name(dtype: DType) -> str:
    """What torch calls a CPU tensor of this dtype: "torch.FloatTensor"."""
    return f"torch.{_NAMES.get(dtype.name, dtype.name.capitalize())}Tensor"


def dtype_of_type(kind: Any) -> DType:
    """The dtype meant by a dtype, one of the types below, or a name like "torch.FloatTensor".

    Raises TypeNameError for another name, DeviceError for a type of GPU tensors.
    """
    if isinstance(kind, str):
        parts = kind.removeprefix("distcompile.").removeprefix("torch.").replace("sparse.", "").split(".")
        if parts[:-1]:
            check_device(parts[0])
        found = {type_name(dtype): dtype for dtype in dt.ALL}.get(f"torch.{parts[-1]}")
        if found is None:
            raise TypeNameError(f"invalid type: {kind!r}", expected="torch.FloatTensor, torch.LongTensor, ...")
        return found
    if isinstance(kind, GPUTensorType):
        check_device("cuda")
    found = getattr(kind, "dtype", kind)
    if not isinstance(found, DType):
        raise DTypeError("dtype must be a type, str, or dtype object", got=repr(kind))
    return found


def device_of_type(kind: Any) -> str | None:
    """The kind of device that a type is of; None of a dtype."""
    if isinstance(kind, str):
        return "cuda" if ".cuda." in f".{kind}" else "cpu"
    return ("cuda" if kind.is_cuda else "cpu") if isinstance(kind, TensorType) else None


def set_default_tensor_type(t: Any) -> None:
    """The type of tensors made from Python floats: "torch.DoubleTensor", or such a type. Raises DTypeError."""
    if isinstance(t, DType):
        raise DTypeError("invalid type object: only floating-point types are supported as the default type",
                         remedy="set_default_dtype takes dtypes")  # fmt: skip
    dt.set_default_dtype(dtype_of_type(t))


class TensorType(type):
    """The class of the types below: they make Tensors, and a Tensor of their dtype is an instance of them."""

    dtype: DType
    is_cuda = False
    is_sparse = False

    def __call__(cls, *data: Any, device: Any = "cpu") -> Tensor:
        """Sizes, or a sequence or array of numbers, or a Tensor of this dtype, which is taken as it is."""
        check_device(device)
        first = data[0] if data else 0
        if isinstance(first, Tensor) and first.ndim and first.dtype is not cls.dtype:
            raise DTypeError(f"{cls.__name__}: a tensor of another dtype", expected=cls.dtype.name,
                             got=first.dtype.name, remedy="use to()")  # fmt: skip
        if isinstance(first, Tensor) and first.ndim:
            return first.detach()
        if isinstance(first, Size) or all(map(is_size, data)):
            return empty(*(data or (0,)), dtype=cls.dtype, device="cpu")
        if not hasattr(first, "__len__") or len(data) > 1:
            raise DTypeError(f"new(): data must be a sequence (got {type(first).__name__})")
        return tensor(first, dtype=cls.dtype, device="cpu")

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is cls.dtype
            and not (instance.is_cuda or instance.is_sparse)
        )


class GPUTensorType(TensorType):
    """The class of torch.cuda's types."""

    is_cuda = True

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        if cuda.why_not():
            raise DTypeError(
                f"type torch.cuda.{cls.__name__} not available: there is no GPU here", remedy="stay on the CPU"
            )
        return super().__call__(*data).to(check_device("cuda" if device is None else device))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.is_cuda


def _made(metaclass: type[TensorType], name: str, module: str) -> TensorType:
    dtype = next(d for d in dt.ALL if type_name(d) == f"torch.{name}")
    return metaclass(name, (), {"dtype": dtype, "__doc__": f"{dtype.name}.", "__module__": module})


def gpu_type(name: str) -> TensorType:
    """torch.cuda.FloatTensor and its like."""
    return _made(GPUTensorType, name, "distcompile.cuda")


TYPES = (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor",
    "CharTensor", "ByteTensor", "BoolTensor",
)  # fmt: skip
(
    FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor,
    CharTensor, ByteTensor, BoolTensor,
) = (_made(TensorType, name, "distcompile") for name in TYPES)  # fmt: skip
