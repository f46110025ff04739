"""Elements moved, taken or left out: transpose, permute, index_select, select, indexing by ints, narrow_copy.

In: sparse tensors. Out: sparse tensors; a dense one where no sparse dim is left. None is a view of another: memory is
shared where torch's is copied too. Limit: dims are moved among the sparse ones, or among the dense ones, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.errors import IndexError_, LayoutError, ShapeError, SparseError
from compiler_core.memory_format import sparse_csc, sparse_csr
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array
from compiler_core.sparse.convert import to_layout
from compiler_core.sparse.nodes import is_recorded, record
from compiler_core.sparse.parts import coalesced, index_of, layout_name, same_memory, sums_at, values, with_values
from compiler_core.sparse.places import array_of, coo_pattern, module_of, reshaped
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.tensor import Tensor


def dim_of(self: Tensor, dim: int) -> int:
    """A dim, counted from the front. Raises IndexError_."""
    if not -self.ndim <= dim < self.ndim:
        raise IndexError_(
            f"Dimension out of range (expected to be in range of [{-self.ndim}, {self.ndim - 1}], but got {dim})"
        )
    return dim % self.ndim


def taken_apart(self: SparseTensor) -> tuple[SparseTensor, Tensor]:
    """The tensor, with each place once if that is recorded, and its values with their history."""
    if not self.pattern.is_coo:
        raise LayoutError(f"this is not there for {layout_name(self)} tensors", remedy="to_sparse_coo(), or to_dense()")
    if is_recorded(self):
        self = coalesced(self)
        return self, values(self)
    return self, same_memory(self.sparse.values)


# ---- dims in another order


@rule("t")
def t(input: SparseTensor) -> SparseTensor:
    """The transpose of a matrix."""
    sparse, dense = input.pattern.sparse_dim, len(input.pattern.dense_shape)
    if sparse > 2 or dense:
        raise SparseError(
            f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {sparse} sparse and {dense} dense "
            "dimensions"
        )
    return _permuted(input, (1, 0), "T", lambda g: g.t()) if sparse == 2 else input


@rule("transpose", "swapaxes", "swapdims")
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Two dims exchanged."""
    a, b, sparse = dim_of(input, dim0), dim_of(input, dim1), input.pattern.sparse_dim
    if a == b:
        return input
    if a >= sparse or b >= sparse:
        raise SparseError(
            f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {sparse}, d0: {a}, d1: {b}"
        )
    dims = list(range(input.ndim))
    dims[a], dims[b] = b, a
    return _permuted(input, dims, "Transpose", lambda g: g.transpose(a, b))


@rule("permute")
def permute(input: SparseTensor, *dims: Any) -> SparseTensor:
    """The dims in this order."""
    order = [dim_of(input, d) for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if sorted(order) != list(range(input.ndim)):
        raise ShapeError("permute(): dims are each dim once", expected=str(input.ndim), got=str(order))
    sparse = input.pattern.sparse_dim
    if sorted(order[:sparse]) != list(range(sparse)):
        raise SparseError(
            "permute(sparse_coo): transpositions between sparse and dense dimensions are not allowed.Only "
            "transpositions within sparse and dense dimensions are supported."
        )
    back = sorted(range(input.ndim), key=order.__getitem__)
    return _permuted(input, order, "Permute", lambda g: g.permute(*back))


@rule("movedim", "moveaxis")
def movedim(input: SparseTensor, source: Any, destination: Any) -> SparseTensor:
    """Dims put elsewhere."""
    froms, tos = ([dim_of(input, d) for d in ([one] if isinstance(one, int) else one)] for one in (source, destination))
    order: list[Any] = [None] * input.ndim
    for a, b in zip(froms, tos, strict=True):
        order[b] = a
    rest = iter(d for d in range(input.ndim) if d not in froms)
    return permute(input, [next(rest) if d is None else d for d in order])


@rule("T.__get__", "mT.__get__")
def transposed(self: SparseTensor) -> SparseTensor:
    """A matrix transposed; of more dims, the last two exchanged."""
    if self.ndim < 2:
        return self
    return permute(self, [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]) if self.pattern.is_coo else t(self)


@rule("H.__get__", "mH.__get__", "adjoint")
def adjoint(self: SparseTensor) -> Tensor:
    """`mT`, conjugated."""
    turned = transposed(self)
    return turned.conj() if turned.dtype.is_complex else turned


def _permuted(self: SparseTensor, dims: Sequence[int], name: str, pull: Any) -> SparseTensor:
    pattern, sparse = self.pattern, self.pattern.sparse_dim
    shape = tuple(pattern.shape[d] for d in dims)
    if not pattern.is_coo:
        if list(dims) != [1, 0]:
            raise LayoutError(f"a permutation of a {layout_name(self)} tensor", remedy="to_sparse_coo()")
        other = sparse_csc if pattern.layout is sparse_csr else sparse_csr
        made = wrap(Pattern(other, shape, pattern.indices), same_memory(self.sparse.values))
        return record(name, made, (self,), (pull,))
    xp = module_of(pattern)
    where = array_of(pattern.indices[0])[xp.asarray(list(dims[:sparse]), xp.int64)]
    held = self.sparse.values.clone()
    moved = [0, *(d - sparse + 1 for d in dims[sparse:])]
    if moved != sorted(moved):
        held = held.permute(*moved).contiguous()
    is_same = list(dims[:sparse]) == list(range(sparse))
    made = wrap(coo_pattern(where, shape, coalesced=pattern.coalesced and is_same), same_memory(held))
    return record(name, made, (self,), (pull,))


@rule("unsqueeze")
def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    """A dim of size 1 more; among the sparse dims if it stands before a dense one."""
    place = dim + input.ndim + 1 if dim < 0 else dim
    if not 0 <= place <= input.ndim:
        raise IndexError_(
            f"Dimension out of range (expected to be in range of [{-input.ndim - 1}, {input.ndim}], but got {dim})"
        )
    self, held = taken_apart(input)
    pattern, xp = self.pattern, module_of(self.pattern)
    shape = (*pattern.shape[:place], 1, *pattern.shape[place:])
    if place > pattern.sparse_dim:
        return with_values(reshaped(pattern, shape),
                           held.unsqueeze(place - pattern.sparse_dim + 1), "Unsqueeze")  # fmt: skip
    there = array_of(pattern.indices[0])
    where = xp.concatenate([there[:place], xp.zeros_like(there, shape=(1, pattern.nnz)), there[place:]])
    return with_values(coo_pattern(where, shape, coalesced=False), held, "Unsqueeze")


# ---- some of the elements


@rule("index_select")
def index_select(input: Tensor, dim: int, index: Tensor) -> SparseTensor:
    """The slices of these numbers along `dim`, in their order, as often as they are named."""
    if not isinstance(input, SparseTensor) or isinstance(index, SparseTensor):
        raise LayoutError("index_select by a sparse index", remedy="call .to_dense() on it first")
    d, self = dim_of(input, dim), input
    kind = self.pattern.layout
    if not self.pattern.is_coo:
        return to_layout(index_select(coo_of(self), dim, index), kind)  # type: ignore[return-value]
    self, held = taken_apart(self)
    pattern, xp = self.pattern, module_of(self.pattern)
    wanted = array_of(index.reshape((-1,)))
    size = pattern.shape[d]
    if len(wanted) and not (int(wanted.min()) >= -size and int(wanted.max()) < size):
        raise IndexError_(f"index_select(): index contains a number that is out of range for tensor of size "
                          f"{list(input.shape)} at dimension {d}")  # fmt: skip
    wanted = xp.where(wanted < 0, wanted + size, wanted)
    shape = (*pattern.shape[:d], len(wanted), *pattern.shape[d + 1 :])
    if d >= pattern.sparse_dim:
        picked = F.index_select(held, d - pattern.sparse_dim + 1, index_of(wanted))
        where = reshaped(pattern, shape)
        return with_values(where, picked, "IndexSelect")
    indices = array_of(pattern.indices[0])
    element, number = _matches(indices[d], wanted, size, xp)
    kept = indices[:, element]
    kept[d] = number
    return with_values(coo_pattern(kept, shape, coalesced=False), F.index_select(held, 0, index_of(element)),
                       "IndexSelect")  # fmt: skip


def coo_of(self: SparseTensor) -> SparseTensor:
    """As COO."""
    from compiler_core.sparse.convert import to_sparse

    return to_sparse(self)  # type: ignore[return-value]


def _matches(present: Array, wanted: Array, size: int, xp: Any) -> tuple[Array, Array]:
    """(number of the element, place in `wanted`) of each element that a wanted slice has, by place, then by element."""
    order = xp.argsort(present, kind="stable")
    begins = xp.searchsorted(present[order], xp.arange(size + 1))
    counts = (begins[1:] - begins[:-1])[wanted]
    place = xp.repeat(xp.arange(len(wanted)), counts)
    within = xp.arange(len(place)) - xp.repeat(xp.cumsum(counts) - counts, counts)
    return order[begins[:-1][wanted][place] + within], place


@rule("select")
def select(input: SparseTensor, dim: int, index: int) -> Tensor:
    """One slice along `dim`; dense if no sparse dim is left."""
    d, size = dim_of(input, dim), input.shape[dim_of(input, dim)]
    if not -size <= index < size:
        raise IndexError_(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}"
        )
    self, held = taken_apart(input if input.pattern.is_coo else coo_of(input))
    pattern, number = self.pattern, index % size
    sparse = pattern.sparse_dim
    shape = (*pattern.shape[:d], *pattern.shape[d + 1 :])
    if d >= sparse:
        where = reshaped(pattern, shape)
        return with_values(where, held.select(d - sparse + 1, number), "Select")
    xp, indices = module_of(pattern), array_of(pattern.indices[0])
    element = xp.flatnonzero(indices[d] == number)
    picked = F.index_select(held, 0, index_of(element))
    if sparse == 1:
        return sums_at(picked, xp.zeros(len(element), xp.int64), 1).squeeze(0)
    where = indices[xp.asarray([row for row in range(sparse) if row != d])][:, element]
    return with_values(coo_pattern(where, shape, coalesced=pattern.coalesced), picked, "Select")


@rule("__getitem__")
def get_item(self: Tensor, index: Any) -> Tensor:
    """By ints, None, `:` and `...`. Raises LayoutError for slices, masks and index tensors."""
    if not isinstance(self, SparseTensor):
        raise LayoutError("indexing by a sparse tensor", remedy="call .to_dense() on it first")
    entries = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in entries:
        place = entries.index(Ellipsis)
        missing = self.ndim - sum(entry is not None and entry is not Ellipsis for entry in entries)
        entries[place : place + 1] = [slice(None)] * max(missing, 0)
    found: Tensor = self
    dim = 0
    for entry in entries:
        if entry is None:
            found = found.unsqueeze(dim)
            dim += 1
        elif isinstance(entry, slice) and entry == slice(None):
            dim += 1
        elif isinstance(entry, int) and not isinstance(entry, bool):
            if dim >= found.ndim:
                raise IndexError_(f"too many indices for tensor of dimension {self.ndim}")
            found = found.select(dim, entry)
        else:
            raise LayoutError(
                "a sparse tensor is indexed by ints, None, `:` and `...` alone",
                remedy="index_select() takes slices by number, narrow_copy() a range; or to_dense()",
            )
    return found


@rule("narrow_copy")
def narrow_copy(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """The slices start to start + length along `dim`."""
    d, self = dim_of(input, dim), coalesced(input)
    size = self.shape[d]
    begin = start + size if start < 0 else start
    if not 0 <= length <= size - begin or begin < 0:
        raise ShapeError(f"Invalid range to narrow. range(start, start+length) must be a subset of range(0, {size}).")
    self, held = taken_apart(self)
    pattern = self.pattern
    shape = (*pattern.shape[:d], length, *pattern.shape[d + 1 :])
    if d >= pattern.sparse_dim:
        where = reshaped(pattern, shape)
        return with_values(where, held.narrow(d - pattern.sparse_dim + 1, begin, length), "NarrowCopy")
    xp, indices = module_of(pattern), array_of(pattern.indices[0])
    element = xp.flatnonzero((indices[d] >= begin) & (indices[d] < begin + length))
    kept = indices[:, element]
    kept[d] -= begin
    picked = F.index_select(held, 0, index_of(element))
    return with_values(coo_pattern(kept, shape, coalesced=True), picked, "NarrowCopy")


@rule("unbind")
def unbind(input: SparseTensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Each slice along `dim`."""
    return tuple(select(input, dim, n) for n in range(input.shape[dim_of(input, dim)]))


@rule("reshape", "flatten", "view", "ravel", "unflatten", "reshape_as")
def reshape(self: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Raises LayoutError."""
    raise LayoutError("reshape is not implemented for sparse tensors", remedy="call .to_dense() first")


@rule("expand", "expand_as", "repeat", "tile", "broadcast_to")
def expand(self: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Raises LayoutError."""
    raise LayoutError(f"expand is unsupported for {layout_name(self)} tensors", remedy="call .to_dense() first")
