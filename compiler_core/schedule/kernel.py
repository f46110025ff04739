"""A fused group -> one loop-IR kernel.

In: a group's members (`Info`s, in order), its `LoopShape`, and which members are needed outside. Out: `Built`: the
kernel and the value or partial result behind each of its params.

    [clear partial results, if there is one chunk]
    for rows                       parallel, unless rows are summed and no arrangement keeps their sums apart
      [clear this chunk's partial results, once a chunk]
      [for rows of this chunk]     where chunks are a loop of their own
      for each stage: row scalars; for cols (vector): Lets, stores, accumulates; row results
    [partial results added, one pass a reduction]
A reduction across rows whose result moves with an outer column axis, but not with the innermost, is summed along that
one first. That is the CPU's nest; the GPU's is in gpu.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.checking import is_of_values
from compiler_core.loop_ir.interpret import identity
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import call, cast
from compiler_core.lowering.target import Target
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass
from compiler_core.schedule.chunks import is_worth_threads
from compiler_core.schedule.equal import Fingerprint, KernelRecipe
from compiler_core.schedule.finish import Argument, KernelTable, ParamTable, Partial
from compiler_core.schedule.legality import Info, LoopShape, is_row_reduction
from compiler_core.schedule.space import Space, make_space
from compiler_core.schedule.stages import StagePlan, plan_stages
from compiler_core.schedule.translate import Translator
from compiler_core.symbolic.index import ZERO, Axis, Index, of_axis

_STEM_OPS = 4
STORE_MODE: dict[str, ir.StoreMode] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Built:
    """A kernel with the value or Partial that each param stands for. note: the nodes in it, for comments."""

    kernel: ir.Kernel
    arguments: tuple[Argument, ...]
    note: str


def build_kernel(
    infos: Mapping[str, Info],
    shape: LoopShape,
    stored: Collection[str],
    metas: Mapping[str, TensorMeta],
    table: KernelTable,
) -> Built:
    """The kernel that computes all of `infos` and stores those in `stored`.

    metas: of every value that is read or stored.
    """
    group = Fingerprint(infos, shape, stored, metas)
    if group.text not in table.recipes:
        builder = _builder(infos, shape, stored, metas, table.target)
        body = builder.build()
        made = built(body, builder.params, [info.definition for info in infos.values()], table)
        table.recipes[group.text] = KernelRecipe.of(made.kernel, made.arguments, group, infos)
        return made
    recipe = table.recipes[group.text]
    return Built(recipe.kernel, recipe.arguments(group, infos), _note(info.definition for info in infos.values()))


def _builder(
    infos: Mapping[str, Info],
    shape: LoopShape,
    stored: Collection[str],
    metas: Mapping[str, TensorMeta],
    target: Target,
) -> Builder:
    from compiler_core.schedule.gpu import GpuBuilder, apart_from_columns
    from compiler_core.schedule.online import gone_over_once

    if target.is_gpu:
        shape = apart_from_columns(infos, shape)
        infos = gone_over_once(infos, shape, stored)
    plan = plan_stages(infos, shape, stored, target)
    space = make_space(infos, plan.levels, shape, target)
    if target.is_gpu:
        return GpuBuilder(infos, shape, plan, space, stored, metas, target)
    return Builder(infos, shape, plan, space, stored, metas, target)


def _note(definitions: Iterable[d.Definition]) -> str:
    return "; ".join(definition.note for definition in definitions)


def built(
    body: Sequence[ir.Stmt], params: ParamTable, definitions: Sequence[d.Definition], table: KernelTable
) -> Built:
    """Close a kernel: canonical names, shared with equal ones."""
    kernel = table.finish(_stem(definitions), body, params.params())
    return Built(kernel, tuple(params.arguments), _note(definitions))


def _stem(definitions: Sequence[d.Definition]) -> str:
    """A name that says what the kernel does: the ops of its last values."""
    ops = dict.fromkeys(_op_of(definition) for definition in definitions)
    return "_".join([*ops][-_STEM_OPS:])


def _op_of(definition: d.Definition) -> str:
    """`softmax` from `%softmax_1 = softmax  model.py:12`."""
    words = definition.note.split()
    return words[2] if len(words) > 2 and words[1] == "=" else "copy"


class Builder:
    """One kernel under construction; its axes get their names in `finish`."""

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
        self.infos, self.shape, self.plan, self.space, self.stored = infos, shape, plan, space, stored
        self.target = target
        self.params = ParamTable(metas)
        self.translate = Translator(
            space.cols, self.resolve, self.params.read, lambda name: None if name in infos else metas[name].numel
        )
        self.rows: list[ir.Stmt] = []
        self.before: list[ir.Stmt] = []
        self.at_chunk: list[ir.Stmt] = []
        self.line: list[ir.Stmt] = []  # around the innermost column loop of the stage at hand
        self.line_tail: list[ir.Stmt] = []
        self.after: list[ir.Stmt] = []
        self.values: dict[str, x.Expr] = {}  # row members, and full members of the current stage
        self.scratch: dict[str, str] = {}
        self.n_accumulators = 0
        self.last_places: set[str] = set()
        self.stage = 0

    # ---- what a load of another member is

    def resolve(self, load: x.Load) -> x.Expr | None:
        name = load.buffer
        if name not in self.infos:
            return None
        if name in self.values:
            return self.values[name]
        if self.plan.kept.get(name) == "scratch":
            return x.Load(self.scratch[name], self.space.col, load.dtype)
        return x.Load(self.params.read(name), self.space.flat, load.dtype)

    # ---- the pieces

    def build(self) -> list[ir.Stmt]:
        for stage in range(self.plan.stages):
            self.stage = stage
            self._row_members()
            self._column_loop()
        nest = self._row_loops(self.rows)
        return [*self.before, *nest, *self.after]

    def _row_members(self) -> None:
        """Row values that are complete before this stage's column loop."""
        for name, info in self.infos.items():
            if self.plan.levels[name] != "row" or self.plan.ready.get(name) != self.stage:
                continue
            self.translate.enter(self.rows, None)
            value = self.translate(self.space.values[name])
            if isinstance(info.definition, d.Reduce):
                self._reduce_row_value(info.definition, value)
                continue
            self.values[name] = self.translate.let(self.rows, value)
            if name in self.stored:
                self.rows.append(self._store(name, self.space.row))

    def _reduce_row_value(self, reduction: d.Reduce, value: x.Expr) -> None:
        """A reduction across rows of what each row has one of."""
        target, index = self._partial(reduction)
        self.rows.append(ir.Store(target, index, value, STORE_MODE[reduction.kind]))

    def _column_loop(self) -> None:
        """One pass over the columns: everything full of this stage."""
        column: list[ir.Stmt] = []
        tail: list[ir.Stmt] = []
        finished: dict[str, x.Expr] = {}
        for name, info in self.infos.items():
            if self.plan.levels[name] != "full" or self.stage not in self.plan.computed[name]:
                continue
            self.translate.enter(self.rows, column)
            value = self.translate(self.space.values[name])
            if isinstance(info.definition, d.Reduce):
                self._reduce(info, info.definition, value, column, tail, finished)
            else:
                self._element(name, value, column)
        if column:
            self.rows += self._column_loops(column)
        self.rows += tail
        for name in [n for n in self.values if self._ends_with_the_loop(n)]:
            del self.values[name]
        self.values.update(finished)

    def _ends_with_the_loop(self, name: str) -> bool:
        """Whether a member is a Let of the column block; the result of a reduction lasts as long as the row."""
        return self.plan.levels[name] == "full" and not isinstance(self.infos[name].definition, d.Reduce)

    def _element(self, name: str, value: x.Expr, column: list[ir.Stmt]) -> None:
        self.values[name] = self.translate.let(column, value)
        if self.plan.home[name] != self.stage:
            return
        if name in self.stored:
            column.append(self._store(name, self.space.flat))
        if self.plan.kept.get(name) == "scratch":
            local = f"s{len(self.scratch)}"
            self.scratch[name] = local
            self.rows.append(ir.Local(local, value.dtype, self.shape.cols or 1))
            column.append(ir.Store(local, self.space.col, self.values[name]))

    def _store(self, name: str, index: Index) -> ir.Store:
        """An Element to its memory, its own or its part of another value's."""
        definition = self.infos[name].definition
        if isinstance(definition, d.Element) and definition.part is not None:
            return ir.Store(self.params.part(definition), self.space.kept[name], self.values[name])
        return ir.Store(self.params.write(name), index, self.values[name])

    def _reduce(
        self,
        info: Info,
        reduction: d.Reduce,
        value: x.Expr,
        column: list[ir.Stmt],
        tail: list[ir.Stmt],
        finished: dict[str, x.Expr],
    ) -> None:
        """A reduction that this stage's column loop feeds."""
        if is_row_reduction(info, self.shape):
            accumulator = self._accumulator(reduction, self.rows)
            at = self.space.col if ir.REDUCING[reduction.kind].is_place else None
            column.append(ir.Accumulate(accumulator.name, value, at))
            result = cast(accumulator, reduction.dtype)
            finished[reduction.name] = result
            if reduction.name in self.stored:
                tail.append(ir.Store(self.params.write(reduction.name), self.space.row, result))
            return
        self._reduce_across(reduction, value, column, tail)

    def _reduce_across(self, reduction: d.Reduce, value: x.Expr, column: list[ir.Stmt], tail: list[ir.Stmt]) -> None:
        """A reduction across rows of what each element has one of."""
        target, index = self._partial(reduction)
        mode = STORE_MODE[reduction.kind]
        cols, moving = self.space.cols, d.axes_in(index)
        if cols and cols[-1] in moving:
            column.append(ir.Store(target, index, value, mode))
            return
        in_line = not moving.isdisjoint(cols)  # summed along the innermost columns, before the outer ones go on
        accumulator = self._accumulator(reduction, self.line if in_line else self.rows)
        column.append(ir.Accumulate(accumulator.name, value))
        (self.line_tail if in_line else tail).append(ir.Store(target, index, accumulator, mode))

    def _accumulator(self, reduction: d.Reduce, block: list[ir.Stmt]) -> x.Var:
        """A new accumulator, declared in `block`."""
        name = f"a{self.n_accumulators}"
        self.n_accumulators += 1
        block.append(ir.Accumulator(name, reduction.accumulate, reduction.kind))
        is_place = ir.REDUCING[reduction.kind].is_place
        if ir.REDUCING[reduction.kind].last_nan:
            self.last_places.add(name)
        return x.Var(name, reduction.dtype if is_place else reduction.accumulate)

    def _partial(self, reduction: d.Reduce) -> tuple[str, Index]:
        """Where a reduction across rows accumulates: buffer and index. Clears it before, sums it up after."""
        kept = self.space.kept[reduction.name]
        chunks, numel = self.space.chunks, reduction.numel
        if chunks == 1 and reduction.dtype is reduction.accumulate:
            target = self.params.write(reduction.name)
            self.before.append(_fill(target, numel, ZERO, reduction, self._new_axis(numel)))
            return target, kept
        target = self.params.partial(Partial(reduction.name, reduction.accumulate, chunks * numel))
        first = of_axis(self.space.part or self.space.rows[0]) * numel if chunks > 1 else ZERO
        clears = self.at_chunk if chunks > 1 else self.before
        clears.append(_fill(target, numel, first, reduction, self._new_axis(numel)))
        self.after.append(self._sum_up(target, reduction, chunks))
        return target, kept + first

    def _new_axis(self, extent: int) -> Axis:
        return Axis("", extent)

    def _sum_up(self, source: str, reduction: d.Reduce, chunks: int) -> ir.Stmt:
        """The results of all chunks combined as a balanced tree, element by element."""
        axis = self._new_axis(reduction.numel)
        terms: list[x.Expr] = [
            x.Load(source, of_axis(axis) + k * reduction.numel, reduction.accumulate) for k in range(chunks)
        ]
        while len(terms) > 1:
            pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
            terms = [call(ir.REDUCING[reduction.kind].scalar, (p[0], p[1])) if len(p) == 2 else p[0] for p in pairs]
        result = cast(terms[0], reduction.dtype)
        return _each(axis, ir.Store(self.params.write(reduction.name), of_axis(axis), result))

    # ---- loops

    def _column_loops(self, column: list[ir.Stmt]) -> list[ir.Stmt]:
        nest: tuple[ir.Stmt, ...] = tuple(column)
        line, line_tail, self.line, self.line_tail = self.line, self.line_tail, [], []
        for depth, axis in enumerate(reversed(self.space.cols)):
            kind: ir.LoopKind = "vector" if depth == 0 and self._can_vectorise(nest, axis) else "serial"
            nest = (loop_of(axis, kind, nest),)
            if depth == 0:
                nest = (*line, *nest, *line_tail)
        return list(nest)

    def _can_vectorise(self, body: tuple[ir.Stmt, ...], axis: Axis) -> bool:
        return _can_vectorise(body, axis, self.last_places)

    def _row_loops(self, rows: list[ir.Stmt]) -> list[ir.Stmt]:
        nest: tuple[ir.Stmt, ...] = tuple(rows)
        part = self.space.part
        axes = self.space.rows if part is None else (part, *self.space.rows)
        parallel = self.space.apart and is_worth_threads(self.shape.numel, self.target)
        for axis in reversed(axes):
            if axis is axes[0]:
                nest = (*self.at_chunk, *nest)
            kind: ir.LoopKind = "parallel" if parallel and axis is axes[0] else "serial"
            share = part if part is not None and axis is self.space.rows[0] else None
            nest = (loop_of(axis, kind, nest, part_of=share),)
        return list(nest)


def loop_of(
    axis: Axis,
    kind: ir.LoopKind,
    body: Sequence[ir.Stmt],
    part_of: Axis | None = None,
    span: tuple[Index, Index] | None = None,
) -> ir.Loop:
    """`body` for every value of `axis`, which gets its name in `finish`."""
    return ir.Loop(axis, kind, tuple(body), part_of, span)


def _fill(target: str, numel: int, first: Index, reduction: d.Reduce, axis: Axis) -> ir.Stmt:
    start = x.Const(identity(reduction.kind, reduction.accumulate).item(), reduction.accumulate)
    return _each(axis, ir.Store(target, first + of_axis(axis), start))


def _each(axis: Axis, stmt: ir.Stmt) -> ir.Stmt:
    """`stmt` for every value of `axis`; no loop for one."""
    return stmt if axis.extent == 1 else loop_of(axis, "vector", (stmt,))


def _can_vectorise(body: tuple[ir.Stmt, ...], axis: Axis, last_places: Collection[str]) -> bool:
    """Whether iterations along `axis` may run side by side: no checks of places, no two stores to one address, and no

    search for the last NaN (`last_places`: the accumulators that do).
    """
    for stmt in body:
        if isinstance(stmt, ir.Accumulate) and stmt.name in last_places:
            return False
        if isinstance(stmt, ir.Check) and not is_of_values(stmt, body):
            return False
        if isinstance(stmt, ir.Store) and stmt.index.coefficient(axis) == 0:
            return False
    return True
