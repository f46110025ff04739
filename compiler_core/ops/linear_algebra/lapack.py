"""How generated code calls LAPACK for cholesky, solve, solve_triangular and lu of f32 and f64 matrices.

In: the routine calls of factor.py and solving.py. Out: their `Native`s. A batch is a loop over calls for one matrix
(lapack_cpp.py). Where LAPACK reports a failure, and for complex matrices, the NumPy definition is called back: it
raises what eager raises, or gives what eager gives. Symbols are LAPACKE's and, for the triangular solve, CBLAS's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from compiler_core.dtype import DType, float32, float64
from compiler_core.ops.linear_algebra.lapack_cpp import TEXT
from compiler_core.ops.routine import Attrs, CArray, CCall, Native, Strided

_LETTER: dict[DType, str] = {float32: "s", float64: "d"}


def _is_real(dtype: DType, attrs: Attrs) -> bool:
    return dtype in _LETTER


def accepts_triangular(layout: Strided) -> bool:
    """As BLAS takes matrices: of the row and column strides one is 1, the other at least that direction's length."""
    (rows, columns), (row, column) = layout.shape[-2:], layout.strides[-2:]
    return (column == 1 and row >= columns) or (row == 1 and column >= rows)


def _symbol(name: str) -> Callable[[tuple[Strided, ...], Attrs], tuple[str, ...]]:
    """The name of a routine for the first operand's dtype."""
    return lambda operands, attrs: (_named(name, operands[0].dtype),)


def _named(name: str, dtype: DType) -> str:
    return name.format(_LETTER[dtype])


# ---- what is written


def _loops(batch: tuple[int, ...]) -> Iterator[str]:
    """The heads of the loops over the batch."""
    for axis, extent in enumerate(batch):
        yield f"    for (int64_t b{axis} = 0; b{axis} < {extent}; ++b{axis})"


def _at(array: CArray, call: CCall) -> str:
    """The address of one matrix of the batch."""
    strides = array.layout.strides[: len(_batch(call))]
    terms = [f"b{axis}*{stride}" for axis, stride in enumerate(strides) if stride]
    return " + ".join([array.address, *terms])


def _batch(call: CCall) -> tuple[int, ...]:
    return call.operands[0].layout.shape[:-2]


def _matrix(array: CArray, call: CCall) -> str:
    """A matrix as an argument: its address, its row and column strides."""
    row, column = array.layout.strides[-2:]
    return f"{_at(array, call)}, {row}, {column}"


def _checked(name: str, symbol: str, *, has_scratch: bool) -> Callable[[CCall], Iterator[str]]:
    """Calls of the function `name` for each matrix; the first that fails makes the whole call a call back."""

    def emit(call: CCall) -> Iterator[str]:
        dtype = call.result.layout.dtype
        sizes = [*call.operands[0].layout.shape[-2:]]
        if len(call.operands) == 2:
            sizes[1] = call.operands[1].layout.shape[-1]
        elif name == "dc_cholesky":
            sizes.pop()
        arguments = [call.symbol(_named(symbol, dtype)), *map(str, sizes)]
        arguments += [_matrix(array, call) for array in call.operands]
        arguments += [_at(call.result, call), *([f"({dtype.ctype}*)({call.scratch})"] if has_scratch else [])]
        yield "  if ([&]() -> int32_t {"
        yield from _loops(_batch(call))
        yield f"      if (const int32_t info = {name}<{dtype.ctype}>({', '.join(arguments)})) return info;"
        yield "    return 0;"
        yield "  }()) {"
        yield from call.back
        yield "  }"

    return emit


def _emit_triangular(call: CCall) -> Iterator[str]:
    a, b = call.operands
    (n, k), (row, column) = b.layout.shape[-2:], a.layout.strides[-2:]
    is_turned = not (column == 1 and row >= n)  # then a lies as its transpose, whose triangle is the other one
    codes = (121 if call.attrs["upper"] is not is_turned else 122, 112 if is_turned else 111)
    unit = 132 if call.attrs["unitriangular"] else 131
    dtype = call.result.layout.dtype
    symbol = call.symbol(_named("cblas_{}trsm", dtype))
    matrix = f"{_at(a, call)}, {column if is_turned else row}"
    yield from _loops(_batch(call))
    yield (
        f"      dc_solve_triangular<{dtype.ctype}>({symbol}, {codes[0]}, {codes[1]}, {unit}, {n}, {k}, {matrix}, "
        f"{_matrix(b, call)}, {_at(call.result, call)});"
    )


# ---- scratch memory: column-major copies, then pivots


def _solve_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    n, k = operands[1].shape[-2:]
    return n * (n + k) * operands[0].dtype.itemsize + 4 * n


def _lu_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    m, n = operands[0].shape[-2:]
    return m * n * operands[0].dtype.itemsize + 4 * min(m, n)


_Scratch = Callable[[tuple[Strided, ...], Attrs], int]


def _native(name: str, symbol: str, scratch: _Scratch | None = None) -> Native:
    native = Native(
        _symbol(symbol), _checked(name, symbol, has_scratch=bool(scratch)), TEXT, takes=_is_real, may_fail=True
    )
    return replace(native, scratch=scratch) if scratch else native


def _is_pivoted(dtype: DType, attrs: Attrs) -> bool:
    return dtype in _LETTER and bool(attrs["pivot"])


CHOLESKY = _native("dc_cholesky", "LAPACKE_{}potrf")
SOLVE = _native("dc_solve", "LAPACKE_{}gesv", _solve_scratch)
LU = replace(_native("dc_lu", "LAPACKE_{}getrf", _lu_scratch), takes=_is_pivoted)
TRIANGULAR = Native(_symbol("cblas_{}trsm"), _emit_triangular, TEXT, takes=_is_real)
