"""Biases added by the product itself, where nothing else would add them for nothing: for a library that can.

In: `Defined`. Out: `Defined` with fewer definitions: v = g + bias, of a product g that v alone reads and of a bias that
depends on the column only, becomes a product with a bias. Its sum is rounded once, as torch's `addmm` does, where g and
v were rounded each. Not done where a kernel reads v: it adds the bias as it reads g. Products in batches, small ones,
those of other dtypes than f32 and 16-bit floats, and those that cuBLASLt may refuse, stay as they are. A bias that is
no vector of v's dtype in memory becomes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from compiler_core.dtype import DType, float32
from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.ops.linear_algebra import gemm_cuda
from compiler_core.records import dataclass


def add_biases(defined: d.Defined) -> d.Defined:
    """`defined` after the rewrite; a product with a bias stands where the sum stood."""
    uses = Counter(name for one in defined.definitions.values() for name in d.definition_reads(one))
    in_loops = {name for one in defined.definitions.values() if _is_loop(one) for name in d.definition_reads(one)}
    made: dict[str, d.Definition] = {}
    metas = dict(defined.metas)
    for name, definition in defined.definitions.items():
        found = None if name in in_loops or name in defined.storage else _sum_of(definition, made)
        if found is None or uses[found.gemm.name] > 1 or found.gemm.name in defined.outputs:
            made[name] = definition
            continue
        del made[found.gemm.name]
        bias = found.source
        if not bias or bias in defined.storage:
            bias = f"{name}__bias"
            metas[bias] = TensorMeta((found.axis_extent,), definition.dtype)
            made[bias] = found.vector(bias)
        note = f"{found.gemm.note}; {found.note}"
        out = replace(found.gemm.out, source=name)
        made[name] = replace(found.gemm, name=name, out=out, bias=bias, note=note)
    return replace(defined, definitions=made, metas=metas)


def _is_loop(definition: d.Definition) -> bool:
    return isinstance(definition, d.Element | d.Reduce | d.Scan | d.Scatter)


@dataclass(frozen=True, slots=True)
class _Sum:
    """gemm + value, where the value depends on `axes`, the last one, only. source: where it is in memory, or ""."""

    gemm: d.Gemm
    value: x.Expr
    axes: d.Axes
    source: str
    note: str

    @property
    def axis_extent(self) -> int:
        return self.axes[0].extent

    def vector(self, name: str) -> d.Element:
        return d.Element(name, self.gemm.dtype, self.axes, self.value, self.note)


def _sum_of(definition: d.Definition, made: Mapping[str, d.Definition]) -> _Sum | None:
    if not isinstance(definition, d.Element) or definition.part is not None or not definition.axes:
        return None
    dtype, last = definition.dtype, definition.axes[-1]
    for load, rest in _terms(definition.value, dtype):
        gemm = made.get(load.buffer)
        whole = isinstance(gemm, d.Gemm) and gemm.n == last.extent and gemm.numel == definition.numel
        if not whole or load.index != d.flat_of(definition.axes) or not isinstance(gemm, d.Gemm) or not _suits(gemm):
            continue
        if d.axes_in_expr(rest) == {last}:
            is_vector = isinstance(rest, x.Load) and rest.index == d.flat_of((last,))
            return _Sum(
                gemm, rest, (last,), rest.buffer if isinstance(rest, x.Load) and is_vector else "", definition.note
            )
    return None


def _suits(gemm: d.Gemm) -> bool:
    """Whether it is one plain product that lies as it was made, is worth it, and starts its lines on 16 bytes."""
    half = gemm.dtype.is_floating_point and gemm.dtype.itemsize == 2
    plain = not (gemm.batch or gemm.scale or gemm.onto or gemm.bias) and gemm.alpha == 1.0
    if not (gemm.dtype is float32 or half) or not plain or gemm.out.source != gemm.name or gemm.out.col != 1:
        return False
    operands = (gemm.a, gemm.b, gemm.out)
    places = [*(o.offset for o in operands), *(n for o in operands for n in (o.row, o.col) if n != 1)]
    is_aligned = not any(n * gemm.dtype.itemsize % 16 for n in places)
    return is_aligned and 2 * gemm.m * gemm.n * gemm.k >= gemm_cuda.LEAST_FLOPS


def _terms(value: x.Expr, dtype: DType) -> list[tuple[x.Load, x.Expr]]:
    """(load, rest) for each way in which `value` is load + rest, both of `dtype`; 16-bit floats are added in f32."""
    if dtype is float32:
        terms = value.args if isinstance(value, x.ScalarCall) and value.scalar == "add" else ()
    else:
        match value:
            case x.Cast(x.ScalarCall("add", (x.Cast(a, _), x.Cast(b, _))), _):
                terms = (a, b)
            case _:
                terms = ()
    pairs = [(terms[0], terms[1]), (terms[1], terms[0])] if terms else []
    return [(a, b) for a, b in pairs if isinstance(a, x.Load) and a.dtype is dtype and b.dtype is dtype]
