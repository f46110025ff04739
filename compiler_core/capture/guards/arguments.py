"""Guards on the arguments of a call, and the tensors found among them.

In: args and kwargs of the call that is traced. Out: conditions on their structure, types and plain values, and a
`Known` for each Tensor, with the code that reaches it. Raises GraphBreak for an argument that no guard can vouch for: a
mutable object of the user's could change without notice, so such a call runs eager.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.capture.guards.guards import Guards, TensorCode, is_plain
from compiler_core.capture.guards.module_protocol import ModuleProtocol, WatchedModule, is_module, unwrapped
from compiler_core.capture.recipes.pytree import Branch, children, flatten
from compiler_core.capture.trace import Known
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import GraphBreak
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.cell import Cell, DeviceCell
from compiler_core.tensor.random import Generator
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.views import contiguous_strides

IDENTIFIED = (
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, enum.Enum),
    *(DType, Device, Generator),
)


def guard_arguments(guards: Guards, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Known]:
    """Require the arguments to be like these; return the Tensors among them."""
    guards.require(f"len(args) == {len(args)}", f"{len(args)} positional arguments")
    order = f"tuple(kwargs) == {tuple(kwargs)}" if kwargs else "not kwargs"  # **kwargs keeps the caller's order
    guards.require(order, f"keyword arguments {', '.join(kwargs) or 'none'}")
    found: list[Known] = []
    for i, value in enumerate(args):
        found.extend(_guard_value(guards, f"args[{i}]", value, f"args[{i}]"))
    for key, value in kwargs.items():
        found.extend(_guard_value(guards, f"kwargs[{key!r}]", value, key))
    return found


def _guard_value(guards: Guards, code: str, value: Any, text: str) -> Iterator[Known]:
    """Require `code` to be like `value`; `text` is what the user calls it."""
    if unwrapped(value) is not value:
        guards.require_same(code, value, text)
        code, value = f"{code}.__wrapped__", unwrapped(value)
    if isinstance(value, Tensor):
        yield guard_tensor(guards, code, value, text)
    elif is_plain(value):
        guards.require_plain(code, value, text)
    elif isinstance(value, IDENTIFIED):
        guards.require_same(code, value, text)
    elif (parts := children(value)) is not None:
        yield from _guard_container(guards, code, value, parts, text)
    elif is_module(value):
        guard_module(guards, code, value, text)
        yield from module_tensors(value, text)
    else:
        raise GraphBreak(
            f"argument {text} is a {type(value).__name__}, which may change without notice",
            expected="Tensors, modules, plain values, and tuples, lists, dicts and dataclasses of them",
            remedy="pass what the function needs of it",
        )


def _guard_container(
    guards: Guards, code: str, value: Any, parts: tuple[tuple[Any, ...], list[Any]], text: str
) -> Iterator[Known]:
    local = guards.let("tree", code)
    guards.require(f"type({local}) is {guards.bind(type(value), 'type')}", f"{text} is a {type(value).__name__}")
    _, spec = flatten(value)
    assert isinstance(spec, Branch)
    if isinstance(value, dict):
        keys = guards.bind(spec.keys, "keys")
        guards.require(f"tuple({local}) == {keys}", f"{text} has the keys {', '.join(map(repr, spec.keys))}")
    elif isinstance(value, list | tuple):
        guards.require(f"len({local}) == {len(value)}", f"{text} has {len(value)} items")
    for index, child in enumerate(parts[1]):
        access = spec.access(index)
        yield from _guard_value(guards, local + access, child, text + access)


def guard_tensor(guards: Guards, code: str, tensor: Tensor, text: str) -> Known:
    """`code` must be a Tensor like this one: it comes anew with every call, from an argument or a variable."""
    local = guards.let("tensor", code)
    kind = guards.bind(type(tensor), "type")
    guards.require(f"type({local}) is {kind}", f"{text} is a {type(tensor).__name__}")
    require_meta(guards, f"{local}._cell.value", meta_of(tensor), text)
    require_layout(guards, f"{local}._cell", tensor, text)
    require_gradient(guards, local, tensor, text)
    guards.outside.append(local)
    guards.tensors.setdefault(id(tensor), TensorCode(code, local, text))
    return Known(tensor, "input", text, local, len(guards.outside) - 1)


def require_meta(guards: Guards, code: str, meta: TensorMeta, text: str) -> None:
    """The array `code` must have this shape and dtype."""
    dtype = guards.bind(meta.dtype.numpy, "dtype")
    guards.require(f"{code}.shape == {meta.shape}", f"{text}.shape == {meta.shape}")
    guards.require(f"{code}.dtype == {dtype}", f"{text}.dtype == {meta.dtype.name}")


def require_layout(guards: Guards, code: str, tensor: Tensor, text: str) -> None:
    """The same device, told by the class of the cell or of its array, and the same logical strides: they decide what is
    a view (`reshape`), and what `is_contiguous` answers."""
    strides, place = tensor._cell.strides(), tensor.device
    same = f"{code}.strides() == {strides}"
    if place.type == "cuda":
        where = f"{guards.bind(cuda.is_on, 'is_on')}({code}.raw, {place.index})"
        guards.require(where, f"{text}.device == {place}")
        if strides == contiguous_strides(tuple(tensor.shape)):
            same = f"type({code}) is {guards.bind(DeviceCell, 'type')} or {same}"
    else:
        same = f"{same} and type({code}.raw) is {guards.bind(np.ndarray, 'ndarray')}"
        if strides == contiguous_strides(tuple(tensor.shape)):
            same = f"type({code}) is {guards.bind(Cell, 'type')} or ({same})"
    guards.require(same, f"{text}.stride() == {strides}")


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


def guard_module(guards: Guards, code: str, module: ModuleProtocol, text: str) -> None:
    """`code` must be this very module, unchanged since. That covers the tensors that are its attributes, too."""
    name = guards.bind(module, "module")
    if code != name:
        guards.require(f"{code} is {name}", f"{text} is the same module")
    if module in guards.modules:
        return
    guards.modules.append(module)
    guards.watch_modules(
        WatchedModule(part, f"{text}.{path}" if path else text) for path, part in module.named_modules()
    )
    guards.fix_tensors((entry.handle, entry.source) for entry in module_tensors(module, text))
    guards.covered.update(id(entry.handle) for entry in module_tensors(module, text))
    for part in module.modules():
        guards.covered.update(id(value) for value in vars(unwrapped(part)).values() if isinstance(value, Tensor))


def module_tensors(module: ModuleProtocol, text: str) -> list[Known]:
    """The parameters and buffers of `module`, under the names the user knows."""
    parameters = [Known(tensor, "parameter", f"{text}.{name}") for name, tensor in module.named_parameters()]
    return [*parameters, *(Known(tensor, "buffer", f"{text}.{name}") for name, tensor in module.named_buffers())]
