"""matmul -> Gemm by strides: operands are read through their views wherever BLAS can.

In: a matmul node (*batch, M, K) x (*batch, K, N). Out: a `Gemm` definition (and copies of operands that no leading
dimension describes). An operand's index, composed through its views, is an offset plus a stride per axis; BLAS needs
one of the row and column strides to be 1. Batch axes are merged where all three matrices allow it, and fold into M
when B is the same for all of them. 16-bit floats are cast to f32, multiplied, and rounded once; where the library takes
them as they are (`Definer.halves`), it does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler_core.dtype import DType
from compiler_core.graph.ir import Call, Node
from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import cast
from compiler_core.meta import TensorMeta
from compiler_core.symbolic.index import Index, of_axis

if TYPE_CHECKING:
    from compiler_core.lowering.define import Definer


def define_matmul(definer: Definer, node: Call) -> None:
    """Add the definitions of one matmul node."""
    a, b = node.args
    if a.shape[-1] == 0:
        definer.add_element(node, x.Const(0, node.dtype))
        return
    if node.dtype.compute is node.dtype or node.dtype in definer.halves:
        definer.add(make_gemm(node, node.name, _operand(definer, a), _operand(definer, b), node.dtype), node.meta)
        return
    wide = node.meta.with_dtype(node.dtype.compute)
    name = f"{node.name}__f32"
    first, second = (_contiguous(_widen(definer, arg, f"{node.name}__arg{k}"), arg) for k, arg in enumerate(node.args))
    definer.add(make_gemm(node, name, first, second, wide.dtype), wide)
    axes = d.make_axes(node.shape)
    product = x.Load(name, d.flat_of(axes), wide.dtype)
    definer.add(d.Element(node.name, node.dtype, axes, cast(product, node.dtype), name), node.meta)


def _widen(definer: Definer, node: Node, name: str) -> str:
    """A contiguous f32 copy of `node`."""
    axes = d.make_axes(node.shape)
    value = cast(definer.read(node, tuple(of_axis(axis) for axis in axes)), node.dtype.compute)
    definer.add(d.Element(name, value.dtype, axes, value, name), TensorMeta(node.shape, value.dtype))
    return name


def _contiguous(name: str, node: Node) -> d.Operand:
    *batch, row, col = d.row_major(node.shape)
    return blas_operand(name, 0, tuple(batch), row, col, node.shape[-2], node.shape[-1]) or _never(node)


def _never(node: Node) -> d.Operand:
    raise AssertionError(f"a contiguous matrix always suits BLAS: {node!r}")


def _operand(definer: Definer, node: Node) -> d.Operand:
    """`node` as BLAS reads it: through its views if strides allow, else from a contiguous copy."""
    axes = d.make_axes(node.shape)
    load = definer.read(node, tuple(of_axis(axis) for axis in axes))
    if isinstance(load, x.Load) and load.buffer in definer.result.metas:
        operand = strided_operand(load.buffer, load.index, axes)
        if operand is not None:
            return operand
    if isinstance(node, Call) and node.op.name == "permute":
        # a copy of what is permuted serves every order in which its last two dimensions are read
        definer.materialise(node.args[0])
        load = definer.read(node, tuple(of_axis(axis) for axis in axes))
        operand = strided_operand(load.buffer, load.index, axes) if isinstance(load, x.Load) else None
        if operand is not None:
            return operand
    return _contiguous(definer.materialise(node), node)


def strided_operand(source: str, index: Index, axes: d.Axes) -> d.Operand | None:
    """The matrix whose element (axes) lies at `index` of `source`, or None if no leading dimension describes it."""
    if not index.is_linear or any(stride < 0 for stride in index.terms.values()):
        return None
    *batch, row, col = (index.coefficient(axis) for axis in axes)
    return blas_operand(source, index.const, tuple(batch), row, col, axes[-2].extent, axes[-1].extent)


def blas_operand(
    source: str, offset: int, batch: tuple[int, ...], row: int, col: int, rows: int, cols: int
) -> d.Operand | None:
    """With strides of directions of length 1 chosen to suit BLAS."""
    if rows == 1 and cols == 1:
        row, col = 1, 1
    elif cols == 1:
        col = rows if row == 1 else 1
    elif rows == 1:
        row = cols if col == 1 else 1
    plain = col == 1 and row >= cols
    transposed = row == 1 and col >= rows
    return d.Operand(source, offset, batch, row, col) if plain or transposed else None


def make_gemm(node: Call, name: str, a: d.Operand, b: d.Operand, dtype: DType) -> d.Gemm:
    """The contiguous product of two operands of `dtype`, batch axes merged."""
    from compiler_core.lowering.define import note_of

    *batch, m, n = node.shape
    *out_batch, row, col = d.row_major(node.shape)
    out = blas_operand(name, 0, tuple(out_batch), row, col, m, n)
    assert out is not None, f"a contiguous product suits BLAS: {node!r}"
    k = node.args[0].shape[-1]
    return merge_batch(d.Gemm(name, dtype, tuple(batch), m, n, k, a, b, out, note=note_of(node)))


def merge_batch(gemm: d.Gemm) -> d.Gemm:
    """Drop batch axes of extent 1, merge neighbours, and fold the last one into M where B does not depend on it."""
    rows: list[tuple[int, int, int, int]] = []  # extent and the stride in a, b, out
    for extent, a, b, out in zip(gemm.batch, gemm.a.batch, gemm.b.batch, gemm.out.batch):
        strides = (a, b, out)
        if extent == 1:
            continue
        if rows and all(outer == inner * extent for outer, inner in zip(rows[-1][1:], strides)):
            extent *= rows.pop()[0]
        rows.append((extent, *strides))
    m = gemm.m
    while (
        rows and rows[-1][2] == 0 and rows[-1][1] == m * gemm.a.row and rows[-1][3] == m * gemm.out.row and _plain(gemm)
    ):
        m *= rows.pop()[0]
    columns = list(zip(*rows)) or [(), (), (), ()]
    return d.Gemm(
        gemm.name, gemm.dtype, columns[0], m, gemm.n, gemm.k,
        _with_batch(gemm.a, columns[1]), _with_batch(gemm.b, columns[2]), _with_batch(gemm.out, columns[3]),
        gemm.alpha, gemm.scale, gemm.onto, gemm.note,
    )  # fmt: skip


def _plain(gemm: d.Gemm) -> bool:
    return gemm.a.col == 1 and gemm.out.col == 1 and gemm.m > 1


def _with_batch(operand: d.Operand, batch: tuple[int, ...]) -> d.Operand:
    return d.Operand(operand.source, operand.offset, batch, operand.row, operand.col)
