"""Products under a causal mask, computed only where the mask lets something through.

In: `Defined`. Out: `Defined` in which such a Gemm has become an Assembly of Gemms, one a block of rows.

    scores = q k^T, read only under `where(row >= col, scores, ...)`   rows [r0, r1) need columns below r1 only
    out = p v, p zero where col > row                                  rows [r0, r1) need k below r1 only
    dk = ds^T q, ds zero where col > row                               rows [r0, r1) need k from r0 on only

A value is known to be zero above a diagonal if it is a `where(row >= col, x, 0)`, the exponential of one with -inf
(less a number a row), or a product, quotient or negation of such a value. With b blocks, (b - 1) / 2b of the work is
left out. Limits: zeros are taken to annihilate; an infinity or NaN at a place that the mask hides does not spread as 0
* inf would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis

BLOCK = 64  # rows: enough for BLAS to be near its speed
MAX_BLOCKS = 8
_SIGNED: dict[str, tuple[int, int]] = {"ge": (1, 0), "gt": (1, -1), "le": (-1, 0), "lt": (-1, -1)}


def skip_masked_blocks(defined: d.Defined) -> d.Defined:
    """`defined` after the rewrite."""
    masks = _Masks(defined)
    definitions: dict[str, d.Definition] = {}
    metas = dict(defined.metas)
    for name, definition in defined.definitions.items():
        parts = masks.blocks(definition) if isinstance(definition, d.Gemm) and definition.numel else []
        for part in parts:
            definitions[part.name] = part
            metas[part.name] = TensorMeta((*part.batch, part.m, part.n), part.dtype)
        definitions[name] = _assembly(definition, parts) if parts else definition
    return replace(defined, definitions=definitions, metas=metas)


def _assembly(gemm: d.Definition, parts: list[d.Gemm]) -> d.Assembly:
    return d.Assembly(gemm.name, gemm.dtype, tuple(part.name for part in parts), gemm.numel, gemm.note)


def transposed(gemm: d.Gemm) -> d.Gemm:
    """The same product as C^T = B^T A^T."""
    a, b, out = (replace(o, row=o.col, col=o.row) for o in (gemm.a, gemm.b, gemm.out))
    return replace(gemm, m=gemm.n, n=gemm.m, a=b, b=a, out=out)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The last two axes of a definition's domain."""

    row: Axis
    col: Axis


class _Masks:
    """What index tests say about the values of one graph.

    Diagonals are numbers c: an element counts where col <= row + c.
    """

    def __init__(self, defined: d.Defined) -> None:
        self.definitions = defined.definitions
        self.outputs = set(defined.outputs)
        self._zero: dict[str, int | None] = {}
        self._minus_infinity: dict[str, int | None] = {}
        self.readers: dict[str, list[d.Definition]] = {}
        for definition in defined.definitions.values():
            for name in d.definition_reads(definition):
                self.readers.setdefault(name, []).append(definition)

    # ---- blocks of one product

    def blocks(self, gemm: d.Gemm) -> list[d.Gemm]:
        """`gemm` in blocks of rows (or of columns, as rows of the transposed product); [] if it is needed whole."""
        if gemm.onto or gemm.bias:
            return []
        needed = self._needed(gemm)
        if needed is not None:
            return _row_blocks(gemm, lambda r0, r1: (0, gemm.k, min(gemm.n, max(r1 + needed, 1))))
        for product in (gemm, transposed(gemm)):
            span = self._span_of_k(product)
            if span is not None:
                return _row_blocks(product, span)
        return []

    def _span_of_k(self, gemm: d.Gemm) -> Callable[[int, int], tuple[int, int, int]] | None:
        """For rows [r0, r1): (first k, end of k, columns) that matter, if A is zero above a diagonal."""
        diagonal = self._zero_of(gemm.a.source)
        matrix = self._matrix(gemm.a.source)
        if diagonal is None or matrix is None:
            return None
        if (gemm.m, gemm.k) == (matrix.row.extent, matrix.col.extent) and (gemm.a.row, gemm.a.col) == (gemm.k, 1):
            return lambda r0, r1: (0, min(gemm.k, max(r1 + diagonal, 1)), gemm.n)
        if (gemm.k, gemm.m) == (matrix.row.extent, matrix.col.extent) and (gemm.a.row, gemm.a.col) == (1, gemm.m):
            return lambda r0, r1: (min(max(r0 - diagonal, 0), gemm.k - 1), gemm.k, gemm.n)
        return None

    def _matrix(self, name: str) -> _Matrix | None:
        source = self.definitions.get(name)
        if isinstance(source, d.Element) and len(source.axes) >= 2:
            return _Matrix(*source.axes[-2:])
        return None

    # ---- which elements of a product are read

    def _needed(self, gemm: d.Gemm) -> int | None:
        """The diagonal below which all reads of `gemm` lie, or None."""
        readers = self.readers.get(gemm.name, [])
        is_plain = gemm.out.source == gemm.name and (gemm.out.row, gemm.out.col) == (gemm.n, 1)
        if not readers or gemm.name in self.outputs or not is_plain:
            return None
        found = [self._needed_by(reader, gemm) for reader in readers]
        diagonals = [c for c in found if c is not None]
        return max(diagonals) if len(diagonals) == len(found) else None

    def _needed_by(self, reader: d.Definition, gemm: d.Gemm) -> int | None:
        if not isinstance(reader, d.Element | d.Reduce) or len(reader.axes) < 2:
            return None
        matrix = _Matrix(*reader.axes[-2:])
        own, flat = [load for load in d.loads(reader.value) if load.buffer == gemm.name], d.flat_of(reader.axes)
        fits = (matrix.row.extent, matrix.col.extent) == (gemm.m, gemm.n)
        if not fits or any(load.index != flat for load in own):
            return None
        return _guard_of(reader.value, gemm.name, matrix)

    # ---- which values are zero, or minus infinity, above a diagonal

    def _zero_of(self, name: str) -> int | None:
        """The diagonal above which value `name` is zero."""
        if name not in self._zero:
            self._zero[name] = self._analysed(name, self._zero_in)
        return self._zero[name]

    def _minus_infinity_of(self, name: str) -> int | None:
        """The diagonal above which value `name` is -inf."""
        if name not in self._minus_infinity:
            self._minus_infinity[name] = self._analysed(name, self._minus_infinity_in)
        return self._minus_infinity[name]

    def _analysed(self, name: str, analysis: Callable[[x.Expr, d.Element, _Matrix], int | None]) -> int | None:
        element, matrix = self.definitions.get(name), self._matrix(name)
        if matrix is None or not isinstance(element, d.Element):
            return None
        return analysis(element.value, element, matrix)

    def _zero_in(self, value: x.Expr, element: d.Element, matrix: _Matrix) -> int | None:
        match value:
            case x.Where(cond, _, x.Const(0, _)):
                return diagonal_of(cond, matrix.row, matrix.col)
            case x.Load(buffer, index, _) if index == d.flat_of(element.axes) and self._same_matrix(buffer, matrix):
                return self._zero_of(buffer)
            case x.Cast(arg, _) | x.ScalarCall("neg", (arg,), _) | x.ScalarCall("div", (arg, _), _):
                return self._zero_in(arg, element, matrix)
            case x.ScalarCall("mul", (left, right), _):
                found = self._zero_in(left, element, matrix)
                return self._zero_in(right, element, matrix) if found is None else found
            case x.ScalarCall("exp", (arg,), _):
                return self._minus_infinity_in(arg, element, matrix)
        return None

    def _minus_infinity_in(self, value: x.Expr, element: d.Element, matrix: _Matrix) -> int | None:
        match value:
            case x.Where(cond, _, x.Const(constant, _)) if constant == float("-inf"):
                return diagonal_of(cond, matrix.row, matrix.col)
            case x.Load(buffer, index, _) if index == d.flat_of(element.axes) and self._same_matrix(buffer, matrix):
                return self._minus_infinity_of(buffer)
            case x.ScalarCall("sub", (left, _), _):
                return self._minus_infinity_in(left, element, matrix)
        return None

    def _same_matrix(self, name: str, matrix: _Matrix) -> bool:
        other = self._matrix(name)
        return other is not None and (other.row.extent, other.col.extent) == (matrix.row.extent, matrix.col.extent)


def diagonal_of(cond: x.Expr, row: Axis, col: Axis) -> int | None:
    """c if `cond` says col <= row + c."""
    if not isinstance(cond, x.IndexCompare) or cond.op not in _SIGNED:
        return None
    sign, offset = _SIGNED[cond.op]
    difference = (cond.left - cond.right) * sign + offset  # the test is: difference >= 0
    return difference.const if difference.terms == {row: 1, col: -1} else None


def _guard_of(value: x.Expr, name: str, matrix: _Matrix) -> int | None:
    """The diagonal below which `value` loads `name`, or None if it may load it anywhere."""
    diagonals: list[int] = []

    def visit(part: x.Expr) -> bool:
        """Whether every load of `name` in `part` is under a test."""
        if isinstance(part, x.Load):
            return part.buffer != name
        if isinstance(part, x.Where):
            diagonal = diagonal_of(part.cond, matrix.row, matrix.col)
            if diagonal is not None and visit(part.other):
                diagonals.append(diagonal)
                return True
        return all(visit(child) for child in x.children(part))

    return max(diagonals) if visit(value) and diagonals else None


def _row_blocks(gemm: d.Gemm, span: Callable[[int, int], tuple[int, int, int]]) -> list[d.Gemm]:
    """One Gemm a block of rows, with the k and the columns that span(r0, r1) gives; [] if nothing is saved."""
    count = max((b for b in range(1, MAX_BLOCKS + 1) if gemm.m % b == 0 and gemm.m // b >= BLOCK), default=1)
    rows = gemm.m // count
    spans = [span(r0, r0 + rows) for r0 in range(0, gemm.m, rows)]
    if sum((end - first) * n for first, end, n in spans) >= count * gemm.k * gemm.n:
        return []
    parts = []
    for number, (first, end, n) in enumerate(spans):
        r0 = number * rows
        a = replace(gemm.a, offset=gemm.a.offset + r0 * gemm.a.row + first * gemm.a.col)
        b = replace(gemm.b, offset=gemm.b.offset + first * gemm.b.row)
        out = replace(gemm.out, offset=gemm.out.offset + r0 * gemm.out.row)
        name = f"{gemm.name}__rows{number}"
        parts.append(replace(gemm, name=name, m=rows, n=n, k=end - first, a=a, b=b, out=out))
    return parts
