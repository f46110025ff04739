"""A Scatter -> one loop-IR kernel for a GPU, in which what falls on one place is combined in the sources' order.

In: a Scatter. Out: `Built`. The result's places are independent; the sources that share one are not. Two arrangements:

    by digits   an axis of the source that is a digit of the place by itself (a batch, a column) is parallel; along the
                others the sources come one after the other
    by rank     sums whose place is one index, read from data, and such digits (an embedding's gradient, index_add):
                  keys   of every source: its index, and behind it its number; so no two are equal
                  rank   how many keys are less than a source's: all pairs are compared. It stands there in order
                  runs   of sources with one index: where they begin, how long they are, found by steps that are halved
                  sum    one program a run: its rows are added up, in order, and put in their place
No atomics: the same bits at every run. Comparing all pairs is n² comparisons of integers in registers: 16,384
sources take about as long as reading the gradient of their embedding. More than MAX_RANKED are taken part by
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


def build_scatter(scatter: d.Scatter, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one scatter."""
    params = ParamTable(metas)
    target = params.write(scatter.name)
    copy, n_scalars = copy_base(scatter, target, params, "parallel")
    work = _Scatter(scatter, params, target, n_scalars)
    return built([*copy, *work.build()], params, [scatter], table)


class _Scatter:
    """digits: axes that are digits of the place by themselves. others: the sources along these may share a place.

    message: of the checks; where an index was refused, what is made from it is refused for the same reason.
    """

    def __init__(self, scatter: d.Scatter, params: ParamTable, target: str, n_scalars: int) -> None:
        self.scatter, self.params, self.target, self.n_scalars = scatter, params, target, n_scalars
        live = [axis for axis in scatter.axes if axis.extent != 1]
        apart = _digits(scatter.target)
        self.digits = [axis for axis in live if axis in apart]
        self.others = [axis for axis in live if axis not in apart]
        self.start = 0  # of the part of the sources at hand
        refused = [atom.message for atom in scatter.target.terms if isinstance(atom, Data) and atom.message]
        self.message = refused[0] if refused else "index out of range"

    def build(self) -> list[ir.Stmt]:
        return self._by_rank() if self._is_ranked() else self._by_digits()

    def _is_ranked(self) -> bool:
        """Whether one index alone, which only the other axes move, tells which sources share a place."""
        data = [atom for atom in self.scatter.target.terms if isinstance(atom, Data)]
        n, places = d.domain_numel(tuple(self.others)), d.domain_numel(tuple(self.digits))
        if len(data) != 1 or self.scatter.mode != "add" or self.scatter.dtype is bool_ or places >= ENOUGH:
            return False
        rest = {*self.scatter.target.terms} - {data[0], *self.digits}
        alone = d.axes_in_expr(d.data_value(data[0])) <= {*self.others} and not rest
        return alone and data[0] in _separate(self.scatter.target) and MIN_RANKED <= n <= MAX_RANKED * MAX_PARTS

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
        n = d.domain_numel(tuple(self.others))
        size = math.ceil(n / math.ceil(n / MAX_RANKED))
        (self.index,) = (atom for atom in self.scatter.target.terms if isinstance(atom, Data))
        self.key = int32 if (self.index.high + 2) * size < 1 << 31 else int64
        order = self.params.partial(Partial(self.scatter.name, int32, 2 * size))
        keys = self.params.partial(Partial(f"{self.scatter.name}__keys", self.key, 2 * size))
        body: list[ir.Stmt] = []
        for self.start in range(0, n, size):
            part = min(size, n - self.start)
            body += [self._keys(part, keys), self._rank(part, keys, order), self._runs(part, keys, order)]
            body.append(self._sum(part, order))
        return body

    def _at(self, number: Index) -> dict[Axis, Index]:
        """The other axes, of a source of the part at hand."""
        return d.digits_of(number + self.start, tuple(self.others))

    def _keys(self, n: int, keys: str) -> ir.Stmt:
        """keys[j] = j's index * n + j."""
        mine = Axis("", n)
        rows: list[ir.Stmt] = []
        translate = self._translator(rows, None)
        place = translate.index(d.substitute_index(Index({self.index: 1}, 0), self._at(of_axis(mine)), {}), None)
        key = x.IndexValue(place * n + of_axis(mine), self.key)
        rows.append(ir.Store(keys, of_axis(mine), key))
        self.n_scalars = translate.n_scalars
        return loop_of(mine, "block", rows)

    def _rank(self, n: int, keys: str, order: str) -> ir.Stmt:
        """order[rank of j] = j, and keys[n + rank of j] = keys[j]."""
        mine, other = Axis("", n), Axis("", n)
        rows: list[ir.Stmt] = []
        key = self._named(rows, x.Load(keys, of_axis(mine), self.key))
        rows.append(ir.Accumulator("a0", int32, "sum"))
        less = call("lt", (x.Load(keys, of_axis(other), self.key), key))
        rows.append(loop_of(other, "vector", [ir.Accumulate("a0", cast(less, int32))]))
        rank = self._scalar(rows, cast(x.Var("a0", int32), int64), n)
        rows.append(ir.Store(order, rank, x.IndexValue(of_axis(mine), int32)))
        rows.append(ir.Store(keys, rank + n, key))
        return loop_of(mine, "block", rows)

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
        lane, member = Axis("", d.domain_numel(tuple(self.digits))), Axis("", n)
        moved = d.digits_of(of_axis(lane), tuple(self.digits))
        rows: list[ir.Stmt] = []
        place = d.substitute_index(scatter.target, {**self._at(first), **moved}, {})
        translate = self._translator(rows, None)
        place = translate.index(place, None)
        self.n_scalars = translate.n_scalars
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
