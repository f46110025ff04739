"""Sparse tensors from indices and values: sparse_coo_tensor, sparse_csr_tensor, sparse_csc_tensor, spdiags.

In: indices and values as Tensors or lists, and a size. Out: sparse tensors on the memory of these. Indices are always
checked, with torch's words: one that is out of range is an error here, whatever `check_invariants` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core import dtype as dt
from compiler_core.breaking import breaks_graph
from compiler_core.device import check_device, default_device
from compiler_core.dtype import DType
from compiler_core.errors import LayoutError, SparseError
from compiler_core.memory_format import layout as Layout
from compiler_core.memory_format import sparse_coo, sparse_csc, sparse_csr
from compiler_core.meta import Shape
from compiler_core.ops import functional as F
from compiler_core.sparse.parts import as_said, coalesced, with_values
from compiler_core.sparse.places import array_of, coo_pattern, is_in_order, joined, keys_of, module_of
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.making.creation import as_tensor, sizes
from compiler_core.tensor.making.placement import MADE_OF_LAYOUT
from compiler_core.tensor.tensor import Tensor

_NO_GRAPH = breaks_graph("a sparse tensor is made", "make it outside of the compiled function")


def _finished(made: SparseTensor, requires_grad: bool) -> SparseTensor:
    return made.detach()._require() if requires_grad else made


def _placed(data: Any, dtype: DType | None, place: Any) -> Tensor:
    made: Tensor = data if isinstance(data, Tensor) else as_tensor(data)
    return made.to(place) if dtype is None else made.to(place, dtype)


def _place(values: Any, device: Any) -> Any:
    if device is not None:
        return check_device(device)
    return values.device if isinstance(values, Tensor) else check_device(default_device())


@rule("sparse_coo_tensor")
@_NO_GRAPH
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """The tensor with values f[nnz, ...] at indices i[sparse_dim, nnz]. Without values: empty, of size `indices`.

    size: as large as the indices need if not given. is_coalesced: whether the indices are known to be in order and
    unique. Raises SparseError for parts that do not fit each other.
    """
    if values is None:
        return _finished(_empty_coo(sizes((size if indices is None else indices,)), dtype, device), requires_grad)
    place = _place(values, device)
    given = _placed(values, dtype, place)
    where = _placed(indices, dt.int64, place)
    if where.ndim != 2:
        raise SparseError(f"indices must be sparse_dim x nnz, but got: {list(where.shape)}")
    given = given.reshape((1,)) if given.ndim == 0 else given
    shape = _inferred(where, given) if size is None else sizes((size,))
    pattern = Pattern(sparse_coo, shape, (where.detach(),), where.shape[1] < 2)
    check_coo(pattern, given)
    if is_coalesced:
        pattern = as_said(pattern, True)
    return _finished(with_values(pattern, given), requires_grad)


def _inferred(indices: Tensor, values: Tensor) -> Shape:
    if not indices.shape[1]:
        sparse = (0,) * indices.shape[0]
    else:
        low = array_of(indices).min()
        if low < 0:
            raise SparseError(f"found negative index {int(low)}")
        sparse = tuple(int(n) + 1 for n in array_of(indices).max(1))
    return (*sparse, *values.shape[1:])


def check_coo(pattern: Pattern, values: Tensor) -> None:
    """Raises SparseError for parts of a COO tensor that do not fit."""
    indices, shape = pattern.indices[0], pattern.shape
    sparse, dense = indices.shape[0], values.ndim - 1
    if sparse + dense != len(shape):
        raise SparseError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, "
            f"sparse_dim = {sparse}, dense_dim = {dense}"
        )
    if indices.shape[1] != values.shape[0]:
        raise SparseError(
            f"indices and values must have same nnz, but got nnz from indices: {indices.shape[1]}, "
            f"nnz from values: {values.shape[0]}"
        )
    if tuple(values.shape[1:]) != shape[sparse:]:
        raise SparseError(
            f"values has incorrect size, expected {[values.shape[0], *shape[sparse:]]}, got {list(values.shape)}"
        )
    if indices.shape[1]:
        for dim, row in enumerate(array_of(indices)):
            low, high = int(row.min()), int(row.max())
            if low < 0:
                raise SparseError(f"found negative index {low} for dim {dim}")
            if high >= shape[dim]:
                raise SparseError(
                    f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but found index {high}"
                )


def _empty_coo(shape: Shape, dtype: DType | None, device: Any, dense_dim: int = 0) -> SparseTensor:
    sparse = len(shape) - dense_dim
    place = check_device(default_device() if device is None else device)
    kind = (dtype or dt.get_default_dtype()).numpy
    indices, values = place.zeros((sparse, 0), dt.int64.numpy), place.zeros((0, *shape[sparse:]), kind)
    return wrap(coo_pattern(indices, shape, coalesced=True), Tensor._wrap(values))


def empty_like(self: SparseTensor, shape: Shape, dtype: DType | None = None, device: Any = None) -> SparseTensor:
    """The tensor without elements, of this one's layout, dtype and number of dense dims."""
    dense = len(self.pattern.dense_shape) if len(shape) == self.ndim else 0
    if self.pattern.is_coo:
        return _empty_coo(shape, dtype or self.dtype, device or self.device, dense)
    return empty_compressed(self.pattern.layout, shape, dtype or self.dtype, device or self.device)


def empty_compressed(kind: Layout, shape: Shape, dtype: DType | None, device: Any) -> SparseTensor:
    """A compressed matrix without elements."""
    if len(shape) < 2:
        raise SparseError(
            f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(shape)}"
        )
    if kind not in (sparse_csr, sparse_csc) or len(shape) != 2:
        raise LayoutError(f"an empty tensor of layout {kind} and {len(shape)} dims", expected="a CSR or CSC matrix")
    place = check_device(default_device() if device is None else device)
    lines = shape[0 if kind is sparse_csr else 1]
    begins, plain = place.zeros((lines + 1,), dt.int64.numpy), place.zeros((0,), dt.int64.numpy)
    values = place.zeros((0,), (dtype or dt.get_default_dtype()).numpy)
    return wrap(Pattern(kind, shape, (Tensor._wrap(begins), Tensor._wrap(plain))), Tensor._wrap(values))


# ---- compressed


@rule("sparse_compressed_tensor")
@_NO_GRAPH
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """The matrix of a compressed layout: see `value.py`. Raises SparseError for parts that do not fit each other."""
    if layout is None:
        raise SparseError("sparse_compressed_tensor expected sparse compressed tensor layout but got none")
    if layout not in (sparse_csr, sparse_csc):
        raise LayoutError(f"a compressed tensor of layout {layout}", expected="sparse_csr or sparse_csc")
    place = _place(values, device)
    begins, plain = (_index(data, place) for data in (compressed_indices, plain_indices))
    given = _placed(values, dtype, place)
    if begins.ndim != 1 or plain.ndim != 1 or given.ndim < 1:
        raise LayoutError("batches of compressed tensors are not there", remedy="make one tensor for each matrix",
                          got=f"compressed indices of shape {list(begins.shape)}")  # fmt: skip
    shape = _inferred_compressed(begins, plain, given, layout) if size is None else sizes((size,))
    pattern = Pattern(layout, shape, (begins.detach(), plain.detach()))
    check_compressed(pattern, given)
    return _finished(with_values(pattern, given, "SparseCompressedTensorWithDims"), requires_grad)


def _index(data: Any, place: Any) -> Tensor:
    made = _placed(data, None, place)
    return made if made.dtype in (dt.int32, dt.int64) else made.to(dt.int64)


def _inferred_compressed(begins: Tensor, plain: Tensor, values: Tensor, kind: Layout) -> Shape:
    lines = begins.shape[0] - 1
    others = int(array_of(plain).max()) + 1 if plain.shape[0] else 0
    return (*((lines, others) if kind is sparse_csr else (others, lines)), *values.shape[1:])


def check_compressed(pattern: Pattern, values: Tensor) -> None:
    """Raises SparseError for parts of a compressed tensor that do not fit."""
    begins, plain = pattern.indices
    names = ("crow_indices", "col_indices", "nrows", "ncols")
    first, second, lines, others = (
        names if pattern.layout is sparse_csr else ("ccol_indices", "row_indices", "ncols", "nrows")
    )
    sides = pattern.shape[:2] if pattern.layout is sparse_csr else pattern.shape[1::-1]
    if len(pattern.shape) != 1 + values.ndim:
        raise SparseError(f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (=0 + 2 + "
                          f"{values.ndim - 1}) but got {len(pattern.shape)}")  # fmt: skip
    if begins.shape[0] != sides[0] + 1:
        raise SparseError(
            f"{first}.shape[-1] must be equal to the number of {lines} + 1 (={sides[0] + 1}), but got {begins.shape[0]}"
        )
    if plain.shape[0] != values.shape[0]:
        raise SparseError(f"values must have the same nnz as {second}, but got {values.shape[0]} and {plain.shape[0]}")
    if begins.dtype is not plain.dtype:
        raise SparseError(
            f"{first} and {second} must have the same dtype, bot got {begins.dtype} and {plain.dtype}, respectively"
        )
    where, others_of = array_of(begins), array_of(plain)
    if int(where[0]) != 0:
        raise SparseError(f"`{first}[..., 0] == 0` is not satisfied.")
    if int(where[-1]) != plain.shape[0]:
        raise SparseError(f"`{first}[..., -1] == nnz` is not satisfied.")
    if bool((where[1:] < where[:-1]).any()):
        raise SparseError(f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {others}` is not satisfied.")
    if plain.shape[0] and not (int(others_of.min()) >= 0 and int(others_of.max()) < sides[1]):
        raise SparseError(f"`0 <= {second} < {others}` is not satisfied.")
    if not is_in_order(pattern):  # rows may be in any order, if no place is there twice
        keys = keys_of(pattern)
        if len(module_of(pattern).unique(keys)) != len(keys):
            raise SparseError(
                f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {lines} are sorted and "
                "distinct along the last dimension values` is not satisfied."
            )


def _of_layout(kind: Layout) -> Any:
    def make(
        compressed: Any, plain: Any, values: Any, size: Any = None, *, dtype: DType | None = None, device: Any = None,
        pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    ) -> SparseTensor:  # fmt: skip
        return sparse_compressed_tensor(
            compressed, plain, values, size, dtype=dtype, layout=kind, device=device, requires_grad=requires_grad
        )

    return make


_csr, _csc = _of_layout(sparse_csr), _of_layout(sparse_csc)


@rule("sparse_csr_tensor")
def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseTensor:
    """The CSR matrix: row r has elements crow_indices[r]:crow_indices[r + 1]. See `sparse_compressed_tensor`."""
    return _csr(crow_indices, col_indices, values, size, **options)  # type: ignore[no-any-return]


@rule("sparse_csc_tensor")
def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseTensor:
    """The CSC matrix: column c has elements ccol_indices[c]:ccol_indices[c + 1]. See `sparse_compressed_tensor`."""
    return _csc(ccol_indices, row_indices, values, size, **options)  # type: ignore[no-any-return]


@rule("sparse_bsr_tensor", "sparse_bsc_tensor")
def sparse_bsr_tensor(*args: Any, **kwargs: Any) -> SparseTensor:
    """Raises LayoutError."""
    raise LayoutError("there are no sparse tensors of blocks (BSR, BSC)", remedy="make a CSR tensor")


sparse_bsc_tensor = sparse_bsr_tensor


# ---- zeros and empty of a sparse layout


def made_of_layout(
    name: str, *given: Any, layout: Layout, dtype: DType | None = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, size: Any = None, memory_format: Any = None, names: Any = None,
) -> Tensor:  # fmt: skip
    """`zeros`, `empty`, or one of a tensor's size (`zeros_like`), of a sparse layout: it has no elements.

    Raises SparseError for what would fill it.
    """
    if name not in ("zeros", "empty", "zeros_like"):
        raise SparseError(f"{name.replace('ones', 'full')}(...) is not implemented for sparse layout")
    if name == "zeros_like":
        shape, dtype, device = (
            tuple(given[0].shape),
            dtype or given[0].dtype,
            given[0].device if device is None else device,
        )
    else:
        shape = sizes(given if size is None else (size,))
    return empty_of_layout(layout, shape, dtype, device)._require(requires_grad)


def empty_of_layout(kind: Layout, shape: Shape, dtype: DType | None, device: Any) -> SparseTensor:
    """A tensor of a sparse layout without elements."""
    return _empty_coo(shape, dtype, device) if kind is sparse_coo else empty_compressed(kind, shape, dtype, device)


# ---- diagonals


@rule("sparse.spdiags")
@_NO_GRAPH
def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """The matrix of this shape whose diagonal offsets[i] is taken from diagonals[i], by the column of each element."""
    from compiler_core.sparse.convert import to_sparse

    rows, columns = sizes((shape,))
    diagonals = diagonals.reshape((1, -1)) if diagonals.ndim == 1 else diagonals
    xp, starts = diagonals.device.xp, array_of(offsets.reshape((-1,)))
    if diagonals.ndim != 2 or len(starts) != diagonals.shape[0]:
        raise SparseError(f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets "
                          f"({len(starts)})")  # fmt: skip
    if len({int(start) for start in starts}) != len(starts):
        raise SparseError("Offset tensor contains duplicate values")
    where: list[Sequence[Any]] = []
    for number, start in enumerate(map(int, starts)):
        column = xp.arange(max(start, 0), min(columns, rows + start, diagonals.shape[1]))
        where.append((xp.full(len(column), number), column - start, column))
    line, row, column = (xp.concatenate(part) if part else xp.zeros(0, int) for part in zip(*where))
    flat = diagonals.reshape((-1,))
    picked = F.index_select(flat, 0, Tensor._wrap(joined((line, column), tuple(diagonals.shape), xp, len(line))))
    made = with_values(coo_pattern(xp.stack((row, column)), (rows, columns), coalesced=False), picked)
    return made if layout is None else to_sparse(coalesced(made), layout=layout)


MADE_OF_LAYOUT.fill(made_of_layout)
