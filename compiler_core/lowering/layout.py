"""Writing a product in another layout: the inverse of a reader's index, as strides.

In: a Gemm whose result is contiguous, and an index: element `axes` of the wanted array is element index(axes) of the
product. Out: the same Gemm with strides into the wanted array, or None if strides cannot say it or BLAS cannot write
it. Method: the axes are split into digits where the index takes // or % of them, until it is linear; as a bijection it
is then a permutation of digits of a mixed-radix number, and each dimension of the product is a run of digits. A batch
axis may be split into several; rows and columns must keep one stride each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from compiler_core.lowering import definition as d
from compiler_core.lowering.gemm import blas_operand
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Div, Index, Mod, of_axis


@dataclass(frozen=True, slots=True)
class Digit:
    """One factor of the index: extent, stride within the product, stride within the wanted array."""

    extent: int
    inner: int
    outer: int


def is_contiguous(gemm: d.Gemm) -> bool:
    """Whether the product lies row-major in memory of its own."""
    *batch, row, col = d.row_major((*gemm.batch, gemm.m, gemm.n))
    out = gemm.out
    matrix = (gemm.m == 1 or out.row == row) and (gemm.n == 1 or out.col == col)
    return matrix and out.batch == tuple(batch) and out.offset == 0


def relayout(
    gemm: d.Gemm, index: Index, axes: d.Axes, strides: Sequence[int], target: str, offset: int
) -> d.Gemm | None:
    """`gemm` with its result at `target` + offset. strides: of the wanted array, one an axis."""
    digits = _digits(index, axes, strides)
    if digits is None or not _is_permutation(digits, gemm.numel):
        return None
    matrix = gemm.m * gemm.n
    for boundary in _boundaries(gemm):
        digits = [part for digit in digits for part in _cut(digit, boundary)]
    row = _one_stride(digits, gemm.n, gemm.m)
    col = _one_stride(digits, 1, gemm.n)
    if row is None or col is None:
        return None
    batch = [digit for digit in digits if digit.inner >= matrix]
    a, b = _split_batch(gemm, gemm.a, batch), _split_batch(gemm, gemm.b, batch)
    if a is None or b is None:
        return None
    out = blas_operand(target, offset, tuple(x.outer for x in batch), row, col, gemm.m, gemm.n)
    if out is None:
        return None
    return replace(gemm, batch=tuple(x.extent for x in batch), a=a, b=b, out=out)


def _digits(index: Index, axes: d.Axes, strides: Sequence[int]) -> list[Digit] | None:
    """The digits of a linear index, outermost (in the product) first, after splitting axes as often as needed."""
    live = [(axis, stride) for axis, stride in zip(axes, strides) if axis.extent != 1]
    for _ in range(4):
        if index.is_linear:
            break
        index, live = _split_once(index, live)
    if not index.is_linear or index.const or any(axis not in index.terms for axis, _ in live):
        return None
    digits = [Digit(axis.extent, index.coefficient(axis), stride) for axis, stride in live]
    return sorted(digits, key=lambda digit: -digit.inner)


def _split_once(index: Index, live: list[tuple[Axis, int]]) -> tuple[Index, list[tuple[Axis, int]]]:
    """Split every axis of which `index` takes // or % by a divisor of its extent."""
    table: dict[Axis, Index] = {}
    result: list[tuple[Axis, int]] = []
    for axis, stride in live:
        n = _divisor_of(index, axis)
        if n is None:
            result.append((axis, stride))
            continue
        high, low = Axis(axis.name, axis.extent // n), Axis(axis.name, n)
        table[axis] = of_axis(high) * n + of_axis(low)
        result += [(high, stride * n), (low, stride)]
    return d.substitute_index(index, table, {}), [(axis, stride) for axis, stride in result if axis.extent != 1]


def _divisor_of(index: Index, axis: Axis) -> int | None:
    for atom in index.terms:
        if isinstance(atom, Div | Mod):
            coefficient = atom.arg.coefficient(axis)
            if coefficient > 0 and atom.n % coefficient == 0:
                n = atom.n // coefficient
                if 1 < n < axis.extent and axis.extent % n == 0:
                    return n
            nested = _divisor_of(atom.arg, axis)
            if nested is not None:
                return nested
    return None


def _boundaries(gemm: d.Gemm) -> list[int]:
    """The strides of the product's own dimensions."""
    strides = [gemm.n, gemm.m * gemm.n]
    for extent in reversed(gemm.batch[1:]):
        strides.append(strides[-1] * extent)
    return strides


def _cut(digit: Digit, boundary: int) -> list[Digit]:
    """A digit that spans `boundary`, as two."""
    if not digit.inner < boundary < digit.inner * digit.extent:
        return [digit]
    low = boundary // digit.inner
    if boundary % digit.inner or digit.extent % low:
        return [digit]
    return [Digit(digit.extent // low, boundary, digit.outer * low), Digit(low, digit.inner, digit.outer)]


def _is_permutation(digits: Sequence[Digit], numel: int) -> bool:
    expected = numel
    for digit in digits:
        if digit.inner * digit.extent != expected:
            return False
        expected = digit.inner
    return expected == 1


def _one_stride(digits: Sequence[Digit], low: int, extent: int) -> int | None:
    """The stride in the wanted array of the dimension that spans [low, low*extent) of the product;

    1 for one element.
    """
    run = [digit for digit in digits if low <= digit.inner < low * extent]
    if extent == 1:
        return 1
    if not run or run[-1].inner != low or run[0].inner * run[0].extent != low * extent:
        return None
    for outer, inner in pairwise(run):
        if outer.outer != inner.outer * inner.extent:
            return None
    return run[-1].outer


def _split_batch(gemm: d.Gemm, operand: d.Operand, batch: Sequence[Digit]) -> d.Operand | None:
    """An operand with one batch stride a digit."""
    strides: list[int] = []
    step = gemm.m * gemm.n
    spans = []
    for extent, stride in reversed([*zip(gemm.batch, operand.batch)]):
        spans.append((step, step * extent, stride))
        step *= extent
    for digit in batch:
        span = next((s for s in spans if s[0] <= digit.inner < s[1]), None)
        if span is None or digit.inner * digit.extent > span[1]:
            return None
        strides.append(span[2] * (digit.inner // span[0]))
    return replace(operand, batch=tuple(strides))
