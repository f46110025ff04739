"""The lists, and the parts along dimension 0, that collectives on Tensors are given: checked before anything is sent.

In: arguments as the caller gave them. Out: rows, elements of each part; or TensorListError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.errors import TensorListError
from distcompile.distributed.work import Results


def by_row(tensors: Sequence[Tensor], rows: Array) -> Results:
    """Each tensor and its row of memory that is still to be written: of numbers, too, a view and no copy."""
    return [(tensor, rows[k, ...]) for k, tensor in enumerate(tensors)]


def on_root(name: str, tensors: list[Tensor] | None, is_root: bool) -> list[Tensor]:
    """The list that only the root may give, and must."""
    if is_root and tensors is None:
        raise TensorListError(f"{name} must be specified on the root rank")
    if not is_root and tensors:
        raise TensorListError(f"{name} must not be specified on other ranks than the root")
    return tensors or []


def rows_of(name: str, tensor: Tensor) -> int:
    if not tensor.shape:
        raise TensorListError(f"{name} must have a dimension to cut along", got="a 0-d tensor")
    return int(tensor.shape[0])


def equal_rows(name: str, tensor: Tensor, world_size: int) -> int:
    rows = rows_of(name, tensor)
    if rows % world_size:
        raise TensorListError(
            f"{name} does not divide into equal parts", expected=f"a multiple of {world_size} rows", got=f"{rows}"
        )
    return rows // world_size


def elements_of(name: str, tensor: Tensor, splits: Sequence[int] | None, world_size: int) -> list[int]:
    """Elements of each part: split sizes are in rows of dimension 0."""
    rows = [equal_rows(name, tensor, world_size)] * world_size if not splits else [int(size) for size in splits]
    if sum(rows) != rows_of(name, tensor) or len(rows) != world_size or min(rows) < 0:
        raise TensorListError(
            f"{name}_split_sizes do not fit {name}",
            expected=f"{world_size} numbers that add up to {rows_of(name, tensor)}",
            got=str(rows),
        )
    row = math.prod(tensor.shape[1:])
    return [size * row for size in rows]
