"""torch's old types of sparse tensors: torch.sparse.FloatTensor and its like, which scripts on graphs call.

In: `FloatTensor(indices, values, size)`, or sizes. Out: COO tensors of that dtype, which are instances of the type.
"""

from __future__ import annotations

from typing import Any

from compiler_core.device import check_device
from compiler_core.sparse.construct import sparse_coo_tensor
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.making import legacy_types
from compiler_core.tensor.making.legacy_types import TensorType
from compiler_core.tensor.tensor import Tensor


class SparseTensorType(TensorType):
    """The class of the types below."""

    is_sparse = True

    def __call__(cls, *data: Any, device: Any = "cpu") -> Tensor:
        """Indices, values and maybe a size; or sizes, for one without elements."""
        check_device(device)
        if len(data) in (2, 3) and isinstance(data[0], Tensor):
            return sparse_coo_tensor(*data, dtype=cls.dtype)
        return sparse_coo_tensor(data[0] if len(data) == 1 and not isinstance(data[0], int) else data, dtype=cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, SparseTensor) and instance.pattern.is_coo and instance.dtype is cls.dtype


def _made(name: str) -> SparseTensorType:
    dtype = getattr(legacy_types, name).dtype
    return SparseTensorType(
        name, (), {"dtype": dtype, "__doc__": f"COO tensors of {dtype.name}.", "__module__": "distcompile.sparse"}
    )


_NAMES = [name for name in legacy_types.TYPES if name != "BoolTensor"]
TYPES: dict[str, SparseTensorType] = {name: _made(name) for name in _NAMES}
