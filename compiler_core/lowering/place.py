"""Products written where, and scaled as, their only reader wants them, so that the reader vanishes.

In: `Defined`. Out: `Defined` with fewer definitions. Rewrites of an Element v that alone reads a Gemm g:

    v = s * g[permuted]         ->  g writes v's layout, s becomes alpha (a number) or scale (read at run time)
    v = f32(g), g of 16 bits    ->  on a GPU: g writes what it summed in f32 (a weight's gradient under autocast),
                                    unless a kernel reads v and converts what it reads
    v = cat(g1, g2, ...)        ->  each g writes its part of v, and v is an Assembly of them
    v = g + bias, only read by other products or by the caller  ->  v starts as the bias and g adds onto it (beta = 1)
    v = scatter onto g          ->  g is written where v lies: an embedding's gradient onto that of the head tied to it

Numbers join in alpha where the dtype holds what they make together (`joint_factor`). One read at run time joins them
only if it is the average over ranks, as nothing is known of others.
Method: v's index into g, split into digits until it is linear, is inverted; BLAS takes the result if one of the two
matrix strides is 1. Invariant: a value that the caller or anyone else reads keeps its definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from compiler_core.dtype import DType, float32, joint_factor
from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.boxes import parts
from compiler_core.lowering.layout import is_contiguous, relayout
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, of_axis


def place_products(defined: d.Defined, *, widens: bool = True) -> d.Defined:
    """`defined` after the rewrites, in the order of its definitions. widens: whether g may write f32 for 16 bits."""
    placer = _Placer(defined, widens)
    for definition in [*defined.definitions.values()]:
        if isinstance(definition, d.Element) and definition.numel:
            placer.visit(definition)
        elif isinstance(definition, d.Scatter) and definition.numel:
            placer.scatter_onto(definition)
    return replace(defined, definitions=placer.in_order(), metas=placer.metas, storage=placer.storage)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """alpha * scale * load, of `dtype`."""

    load: x.Load
    dtype: DType
    alpha: float = 1.0
    scale: str = ""


class _Placer:
    def __init__(self, defined: d.Defined, widens: bool) -> None:
        self.widens = widens
        self.definitions = dict(defined.definitions)
        self.metas = dict(defined.metas)
        self.storage = dict(defined.storage)
        self.outputs = set(defined.outputs)
        self.shares = defined.shares
        self.place = {name: k for k, name in enumerate(self.definitions)}
        self.before: dict[str, list[d.Definition]] = {}  # definitions to stand right before one of a given name
        self.uses: Counter[str] = Counter()
        self.readers: dict[str, list[str]] = {}
        for definition in defined.definitions.values():
            for name in _all_reads(definition):
                self.uses[name] += 1
                self.readers.setdefault(name, []).append(definition.name)

    def in_order(self) -> dict[str, d.Definition]:
        """The definitions;

        a product stands where it stood, its operands fresh in the cache, not where its reader did.
        """
        ordered: dict[str, d.Definition] = {}
        for name in sorted(self.definitions, key=self.place.__getitem__):
            for earlier in self.before.get(name, ()):
                ordered[earlier.name] = earlier
            ordered[name] = self.definitions[name]
        return ordered

    def visit(self, element: d.Element) -> None:
        scaled = self._scaled(element.value)
        if scaled is not None and scaled.dtype is not scaled.load.dtype and self._is_fused(element.name):
            return  # its readers convert what they read, of half the bytes
        if scaled is not None:
            part = element.part
            target, offset = (element.name, 0) if part is None else (part.target, part.offset)
            gemm = self._moved(scaled, element.axes, target, offset)
            if gemm is not None:
                self._replace(element, gemm, scaled)
        elif element.part is not None:
            return
        elif isinstance(element.value, x.Where):
            self._assemble(element)
        elif isinstance(element.value, x.ScalarCall) and element.value.scalar == "add":
            self._add_onto(element, element.value)

    def _is_fused(self, name: str) -> bool:
        """Whether something that is computed in loops reads it, and not the caller."""
        readers = [self.definitions.get(reader) for reader in self.readers.get(name, ())]
        loops = (reader for reader in readers if isinstance(reader, d.Element | d.Reduce | d.Scan))
        return name not in self.outputs and any(not self._is_scaling(reader) for reader in loops)

    def _is_scaling(self, reader: d.Definition) -> bool:
        """Whether it is a value times a number or one element, as the average over ranks, and no loops read it."""
        if not isinstance(reader, d.Element) or self._is_fused(reader.name):
            return False
        match reader.value:
            case x.ScalarCall("mul", factors):
                ones = [f for f in factors if isinstance(f, x.Load) and self.metas[f.buffer].numel == 1]
                return bool(ones) or any(isinstance(factor, x.Const) for factor in factors)
        return False

    def _replace(self, element: d.Element, gemm: d.Gemm, scaled: _Scaled) -> None:
        del self.definitions[scaled.load.buffer]
        if scaled.scale not in self.definitions:
            self.place[element.name] = self.place[scaled.load.buffer]
        note = f"{gemm.note}; {element.note}"
        self.definitions[element.name] = replace(gemm, name=element.name, note=note)

    def scatter_onto(self, scatter: d.Scatter) -> None:
        """A product that is the base of a scatter, and nothing else, is written in its place."""
        base = scatter.base
        gemm = self._own_gemm(base) if isinstance(base, x.Load) else None
        if gemm is None or base.dtype is not scatter.dtype or gemm.numel != scatter.numel:
            return
        if gemm.name in d.definition_reads(replace(scatter, base=x.Const(0, scatter.dtype))):
            return  # it is also what is added
        if isinstance(base, x.Load) and base.index == d.flat_of(scatter.base_axes):
            self.definitions[gemm.name] = replace(gemm, out=replace(gemm.out, source=scatter.name))
            self.definitions[scatter.name] = replace(scatter, in_place=True)

    # ---- patterns

    def _own_gemm(self, load: x.Load) -> d.Gemm | None:
        """The product behind a load that is its only use."""
        gemm = self.definitions.get(load.buffer)
        if isinstance(gemm, d.Gemm) and self.uses[load.buffer] == 1 and load.buffer not in self.outputs:
            return gemm if gemm.out.source == gemm.name and not gemm.onto and not gemm.bias else None
        return None

    def _scaled(self, value: x.Expr) -> _Scaled | None:
        """`value` as a number times a run-time scale times one load of a product of its own."""
        if isinstance(value, x.Load):
            return _Scaled(value, value.dtype) if self._own_gemm(value) is not None else None
        if self.widens and isinstance(value, x.Cast) and value.dtype is float32 and isinstance(value.arg, x.Load):
            is_half = value.arg.dtype.is_floating_point and value.arg.dtype.itemsize == 2
            scaled = self._scaled(value.arg) if is_half else None
            return replace(scaled, dtype=float32) if scaled is not None else None
        if not isinstance(value, x.ScalarCall) or value.scalar != "mul":
            return None
        for factor, other in (value.args, value.args[::-1]):
            scaled = self._scaled(other)
            if scaled is None:
                continue
            if isinstance(factor, x.Const):
                alpha = (
                    None
                    if factor.value.imag
                    else joint_factor(scaled.dtype.real, scaled.alpha, float(factor.value.real))
                )
                return None if alpha is None else replace(scaled, alpha=alpha)
            is_one = isinstance(factor, x.Load) and self.metas[factor.buffer].numel == 1
            if is_one and not scaled.scale and isinstance(factor, x.Load):
                return replace(scaled, scale=factor.buffer)
        return None

    def _joined(self, gemm: d.Gemm, scaled: _Scaled) -> float | None:
        """The number that takes the place of both alphas; None if there is none, or none beside a run-time scale."""
        scale = gemm.scale or scaled.scale
        if scale and scale not in self.shares and not gemm.alpha == scaled.alpha == 1:
            return None
        return joint_factor(scaled.dtype.real, gemm.alpha, scaled.alpha)

    def _moved(self, scaled: _Scaled, axes: d.Axes, target: str, offset: int) -> d.Gemm | None:
        """The product of `scaled` written so that element `axes` of `target` (from offset) is load.index of it."""
        gemm = self._own_gemm(scaled.load)
        alpha = None if gemm is None else self._joined(gemm, scaled)
        if gemm is None or alpha is None or (gemm.scale and scaled.scale):
            return None
        if not is_contiguous(gemm):  # it was moved before: its layout stays
            whole = self.metas[target].numel == gemm.numel
            same = whole and scaled.load.index == d.flat_of(axes)
            moved = replace(gemm, out=replace(gemm.out, source=target)) if same else None
        else:
            moved = self._relaid(gemm, scaled.load, axes, target, offset)
        if moved is None:
            return None
        scale = moved.scale or scaled.scale
        return replace(moved, dtype=scaled.dtype, alpha=alpha, scale=scale)

    def _relaid(self, gemm: d.Gemm, load: x.Load, axes: d.Axes, target: str, offset: int) -> d.Gemm | None:
        return relayout(gemm, load.index, axes, d.row_major(self.metas[target].shape), target, offset)

    # ---- concatenation

    def _assemble(self, element: d.Element) -> None:
        pieces = list(parts(element.value, {axis: (0, axis.extent) for axis in element.axes}))
        moved: list[tuple[d.Gemm, str]] = []
        strides = d.row_major(tuple(axis.extent for axis in element.axes))
        for value, box in pieces:
            scaled = None if value is None else self._scaled(value)
            if scaled is None:
                return
            axes = tuple(Axis(axis.name, high - low) for axis, (low, high) in box.items())
            shift = {axis: of_axis(new) + box[axis][0] for axis, new in zip(element.axes, axes)}
            index = d.substitute_index(scaled.load.index, shift, {})
            offset = sum(low * stride for (low, _), stride in zip(box.values(), strides))
            load = x.Load(scaled.load.buffer, index, scaled.load.dtype)
            gemm = self._moved(replace(scaled, load=load), axes, element.name, offset)
            if gemm is None:
                return
            moved.append((gemm, scaled.load.buffer))
        if sum(gemm.numel for gemm, _ in moved) != element.numel:
            return
        for gemm, name in moved:
            self.definitions[name] = gemm
        self.definitions[element.name] = d.Assembly(
            element.name, element.dtype, tuple(name for _, name in moved), element.numel, element.note
        )

    # ---- beta

    def _add_onto(self, element: d.Element, value: x.ScalarCall) -> None:
        """v = g + rest, where nothing that fuses reads v."""
        readers = [self.definitions.get(name) for name in self.readers.get(element.name, ())]
        if not all(isinstance(reader, d.Gemm) for reader in readers):
            return
        for load, rest in (value.args, value.args[::-1]):
            gemm = self._own_gemm(load) if isinstance(load, x.Load) else None
            if gemm is None or not isinstance(load, x.Load) or load.index != d.flat_of(element.axes):
                continue
            if self._is_small(rest, element.numel):
                start = f"{element.name}__start"
                self.before[element.name] = [d.Element(start, element.dtype, element.axes, rest, element.note)]
                self.metas[start] = self.metas[element.name]
                self.storage[start] = element.name
                del self.definitions[gemm.name]
                out = replace(gemm.out, source=element.name)
                self.definitions[element.name] = replace(gemm, name=element.name, out=out, onto=start)
                self.place[element.name] = self.place[gemm.name]
                return

    def _is_small(self, rest: x.Expr, numel: int) -> bool:
        """Whether all that `rest` reads is small beside the result and was there before."""
        loads = d.loads(rest)
        return all(load.buffer not in self.definitions and self.metas[load.buffer].numel * 8 <= numel for load in loads)


def _all_reads(definition: d.Definition) -> Iterable[str]:
    """Every read of a definition, with repeats."""
    if isinstance(definition, d.Element | d.Reduce):
        return [load.buffer for load in d.loads(definition.value)]
    return d.definition_reads(definition)
