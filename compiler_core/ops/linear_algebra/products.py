"""Products over any Value, with torch's names and arguments: matmul and its kin, linear, einsum.

In: values. Out: one value, through the one batched GEMM primitive with as few copies as the shapes allow.
`linear`, and `matmul` by a matrix, flatten the leading dims into one GEMM. Integer products are done in float64.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    Scalar,
    as_value,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    is_narrow,
    is_scalar,
    rounded_once,
    shape_of,
)
from compiler_core.ops.casting import (
    WEIGHTS,
    acting,
    as_given,
    casting,
    in_lower,
    in_lower_on_cuda,
    lowered,
    lowers_weights,
)
from compiler_core.ops.composites.arithmetic import add, floor_divide, mul, remainder
from compiler_core.ops.composites.movement import (
    narrow,
    permute,
    reshape,
    transpose,
    unsqueeze,
)
from compiler_core.ops.composites.reduction import sum
from compiler_core.ops.refusals import need_dims, need_kind, need_one_dtype
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.whole import whole


@remembered
@in_lower
def matmul(input: Value, other: Value) -> Value:
    """torch.matmul: vectors count as a row on the left, a column on the right; batch dims broadcast."""
    need_kind("matmul", "iufc", input)
    a, b = as_value(input), as_value(other)
    dims = len(a.shape), len(b.shape)
    if 0 in dims:
        raise ShapeError("matmul of a scalar", expected="at least one dim on both sides", remedy="use mul")
    need_one_dtype("matmul", a, b)
    dtype = dtype_of(a)
    if dtype.kind not in "fc":
        return _whole_matmul(a, b, dtype)
    if dims == (2, 2):
        return prims.matmul(a, b)
    if dims[0] == 1:
        return _drop(matmul(unsqueeze(a, 0), b), -1 if dims[1] == 1 else -2)
    return _drop(matmul(a, unsqueeze(b, 1)), -1) if dims[1] == 1 else _matmul(a, b)


_EXACT = 1 << 20  # products of 16 by 16 bits, of which float64 holds the sum


def _whole_matmul(a: Value, b: Value, dtype: DType) -> Value:
    """matmul of integers, modulo 2^bits as all of their arithmetic: of parts of 16 bits, in float64, which is exact."""
    k = a.shape[-1]
    if k > _EXACT:
        rows = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
        if rows == k:
            axis = -2 if len(b.shape) > 1 else -1
            first = _whole_matmul(narrow(a, -1, 0, _EXACT), narrow(b, axis, 0, _EXACT), dtype)
            rest = _whole_matmul(narrow(a, -1, _EXACT, k - _EXACT), narrow(b, axis, _EXACT, k - _EXACT), dtype)
            return add(first, rest)
    n = max(1, dtype.numpy.itemsize // 2)
    left, right = _parts(a, n), _parts(b, n)
    total: Value = None
    for i, x in enumerate(left):
        for j, y in enumerate(right[: n - i]):
            product = cast(matmul(x, y), dt.int64)
            product = mul(product, 1 << 16 * (i + j)) if i + j else product
            total = product if total is None else add(total, product)
    return cast(total, dtype)


def _parts(x: Value, n: int) -> list[Value]:
    """n parts of 16 bits, the lowest first, as float64; the last has the sign."""
    rest, parts = cast(x, dt.int64), []
    for _ in range(n - 1):
        parts.append(cast(remainder(rest, 1 << 16), dt.float64))
        rest = floor_divide(rest, 1 << 16)
    return [*parts, cast(rest, dt.float64)]


def _drop(x: Value, dim: int) -> Value:
    shape = list(x.shape)
    del shape[dim]
    return reshape(x, shape)


def _matmul(a: Value, b: Value) -> Value:
    """matmul of operands with at least two dims each."""
    if len(a.shape) == len(b.shape) == 2:
        return prims.matmul(a, b)
    if len(a.shape) > 2 and len(b.shape) == 2:
        return reshape(prims.matmul(flatten_rows(a), b), (*a.shape[:-1], b.shape[-1]))
    batch = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return prims.matmul(broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:])))


def flatten_rows(x: Value) -> Value:
    """x as a matrix: all dims but the last merged."""
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


@in_lower
def mm(input: Value, mat2: Value) -> Value:
    """The product of two matrices."""
    need_dims("mm", 2, input, mat2)
    return matmul(input, mat2)


@remembered
@in_lower
def bmm(input: Value, mat2: Value) -> Value:
    """The products of two equally long batches of matrices."""
    need_dims("bmm", 3, input, mat2)
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError("bmm: batches differ", expected=str(input.shape[0]), got=str(mat2.shape[0]))
    return matmul(input, mat2)


@remembered
@in_lower_on_cuda
@as_given
def mv(input: Value, vec: Value) -> Value:
    """Matrix times vector."""
    need_dims("mv", 2, input)
    need_dims("mv", 1, vec)
    return matmul(input, vec)


@remembered
def dot(input: Value, tensor: Value) -> Value:
    """The inner product of two vectors."""
    need_kind("dot", "iufc", input)
    need_dims("dot", 1, input, tensor)
    need_one_dtype("dot", input, tensor)
    dtype, product = dtype_of(input), sum(mul(input, tensor))
    return product if dtype.is_inexact else cast(product, dtype)  # sums of whole numbers are wider


@remembered
def outer(input: Value, vec2: Value) -> Value:
    """All products of two vectors' elements."""
    need_dims("outer", 1, input, vec2)
    return mul(unsqueeze(input, 1), vec2)


def _casting_factor(function: Callable[..., Value]) -> Callable[..., Value]:
    """`addmm`, whose second matrix is a layer's weight, as `_casting_weights` has it of `linear`."""

    def turned(mat1: Value, mat2: Value, input: Value) -> Value:
        if casting.acting is None or not lowers_weights(mat1, mat2, input) or not _is_layer(input, mat1, mat2, 1, 1):
            return function(input, mat1, mat2)
        (x,) = lowered(mat1)
        with acting(None):
            return _lowered_affine(x, mat2, input)

    turned.__casts__ = WEIGHTS  # type: ignore[attr-defined]
    recalled = remembered(turned)

    @functools.wraps(function)
    def addmm(input: Value, mat1: Value, mat2: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
        if type(beta) is int and type(alpha) is int and beta == 1 == alpha:
            return recalled(mat1, mat2, input)
        return function(input, mat1, mat2, beta=beta, alpha=alpha)

    return addmm


def _is_layer(input: Value, mat1: Value, mat2: Value, beta: Scalar, alpha: Scalar) -> bool:
    """Whether this is a layer on a CUDA device: a row of biases, none scaled, in rows that start on 16 bytes."""
    if not (_is(beta, 1) and _is(alpha, 1) and getattr(mat1, "is_cuda", False)):
        return False
    left, right = tuple(mat1.shape), tuple(mat2.shape)
    fits = len(left) == len(right) == 2 and left[1] == right[0] and tuple(input.shape) == right[1:]
    return fits and not any(n % 8 for n in right)


@_casting_factor
@in_lower
def addmm(input: Value, mat1: Value, mat2: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta * input + alpha * mat1 @ mat2."""
    if _is_layer(input, mat1, mat2, beta, alpha) and dtype_of(mat1).kind == "f":
        need_one_dtype("addmm", input, mat1, mat2)
        return _affine(mat1, mat2, input)
    return plus_product("addmm", input, mm, mat1, mat2, beta, alpha)


@whole
def _affine(x: Value, weight: Value, bias: Value) -> Value:
    """x @ weight + bias."""
    return add(prims.matmul(x, weight), bias)


@whole
def _lowered_affine(x: Value, weight: Value, bias: Value) -> Value:
    """`_affine` of 16-bit floats, with weights in f32."""
    return _affine(x, cast(weight, dtype_of(x)), cast(bias, dtype_of(x)))


@in_lower
def baddbmm(input: Value, batch1: Value, batch2: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta * input + alpha * batch1 @ batch2."""
    return plus_product("baddbmm", input, bmm, batch1, batch2, beta, alpha)


def _is(factor: Scalar, number: int) -> bool:
    return is_scalar(factor) and factor == number


def plus_product(
    op: str, input: Value, multiply: Callable[[Value, Value], Value], a: Value, b: Value, beta: Scalar, alpha: Scalar
) -> Value:
    """beta * input + alpha * multiply(a, b); for beta 0 input does not count, NaN or not, nor for alpha 0 the product.

    That is so of BLAS, which addr is not made of.

    A product of 16-bit floats that is scaled is not rounded before, but on a GPU, whose units make it 16-bit.
    """
    if is_narrow(input) and not _is(alpha, 1) and not getattr(input, "is_cuda", False):
        need_one_dtype(op, input, a, b)
        return rounded_once(plus_product)(op, input, multiply, a, b, beta, alpha)
    product = multiply(a, b)
    need_one_dtype(op, input, product)
    beta, alpha = factor_of(input, beta), factor_of(input, alpha)
    if _is(alpha, 0) and op != "addr":
        product = prims.where(prims.full(shape_of(product), True, dt.bool_), prims.full_like(product, 0), product)
    elif not _is(alpha, 1):
        product = mul(product, alpha)
    if _is(beta, 0):
        shape = broadcast_shapes(shape_of(input), shape_of(product))
        product = broadcast_to(product, shape)
        if not getattr(input, "requires_grad", False):
            return product
        return prims.where(prims.full(shape, False, dt.bool_), broadcast_to(input, shape), product)  # its gradient is 0
    return add(product, input if _is(beta, 1) else mul(input, beta))


def factor_of(x: Value, factor: Scalar) -> Scalar:
    """A factor as x's dtype has it: of whole numbers a whole one, rounded towards 0, as in torch."""
    kind = dtype_of(x).kind
    return factor if kind in "fc" or not is_scalar(factor) else builtins.bool(factor) if kind == "b" else int(factor)


def _casting_weights(function: Callable[..., Value]) -> Callable[..., Value]:
    """`linear`, whose weights' casts, where autocast makes any on a CUDA device, are part of the one node."""

    @functools.wraps(function)
    def linear(input: Value, weight: Value, bias: Value | None = None) -> Value:
        if casting.acting is None or not lowers_weights(input, weight, bias) or not _fit_units(input, weight, bias):
            return function(input, weight, bias)
        (x,) = lowered(input)
        with acting(None):
            return _lowered_linear(x, weight, bias)

    linear.__casts__ = WEIGHTS  # type: ignore[attr-defined]
    return linear


def _fit_units(input: Value, weight: Value, bias: Value | None) -> bool:
    """Whether shapes fit, and rows start on 16 bytes, as cuBLASLt wants them."""
    shape = tuple(weight.shape)
    fits = len(shape) == 2 and input.shape[-1:] == shape[1:] and (bias is None or tuple(bias.shape) == shape[:1])
    return fits and not any(n % 8 for n in shape)


@remembered
@_casting_weights
@in_lower
def linear(input: Value, weight: Value, bias: Value | None = None) -> Value:
    """input @ weight.T + bias. input: T[*, in], weight: T[out, in] (or T[in]), bias: T[out]. One GEMM."""
    x = as_value(input)
    shape, sizes = tuple(x.shape), tuple(weight.shape)
    if len(sizes) == 1:
        product = matmul(x, weight)
        return product if bias is None else add(product, bias)
    if shape[-1:] != sizes[1:]:
        raise ShapeError(
            "linear: sizes do not fit", expected=f"(*, {sizes[1]})", got=str(shape),
            remedy="the last size of the input must be the layer's in_features",
        )  # fmt: skip
    need_one_dtype("linear", x, weight, *(() if bias is None else (bias,)))
    if dtype_of(x).kind != "f":
        return add(matmul(x, transpose(weight, 0, 1)), 0 if bias is None else bias)
    return _linear(x, weight, bias)


@whole
def _linear(x: Value, weight: Value, bias: Value | None) -> Value:
    rows = x if len(x.shape) == 2 else flatten_rows(x)  # (M, in)
    out = prims.matmul(rows, transpose(weight, 0, 1))  # (M, out)
    if bias is not None:
        out = add(out, bias)
    return reshape(out, (*x.shape[:-1], weight.shape[0]))


@as_given
def bilinear(input1: Value, input2: Value, weight: Value, bias: Value | None = None) -> Value:
    """x1^T W_k x2 for each output k. input1: T[*, in1], input2: T[*, in2], weight: T[out, in1, in2]."""
    out = einsum("...i,kij,...j->...k", input1, weight, input2)
    return out if bias is None else add(out, bias)


@whole
def _lowered_linear(x: Value, weight: Value, bias: Value | None) -> Value:
    """`_linear` of 16-bit floats, with weights in f32."""
    dtype = dtype_of(x)
    return _linear(x, cast(weight, dtype), None if bias is None else cast(bias, dtype))


# ---- einsum


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in the order of torch's numbers


def _with_letters(arguments: Sequence[Any]) -> tuple[str, tuple[Value, ...]]:
    """(equation, operands) of einsum's form with lists of numbers."""
    lists = list(arguments[1::2])
    equation = ",".join(map(_letters, lists))
    if len(arguments) % 2:  # the last one says what is kept
        equation += "->" + _letters(arguments[-1])
    return equation, tuple(arguments[0 : 2 * len(lists) : 2])


def _letters(numbers: Sequence[Any]) -> str:
    if any(n is not Ellipsis and not 0 <= n < len(_LETTERS) for n in numbers):
        raise ShapeError("einsum: a dim's number is out of range", expected=f"0 <= number < {len(_LETTERS)}")
    return "".join("..." if n is Ellipsis else _LETTERS[n] for n in numbers)


def einsum(equation: Any, *operands: Any) -> Value:
    """Einstein summation, from left to right by batched GEMMs. Letters, which may repeat, and `...`.

    Or `einsum(x, [0, 1], y, [1, 2], [0, 2])`: dims by number, with Ellipsis, each operand before its list.
    """
    if not isinstance(equation, str):
        equation, operands = _with_letters((equation, *operands))
    xs = list(operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands)
    inputs, output = parse_einsum(equation, [len(x.shape) for x in xs])
    pairs = [_diagonals(labels, as_value(x)) for labels, x in zip(inputs, xs)]
    inputs, xs = [labels for labels, _ in pairs], [x for _, x in pairs]
    labels, value = inputs[0], as_value(xs[0])
    for k, (other, x) in enumerate(zip(inputs[1:], xs[1:])):
        later = set(output).union(*inputs[k + 2 :])
        pair = (labels, value), (other, as_value(x))
        first, second = pair[::-1] if _comes_first(other, labels, output) else pair
        labels, value = _contract(*first, *second, later)
    value = _sum_out(labels, value, [c for c in labels if c not in output])
    labels = [c for c in labels if c in output]
    return permute(value, [labels.index(c) for c in output])


def parse_einsum(equation: str, ndims: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """(labels of each operand, labels of the result); `...` becomes labels "0", "1", ... aligned on the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ShapeError(
            f"einsum {equation!r}: wrong number of operands", expected=str(len(terms)), got=str(len(ndims))
        )
    extra = [n - len(term.replace("...", "")) for term, n in zip(terms, ndims)]
    if any(n < 0 or (n > 0 and "..." not in term) for n, term in zip(extra, terms)):
        raise ShapeError(f"einsum {equation!r}: dims do not fit", expected=str(terms), got=f"{list(ndims)} dims")
    widest = max(extra)
    ellipsis = [str(k) for k in range(widest)]

    def spell(term: str, n: int) -> list[str]:
        head, dots, tail = term.partition("...")
        return [*head, *(ellipsis[widest - n :] if dots else []), *tail]

    inputs = [spell(term, n) for term, n in zip(terms, extra)]
    letters = "".join(terms).replace("...", "")
    implicit = [*ellipsis, *sorted(c for c in set(letters) if letters.count(c) == 1)]
    output = spell(right, widest) if arrow else implicit
    strange = set(output) - {*letters, *ellipsis}
    if strange or len(set(output)) != len(output):
        raise ShapeError(f"einsum {equation!r}: the output's letters are letters of the inputs, each once", got=right)
    return inputs, output


def _diagonals(labels: list[str], x: Value) -> tuple[list[str], Value]:
    """(labels, x) with the diagonal taken over each pair of dims of one label; that label then stands last."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            rest = [d for d in range(len(labels)) if d not in (i, j)]
            if x.shape[i] != x.shape[j]:
                raise ShapeError(f"einsum: {label!r} stands for two sizes", got=f"{x.shape[i]} and {x.shape[j]}")
            n, shape = x.shape[i], [x.shape[d] for d in rest]
            flat = reshape(permute(x, (*rest, i, j)), (*shape, n * n))
            x = prims.slice(flat, [0] * len(flat.shape), flat.shape, [1] * len(shape) + [n + 1]) if n > 1 else flat
            labels = [*(labels[d] for d in rest), label]
    return labels, x


def _sum_out(labels: list[str], x: Value, drop: Sequence[str]) -> Value:
    return sum(x, [labels.index(c) for c in drop]) if drop else x


def _comes_first(other: list[str], labels: list[str], output: list[str]) -> bool:
    """Whether the output has what only `other` has before what only `labels` has: its product is then row-major."""
    mine, others = (
        [output.index(c) for c in own if c in output and c not in than]
        for own, than in ((labels, other), (other, labels))
    )
    return bool(mine and others) and max(others) < min(mine)


def _contract(la: list[str], a: Value, lb: list[str], b: Value, later: set[str]) -> tuple[list[str], Value]:
    """One product of two labelled values; labels found neither in `later` nor in the other operand are summed."""
    a, la = _sum_out(la, a, [c for c in la if c not in lb and c not in later]), [c for c in la if c in lb or c in later]
    b, lb = _sum_out(lb, b, [c for c in lb if c not in la and c not in later]), [c for c in lb if c in la or c in later]
    batch = [c for c in la if c in lb and c in later]
    inner = [c for c in la if c in lb and c not in later]
    rows, columns = [c for c in la if c not in lb], [c for c in lb if c not in la]
    size = dict(zip(lb, b.shape))
    for c, n in zip(la, a.shape):
        size[c] = max(n, size.get(c, n))
    a = _as_matrices(la, a, batch, rows, inner, size)
    b = _as_matrices(lb, b, batch, inner, columns, size)
    product = matmul if inner or not dtype_of(a).is_inexact else _matmul  # autocast leaves alone what sums nothing
    out = reshape(product(a, b), [size[c] for c in (*batch, *rows, *columns)])
    return [*batch, *rows, *columns], out


def _as_matrices(
    labels: list[str], x: Value, batch: list[str], rows: list[str], columns: list[str], size: dict[str, int]
) -> Value:
    """x: T[*batch, prod(rows), prod(columns)], sizes of 1 repeated where the other operand is longer."""
    order = [*batch, *rows, *columns]
    x = broadcast_to(permute(x, [labels.index(c) for c in order]), tuple(size[c] for c in order))
    shape = [size[c] for c in batch]
    return reshape(x, (*shape, math.prod(size[c] for c in rows), math.prod(size[c] for c in columns)))
