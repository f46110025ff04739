"""A Scatter -> one loop-IR kernel for a GPU, in which what falls on one place is combined in the sources' order.

In: a Scatter. Out: `Built`. The result's places are independent; the sources that share one are not. Arrangements:

    by digits   an axis of the source that is a digit of the place by itself (a batch, a column) is parallel; along the
                others the sources come one after the other
    by rank     the rest of the place is read from data that these digits do not move (an embedding's gradient,
                index_add, index_put):
                  keys   of every source: that rest, and behind it its number; so no two are equal
                  rank   how many keys are less than a source's: all pairs are compared. It stands there in order
                  runs   of sources with one place: where they begin, how long they are, found by steps that are halved
                  sum    one program a run: its rows are added up, in order, and put in their place; or its last row is
    by place    sums along the last dim by an index that many rows share (a gradient of gather by relative positions):
                keys and ranks for each row of the index, where its runs begin, and one program a row of the result:
                each lane adds up the sources of its place
No atomics: the same bits at every run. Comparing all pairs is n² comparisons of integers in registers: 16,384
sources take about as long as reading the gradient of their embedding. By rank, more than MAX_RANKED are taken part by
part; beyond MAX_PARTS the first arrangement serves.
Limits: by digits, a scatter with few such axes has few programs: right, and slow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler_core.dtype import bool_, int32, int64
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import call, cast
from compiler_core.meta import TensorMeta
from compiler_core.schedule.finish import KernelTable, ParamTable, Partial
from compiler_core.schedule.kernel import Built, built, loop_of
from compiler_core.schedule.scatter import copy_base
from compiler_core.schedule.translate import Translator
from compiler_core.symbolic.index import ZERO, Atom, Axis, Data, Index, Scalar, of_axis, of_scalar

MIN_RANKED, MAX_RANKED = 32, 65536  # sources
MAX_PARTS = 16
ENOUGH = 65536  # independent places, from which on sources may come one after the other
MIN_SHARING = 8  # rows that share an index, of which the runs are then found once
MAX_ROW, MAX_COMPARED = 4096, 1 << 32  # by place: sources, or places, of a row; comparisons of keys


def build_scatter(scatter: d.Scatter, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one scatter."""
    params = ParamTable(metas)
    target = params.write(scatter.name)
    work = _Scatter(scatter, params, target)
    copy: list[ir.Stmt] = []
    if not work.by_place:
        copy, work.n_scalars = copy_base(scatter, target, params, "parallel")
    return built([*copy, *work.build()], params, [scatter], table)


class _Scatter:
    """digits: axes that are digits of the place by themselves. others: the sources along these may share a place.

    message: of the checks; where an index was refused, what is made from it is refused for the same reason.
    """

    def __init__(self, scatter: d.Scatter, params: ParamTable, target: str) -> None:
        self.scatter, self.params, self.target, self.n_scalars = scatter, params, target, 0
        live = [axis for axis in scatter.axes if axis.extent != 1]
        apart = _digits(scatter.target)
        self.digits = [axis for axis in live if axis in apart]
        self.others = [axis for axis in live if axis not in apart]
        self.start = 0  # of the part of the sources at hand
        rest = {atom: n for atom, n in scatter.target.terms.items() if atom not in self.digits}
        step = math.gcd(*rest.values()) or 1 if all(isinstance(n, int) for n in rest.values()) else 1
        self.rest = Index({atom: n // step for atom, n in rest.items()}, 0)  # of the place, beside the digits
        moving = d.axes_in_expr(x.IndexValue(self.rest, int64))
        self.shared = [axis for axis in self.digits if axis in moving]  # digits that move the rest, too
        self.n = d.domain_numel(tuple(self.others))
        self.by_place = self._is_by_place()  # then every place is written once, what stands there included
        refused = [atom.message for atom in scatter.target.terms if isinstance(atom, Data) and atom.message]
        self.message = refused[0] if refused else "index out of range"

    def build(self) -> list[ir.Stmt]:
        if self.by_place:
            return self._by_place()
        return self._by_rank() if self._is_ranked() else self._by_digits()

    def _is_ranked(self) -> bool:
        """Whether only the other axes tell which sources share a place, by data, and there are few digits."""
        (low, high), mode = self.rest.bounds, self.scatter.mode
        known = isinstance(low, int) and isinstance(high, int) and low >= 0 and high < 1 << 40
        if not known or self.shared or not any(isinstance(atom, Data) for atom in self.rest.terms):
            return False
        if not (mode == "set" or (mode == "add" and self.scatter.dtype is not bool_)):
            return False
        few = d.domain_numel(tuple(self.digits)) < ENOUGH
        return few and MIN_RANKED <= self.n <= MAX_RANKED * MAX_PARTS

    def _is_by_place(self) -> bool:
        """Whether the last dim's places, all of them, are read from data that many rows share."""
        scatter = self.scatter
        if scatter.mode != "add" or scatter.dtype is bool_ or scatter.in_place or len(self.rest.terms) != 1:
            return False
        (atom,) = self.rest.terms
        low, high = atom.bounds
        if not isinstance(atom, Data) or scatter.target.terms[atom] != 1 or low != 0 or not isinstance(high, int):
            return False
        rows, shared = (d.domain_numel(tuple(axes)) for axes in (self.digits, self.shared))
        if rows * (high + 1) != scatter.numel or rows < shared * MIN_SHARING:
            return False
        few = MIN_RANKED <= self.n <= MAX_ROW and high < MAX_ROW
        return few and shared * self.n * (self.n + high) <= MAX_COMPARED

    def _translator(self, rows: list[ir.Stmt], column: list[ir.Stmt] | None, cols: tuple[Axis, ...] = ()) -> Translator:
        translate = Translator(cols, lambda load: None, self.params.read)
        translate.n_scalars = self.n_scalars
        translate.enter(rows, column)
        return translate

    def _scalar(self, block: list[ir.Stmt], value: x.Expr, extent: int) -> Index:
        """A new integer scalar in [0, extent), as an index."""
        scalar = Scalar(f"t{self.n_scalars}", 0, extent - 1)
        self.n_scalars += 1
        block.append(ir.Let(scalar.name, value))
        return of_scalar(scalar)

    # ---- one after the other

    def _by_digits(self) -> list[ir.Stmt]:
        column: list[ir.Stmt] = []
        translate = self._translator(column, None)
        place = translate.index(self.scatter.target, None)
        column.append(ir.Store(self.target, place, translate(self.scatter.value), self.scatter.mode))
        body = column
        for axis in reversed(self.others):
            body = [loop_of(axis, "serial", body)]
        step = self.scatter.target.coefficient
        for depth, axis in enumerate(sorted(self.digits, key=lambda axis: abs(step(axis)))):
            body = [loop_of(axis, "block" if depth == 0 else "parallel", body)]
        return body

    # ---- by rank

    def _by_rank(self) -> list[ir.Stmt]:
        n = self.n
        size = math.ceil(n / math.ceil(n / MAX_RANKED))
        self.key = int32 if (self.rest.bounds[1] + 2) * size < 1 << 31 else int64
        order = self.params.partial(Partial(self.scatter.name, int32, 2 * size))
        keys = self.params.partial(Partial(f"{self.scatter.name}__keys", self.key, 2 * size))
        body: list[ir.Stmt] = []
        for self.start in range(0, n, size):
            part = min(size, n - self.start)
            body += [self._keys(part, keys), self._rank(part, keys, order, moves=True), self._runs(part, keys, order)]
            body.append(self._sum(part, order))
        return body

    def _at(self, number: Index) -> dict[Axis, Index]:
        """The other axes, of a source of the part at hand."""
        return d.digits_of(number + self.start, tuple(self.others))

    def _keys(self, n: int, keys: str) -> ir.Stmt:
        """keys[j] = j's rest of the place * n + j; of each row of the index."""
        mine = Axis("", n)
        rows: list[ir.Stmt] = []
        translate = self._translator(rows, None)
        place = translate.index(d.substitute_index(self.rest, self._at(of_axis(mine)), {}), None)
        key = x.IndexValue(place * n + of_axis(mine), self.key)
        rows.append(ir.Store(keys, self._row * n + of_axis(mine), key))
        self.n_scalars = translate.n_scalars
        return self._each_row(loop_of(mine, "block", rows))

    def _rank(self, n: int, keys: str, order: str, *, moves: bool) -> ir.Stmt:
        """order[rank of j] = j, of each row of the index. moves: keys[n + rank of j] = keys[j]."""
        mine = Axis("", n)
        rows: list[ir.Stmt] = []
        key = self._named(rows, x.Load(keys, self._row * n + of_axis(mine), self.key))
        rank = self._scalar(rows, self._less(rows, n, keys, key), n)
        rows.append(ir.Store(order, self._row * n + rank, x.IndexValue(of_axis(mine), int32)))
        if moves:
            rows.append(ir.Store(keys, rank + n, key))
        return self._each_row(loop_of(mine, "block", rows))

    def _less(self, rows: list[ir.Stmt], n: int, keys: str, bound: x.Expr) -> x.Expr:
        """How many keys of the row are less than `bound`."""
        other = Axis("", n)
        rows.append(ir.Accumulator("a0", int32, "sum"))
        less = call("lt", (x.Load(keys, self._row * n + of_axis(other), self.key), bound))
        rows.append(loop_of(other, "vector", [ir.Accumulate("a0", cast(less, int32))]))
        return cast(x.Var("a0", int32), int64)

    @property
    def _row(self) -> Index:
        """The number of a row of the index."""
        return d.flat_of(tuple(self.shared))

    def _each_row(self, body: ir.Stmt) -> ir.Stmt:
        for axis in reversed(self.shared):
            body = loop_of(axis, "parallel", [body])
        return body

    def _runs(self, n: int, keys: str, order: str) -> ir.Stmt:
        """order[n + r] = how many of index i there are if the one in place r is the first of them, or 0.

        The last one is sought from r on: in steps of a half, a quarter ... of n, wherever the key is still of index i.
        """
        place = Axis("", n)
        rows: list[ir.Stmt] = []
        first = of_axis(place)
        key = self._named(rows, x.Load(keys, first + n, self.key))
        width = x.Const(n, self.key)
        base = self._named(rows, call("mul", (call("div", (key, width)), width)))
        beyond = self._named(rows, call("add", (base, width)))
        last = first
        for step in [1 << k for k in reversed(range(max(n - 1, 1).bit_length()))]:
            ahead = x.IndexValue(last + step, int64)
            inside = x.IndexCompare("lt", last + step, Index({}, n))
            at = self._scalar(rows, x.Where(inside, ahead, x.IndexValue(last, int64)), n)
            same = call("lt", (x.Load(keys, at + n, self.key), beyond))
            last = self._scalar(rows, x.Where(same, x.IndexValue(at, int64), x.IndexValue(last, int64)), n)
        earlier = x.Where(x.IndexCompare("gt", first, ZERO), x.Load(keys, first + (n - 1), self.key), beyond)
        begins = call("bitwise_or", (x.IndexCompare("eq", first, ZERO), call("lt", (earlier, base))))
        length = x.IndexValue(last - first + 1, int32)
        rows.append(ir.Store(order, first + n, x.Where(begins, length, x.Const(0, int32))))
        return loop_of(place, "block", rows)

    def _named(self, block: list[ir.Stmt], value: x.Expr) -> x.Var:
        name = f"t{self.n_scalars}"
        self.n_scalars += 1
        block.append(ir.Let(name, value))
        return x.Var(name, value.dtype)

    def _sum(self, n: int, order: str) -> ir.Stmt:
        """One program a source in sorted order: if it is the first of a run, all of the run."""
        start = Axis("", n)
        body: list[ir.Stmt] = []
        first = self._source(body, order, of_axis(start), n)
        length = self._scalar(body, cast(x.Load(order, of_axis(start) + n, int32), int64), n + 1)
        end = of_axis(start) + length
        body += [ir.Check(x.IndexCompare("ge", length, ZERO), self.message)]
        body += [ir.Check(x.IndexCompare("le", end, Index({}, n)), self.message)]
        is_run = x.IndexCompare("gt", length, ZERO)
        runs = self._scalar(body, cast(is_run, int64), 2)
        once = Axis("", 1)
        run = self._run(first, of_axis(start), end, n, order)
        body.append(loop_of(once, "serial", run, span=(ZERO, runs)))
        return loop_of(start, "parallel", body)

    def _source(self, block: list[ir.Stmt], order: str, place: Index, n: int) -> Index:
        """The source at a place of the sorted order. Where indices were refused nothing is there: that is checked."""
        source = self._scalar(block, cast(x.Load(order, place, int32), int64), n)
        block.append(ir.Check(x.IndexCompare("ge", source, ZERO), self.message))
        block.append(ir.Check(x.IndexCompare("lt", source, Index({}, n)), self.message))
        return source

    def _run(self, first: Index, begin: Index, end: Index, n: int, order: str) -> list[ir.Stmt]:
        """The sources from `begin` to `end` added up and put in the place of the first."""
        scatter, dtype = self.scatter, self.scatter.dtype.compute
        lane, moved, member = *self._lanes(), Axis("", n)
        rows: list[ir.Stmt] = []
        place = d.substitute_index(scatter.target, {**self._at(first), **moved}, {})
        translate = self._translator(rows, None)
        place = translate.index(place, None)
        self.n_scalars = translate.n_scalars
        if scatter.mode == "set":
            return self._last(rows, place, (lane, moved), self._source(rows, order, end - 1, n))
        inner: list[ir.Stmt] = []
        column: list[ir.Stmt] = []
        source = self._source(inner, order, of_axis(member), n)
        translate = self._translator(inner, column, (lane,))
        value = translate(d.substitute(scatter.value, {**self._at(source), **moved}, {}))
        self.n_scalars = translate.n_scalars
        zero = x.Const(dtype.numpy.type(0).item(), dtype)
        if lane.extent == 1:
            total: x.Expr = x.Var("a3", dtype)
            adds: list[ir.Stmt] = [*inner, *column, ir.Accumulate("a3", cast(value, dtype))]
            rows.append(ir.Accumulator("a3", dtype, "sum"))
        else:
            total = x.Load("s0", of_axis(lane), dtype)
            column.append(ir.Store("s0", of_axis(lane), cast(value, dtype), "add"))
            adds = [*inner, loop_of(lane, "vector", column)]
            rows += [ir.Local("s0", dtype, lane.extent), loop_of(lane, "vector", [ir.Store("s0", of_axis(lane), zero)])]
        rows.append(loop_of(member, "block", adds, span=(begin, end)))
        store = ir.Store(self.target, place, cast(total, scatter.dtype), "add")
        return [*rows, store if lane.extent == 1 else loop_of(lane, "vector", [store])]

    def _last(
        self, rows: list[ir.Stmt], place: Index, lanes: tuple[Axis, dict[Axis, Index]], source: Index
    ) -> list[ir.Stmt]:
        """A source put in its place."""
        lane, moved = lanes
        column: list[ir.Stmt] = []
        translate = self._translator(rows, column, (lane,))
        value = translate(d.substitute(self.scatter.value, {**self._at(source), **moved}, {}))
        self.n_scalars = translate.n_scalars
        column.append(ir.Store(self.target, place, value))
        return [*rows, *(column if lane.extent == 1 else [loop_of(lane, "vector", column)])]

    def _lanes(self) -> tuple[Axis, dict[Axis, Index]]:
        """An axis for all digits, and what these are on it."""
        lane = Axis("", d.domain_numel(tuple(self.digits)))
        return lane, d.digits_of(of_axis(lane), tuple(self.digits))

    # ---- by place

    def _by_place(self) -> list[ir.Stmt]:
        n, rows = self.n, d.domain_numel(tuple(self.shared))
        places = self.rest.bounds[1] + 1
        self.key = int32 if (places + 1) * n < 1 << 31 else int64
        name = self.scatter.name
        keys = self.params.partial(Partial(f"{name}__keys", self.key, rows * n))
        order = self.params.partial(Partial(name, int32, rows * n))
        begins = self.params.partial(Partial(f"{name}__begins", int32, rows * (places + 1)))
        body = [self._keys(n, keys), self._rank(n, keys, order, moves=False), self._begins(n, places, keys, begins)]
        return [*body, self._sums(n, places, order, begins)]

    def _begins(self, n: int, places: int, keys: str, begins: str) -> ir.Stmt:
        """begins[p] = how many sources lie before place p, of each row of the index."""
        place = Axis("", places + 1)
        rows: list[ir.Stmt] = []
        count = self._less(rows, n, keys, self._named(rows, x.IndexValue(of_axis(place) * n, self.key)))
        rows.append(ir.Store(begins, self._row * (places + 1) + of_axis(place), cast(count, int32)))
        return self._each_row(loop_of(place, "block", rows))

    def _sums(self, n: int, places: int, order: str, begins: str) -> ir.Stmt:
        """One program a row of the result: in each turn a lane, which is a place, adds its next source, if any."""
        lane, turn, dtype = Axis("", places), Axis("", n), self.scatter.dtype.compute
        local = of_axis(lane)
        first = self._row * (places + 1) + local
        begin, end = (x.Load(begins, first + k, int32) for k in range(2))
        rows: list[ir.Stmt] = [ir.Accumulator("a0", int32, "max")]
        rows.append(loop_of(lane, "vector", [ir.Accumulate("a0", call("sub", (end, begin)))]))
        turns = self._scalar(rows, cast(x.Var("a0", int32), int64), n + 1)
        rows += [ir.Check(x.IndexCompare("ge", turns, ZERO), self.message)]
        rows += [ir.Check(x.IndexCompare("le", turns, Index({}, n)), self.message)]
        target = self.scatter.target
        place = Index({axis: k for axis, k in target.terms.items() if axis in self.digits}, target.const) + local
        column, base = self._of_lane(lane, self.scatter.base, d.digits_of(place, self.scatter.base_axes))
        column.append(ir.Store("s0", local, cast(base, dtype)))
        rows += [ir.Local("s0", dtype, places), loop_of(lane, "vector", column)]
        rows.append(loop_of(turn, "serial", [self._turn(lane, turn, begin, end, order)], span=(ZERO, turns)))
        total = x.Load("s0", local, dtype)
        rows.append(loop_of(lane, "vector", [ir.Store(self.target, place, cast(total, self.scatter.dtype))]))
        for axis in reversed(self.digits):
            rows = [loop_of(axis, "parallel", rows)]
        return rows[0]

    def _turn(self, lane: Axis, turn: Axis, begin: x.Expr, end: x.Expr, order: str) -> ir.Stmt:
        """Each lane adds its source number `turn`. Where indices were refused nothing is there: the first is read."""
        n, dtype, total = self.n, self.scatter.dtype.compute, x.Load("s0", of_axis(lane), self.scatter.dtype.compute)
        column: list[ir.Stmt] = []
        at = self._scalar(column, cast(begin, int64), n + 1) + of_axis(turn)
        inside = x.IndexCompare("lt", at, self._scalar(column, cast(end, int64), n + 1))
        at = self._within(column, call("bitwise_and", (inside, _lies(at, n))), at)
        source = self._scalar(column, cast(x.Load(order, self._row * n + at, int32), int64), n)
        source = self._within(column, _lies(source, n), source)
        more, value = self._of_lane(lane, self.scatter.value, self._at(source))
        added = x.Where(inside, call("add", (total, cast(value, dtype))), total)
        return loop_of(lane, "vector", [*column, *more, ir.Store("s0", of_axis(lane), added)])

    def _of_lane(self, lane: Axis, value: x.Expr, table: dict[Axis, Index]) -> tuple[list[ir.Stmt], x.Expr]:
        """`value` with these axes replaced, and what must stand before it."""
        column: list[ir.Stmt] = []
        translate = self._translator(column, column, (lane,))
        made = translate(d.substitute(value, table, {}))
        self.n_scalars = translate.n_scalars
        return column, made

    def _within(self, block: list[ir.Stmt], lies: x.Expr, place: Index) -> Index:
        return self._scalar(block, x.Where(lies, x.IndexValue(place, int64), x.Const(0, int64)), self.n)


def _lies(place: Index, n: int) -> x.Expr:
    """Whether it is one of n."""
    return call("bitwise_and", (x.IndexCompare("ge", place, ZERO), x.IndexCompare("lt", place, Index({}, n))))


def _separate(place: Index) -> set[Atom]:
    """The terms of `place` that are digits by themselves: from the sum, their own value can be told."""
    terms = sorted(place.terms.items(), key=lambda item: abs(item[1]))
    found: set[Atom] = set()
    clusters: list[list[Atom]] = []
    reach = 0  # what the terms so far reach together
    for atom, step in terms:
        low, high = atom.bounds
        if abs(step) > reach or not clusters:
            clusters.append([atom])
        else:
            clusters[-1].append(atom)
        reach += abs(step) * (high - low)
    for cluster in clusters:
        if len(cluster) == 1:
            found.add(cluster[0])
    return found


def _digits(place: Index) -> set[Axis]:
    """The axes among them."""
    return {atom for atom in _separate(place) if isinstance(atom, Axis)}
