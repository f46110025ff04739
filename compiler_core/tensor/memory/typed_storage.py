"""torch's storages of elements: TypedStorage, and FloatStorage and its like, which are names of some of them.

In: an `UntypedStorage` and a dtype, or sizes, or numbers. Out: the elements, one after the other.
Invariant: there is a class for each dtype that only makes TypedStorages, and of which those of its dtype are instances.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.memory.storage import UntypedStorage, placed_on, set_, storage_of, untyped_storage
from compiler_core.tensor.tensor import Tensor

NAMES = {
    "DoubleStorage": dt.float64, "FloatStorage": dt.float32, "HalfStorage": dt.float16, "BFloat16Storage": dt.bfloat16,
    "LongStorage": dt.int64, "IntStorage": dt.int32, "ShortStorage": dt.int16, "CharStorage": dt.int8,
    "ByteStorage": dt.uint8, "BoolStorage": dt.bool_, "ComplexFloatStorage": dt.complex64,
    "ComplexDoubleStorage": dt.complex128,
}  # fmt: skip
_name_of = {dtype: name for name, dtype in NAMES.items()}


class TypedStorage:
    """Elements: TypedStorage(n), TypedStorage([1.0, 2.0]), each with dtype=; wrap_storage: of that UntypedStorage."""

    __slots__ = ("_untyped_storage", "dtype")
    is_sparse = False

    def __init__(
        self,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: DType | None = None,
        device: str | Device | None = None,
        _internal: bool = False,
    ) -> None:
        self.dtype: DType = dtype or dt.get_default_dtype()
        if wrap_storage is not None:
            self._untyped_storage = wrap_storage
        elif args and isinstance(args[0], (Sequence, np.ndarray)):
            made = tensor(args[0], dtype=self.dtype, device=device)
            self._untyped_storage = untyped_storage(made)
        else:
            count = args[0] if args else 0
            self._untyped_storage = UntypedStorage(count * self.dtype.itemsize, device=device)

    # ---- what it is

    @property
    def __tensor__(self) -> Tensor:
        """The elements as a Tensor on their memory."""
        return Tensor._from_cell(placed_on(self._untyped_storage, self.dtype, 0, (len(self),), (1,)))

    device = property(lambda self: self._untyped_storage.device)
    is_cuda = property(lambda self: self._untyped_storage.is_cuda)
    filename = property(lambda self: self._untyped_storage.filename)
    _cdata = property(lambda self: self._untyped_storage._cdata)

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped_storage

    def nbytes(self) -> int:
        """How many bytes."""
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        """How many elements."""
        return self.nbytes() // self.dtype.itemsize

    def data_ptr(self) -> int:
        """Where they are."""
        return self._untyped_storage.data_ptr()

    __len__ = _size = size
    _nbytes, _data_ptr = nbytes, data_ptr

    def element_size(self) -> int:
        """Bytes of one."""
        return self.dtype.itemsize

    _element_size = element_size

    def pickle_storage_type(self) -> str:
        """The name that files have for it. Raises DTypeError for a dtype without one."""
        if self.dtype not in _name_of:
            raise DTypeError(f"no kind of storage has this name in files: {self.dtype}")
        return _name_of[self.dtype]

    _pickle_storage_type = pickle_storage_type

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Its name; or a copy of elements of another dtype."""
        if dtype is None:
            return ("torch.cuda." if self.is_cuda else "torch.") + self.pickle_storage_type()
        kind = dtype if isinstance(dtype, DType) else getattr(dtype, "dtype", None) or NAMES[dtype.split(".")[-1]]
        return self._converted(kind)

    def get_device(self) -> int:
        """The number of its CUDA device; -1 on the CPU."""
        return self._untyped_storage.get_device()

    def is_shared(self) -> bool:
        """Whether other processes may see it."""
        return self._untyped_storage.is_shared()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether it lies in page-locked memory."""
        return self._untyped_storage.is_pinned(device)

    def resizable(self) -> bool:
        """Whether its size may change."""
        return self._untyped_storage.resizable()

    def tolist(self) -> list[Any]:
        """The elements as numbers."""
        return self.__tensor__.tolist()  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            raise ShapeError("slices are only supported in UntypedStorage.__getitem__", got=str(index))
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self.__tensor__[index].item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self.__tensor__[index] = value

    def __repr__(self) -> str:
        rows = "".join(f" {element}\n" for element in self.tolist())
        about = f"dtype={self.dtype}, device={self.device}"
        return f"{rows}[torch.storage.TypedStorage({about}) of size {len(self)}]"

    # ---- what is done with it

    def _with(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    def _converted(self, dtype: DType) -> TypedStorage:
        return TypedStorage(self.tolist(), dtype=dtype, device=self.device)

    def fill_(self, value: Any) -> TypedStorage:
        """Set each element."""
        self.__tensor__.fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """Copy the elements of another storage, in this dtype."""
        self.__tensor__.copy_(source.__tensor__)
        return self

    def clone(self) -> TypedStorage:
        """A copy."""
        return self._with(self._untyped_storage.clone())

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        return self._with(self._untyped_storage.__deepcopy__(memo))

    _deepcopy = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._untyped_storage, self.dtype)

    def cpu(self) -> TypedStorage:
        """One on the CPU."""
        return self._with(self._untyped_storage.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """One on a CUDA device. Raises DeviceError where there is none."""
        return self._with(self._untyped_storage.cuda(device))

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """One on that device."""
        return self._with(self._untyped_storage.to(device=device))

    def resize_(self, size: int) -> TypedStorage:
        """Change the number of elements: see UntypedStorage."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def share_memory_(self) -> TypedStorage:
        """Move it to memory that other processes may see. Returns itself."""
        self._untyped_storage.share_memory_()
        return self

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """A copy in page-locked memory. Raises DeviceError without a device."""
        return self._with(self._untyped_storage.pin_memory(device))

    def _new_shared(self, size: int, device: Any = "cpu") -> TypedStorage:
        return self._with(UntypedStorage._new_shared(size * self.dtype.itemsize, device=device))

    def new(self) -> TypedStorage:
        """An empty one, there."""
        return self._with(self._untyped_storage.new())

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first elements of a file: see UntypedStorage."""
        dtype = getattr(cls, "of", None) or dt.get_default_dtype()
        return _rebuilt(UntypedStorage.from_file(filename, shared, size * dtype.itemsize), dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: DType | None = None, **kwargs: Any) -> TypedStorage:
        """A copy of the elements of a buffer: see UntypedStorage."""
        dtype = dtype or getattr(cls, "of", None) or dt.get_default_dtype()
        return _rebuilt(UntypedStorage.from_buffer(*args, dtype=dtype, **kwargs), dtype)


def _rebuilt(untyped: UntypedStorage, dtype: DType) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=dtype)


def _converter(dtype: DType) -> Callable[[Any], TypedStorage]:
    def converted(self: Any) -> TypedStorage:
        elements = self if isinstance(self, TypedStorage) else _rebuilt(self, dt.uint8)
        return elements._converted(dtype)

    converted.__doc__ = f"A copy of the elements as {dtype.name}."
    return converted


_CONVERTERS = {
    "double": dt.float64, "float": dt.float32, "half": dt.float16, "bfloat16": dt.bfloat16, "long": dt.int64,
    "int": dt.int32, "short": dt.int16, "char": dt.int8, "byte": dt.uint8, "bool": dt.bool_,
    "complex_float": dt.complex64, "complex_double": dt.complex128,
}  # fmt: skip
for _name, _dtype in _CONVERTERS.items():
    setattr(TypedStorage, _name, _converter(_dtype))
    setattr(UntypedStorage, _name, _converter(_dtype))


class _OfOneDtype(type):
    """Classes that make TypedStorages of one dtype."""

    of: DType
    dtype = property(lambda cls: cls.of)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.of

    def __call__(cls, *args: Any, wrap_storage: UntypedStorage | None = None) -> TypedStorage:
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.of)


def _make(name: str, dtype: DType) -> Any:
    members = {"of": dtype, "__doc__": f"TypedStorages of {dtype.name}.", "__module__": __name__, "__slots__": ()}
    return _OfOneDtype(name, (TypedStorage,), members)


LEGACY: dict[str, Any] = {name: _make(name, dtype) for name, dtype in NAMES.items()}


def __getattr__(name: str) -> Any:
    if name in LEGACY:
        return LEGACY[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def typed_storage(input: Tensor) -> TypedStorage:
    """The storage that `input` lies in, as elements of its dtype."""
    return TypedStorage(wrap_storage=untyped_storage(input), dtype=input.dtype)


def storage(input: Tensor) -> TypedStorage:
    """`typed_storage`, with torch's warning that it will go."""
    warnings.warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
        "class. This should only matter to you if you are using storages directly. To access UntypedStorage directly, "
        "use tensor.untyped_storage() instead of tensor.storage()",
        UserWarning,
        stacklevel=3,
    )
    return typed_storage(input)


def storage_type(input: Tensor) -> Any:
    """The class of its storage: torch.FloatStorage or its like."""
    return LEGACY[_name_of[input.dtype]]


_LOOKS = frozenset({untyped_storage, typed_storage, storage, set_})


def looks_at_storage(function: Any, args: Sequence[Any]) -> bool:
    """Whether a call is about storages, which no graph can hold."""
    return function in _LOOKS or (len(args) > 0 and type(args[0]) in (UntypedStorage, TypedStorage))


def is_storage(obj: Any) -> bool:
    """Whether it is a storage, of bytes or elements."""
    return storage_of(obj) is not None and not isinstance(obj, Tensor)
