"""What a sparse tensor holds: a pattern, which says where its elements are, and their values.

In: dense Tensors without a history. Out: `Pattern`, `SparseValue`, and `SparseCell`, which holds one.
A COO pattern has indices i64[sparse_dim, nnz]; of a compressed one (CSR, CSC) they are where each row (column) begins,
i[rows + 1], and the other index, i[nnz]. Values are f[nnz, *dense sizes]; elements that the pattern does not have are
zero, and those that it has more than once, which only a COO pattern that is not coalesced may, are summed.
Invariants: a pattern is never changed. A value is changed only through the memory of its `values`, which `_values()`
shows; what changes the pattern puts another SparseValue into the cell. No array of all elements exists.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.memory_format import layout, sparse_coo, sparse_csr
from compiler_core.meta import Shape
from compiler_core.ops.registry import current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.methods.of_layouts import REFUSE_TRACE

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Where elements are. shape: of the tensor, its dense sizes last. coalesced: sorted, and each place once.

    said: whether the program says that it is, which changes what it may ask, and nothing that is computed.
    """

    layout: layout
    shape: Shape
    indices: tuple[Tensor, ...]
    coalesced: bool = True
    said: bool = False

    @property
    def is_coo(self) -> bool:
        """Whether it is a list of places."""
        return self.layout is sparse_coo

    @property
    def sparse_dim(self) -> int:
        """How many dims the places have."""
        return self.indices[0]._cell.raw.shape[0] if self.is_coo else 2

    @property
    def nnz(self) -> int:
        """How many elements are listed."""
        return self.indices[-1]._cell.raw.shape[-1]  # type: ignore[no-any-return]

    @property
    def sparse_shape(self) -> Shape:
        """The sizes of the dims that the places have."""
        return self.shape[: self.sparse_dim]

    @property
    def dense_shape(self) -> Shape:
        """The sizes of one element."""
        return self.shape[self.sparse_dim :]

    @property
    def compressed_dim(self) -> int:
        """Of a compressed pattern: the dim whose index is compressed."""
        return 0 if self.layout is sparse_csr else 1


class SparseValue:
    """A pattern and its values. It passes for an array where only a shape and a dtype are asked for."""

    __slots__ = ("pattern", "values")

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.pattern, self.values = pattern, values

    @property
    def shape(self) -> Shape:
        return self.pattern.shape

    @property
    def ndim(self) -> int:
        return len(self.pattern.shape)

    @property
    def dtype(self) -> Any:
        return self.values._cell.raw.dtype

    @property
    def size(self) -> int:
        return math.prod(self.pattern.shape)


class SparseCell(Cell):
    """Holds a SparseValue. No graph can.

    Its version counts what is written to the memory of the values, too. since: what it was when they came, less theirs.
    """

    __slots__ = ("since",)
    is_dense = False

    @property
    def version(self) -> int:
        return self.since + self.raw.values._cell.version  # type: ignore[no-any-return]

    @version.setter
    def version(self, count: int) -> None:
        self.since: int = count - self.raw.values._cell.version

    def strides(self) -> tuple[int, ...]:
        return (0,) * len(self.raw.shape)  # as torch has it

    def put(self, value: Any) -> None:
        if current_trace() is not None:
            refuse_trace("a sparse tensor is written to")
        now = self.version
        self.value = value
        self.version = now

    @property
    def is_external(self) -> bool:
        return True


def refuse_trace(what: str) -> NoReturn:
    """Raise the GraphBreak of something that is done with a sparse tensor while a graph is recorded."""
    raise GraphBreak(
        f"{what}: no graph holds sparse tensors",
        where=user_location(),
        remedy="leave it out of what is compiled, or hand over its indices and values, which are dense",
    )


REFUSE_TRACE.fill(refuse_trace)
