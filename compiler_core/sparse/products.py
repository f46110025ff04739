"""Matrix products with sparse operands: mm, mv, bmm, matmul, addmm, sparse.mm, hspmm, sampled_addmm and their kin.

In: sparse and dense matrices. Out: dense where one is dense; the product of two sparse ones is sparse. The gradient of
a sparse operand is dense from mm, mv and addmm, and has the operand's places from sparse.mm and sparse.addmm, as in
torch: only the latter are for large matrices. Cost: a multiply and add for each element and column (`kernels.py`).
"""

from __future__ import annotations

from typing import Any

from compiler_core.errors import DTypeError, ShapeError, SparseError
from compiler_core.memory_format import sparse_coo, sparse_csc, sparse_csr
from compiler_core.ops import functional as F
from compiler_core.ops.casting import as_given, in_lower
from compiler_core.ops.registry import Array
from compiler_core.sparse import kernels
from compiler_core.sparse.convert import like, to_dense, to_layout
from compiler_core.sparse.movement import coo_of
from compiler_core.sparse.nodes import record
from compiler_core.sparse.parts import (
    coalesced,
    index_of,
    layout_name,
    same_memory,
    values,
    with_values,
)
from compiler_core.sparse.places import (
    array_of,
    coo_pattern,
    coordinates,
    joined,
    module_of,
    parted,
    runs_of,
)
from compiler_core.sparse.pointwise import conjugate
from compiler_core.sparse.rules import not_there, rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.tensor import Tensor

# ---- dense results


def _check(a: Tensor, b: Tensor) -> None:
    """Raises ShapeError, SparseError or DTypeError for what cannot be multiplied."""
    for one in (a, b):
        if isinstance(one, SparseTensor) and (one.pattern.sparse_dim != 2 or one.pattern.dense_shape):
            sparse, dense = one.pattern.sparse_dim, len(one.pattern.dense_shape)
            raise SparseError(f"mm: matrices expected, got {sparse} sparse and {dense} dense dims")
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError(f"mm: matrices expected, got {a.ndim}-d and {b.ndim}-d tensors")
    if a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"expected scalar type {a.dtype.name} but found {b.dtype.name}", remedy="convert one with to()"
        )


def _by_dense(self: SparseTensor, dense: Tensor) -> Tensor:
    """self @ dense, without a history."""
    rows, columns = coordinates(self.pattern)
    matrix = array_of(dense)
    return Tensor._wrap(kernels.product(rows, columns, array_of(self.sparse.values), matrix, self.shape[0]))


def _sampled(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """f[nnz]: the elements of a @ b.T at the places of a pattern. Recorded."""
    rows, columns = coordinates(pattern)
    made = Tensor._wrap(kernels.sampled(rows, columns, array_of(a), array_of(b)))

    def of_a(g: Tensor) -> Tensor:
        return times_dense(with_values(pattern, g), b)

    def of_b(g: Tensor) -> Tensor:
        return times_dense(with_values(pattern, g).t(), a)

    return record("SampledAddmm", made, (a, b), (of_a, of_b), (a, b))


@in_lower
def times_dense(a: SparseTensor, b: Tensor, *, masked: bool = False) -> Tensor:
    """a @ b, dense. masked: the gradient of `a` has its places."""
    _check(a, b)
    made = _by_dense(a.detach(), b.detach())

    def of_a(g: Tensor) -> Tensor:
        if not masked:
            return F.matmul(to_dense(g), conjugate(b).t())  # type: ignore[no-any-return]
        pattern = a.pattern if a.pattern.coalesced else coalesced(a.detach()).pattern
        return with_values(pattern, _sampled(pattern, to_dense(g), conjugate(b)))

    def of_b(g: Tensor) -> Tensor:
        return times_dense(conjugate(a).t(), to_dense(g))

    return record("SparseAddmm" if masked else "Mm", made, (a, b), (of_a, of_b), (a, b))


@in_lower
def dense_times(a: Tensor, b: SparseTensor) -> Tensor:
    """a @ b, of a dense matrix and a sparse one."""
    _check(a, b)
    made = _by_dense(b.detach().t(), a.detach().t()).t()

    def of_a(g: Tensor) -> Tensor:
        return dense_times(to_dense(g), conjugate(b).t())

    def of_b(g: Tensor) -> Tensor:
        return F.matmul(conjugate(a).t(), to_dense(g))  # type: ignore[no-any-return]

    return record("Mm", made.contiguous(), (a, b), (of_a, of_b), (a, b))


# ---- sparse results


def sparse_times(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """a @ b, of two sparse matrices; of a's layout."""
    _check(a, b)
    if sparse_coo in (a.layout, b.layout) and a.layout is not b.layout:
        raise SparseError(f"addmm: computation on CPU is not implemented for {layout_name(a)} @ {layout_name(b)}")
    kind = sparse_coo if a.pattern.is_coo else sparse_csr if sparse_csr in (a.layout, b.layout) else sparse_csc
    made = _product(coalesced(a.detach()), coalesced(b.detach()))

    def of_a(g: Tensor) -> Tensor:
        return like(_any_times(g, conjugate(b).t()), a)

    def of_b(g: Tensor) -> Tensor:
        return like(_any_times(conjugate(a).t(), g), b)

    found: Any = made if kind is sparse_coo else to_layout(made, kind)
    return record("SparseSparseMatmul", found, (a, b), (of_a, of_b), (a, b))  # type: ignore[no-any-return]


def _any_times(a: Tensor, b: Tensor) -> Tensor:
    sides = [isinstance(one, SparseTensor) for one in (a, b)]
    if all(sides):
        return sparse_times(*(coo_of(one) for one in (a, b)))  # type: ignore[arg-type]
    return times_dense(a, b) if sides[0] else dense_times(a, b)  # type: ignore[arg-type]


def _product(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The COO product, by rows: each element of a meets the elements of a row of b (Gustavson 1978)."""
    xp = module_of(a.pattern)
    rows, middle = coordinates(a.pattern)
    others, columns = coordinates(b.pattern)
    order = xp.argsort(others, kind="stable")
    begins = xp.searchsorted(others[order], xp.arange(b.shape[0] + 1))
    counts = (begins[1:] - begins[:-1])[middle]
    left = xp.repeat(xp.arange(len(middle)), counts)
    right = order[begins[:-1][middle][left] + xp.arange(len(left)) - xp.repeat(xp.cumsum(counts) - counts, counts)]
    shape = (a.shape[0], b.shape[1])
    keys = joined((rows[left], columns[right]), shape, xp, len(left))
    terms = array_of(a.sparse.values)[left] * array_of(b.sparse.values)[right]
    places = xp.argsort(keys, kind="stable")
    first, kinds = runs_of(keys[places], xp)
    ordered = keys[places][first]
    total = kernels.summed(terms, kinds, len(ordered), places)
    return wrap(coo_pattern(parted(ordered, shape, xp), shape, coalesced=True), Tensor._wrap(total))


# ---- torch's names


@rule("mm", "spmm", "dsmm")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    if isinstance(input, SparseTensor):
        return sparse_times(input, mat2) if isinstance(mat2, SparseTensor) else times_dense(input, mat2)
    return dense_times(input, mat2) if isinstance(mat2, SparseTensor) else F.mm(input, mat2)


spmm = dsmm = mm


@rule("mv")
def mv(input: SparseTensor, vec: Tensor) -> Tensor:
    """The product of a sparse matrix and a dense vector."""
    if isinstance(vec, SparseTensor) or vec.ndim != 1:
        raise SparseError("mv: the vector is to be dense, of one dim", remedy="to_dense() it, or use mm")
    if input.ndim == 2 and input.shape[1] != vec.shape[0]:
        raise ShapeError(f"mv: expected self.size(-1) == vec.size(-1), got {input.shape[1]} and {vec.shape[0]}")
    return mm(input, vec.unsqueeze(1)).squeeze(1)


@rule("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """By the dims of both: mm, mv, bmm. Raises LayoutError where an operand would have to be repeated."""
    if input.ndim == 2 and other.ndim == 2:
        return mm(input, other)
    if input.ndim == 2 and other.ndim == 1 and isinstance(input, SparseTensor):
        return mv(input, other)
    if input.ndim == 1 and other.ndim == 2 and isinstance(other, SparseTensor) and not isinstance(input, SparseTensor):
        return mm(input.unsqueeze(0), other).squeeze(0)
    if input.ndim == 3 and other.ndim == 3 and isinstance(input, SparseTensor):
        return bmm(input, other)
    if isinstance(other, SparseTensor) and other.ndim == 2 and input.ndim > 2:
        flat = input.reshape((-1, input.shape[-1]))
        return mm(flat, other).reshape((*input.shape[:-1], other.shape[1]))
    raise not_there(f"torch.matmul of {input.ndim}-d and {other.ndim}-d operands, of which one is sparse,")


@rule("__rmatmul__")
def rmatmul(self: Tensor, other: Tensor) -> Tensor:
    """other @ self."""
    return matmul(other, self)


@rule("nn.functional.linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    turned = weight.t()
    product = matmul(input, turned)
    return product if bias is None else product + bias


@rule("bmm")
@in_lower
def bmm(input: SparseTensor, mat2: Tensor) -> Tensor:
    """f[b, n, k]: products of the matrices of sparse f[b, n, m] and of dense f[b, m, k]."""
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor):
        raise not_there("torch.bmm with a second operand that is sparse")
    if input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise ShapeError(f"bmm: batches of matrices that fit expected, got {list(input.shape)} and {list(mat2.shape)}")
    if input.pattern.sparse_dim != 3:
        raise SparseError("bmm: the batch's dim is to be sparse, too")
    (batch, n, m), width = input.shape, mat2.shape[2]
    number, rows, columns = array_of(input.pattern.indices[0])  # one matrix: blocks along a diagonal
    dense = array_of(mat2.reshape((batch * m, width)))
    held = array_of(input.sparse.values)
    made = kernels.product(number * n + rows, number * m + columns, held, dense, batch * n)

    def of_a(g: Tensor) -> Tensor:
        return F.matmul(g, conjugate(mat2).transpose(1, 2))  # type: ignore[no-any-return]

    def of_b(g: Tensor) -> Tensor:
        return bmm(conjugate(input).transpose(1, 2), g)

    result = Tensor._wrap(made.reshape(batch, n, width))
    return record("Bmm", result, (input, mat2), (of_a, of_b), (input, mat2))


# ---- products added to something


def _added(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    scaled = product if alpha == 1 else product * alpha
    return scaled if beta == 0 else (input if beta == 1 else input * beta) + scaled


@rule("addmm", "saddmm")
@in_lower
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2."""
    return _addmm(input, mm(mat1, mat2), beta, alpha)


def _addmm(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    if input.layout is not product.layout:
        raise SparseError(
            f"addmm: expected a result of layout {product.layout}, got a tensor to add with layout {input.layout}"
        )
    if not isinstance(input, SparseTensor):
        input = input.expand(tuple(product.shape))
    return _added(input, product, beta, alpha)


@rule("sparse.addmm")
@in_lower
def sparse_addmm(mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """`addmm`; the gradient of mat1 has its places."""
    return _addmm(mat, sparse_mm(mat1, mat2), beta, alpha)


@rule("sparse.mm")
def sparse_mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """mat1 @ mat2; the gradient of a sparse operand has its places. reduce: "sum", "mean", "amax" or "amin".

    With reduce: CSR by dense.
    """
    if reduce is not None:
        return reduced_mm(mat1, mat2, reduce)
    if isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor):
        return times_dense(mat1, mat2, masked=True)
    if isinstance(mat2, SparseTensor) and not isinstance(mat1, SparseTensor):
        return times_dense(mat2.t(), mat1.t(), masked=True).t()
    return mm(mat1, mat2)  # of sparse matrices, or dense ones


def reduced_mm(a: Tensor, b: Tensor, reduce: str) -> Tensor:
    """f[n, k]: of each row of CSR a, a reduction of its elements' products with rows of b; 0 of none."""
    if not isinstance(a, SparseTensor) or a.layout is not sparse_csr:
        raise not_there(f"torch.sparse.mm with reduce of a {layout_name(a)} tensor")
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise SparseError(f"reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if reduce == "sum":
        return times_dense(a, b, masked=True)
    _check(a, b)
    begins = array_of(a.pattern.indices[0])
    xp = module_of(a.pattern)
    counts = xp.diff(begins)
    if reduce == "mean":
        number = Tensor._wrap(xp.maximum(counts, 1).astype(a.dtype.numpy)).unsqueeze(1)
        return times_dense(a, b, masked=True) / number
    rows, columns = coordinates(a.pattern)
    terms = values(a).unsqueeze(1) * F.index_select(b, 0, index_of(columns))
    return _extremum(terms, rows, begins, counts, reduce)


def _extremum(terms: Tensor, rows: Array, begins: Array, counts: Array, reduce: str) -> Tensor:
    """The largest or least terms of each row, of equal ones the first, which gets the gradient."""
    xp = terms.device.xp
    full = xp.flatnonzero(counts)
    out = terms.new_zeros((len(counts), terms.shape[1]))
    if not len(full):
        return out
    held = array_of(terms.detach())
    best = kernels.reduced(held, begins[:-1][full], reduce, xp)
    place = xp.full(len(counts), -1)
    place[full] = xp.arange(len(full))
    is_best = held == best[place[rows]]
    number = xp.where(is_best, xp.arange(len(rows))[:, None], len(rows))
    chosen = kernels.reduced(number, begins[:-1][full], "amin", xp)
    picked = F.gather(terms, 0, index_of(chosen))
    return F.index_put(out, (index_of(full),), picked)  # type: ignore[no-any-return]


saddmm = addmm


@rule("smm")
@as_given
def smm(input: SparseTensor, mat: Tensor) -> Tensor:
    """The product of a sparse matrix and a dense one, sparse: the rows that there are, all their columns."""
    rows = hspmm(input, mat)
    return _every_column(rows)  # type: ignore[no-any-return]


def _every_column(rows: SparseTensor) -> Any:
    """A COO tensor with dense rows as one without dense dims."""
    where, held = array_of(rows.pattern.indices[0])[0], values_as_listed(rows)
    xp, width = module_of(rows.pattern), rows.shape[1]
    line, column = xp.repeat(where, width), xp.tile(xp.arange(width), len(where))
    pattern = coo_pattern(xp.stack((line, column)), tuple(rows.shape), coalesced=False)
    return with_values(pattern, held.reshape((-1,)))


def values_as_listed(self: SparseTensor) -> Tensor:
    """Its values with their history, of a tensor whose places are listed once."""
    pattern = self.pattern
    made = same_memory(self.sparse.values)
    return record("Values", made, (self,), (lambda g: with_values(pattern, g),))


@rule("hspmm", "hsmm")
@as_given
def hspmm(mat1: SparseTensor, mat2: Tensor) -> SparseTensor:
    """The same product as a hybrid tensor: one sparse dim, of the rows that mat1 has, and one dense."""
    if not isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor) or not mat1.pattern.is_coo:
        raise not_there("torch.hspmm of other than a COO and a dense matrix")
    _check(mat1, mat2)
    once = coalesced(mat1)
    rows, columns = coordinates(once.pattern)
    xp = module_of(once.pattern)
    first, kinds = runs_of(rows, xp)
    present = rows[first]
    shape = (mat1.shape[0], mat2.shape[1])
    inner = with_values(
        coo_pattern(xp.stack((kinds, columns)), (len(present), mat1.shape[1]), coalesced=True), values(once)
    )
    dense = times_dense(inner, mat2, masked=True)
    return with_values(coo_pattern(present[None], shape, coalesced=False), dense)


hsmm = hspmm


@rule("sspaddmm")
@as_given
def sspaddmm(input: SparseTensor, mat1: SparseTensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2, sparse, one list of elements after the other."""
    left = input if beta == 1 else input * beta
    right = smm(mat1, mat2) if alpha == 1 else smm(mat1, mat2) * alpha
    return left + right


@rule("sparse.sampled_addmm")
def sampled_addmm(input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2 at the places of input), of a CSR input."""
    if not isinstance(input, SparseTensor) or input.layout is not sparse_csr:
        raise not_there(f"torch.sparse.sampled_addmm of a {layout_name(input)} tensor")
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0]:
        raise ShapeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied, {list(mat1.shape)} and {list(mat2.shape)}"
        )
    for side, one, other in ((0, mat1.shape[0], input.shape[0]), (1, mat2.shape[1], input.shape[1])):
        if one != other:
            raise ShapeError(f"sampled_addmm: self.shape[{side - 2}] must match mat{side + 1}.shape[{side - 2}]")
    sample = _sampled(input.pattern, mat1, mat2.t())
    found = sample if alpha == 1 else sample * alpha
    held = values(input)
    return with_values(input.pattern, found if beta == 0 else (held if beta == 1 else held * beta) + found)
