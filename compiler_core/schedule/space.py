"""The loop axes of a kernel, rows x cols: as few as keep every index affine.

In: a group's members and its `LoopShape`. Out: `Space`: axes, outermost first, and each member's expression over them.
Method: the suffix products of all members' shapes are the places where a flat index may be cut; those that divide each
other are cut. Where an index still needs // or % of an axis, that place is cut too, once. Then neighbouring axes are
merged again if every index has stride(outer) = stride(inner) * extent(inner). For a GPU an innermost axis of few
columns is given up at the end: the kernel's indices keep // and % there (`_wide`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.target import CPU, Target
from compiler_core.records import dataclass
from compiler_core.schedule.chunks import LONG_ROW, MAX_CHUNKS, SHORT_ROW, long_row, n_chunks
from compiler_core.schedule.legality import Info, Level, LoopShape, is_row_reduction
from compiler_core.symbolic.index import Axis, Div, Index, Mod, of_axis

_NARROW = 16  # columns of a GPU's row that are worth an axis of their own
_FEW = 1024  # elements of a GPU's program


@dataclass(frozen=True)
class Space:
    """rows, cols: axes, outermost first. flat: the element's number; row: the row's number; col: the column's.

    values: each member's expression, and kept: the result index of each reduction and part, over these axes.
    chunks: in how many pieces rows are summed; if it is more than one, the extent of rows[0], or of `part`, whose
    iterations share rows[0] out (see chunks.py).
    apart: whether iterations of rows[0] may run at once: chunked, or no two of them add to one result.
    """

    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    flat: Index
    row: Index
    col: Index
    values: dict[str, x.Expr]
    kept: dict[str, Index]
    chunks: int = 1
    apart: bool = True
    part: Axis | None = None


def make_space(infos: Mapping[str, Info], levels: Mapping[str, Level], shape: LoopShape, target: Target = CPU) -> Space:
    """The loop axes of a group. For a GPU rows are neither cut nor arranged: gpu.py shares them out."""
    must = _chain(_result_cuts(infos, levels, shape), shape.numel, shape.cols or 1)
    space, cuts = _minimal(infos, levels, shape, must)
    is_flat = shape.cols is None
    if is_flat:
        cols = space.cols[-1].extent if space.cols else 1
        if cols > LONG_ROW and not target.is_gpu:
            cols = long_row(cols, _shape_cuts(infos, levels, 1), target)
        if target.is_gpu:
            cuts = _wide(space, cuts, must, in_rows=False)
            cols = cuts[1] if len(cuts) > 1 else cols
        shape = LoopShape(shape.numel, cols)
        space = _build(infos, levels, shape, _chain([*cuts, cols], shape.numel, cols))
    if target.is_gpu:
        wide = cuts if is_flat else _wide(space, cuts, must, in_rows=True)
        return space if wide == cuts else _build(infos, levels, shape, wide)
    across = {
        name: info.result
        for name, info in infos.items()
        if isinstance(info.definition, d.Reduce) and not is_row_reduction(info, shape)
    }
    if not across or not space.rows or _row_that_keeps_apart(space, across, 1):
        return space

    def cut_at(stride: int, cols: int) -> Space:
        strides = [space.flat.coefficient(axis) for axis in (*reversed(space.cols), *reversed(space.rows))]
        return _build(infos, levels, LoopShape(shape.numel, cols), _chain([*strides, stride], shape.numel, cols))

    return _arranged(space, across, shape, is_flat, cut_at, target)


def _arranged(
    space: Space,
    across: Mapping[str, int],
    shape: LoopShape,
    is_flat: bool,
    cut_at: Callable[[int, int], Space],
    target: Target,
) -> Space:
    """`space` with rows[0] such that it can run in parallel though rows are summed, if there is a way.

    across: elements of each sum over rows. cut_at(stride, cols): the space with one more axis.
    """
    outer = space.rows[0]
    chunks = n_chunks(outer.extent, max(across.values()), shape.numel, target)
    if chunks > 1 and target.many_sizes:
        return replace(space, chunks=chunks, part=Axis("", chunks))
    if chunks > 1:
        stride = space.flat.coefficient(outer) * (outer.extent // chunks)
        return replace(space if chunks == outer.extent else cut_at(stride, shape.cols or 1), chunks=chunks)
    inner = space.cols[0].extent if space.cols else 1
    if is_flat and inner >= 2 * SHORT_ROW:
        piece = inner // max(k for k in range(1, MAX_CHUNKS + 1) if inner % k == 0)
        space = cut_at(piece, piece)
    axis = _row_that_keeps_apart(space, across, len(space.rows))
    if axis is None:
        return replace(space, apart=False)
    return replace(space, rows=(axis, *(other for other in space.rows if other is not axis)))


def _row_that_keeps_apart(space: Space, sums: Iterable[str], n: int) -> Axis | None:
    """The first of the n outermost row axes of which no two values add to one result."""
    kept = [space.kept[name] for name in sums]
    return next((axis for axis in space.rows[:n] if all(_keeps_apart(index, axis) for index in kept)), None)


def _keeps_apart(index: Index, axis: Axis) -> bool:
    """Whether different values of `axis` never give the same index."""
    step = index.coefficient(axis)
    if step <= 0 or not index.is_linear:
        return False
    low, high = (index - of_axis(axis) * step).bounds
    return high - low < step


def _minimal(
    infos: Mapping[str, Info], levels: Mapping[str, Level], shape: LoopShape, must: list[int]
) -> tuple[Space, list[int]]:
    """As few axes as the indices allow, and their strides. must: strides of sums over rows, which come first."""
    cols = shape.cols or 1
    cuts = _chain(_shape_cuts(infos, levels, cols), shape.numel, cols, must)
    space = _build(infos, levels, shape, cuts)
    extra = _digit_cuts(space)
    if extra:
        cuts = _chain([*cuts, *extra], shape.numel, cols, must)
        space = _build(infos, levels, shape, cuts)
    fewer = _mergeable(space, cuts, shape)
    if fewer != cuts:
        space = _build(infos, levels, shape, fewer)
    return space, fewer


def _wide(space: Space, cuts: list[int], must: list[int], *, in_rows: bool) -> list[int]:
    """For a GPU: `cuts` without the innermost, where there are so few columns that a program would have next to nothing
    to do side by side: then indices keep // and % of one axis, and memory is read along it.

    in_rows: the columns are a row's, one axis after the other; else the second innermost stands side by side, too.
    """
    extents = [axis.extent for axis in reversed(space.cols)]
    if len(extents) < 2 or cuts[1] in must:
        return cuts
    is_narrow = extents[0] < _NARROW if in_rows else max(2 * extents[0], math.prod(extents[:2])) < _FEW
    return [1, *cuts[2:]] if is_narrow else cuts


def _shape_cuts(infos: Mapping[str, Info], levels: Mapping[str, Level], cols: int) -> list[int]:
    cuts = []
    for name, info in infos.items():
        definition = info.definition
        assert isinstance(definition, d.Element | d.Reduce), "only elements and reductions share loops"
        unit = cols if levels[name] == "row" else 1
        cuts += [unit * stride for stride in d.row_major(tuple(axis.extent for axis in definition.axes))]
    return cuts


def _result_cuts(infos: Mapping[str, Info], levels: Mapping[str, Level], shape: LoopShape) -> list[int]:
    """The strides of sums over rows: an axis across one of their axes would be kept and summed at once."""
    sums = {n: i for n, i in infos.items() if isinstance(i.definition, d.Reduce) and not is_row_reduction(i, shape)}
    return _shape_cuts(sums, levels, shape.cols or 1)


def _chain(cuts: Iterable[int], numel: int, cols: int, must: Iterable[int] = ()) -> list[int]:
    """Ascending strides, 1 first, each dividing the next and numel; `cols` and `must` are among them."""
    chain = [1]
    required = {cols, numel, *must}
    for cut in sorted(set(cuts) | required):
        fits = all(r % cut == 0 or cut % r == 0 for r in required)
        if cut > chain[-1] and cut < numel and cut % chain[-1] == 0 and fits:
            chain.append(cut)
    return chain


def _build(infos: Mapping[str, Info], levels: Mapping[str, Level], shape: LoopShape, cuts: list[int]) -> Space:
    """Axes with the strides `cuts`, and everything over them."""
    cols = shape.cols or 1
    ends = [*cuts[1:], shape.numel]
    axes = [Axis("", end // cut) for cut, end in zip(cuts, ends)]
    flat = Index({a: cut for a, cut in zip(axes, cuts) if a.extent != 1}, 0)
    row = Index({a: cut // cols for a, cut in zip(axes, cuts) if a.extent != 1 and cut >= cols}, 0)
    col = Index({a: cut for a, cut in zip(axes, cuts) if a.extent != 1 and cut < cols}, 0)
    values: dict[str, x.Expr] = {}
    kept: dict[str, Index] = {}
    digits: dict[tuple[Level, tuple[int, ...]], list[Index]] = {}
    for name, info in infos.items():
        definition = info.definition
        assert isinstance(definition, d.Element | d.Reduce), "only elements and reductions share loops"
        key = levels[name], tuple(axis.extent for axis in definition.axes)
        if key not in digits:
            digits[key] = d.unflatten(flat if levels[name] == "full" else row, key[1])
        table = {axis: digit for axis, digit in zip(definition.axes, digits[key]) if axis.extent != 1}
        memo: dict[x.Expr, x.Expr] = {}
        values[name] = d.substitute(definition.value, table, memo)
        if isinstance(definition, d.Reduce):
            kept[name] = d.substitute_index(definition.kept, table, memo)
        elif definition.part is not None:
            kept[name] = d.substitute_index(definition.part.index, table, memo)
    live = [(a, cut) for a, cut in zip(axes, cuts) if a.extent != 1]
    outer = tuple(a for a, cut in reversed(live) if cut >= cols) if shape.cols else ()
    inner = tuple(a for a, cut in reversed(live) if cut < cols) if shape.cols else tuple(a for a, _ in reversed(live))
    return Space(outer, inner, flat, row if shape.cols else Index({}, 0), col if shape.cols else flat, values, kept)


def _all_indices(space: Space) -> Iterable[Index]:
    for value in space.values.values():
        for part in d.walk_all(value):
            yield from d.indices(part)
    yield from space.kept.values()


def _digit_cuts(space: Space) -> list[int]:
    """Strides at which some index cuts an axis with // or %."""
    cuts = []
    for index in dict.fromkeys(_all_indices(space)):
        for atom in index.terms:
            if isinstance(atom, Div | Mod):
                cuts += _cuts_of(atom, space.flat)
    return cuts


def _cuts_of(atom: Div | Mod, flat: Index) -> list[int]:
    cuts = []
    for inner, coefficient in atom.arg.terms.items():
        if isinstance(inner, Axis) and atom.n % coefficient == 0:
            cuts.append(flat.coefficient(inner) * (atom.n // coefficient))
        elif isinstance(inner, Div | Mod):
            cuts += _cuts_of(inner, flat)
    return cuts


def _mergeable(space: Space, cuts: list[int], shape: LoopShape) -> list[int]:
    """`cuts` without those that no index needs."""
    axes = [*reversed(space.cols), *reversed(space.rows)]  # innermost first
    by_stride = {space.flat.coefficient(axis): axis for axis in axes}
    indices = list(dict.fromkeys(_all_indices(space)))
    keep = [1]
    for cut in cuts[1:]:
        outer = by_stride.get(cut)
        inner = _inner_neighbour(cut, axes, space.flat)
        if outer is None:
            continue
        if inner is None or cut == shape.cols or not all(_merges(i, outer, inner) for i in indices):
            keep.append(cut)
    return keep


def _inner_neighbour(cut: int, axes: list[Axis], flat: Index) -> Axis | None:
    below = [axis for axis in axes if flat.coefficient(axis) < cut]
    return below[-1] if below else None


def _merges(index: Index, outer: Axis, inner: Axis) -> bool:
    """Whether the two axes act in `index` as one."""
    if index.coefficient(outer) != index.coefficient(inner) * inner.extent:
        return False
    # what a Data reads is among the indices that walk_all yields; inside Div and Mod the two must not differ
    return all(_merges(atom.arg, outer, inner) for atom in index.terms if isinstance(atom, Div | Mod))
