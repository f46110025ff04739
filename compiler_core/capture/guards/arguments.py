"""Guards on a tensor that comes anew with every call, and what is guarded by being the very object.

In: guards, a tensor, the code that reaches it. Out: conditions on its array, its layout and its history;
`module_tensors`: the parameters and buffers of a module; `IDENTIFIED`.
"""

from __future__ import annotations

import enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.capture.guards.guards import Guards
from compiler_core.capture.guards.module_protocol import ModuleProtocol
from compiler_core.capture.trace import Known
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.meta import TensorMeta
from compiler_core.overrides.state import other_layouts
from compiler_core.tensor.making.random import Generator
from compiler_core.tensor.memory.cell import Cell, DeviceCell
from compiler_core.tensor.memory.views import contiguous_strides
from compiler_core.tensor.tensor import Tensor

IDENTIFIED = (
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, enum.Enum),
    *(DType, Device, Generator),
)


def require_meta(guards: Guards, code: str, meta: TensorMeta, text: str) -> None:
    """The array `code` must have this shape and dtype."""
    dtype = guards.bind(meta.dtype.numpy, "dtype")
    guards.require(f"{code}.shape == {meta.shape}", f"{text}.shape == {meta.shape}")
    guards.require(f"{code}.dtype == {dtype}", f"{text}.dtype == {meta.dtype.name}")


def require_layout(guards: Guards, code: str, tensor: Tensor, text: str) -> None:
    """The same device, told by the class of the cell or of its array, and the same logical strides: they decide what is
    a view (`reshape`), and what `is_contiguous` answers."""
    if type(tensor) in other_layouts:
        _require_pattern(guards, code, tensor, text)
        return
    strides = tensor._cell.strides()
    same, is_rows = f"{code}.strides() == {strides}", strides == contiguous_strides(tuple(tensor.shape))
    require_strides(guards, code, tensor.device, same, f"{text}.stride() == {strides}", is_rows=is_rows)


def require_strides(guards: Guards, code: str, place: Device, same: str, text: str, *, is_rows: bool) -> None:
    """The cell `code` must be on this device, and have the strides that `same` asks for: those of rows, if `is_rows`,
    which a storage has."""
    if place.type == "cuda":
        where = f"{guards.bind(cuda.is_on, 'is_on')}({code}.raw, {place.index})"
        guards.require(where, f"{text.partition('.stride()')[0]}.device == {place}")
        if is_rows:
            same = f"type({code}) is {guards.bind(DeviceCell, 'type')} or {same}"
    else:
        same = f"{same} and type({code}.raw) is {guards.bind(np.ndarray, 'ndarray')}"
        if is_rows:
            same = f"type({code}) is {guards.bind(Cell, 'type')} or ({same})"
    guards.require(same, text)


def _require_pattern(guards: Guards, code: str, tensor: Any, text: str) -> None:
    """A sparse tensor's layout and number of sparse dims: what may be asked of it, and goes into no graph."""
    kind, dims, place = tensor.pattern.layout, tensor.pattern.sparse_dim, tensor.device
    same = f"{code}.value.pattern.layout is {guards.bind(kind, 'layout')} and {code}.value.pattern.sparse_dim == {dims}"
    guards.require(same, f"{text} is {kind} of {dims} sparse dims")
    guards.require(f"{code}.value.values.device is {guards.bind(place, 'device')}", f"{text}.device == {place}")


def require_gradient(guards: Guards, code: str, tensor: Tensor, text: str) -> None:
    """The tensor `code` must (not) require a gradient, as `tensor` does."""
    plain_leaf = tensor._view is None and tensor._node is None
    if plain_leaf:
        flag = tensor._requires_grad
        condition = f"{code}._requires_grad is {flag} and {code}._node is None and {code}._view is None"
    else:
        flag = tensor.requires_grad
        condition = f"({code}._edge() is not None) is {flag}"
    guards.require(f"({condition}) or ({code}._edge() is not None) is {flag}", f"{text}.requires_grad is {flag}")


def module_tensors(module: ModuleProtocol, text: str) -> list[Known]:
    """The parameters and buffers of `module`, under the names the user knows."""
    parameters = [Known(tensor, "parameter", f"{text}.{name}") for name, tensor in module.named_parameters()]
    return [*parameters, *(Known(tensor, "buffer", f"{text}.{name}") for name, tensor in module.named_buffers())]
