"""A fused group -> one loop-IR kernel for a GPU: as many independent programs as there are rows, or a few a processor.

In: as kernel.py. Out: the statements of one kernel.

    for the other rows (parallel)          no sum over rows: every row axis is independent
      for one row axis (block)             several rows a program, side by side: registers, or coalesced transposes
        stages over a row, as in kernel.py

    for rows that results keep (parallel)  sums over rows: two stages
      for chunk in CHUNKS (parallel)       a few a multiprocessor; chunks of rows, fixed by the shapes alone
        clear this chunk's sums: locals, accumulators
        for the rows of the chunk (block of chunk): stages over a row, which add to them
        store the chunk's sums
    add up the chunks                      a nest of its own, so a launch of its own

Each sum has a fixed order, whatever runs when: the same bits at every run. How many rows stand side by side, how long a
strip of a row is, and how many warps run it is not said here: codegen/triton/tiles.py.
Where sums of one kernel keep different row axes, what one keeps and another sums is parallel, too, and the other has a
partial result for each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import identity
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import cast
from compiler_core.lowering.target import Target
from compiler_core.meta import TensorMeta
from compiler_core.schedule.finish import Partial
from compiler_core.schedule.kernel import STORE_MODE, Builder, loop_of
from compiler_core.schedule.legality import Info, LoopShape, is_row_reduction
from compiler_core.schedule.space import Space
from compiler_core.schedule.stages import StagePlan
from compiler_core.symbolic.index import ZERO, Axis, Index, of_axis

_BLOCK_COLS = 128  # columns of a program that does nothing but sum over rows
_PROGRAMS = {True: 8, False: 4}  # a multiprocessor; of those that only sum over rows, and of others
_PROGRAMS_OF_SUMS = 4  # where nothing but sums is stored: their loads are in flight without pause
_PROGRAMS_OF_NUMBERS = 64  # where what is summed over rows is a number each: nothing to store, little to add up
_STRIP = 32  # rows: longer chunks are a multiple of it
_MIN_ROWS = 4  # rows of a chunk
_MIN_FLAT = 4096  # elements of a chunk where there is but one axis


def apart_from_columns(infos: Mapping[str, Info], shape: LoopShape) -> LoopShape:
    """`shape`, without columns if it is one row whose reductions nobody inside reads: then chunks of it are summed."""
    if shape.cols != shape.numel or shape.numel < 2 * _MIN_FLAT:
        return shape
    reduced = {name for name, info in infos.items() if isinstance(info.definition, d.Reduce)}
    is_sum = all(info.domain == shape.numel and not _is_place(info.definition) for info in infos.values())
    read = {read.source for info in infos.values() for read in info.reads}
    return LoopShape(shape.numel) if is_sum and reduced.isdisjoint(read) else shape


def _is_place(definition: d.Definition) -> bool:
    return isinstance(definition, d.Reduce) and ir.REDUCING[definition.kind].is_place


def _across(infos: Mapping[str, Info], shape: LoopShape) -> list[str]:
    """The reductions that are complete only after the last row."""
    return [n for n, i in infos.items() if isinstance(i.definition, d.Reduce) and not is_row_reduction(i, shape)]


class GpuBuilder(Builder):
    """One kernel under construction. chunk: which part of the rows this program sums, as an index into partials."""

    def __init__(
        self,
        infos: Mapping[str, Info],
        shape: LoopShape,
        plan: StagePlan,
        space: Space,
        stored: Collection[str],
        metas: Mapping[str, TensorMeta],
        target: Target,
    ) -> None:
        super().__init__(infos, shape, plan, space, stored, metas, target)
        self.across, self.results = _across(infos, shape), {*stored}
        self.at_end: list[ir.Stmt] = []
        self.n_locals = 0
        self.partials: list[tuple[d.Reduce, str, int]] = []  # reduction, buffer, chunks
        self._share_out(target)

    # ---- who does what

    def _share_out(self, target: Target) -> None:
        """Sets the roles of the row axes.

        kept: parallel, a part of every result's place. chunk_axes: parallel, a part of some results' places or of none;
        sums that do not keep them have a partial result for each. block: several side by side. serial: the rest.
        """
        rows = [*self.space.rows]
        keeps = [self._kept_rows(name) for name in self.across]
        self.kept = [axis for axis in rows if all(axis in kept for kept in keeps)]
        self.chunk_axes = [axis for axis in rows if axis not in self.kept and any(axis in kept for kept in keeps)]
        summed = [axis for axis in rows if axis not in self.kept and axis not in self.chunk_axes]
        self.serial: list[Axis] = []
        self.part: Axis | None = None
        self.block = max(summed, key=lambda axis: axis.extent) if summed else self._tiled()
        if not self.across:
            return
        wanted = self._wanted_chunks(target)
        for axis in summed:
            if axis is not self.block:
                fits = axis.extent * d.domain_numel(tuple(self.chunk_axes)) <= wanted
                (self.chunk_axes if fits else self.serial).append(axis)
        wanted //= d.domain_numel(tuple(self.chunk_axes))
        if not rows and self.space.cols and self.space.cols[0].extent >= 2 * _MIN_FLAT:
            self._cut(self.space.cols[0], wanted, _MIN_FLAT)
        elif summed and self.block is not None:
            self._cut(self.block, wanted, _MIN_ROWS if self._only_sums() else 1)

    def _kept_rows(self, name: str) -> set[Axis]:
        """The row axes that the place of a sum's result moves with."""
        return d.axes_in(self.space.kept[name]) & {*self.space.rows}

    def _chunks_of(self, name: str) -> tuple[Axis, ...]:
        """The axes of which a sum has a partial result each."""
        kept = self._kept_rows(name)
        return tuple(axis for axis in self.chunk_axes if axis not in kept)

    def _cut(self, axis: Axis, wanted: int, least: int) -> None:
        """Chunks of `axis` of at least `least` iterations, about `wanted` of them."""
        each = max(least, math.ceil(axis.extent / max(wanted, 1)))
        each = math.ceil(each / _STRIP) * _STRIP if each > _STRIP else each
        count = math.ceil(axis.extent / each)
        if count > 1:
            self.part = Axis("", count)
            self.chunk_axes.append(self.part)

    def _wanted_chunks(self, target: Target) -> int:
        """How many chunks fill the machine, as long as their sums are an eighth of the data or less."""
        only_sums = self._only_sums()
        columns = math.ceil(self.space.cols[-1].extent / _BLOCK_COLS) if self.space.cols and only_sums else 1
        programs = columns * math.prod(axis.extent for axis in self.kept)
        largest = max(self._reduction(name).numel for name in self.across)
        affordable = self.shape.numel // (8 * largest)
        each = _PROGRAMS[only_sums]
        if only_sums and self.results <= {*self.across}:
            each = _PROGRAMS_OF_SUMS
        if largest == 1 and self.space.rows:
            each = _PROGRAMS_OF_NUMBERS
        return max(1, min(math.ceil(target.multiprocessors * each / programs), affordable))

    def _only_sums(self) -> bool:
        """Whether columns are independent: nothing is reduced along a row."""
        cols = {*self.space.cols[-1:]}
        rows_reduced = any(is_row_reduction(info, self.shape) for info in self.infos.values())
        return not rows_reduced and all(cols <= d.axes_in(self.space.kept[name]) for name in self.across)

    def _reduction(self, name: str) -> d.Reduce:
        definition = self.infos[name].definition
        assert isinstance(definition, d.Reduce), f"{name} is no reduction"
        return definition

    def _tiled(self) -> Axis | None:
        """The row axis of which a program takes several: one that memory is contiguous along where columns are not."""
        if not self.space.rows:
            return None
        innermost = {*self.space.cols[-1:]}
        for value in self.space.values.values():
            for load in d.loads(value):
                for axis in self.space.rows:
                    apart = all(load.index.coefficient(col) not in (0, 1) for col in innermost)
                    if load.index.coefficient(axis) == 1 and apart and innermost:
                        return axis
        return self.space.rows[-1]

    # ---- sums over rows

    def _reduce_row_value(self, reduction: d.Reduce, value: x.Expr) -> None:
        self._add(reduction, value, self.rows)

    def _reduce_across(self, reduction: d.Reduce, value: x.Expr, column: list[ir.Stmt], tail: list[ir.Stmt]) -> None:
        self._add(reduction, value, column)

    def _add(self, reduction: d.Reduce, value: x.Expr, block: list[ir.Stmt]) -> None:
        """Add `value` to this chunk's sum: a scalar, or a local with one element a column."""
        target, index = self._chunk_result(reduction)
        moving = [axis for axis in self.space.cols if axis in d.axes_in(self.space.kept[reduction.name])]
        if not moving:
            total = self._accumulator(reduction, self.at_chunk)
            block.append(ir.Accumulate(total.name, value))
            self.at_end.append(ir.Store(target, index, self._result(reduction, total)))
            return
        local, place = self._local(), d.flat_of(tuple(moving))
        numel = d.domain_numel(tuple(moving))
        start = x.Const(identity(reduction.kind, reduction.accumulate).item(), reduction.accumulate)
        self.at_chunk += [ir.Local(local, reduction.accumulate, numel), *_each(moving, ir.Store(local, place, start))]
        loaded = x.Load(local, place, reduction.accumulate)
        self.at_end += _each(moving, ir.Store(target, index, self._result(reduction, loaded)))
        mode = STORE_MODE[reduction.kind]
        if moving[-1] is self.space.cols[-1]:
            block.append(ir.Store(local, place, value, mode))
            return
        in_line = self._accumulator(reduction, self.line)
        block.append(ir.Accumulate(in_line.name, value))
        self.line_tail.append(ir.Store(local, place, in_line, mode))

    def _local(self) -> str:
        self.n_locals += 1
        return f"s{self.n_locals - 1}"

    def _chunk_result(self, reduction: d.Reduce) -> tuple[str, Index]:
        """Where a chunk's sum goes: buffer and index."""
        kept, axes = self.space.kept[reduction.name], self._chunks_of(reduction.name)
        chunks = d.domain_numel(axes)
        if chunks == 1:
            return self.params.write(reduction.name), kept
        target = self.params.partial(Partial(reduction.name, reduction.accumulate, chunks * reduction.numel))
        self.partials.append((reduction, target, chunks))
        return target, kept + d.flat_of(axes) * reduction.numel

    def _result(self, reduction: d.Reduce, total: x.Expr) -> x.Expr:
        """What a chunk stores."""
        return total if d.domain_numel(self._chunks_of(reduction.name)) > 1 else cast(total, reduction.dtype)

    def _sum_up_chunks(self) -> Iterator[ir.Stmt]:
        """Nests that add the chunks' sums, one for all sums of a size."""
        for size, chunks in dict.fromkeys((reduction.numel, chunks) for reduction, _, chunks in self.partials):
            chosen = [(r, target) for r, target, n in self.partials if (r.numel, n) == (size, chunks)]
            chunk = Axis("", chunks)
            yield from self._add_chunks(chosen, chunk) if size == 1 else self._add_lines(chosen, size, chunk)

    def _add_chunks(self, sums: Sequence[tuple[d.Reduce, str]], chunk: Axis) -> Iterator[ir.Stmt]:
        """Sums of one element."""
        declared: list[ir.Stmt] = []
        adds: list[ir.Stmt] = []
        stores: list[ir.Stmt] = []
        for reduction, source in sums:
            total = self._accumulator(reduction, declared)
            adds.append(ir.Accumulate(total.name, x.Load(source, of_axis(chunk), reduction.accumulate)))
            stores.append(ir.Store(self.params.write(reduction.name), ZERO, cast(total, reduction.dtype)))
        yield from [*declared, loop_of(chunk, "vector", adds), *stores]

    def _add_lines(self, sums: Sequence[tuple[d.Reduce, str]], size: int, chunk: Axis) -> Iterator[ir.Stmt]:
        """Sums of `size` elements."""
        lane = Axis("", size)
        place = of_axis(lane)
        clears: list[ir.Stmt] = []
        adds: list[ir.Stmt] = []
        stores: list[ir.Stmt] = []
        for reduction, source in sums:
            local = self._local()
            start = x.Const(identity(reduction.kind, reduction.accumulate).item(), reduction.accumulate)
            yield ir.Local(local, reduction.accumulate, size)
            clears.append(ir.Store(local, place, start))
            value = x.Load(source, of_axis(chunk) * size + place, reduction.accumulate)
            adds.append(ir.Store(local, place, value, STORE_MODE[reduction.kind]))
            total = cast(x.Load(local, place, reduction.accumulate), reduction.dtype)
            stores.append(ir.Store(self.params.write(reduction.name), place, total))
        yield loop_of(lane, "vector", clears)
        yield loop_of(chunk, "block", [loop_of(lane, "vector", adds)])
        yield loop_of(lane, "vector", stores)

    # ---- loops

    def build(self) -> list[ir.Stmt]:
        nest = super().build()
        return [*nest, *self._sum_up_chunks()]

    def _can_vectorise(self, body: tuple[ir.Stmt, ...], axis: Axis) -> bool:
        """Checks are no hindrance in a block of rows."""
        return super()._can_vectorise(_unchecked(body) if self.block is not None else body, axis)

    def _column_loops(self, column: list[ir.Stmt]) -> list[ir.Stmt]:
        """Where there are no rows, columns are shared out, and checks stand in a block of them."""
        loops = super()._column_loops(column)
        if self.space.rows or not self.space.cols:
            return loops
        return [self._outermost(stmt) if isinstance(stmt, ir.Loop) else stmt for stmt in loops]

    def _outermost(self, loop: ir.Loop) -> ir.Loop:
        kind = loop.kind
        if kind == "serial" and super()._can_vectorise(_unchecked(loop.body), self.space.cols[0]):
            kind = "block"
        return replace(loop, kind=kind, part_of=self.part)

    def _row_loops(self, rows: list[ir.Stmt]) -> list[ir.Stmt]:
        shared_out = [*self.kept, *self.chunk_axes]
        whole = not self.across or self.block in shared_out  # then each row of a block is a chunk of its own
        inside = [*self.at_chunk, *rows, *self.at_end] if whole else rows
        body = inside
        if self.block is not None:
            part = self.part if self.part is not None and self.space.rows else None
            body = [loop_of(self.block, "block", body, part)]
        for axis in reversed(self.serial):
            body = [loop_of(axis, "serial", body)]
        if not whole:
            body = [*self.at_chunk, *body, *self.at_end]
        for axis in reversed([axis for axis in shared_out if axis is not self.block]):
            body = [loop_of(axis, "parallel", body)]
        return body


def _unchecked(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    return tuple(stmt for stmt in body if not isinstance(stmt, ir.Check))


def _each(axes: Sequence[Axis], stmt: ir.Stmt) -> list[ir.Stmt]:
    """`stmt` for all values of `axes`, the innermost side by side."""
    body = [stmt]
    for depth, axis in enumerate(reversed(axes)):
        body = [loop_of(axis, "vector" if depth == 0 else "serial", body)]
    return body
