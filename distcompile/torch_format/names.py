"""Which names may stand in the pickle of a checkpoint, and what they mean here.

In: "torch._utils._rebuild_tensor_v2" and its like. Out: our functions and classes of that meaning. `allowed()` is the
whole list that a file may name unless its reader asks for more: it makes tensors and containers, and runs nothing else.
`add_safe_globals` adds classes and functions of the user's for the rest of the process, `safe_globals` for a block.
"""

from __future__ import annotations

import functools
from _codecs import encode
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from compiler_core import dtype as dt
from compiler_core.device import Device
from compiler_core.tensor.tensor import Size, Tensor
from distcompile.nn.parameter import Parameter
from distcompile.surface.moved import moved as moved  # readers ask here
from distcompile.torch_format import storages
from distcompile.torch_format.storages import StorageType

STORAGE_TYPES: dict[str, dt.DType] = {
    "DoubleStorage": dt.float64, "FloatStorage": dt.float32, "HalfStorage": dt.float16,
    "BFloat16Storage": dt.bfloat16, "LongStorage": dt.int64, "IntStorage": dt.int32, "ShortStorage": dt.int16,
    "CharStorage": dt.int8, "ByteStorage": dt.uint8, "BoolStorage": dt.bool_,
    "ComplexFloatStorage": dt.complex64, "ComplexDoubleStorage": dt.complex128,
}  # fmt: skip
_REBUILDERS = (
    "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
    "_rebuild_parameter_with_state", "_rebuild_meta_tensor_no_storage", "_rebuild_sparse_tensor",
)  # fmt: skip


@functools.cache
def allowed() -> dict[str, Any]:
    """Full name -> what it is here, of all that a file may name."""
    names: dict[str, Any] = {
        "collections.OrderedDict": OrderedDict,
        "collections.Counter": Counter,
        "_codecs.encode": encode,
        "builtins.bytearray": bytearray,
        "builtins.set": set,
        "builtins.frozenset": frozenset,
        "builtins.complex": complex,
        "torch.Size": Size,
        "torch.device": Device,
        "torch.Tensor": Tensor,
        "torch.nn.parameter.Parameter": Parameter,
        "torch._tensor._rebuild_from_type_v2": storages._rebuild_from_type_v2,
        "torch._utils._rebuild_sparse_csr_tensor": storages._rebuild_sparse_tensor,
        "torch.serialization._get_layout": storages._get_layout,
        "torch.storage.UntypedStorage": StorageType(None),
    }
    names |= {f"torch.{d.name}": d for d in dt.ALL}
    names |= {f"torch.{name}": StorageType(dtype) for name, dtype in STORAGE_TYPES.items()}
    return names | {f"torch._utils.{name}": getattr(storages, name) for name in _REBUILDERS}


_added: list[Any] = []


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let files name these classes and functions, or (class, "its.full.name") where a file knows it by another."""
    _added.extend(safe_globals)


def get_safe_globals() -> list[Any]:
    """What was added."""
    return list(_added)


def clear_safe_globals() -> None:
    """Take back what was added."""
    _added.clear()


@contextmanager
def safe_globals(safe_globals: Iterable[Any]) -> Iterator[None]:
    """Within the block files may name these too."""
    before = list(_added)
    _added.extend(safe_globals)
    try:
        yield
    finally:
        _added[:] = before


def added() -> dict[str, Any]:
    """Full name -> what the user added."""
    pairs = ((entry[1], entry[0]) if isinstance(entry, tuple) else (_full_name(entry), entry) for entry in _added)
    return dict(pairs)


def _full_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
