"""Accumulators, and locals that rows are added into: blocks of lanes reduced.

In: the scope, how many lanes each axis has, which axes are rows. Out: lines of Triton.
An accumulator belongs to the block that declares it: it differs along the lane axes that are open there, and what feeds
it further inside is reduced along the others. Where a loop feeds it, it is kept lane by lane until the loop is done:
one reduction, instead of one a strip. A local that rows are added into is kept row by row likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import field

from compiler_core.codegen.triton.expressions import Dims, ExprPrinter, Scope
from compiler_core.codegen.triton.types import literal, register_type
from compiler_core.dtype import DType, bool_, float32, int64
from compiler_core.loop_ir.expr import Expr
from compiler_core.loop_ir.interpret import identity
from compiler_core.loop_ir.ir import REDUCING, Accumulate, Accumulator, Local, Loop, Stmt, Store, walk
from compiler_core.records import dataclass

GROUP = 8  # lanes of one thread: a 16-byte access of 16-bit floats


def neutral(kind: str, dtype: DType) -> str:
    """What an accumulator of `kind` starts from."""
    return literal(identity(kind, dtype).item(), dtype)


@dataclass(slots=True)
class Pending:
    """What is kept lane by lane until the loops that feed it are done. inner: the axes that are then reduced.

    outer, depth: the lane axes, and the nesting, of the block that declares it.
    """

    name: str
    kind: str
    dtype: DType
    inner: Dims
    outer: Dims
    depth: int


@dataclass
class Reducer:
    """counts: lanes of each axis. rows: the axes of block loops with several lanes. two: do blocks have two axes?"""

    scope: Scope
    expr: ExprPrinter
    counts: dict[str, int]
    rows: set[str]
    two: bool
    helpers: set[str]
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    outer: dict[str, Dims] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    maxima: dict[str, str] = field(default_factory=dict)  # of a sum of exponentials: the maximum of what feeds it

    # -- shapes

    def lane_numbers(self, loop: Loop, lanes: int) -> str:
        """0, 1, ... as a block along the loop's axis."""
        side = ("[:, None]" if loop.kind == "block" else "[None, :]") if self.two else ""
        return f"tl.arange(0, {lanes}){side}"

    def filled(self, dims: Dims, value: bool | int | float | complex, dtype: DType) -> str:
        """A block of `value` along `dims`; a scalar if there are none."""
        text = literal(value, dtype)
        if not dims:
            return text
        return text.replace("tl.full(()", f"tl.full(({self._shape(dims)})", 1)

    def _shape(self, dims: Dims) -> str:
        rows = next((self.counts[axis] for axis in dims if axis in self.rows), 1)
        columns = next((self.counts[axis] for axis in dims if axis not in self.rows), 1)
        return f"{rows}, {columns}" if self.two else f"{max(rows, columns)},"

    def masked(self, value: str, expr: Expr, start: str, dims: Dims | None = None) -> str:
        """`value` as a block along `dims` (all open axes), `start` in lanes that do not count."""
        wanted = frozenset(self.scope.axes) if dims is None else dims
        masks = self.expr.lane_masks(wanted)
        has = self.expr.dims(expr) | {axis for axis, mask in self.scope.axes.items() if mask}
        masks += [f"({axis} >= 0)" for axis in self.scope.axes if axis in wanted - has]
        return f"tl.where({' & '.join(masks)}, {value}, {start})" if masks else value

    # -- accumulators

    def declare(self, acc: Accumulator, after: tuple[Stmt, ...], is_repeated: Callable[[Loop], bool]) -> str:
        """The line that declares it. after: the rest of its block."""
        outer = frozenset(self.scope.axes)
        self.accumulators[acc.name], self.outer[acc.name] = acc, outer
        self.scope.lanes[acc.name] = outer
        start = identity(acc.kind, acc.dtype).item()
        if REDUCING[acc.kind].is_place:
            places = self.filled(outer, -1, int64)
            return f"{acc.name}_value, {acc.name} = {self.filled(outer, start, acc.dtype)}, {places}"
        loops = [loop for feeding in _feeding(after, acc.name) for loop in feeding]
        inner = frozenset(loop.axis.name for loop in loops if loop.kind == "vector" or loop.axis.name in self.rows)
        pending = Pending(acc.name, acc.kind, acc.dtype, inner, outer, self.scope.depth)
        if acc.kind == "expsum":
            self.pending[acc.name] = pending
            return self._declare_exponentials(acc, outer | inner)
        if acc.kind == "max" and (beside := _exponentials_of(after, acc.name)):
            self.pending[acc.name] = pending
            self.maxima[beside] = acc.name
        elif inner and any(map(is_repeated, loops)):
            self.pending[acc.name] = pending
            return f"{acc.name} = {self.filled(outer | inner, start, acc.dtype)}"
        return f"{acc.name} = {self.filled(outer, start, acc.dtype)}"

    def declare_local(self, local: Local, kind: str, after: tuple[Stmt, ...]) -> None:
        """A register local; if several rows are added into it side by side, it is kept row by row."""
        loops = [loop for feeding in _feeding(after, local.name) for loop in feeding]
        inner = frozenset(loop.axis.name for loop in loops if loop.axis.name in self.rows)
        if inner:
            outer = frozenset(self.scope.axes)
            self.pending[local.name] = Pending(local.name, kind, local.dtype, inner, outer, self.scope.depth)

    def local_dims(self, name: str, dims: Dims) -> Dims:
        """The axes along which a register local is a block, stored at a place that differs along `dims`."""
        return dims | self.pending[name].inner if name in self.pending else dims

    def finish(self, after: tuple[Stmt, ...]) -> Iterator[str]:
        """Lines after a loop: what nothing in `after` feeds any more is reduced."""
        for pending in [*self.pending.values()]:
            if pending.depth != self.scope.depth or _feeding(after, pending.name):
                continue
            del self.pending[pending.name]
            yield f"{pending.name} = {self._close(pending)}"

    def _close(self, pending: Pending) -> str:
        if pending.kind == "expsum":
            return self._close_exponentials(pending)
        if pending.name in self.maxima.values():
            (beside,) = (name for name, maximum in self.maxima.items() if maximum == pending.name)
            return self.reduced("max", pending.dtype, f"{beside}_max", bool(pending.outer))
        if pending.name in self.accumulators:
            return self.reduced(pending.kind, pending.dtype, pending.name, bool(pending.outer))
        return self.reduced(pending.kind, pending.dtype, pending.name, True, rows=True)

    def _close_exponentials(self, pending: Pending) -> str:
        """The lanes' sums, each of exp(value - its greatest value), as one."""
        name, dtype, rows = pending.name, pending.dtype, bool(pending.outer)
        if not pending.inner:
            return f"tl.where(tl.abs({name}_max) == float('inf'), float('nan'), {name}).to({register_type(dtype)})"
        greatest = self.maxima.get(name) or self.reduced("max", dtype, f"{name}_max", rows)
        weights = f"tl.where({name}_max == {greatest}, 1.0, tl.exp({name}_max - {greatest}))"
        total = self.reduced("sum", dtype, f"{name} * {weights}", rows)
        return f"tl.where(tl.abs({greatest}) == float('inf'), float('nan'), {total}).to({register_type(dtype)})"

    def _declare_exponentials(self, acc: Accumulator, dims: Dims) -> str:
        """A sum and a maximum for each GROUP of lanes, which one thread holds: see `_add_exponentials`."""
        (column,) = dims - self.rows
        whole = self.counts[column]
        self.counts[column] = whole // min(whole, GROUP)
        start, lowest = (self.filled(dims, number, acc.dtype) for number in (0.0, -math.inf))
        self.counts[column] = whole
        return f"{acc.name}, {acc.name}_max = {start}, {lowest}"

    def _add_exponentials(self, acc: Accumulator, value: str) -> Iterator[str]:
        """A group's maximum is raised once for all its lanes, and what it has so far scaled down: 1 + 1/GROUP
        exponentials an element. Where there has been nothing but -inf there is nothing to scale.
        """
        name, dims = acc.name, frozenset(self.scope.axes)
        shape = [number.strip() for number in self._shape(dims).split(",") if number.strip()]
        group, axis = min(int(shape[-1]), GROUP), len(shape)
        self.helpers |= {"max", "reduce_max", "sum"}
        yield f"parts = tl.reshape({value}, ({', '.join([*shape[:-1], str(int(shape[-1]) // group), str(group)])}))"
        yield f"top = dc_max({name}_max, dc_reduce_max(parts, {axis}, False))"
        yield "base = tl.where(top == -float('inf'), 0.0, top)"
        each = self._exponential(f"parts - tl.expand_dims(base, {axis})", acc.dtype)
        before = self._exponential(f"{name}_max - base", acc.dtype)
        yield f"{name} = ({name} * {before} + dc_sum({each}, {axis}, False)).to({register_type(acc.dtype)})"
        yield f"{name}_max = top"

    def _exponential(self, of: str, dtype: DType) -> str:
        """Of a sum that is at least 1: what is less than 2^-126 may be 0."""
        if dtype is not float32:
            return f"tl.exp({of})"
        self.helpers.add("exp2_quick")
        return f"dc_exp2_quick(({of}) * 1.4426950408889634)"

    def accumulate(self, stmt: Accumulate) -> Iterator[str]:
        """The lines that add to it here."""
        acc = self.accumulators[stmt.name]
        value = self.expr.text(stmt.value)
        inner = frozenset(self.scope.axes) - self.outer[acc.name]
        if stmt.at is not None:
            yield from self._accumulate_place(stmt, acc, value, inner)
            return
        if acc.kind == "expsum":
            yield from self._add_exponentials(acc, self.masked(value, stmt.value, neutral("max", acc.dtype)))
            return
        if acc.name in self.maxima.values():
            return
        if inner:
            value = self.masked(value, stmt.value, neutral(acc.kind, acc.dtype))
            if stmt.name not in self.pending:
                value = self.reduced(acc.kind, acc.dtype, value, bool(self.outer[acc.name]))
        yield f"{acc.name} = {combine_halves(self.expr, acc.kind, acc.dtype, acc.name, value)}"

    def _accumulate_place(self, stmt: Accumulate, acc: Accumulator, value: str, inner: Dims) -> Iterator[str]:
        assert stmt.at is not None, f"{stmt.name} remembers a place"
        place = self.expr.index.text(stmt.at)
        if inner:
            yield from self._best_of_lanes(acc, value, stmt.value, place)
            value, place = "lanes_best", "lanes_place"
        yield from self._offer(acc, value, place)

    def _best_of_lanes(self, acc: Accumulator, value: str, expr: Expr, place: str) -> Iterator[str]:
        """The best value of a block, and the first place where it stands.

        It is compared as a block of itself: Triton's interpreter takes a truth value of one number, as a block, for a
        number.
        """
        start = neutral(acc.kind, acc.dtype)
        keeps = bool(self.outer[acc.name])
        inner = (axis for axis in self.scope.axes if axis not in self.outer[acc.name])
        mask = " & ".join(self.scope.axes[axis] or f"({axis} >= 0)" for axis in inner)
        yield f"lanes = {self.masked(value, expr, start)}"
        yield f"lanes_best = {self.reduced(REDUCING[acc.kind].kind, acc.dtype, 'lanes', keeps)}"
        yield f"each = tl.where({mask}, lanes_best, {start})"
        yield f"lanes_hit = {mask} & ((lanes == each) | ((lanes != lanes) & (each != each)))"
        last = literal(2**63 - 1, int64)
        places = f"tl.where(lanes_hit, {literal(0, int64)} + ({place}), {last})"
        yield f"lanes_place = {self._closed('lowest', places, keeps)}"

    def _offer(self, acc: Accumulator, value: str, place: str) -> Iterator[str]:
        """argmax, argmin: the first of equal places, and the first NaN; argmax_nan: the last NaN."""
        name, how = acc.name, REDUCING[acc.kind]
        yield f"offered = {value}"
        first = "" if how.last_nan else f" & ({name}_value == {name}_value)"
        nan = f"((offered != offered){first})"
        yield f"better = ({name} < 0) | (offered {how.beats} {name}_value) | {nan}"
        yield f"{name}_value = tl.where(better, offered, {name}_value)"
        yield f"{name} = tl.where(better, {literal(0, int64)} + ({place}), {name})"

    # -- reductions of blocks

    def reduced(self, kind: str, dtype: DType, block: str, keeps_rows: bool, *, rows: bool = False) -> str:
        """A block reduced along its columns, or (not keeps_rows) to a scalar; rows: along its rows alone."""
        if dtype is bool_:
            return f"({self._closed(_helper(kind, dtype), f'({block}).to(tl.int32)', keeps_rows, rows)} != 0)"
        return f"{self._closed(_helper(kind, dtype), block, keeps_rows, rows)}.to({register_type(dtype)})"

    def _closed(self, helper: str, block: str, keeps_rows: bool, rows: bool = False) -> str:
        self.helpers.add(helper)
        if rows or not self.two:
            return f"dc_{helper}({block}, 0, {rows})"
        if keeps_rows:
            return f"dc_{helper}({block}, 1, True)"
        return f"dc_{helper}(dc_{helper}({block}, 1, False), 0, False)"


def _helper(kind: str, dtype: DType) -> str:
    how = REDUCING[kind]
    if dtype is bool_ or not (how.operator or dtype.is_floating_point):  # there is no NaN
        return "highest" if how.bits == "|" else "lowest"
    return kind if how.operator else f"reduce_{kind}"


def _feeding(body: tuple[Stmt, ...], name: str) -> list[tuple[Loop, ...]]:
    """For each statement in `body` that adds to `name`, the loops of `body` around it."""
    found: list[tuple[Loop, ...]] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            found += [(stmt, *inner) for inner in _feeding(stmt.body, name)]
        elif (isinstance(stmt, Accumulate) and stmt.name == name) or (
            isinstance(stmt, Store) and stmt.buffer == name and stmt.mode != "set"
        ):
            found.append(())
    return found


def _exponentials_of(body: tuple[Stmt, ...], name: str) -> str:
    """The sum of exponentials that is fed, wherever maximum `name` is, with the same; "" if there is none."""
    kinds = {stmt.name: stmt.kind for stmt in walk(body) if isinstance(stmt, Accumulator)}
    found = []
    for block in [body, *(loop.body for loop in walk(body) if isinstance(loop, Loop))]:
        for stmt, following in zip(block, [*block[1:], None]):
            if isinstance(stmt, Accumulate) and stmt.name == name:
                fed = following.name if isinstance(following, Accumulate) and following.value == stmt.value else ""
                found.append(fed if kinds.get(fed) == "expsum" else "")
    return found[0] if len(found) == 1 else ""


def combine_halves(expr: ExprPrinter, mode: str, dtype: DType, old: str, value: str) -> str:
    """Two values combined; 16-bit floats in f32."""
    if dtype.compute is dtype:
        return _combine(expr, mode, dtype, old, value)
    wide = (expr.convert(text, dtype, float32) for text in (old, value))
    return expr.convert(_combine(expr, mode, float32, *wide), float32, dtype)


def _combine(expr: ExprPrinter, mode: str, dtype: DType, old: str, value: str) -> str:
    back = "" if dtype is bool_ else f".to({register_type(dtype)})"
    if symbol := REDUCING[mode].symbol(dtype):
        return f"({old} {symbol} {value}){back}"
    expr.helpers.add(mode)
    return f"dc_{mode}({old}, {value}){back}"
