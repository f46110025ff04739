"""Copies and conversions of sparse tensors: clone, detach, data, to, and tensors like them.

In: a sparse tensor. Out: another of its layout, pickles, copies. What moves or converts, moves and converts the parts;
what shares memory shares theirs.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from compiler_core import dtype as dt
from compiler_core.device import Device, check_device
from compiler_core.dtype import DType
from compiler_core.errors import AutogradError, LayoutError, SparseError, SparseTypeError
from compiler_core.memory_format import layout as Layout
from compiler_core.memory_format import strided
from compiler_core.ops import prims
from compiler_core.sparse.construct import empty_like, empty_of_layout
from compiler_core.sparse.convert import to_dense
from compiler_core.sparse.nodes import record
from compiler_core.sparse.parts import same_memory
from compiler_core.sparse.rules import not_there, rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern, SparseCell, SparseValue
from compiler_core.tensor.making.creation import sizes
from compiler_core.tensor.making.legacy_types import dtype_of_type, type_name
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.tensor import Tensor


def _on(self: SparseTensor, place: Device) -> tuple[Pattern, Tensor]:
    pattern, values = self.pattern, self.sparse.values
    if place is values.device:
        return pattern, values
    if place.type == "meta":
        raise LayoutError("sparse tensors have data", remedy='to_dense().to("meta")')
    indices = tuple(index.to(place) for index in pattern.indices)
    return replace(pattern, indices=indices), values.to(place)


# ---- the same elements


@rule("clone")
def clone(input: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    """A tensor with its own copy of the elements; the gradient flows back to this one."""
    pattern = input.pattern
    own = replace(pattern, indices=tuple(index.clone() for index in pattern.indices))
    return record("Clone", wrap(own, input.sparse.values.clone()), (input,), (lambda g: g,))


@rule("detach", "_detach", "data.__get__", "alias", "view_as")
def detach(self: SparseTensor, other: Any = None) -> SparseTensor:
    """A handle on the same elements, without a history."""
    if other is not None:
        raise not_there("torch.Tensor.view_as")
    return wrap(self.pattern, self.sparse.values)


@rule("data.__set__")
def set_data(self: Tensor, other: Tensor) -> None:
    """Have the handle show other's elements. Raises SparseError for one of another layout."""
    if self.layout is not other.layout:
        raise SparseError(
            f"Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
            f"type: {self.layout} and {other.layout}"
        )
    self._cell = SparseCell(SparseValue(other.pattern, other.sparse.values))  # type: ignore[attr-defined]
    rebound(self)


@rule("detach_")
def detach_(self: SparseTensor) -> SparseTensor:
    """Forget the history."""
    self._node, self._requires_grad = None, False
    return self


@rule("contiguous")
def contiguous(self: SparseTensor, memory_format: Any = None) -> SparseTensor:
    """Raises SparseError, as torch."""
    raise SparseError("contiguous(): unsupported memory format option Contiguous", remedy="coalesce()")


# ---- other dtypes and devices


@rule("to")
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Of another dtype, on another device, or both; like another tensor in these."""
    flags = [arg for arg in args if type(arg) is bool]  # non_blocking, copy
    is_copy = bool(kwargs.get("copy", flags[1:2] == [True]))
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    for arg in (*args, *((kwargs["other"],) if "other" in kwargs else ())):
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, (str, Device)) or type(arg) is int:
            device = arg
        elif isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, Layout):
            raise LayoutError("to(layout)", remedy="to_sparse(layout=...), to_dense()")
    if not isinstance(self, SparseTensor):
        return self.to(device, dtype)  # it was only told to be like a sparse one
    return _converted(self, dtype or self.dtype, self.device if device is None else check_device(device), is_copy)


def _converted(self: SparseTensor, dtype: DType, place: Device, is_copy: bool = False) -> SparseTensor:
    if dtype is self.dtype and place is self.device:
        return clone(self) if is_copy else self
    pattern, values = _on(self, place)
    before, home = self.dtype, self.device
    made = wrap(pattern, values if dtype is before else prims.cast(values, dtype))
    return record("ToCopy", made, (self,), (lambda g: g.to(home, before),))


def _converter(dtype: DType) -> Any:
    def convert(self: SparseTensor, memory_format: Any = None) -> SparseTensor:
        return _converted(self, dtype, self.device)

    return convert


_METHODS = {
    "float": dt.float32, "double": dt.float64, "half": dt.float16, "bfloat16": dt.bfloat16, "long": dt.int64,
    "int": dt.int32, "short": dt.int16, "char": dt.int8, "byte": dt.uint8, "bool": dt.bool_, "cfloat": dt.complex64,
    "cdouble": dt.complex128,
}  # fmt: skip
for _name, _dtype in _METHODS.items():
    rule(_name)(_converter(_dtype))


@rule("cpu")
def cpu(self: SparseTensor, memory_format: Any = None) -> SparseTensor:
    return _converted(self, self.dtype, check_device("cpu"))


@rule("cuda")
def cuda(self: SparseTensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> SparseTensor:
    return _converted(self, self.dtype, check_device("cuda" if device is None else device))


@rule("type")
def type_(self: SparseTensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """This tensor in `dtype` (a dtype, or a type's name); without one, the name of its type."""
    if dtype is not None:
        return _converted(self, dtype_of_type(dtype), self.device)
    if not self.pattern.is_coo:
        raise SparseError("Unimplemented backend SparseCsrCPU")
    return type_name(self.dtype).replace("torch.", "torch.cuda.sparse." if self.is_cuda else "torch.sparse.")


@rule("type_as")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    if not isinstance(self, SparseTensor):
        raise not_there("torch.Tensor.type_as (a dense tensor as the type of a sparse one)")
    return _converted(self, other.dtype, other.device)


# ---- tensors like it


@rule("zeros_like", "empty_like")
def zeros_like_(
    input: SparseTensor, *, dtype: DType | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Of the same size and layout, without elements."""
    shape, kind = tuple(input.shape), dtype or input.dtype
    place = input.device if device is None else check_device(device)
    if layout is strided:
        from compiler_core.tensor.making.creation import zeros

        return zeros(shape, dtype=kind, device=place, requires_grad=requires_grad)
    if layout is None or layout is input.pattern.layout:
        made = empty_like(input, shape, kind, place)
    else:
        made = empty_of_layout(layout, shape, kind, place)
    return made._require(requires_grad)


@rule("new_zeros", "new_empty")
def new_zeros(
    self: SparseTensor, *size: Any, dtype: DType | None = None, device: Any = None, requires_grad: bool = False,
    layout: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Of this dtype and layout, without elements."""
    shape, kind, place = sizes(size), dtype or self.dtype, self.device if device is None else check_device(device)
    return empty_of_layout(layout or self.pattern.layout, shape, kind, place)._require(requires_grad)


@rule("new_tensor", "tensor", "as_tensor", "asarray")
def new_tensor(
    data: SparseTensor, *rest: Any, dtype: DType | None = None, device: Any = None, requires_grad: bool = False,
    copy: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The same elements, as `torch.tensor` and `torch.as_tensor` give them."""
    if rest:
        raise not_there("torch.Tensor.new_tensor")
    made = _converted(data, dtype or data.dtype, data.device if device is None else check_device(device))
    return made.detach()._require() if requires_grad else made


# ---- copies of Python's


@rule("__deepcopy__")
def deep_copy(self: SparseTensor, memo: dict[int, Any]) -> Any:
    """A leaf with elements of its own."""
    if not self.is_leaf:
        raise AutogradError("only leaf tensors can be deep-copied", remedy="detach() it, or clone()")
    if id(self) in memo:
        return memo[id(self)]
    new = clone(self.detach())
    new._require(self._requires_grad)
    memo[id(self)] = new
    new.__dict__.update(copy.deepcopy(self.__dict__, memo))
    new._grad = copy.deepcopy(self._grad, memo)
    return new


@rule("__copy__")
def shallow_copy(self: SparseTensor) -> SparseTensor:
    """A leaf on the same elements."""
    new = detach(self)._require(self._requires_grad)
    new.__dict__.update(self.__dict__)
    return new


@rule("__reduce_ex__")
def reduced(self: SparseTensor, protocol: Any) -> tuple[Any, ...]:
    """What pickle keeps: the parts."""
    pattern = self.pattern
    parts = (pattern.layout, pattern.shape, pattern.indices, same_memory(self.sparse.values), pattern.coalesced)
    return rebuilt, (*parts, self._requires_grad), (self.__dict__ or None)


def rebuilt(
    kind: Layout, shape: Any, indices: Any, values: Tensor, coalesced: bool, requires_grad: bool
) -> SparseTensor:
    """A leaf of these parts."""
    return wrap(Pattern(kind, tuple(shape), tuple(indices), coalesced), values)._require(requires_grad)


@rule("__setstate__")
def set_state(self: SparseTensor, state: dict[str, Any]) -> None:
    self.__dict__.update(state)


# ---- what has no strided memory


@rule("numpy", "__array__")
def numpy(self: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    """Raises SparseTypeError."""
    raise SparseTypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


@rule("__setitem__")
def set_item(self: Tensor, index: Any, value: Any) -> None:
    """Raises SparseTypeError."""
    if isinstance(self, SparseTensor):
        raise SparseTypeError("Cannot assign to a sparse tensor", remedy="make another one, or to_dense()")
    raise not_there("assigning a sparse tensor to a part of a dense one")


@rule("nbytes.__get__")
def nbytes(self: SparseTensor) -> int:
    """Raises SparseError."""
    raise SparseError(
        "nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add the nbytes of "
        "the indices and values.  If you want the size of the  equivalent dense tensor, multiply numel() by "
        "element_size()"
    )


@rule("storage", "untyped_storage", "_typed_storage", "share_memory_", "is_shared", "storage_type", "set_")
def storage(self: SparseTensor, *args: Any) -> Any:
    """Raises LayoutError."""
    raise LayoutError("Cannot access storage of SparseTensorImpl", remedy="its _indices() and _values() have one each")


@rule("data_ptr", "tolist", "apply_", "map_")
def data_pointer(self: SparseTensor, *args: Any) -> Any:
    """Raises SparseError."""
    raise SparseError("Cannot access data pointer of Tensor that doesn't have storage", remedy="call .to_dense() first")


def _of_one(self: SparseTensor) -> Any:
    if self.numel() != 1:
        raise SparseError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return to_dense(self.detach()).item()


def _as_number(kind: Any) -> Any:
    def convert(self: SparseTensor) -> Any:
        return kind(_of_one(self))

    return convert


rule("item")(_of_one)
for _kind in (bool, int, float, complex):
    rule(f"__{_kind.__name__}__")(_as_number(_kind))
rule("is_nonzero")(_as_number(bool))
rule("__index__")(_as_number(int))


@rule("is_pinned")
def is_pinned(self: SparseTensor, device: Any = None) -> bool:
    return bool(self.sparse.values.is_pinned())


@rule("pin_memory")
def pin_memory(self: SparseTensor, device: Any = None) -> SparseTensor:
    """A copy whose parts are in page-locked memory."""
    pattern = self.pattern
    indices = tuple(index.pin_memory() for index in pattern.indices)
    return wrap(replace(pattern, indices=indices), self.sparse.values.pin_memory())
