"""Composites that work row by row as C++: a loop over rows for the value, and one for the cotangents.

In: a composition (row_values.py). Out: text; eager/rows.py builds it.
Method: of each row the values that depend on n reductions one after the other stand at level n. What is the same
along a row is a local of the row's; what differs is a local of each loop that reads it, so that a level's reductions,
and the results, take one loop each. A costly value that several loops read waits in the result's row.
Where columns are seen up to the row's number, loops end there: what stands behind is the same along the row.
Invariants: sums run in lanes, in blocks of BLOCK, whose sums are added in double. A result that is not wanted is None,
and what it alone needs is not computed.
"""

from __future__ import annotations

from compiler_core.codegen.cpp.expressions import ExprPrinter
from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.types import literal, register_type
from compiler_core.codegen.pointwise import unit
from compiler_core.codegen.row_values import EACH, MANY, SEEN, Half, Rows, Value, halves, not_by_rows, readers
from compiler_core.dtype import DType, bool_, float32, float64
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.interpret import identity
from compiler_core.loop_ir.ir import REDUCING
from compiler_core.records import dataclass

_BEFORE = """\
DC_INLINE int64_t last(const Array* a, int64_t dims) {  // elements of so many last dims
  int64_t n = 1;
  for (int32_t d = a->ndim - 1; d >= 0 && d >= a->ndim - dims; --d) n *= a->shape[d];
  return n;
}
// Whether arrays are not for a kernel: of other dtypes, empty, or parameters, from `begin` to `end`, of other shapes.
static bool is_other(const Tuple* t, int64_t dims, int64_t begin, int64_t end) {
  const Array* x = t->items[0];
  const int32_t number = x->descr->number;
  if ((number != FLOAT && number != DOUBLE) || x->ndim < dims || !numel(x)) return true;
  for (int64_t k = 0; k < t->size; ++k) {
    const Array* a = t->items[k];
    if (!at<char>(t, (int)k)) continue;
    if (a->descr->number != number || a->descr->order != '=') return true;
    if (k < begin || k >= end) continue;
    if (a->ndim != dims) return true;
    for (int64_t d = 0; d < dims; ++d) if (a->shape[d] != x->shape[x->ndim - dims + d]) return true;
  }
  return false;
}
"""


def cpp_text(one: Rows, prelude: str) -> str:
    """Functions of arrays, how many last dims a row has, and numbers, as halves() has them.

    dc_NAME_told says how many arrays are kept, and, by bits, which operands the backward reads.
    """
    used, texts = Used(), [_BEFORE]
    for dtype in (float32, float64):
        pair = halves(one, dtype)
        texts += [RowPrinter(one, half, dtype, used).text() for half in pair]
    told = f"EXPORT dc_{one.name}_told(void*) {{ return {told_of(one, *pair)}; }}\n"
    arguments = ["int64_t dims", *(f"double {name}_given" for name in one.numbers)]
    return unit(texts, [half.name for half in pair], arguments, used, prelude) + told


def told_of(one: Rows, forward: Half, backward: Half) -> int:
    """How many arrays are kept, above 32 bits of which operands the backward reads."""
    read = {name for value in backward.values.values() for name in value.reads}
    operands = ("x", *(f"p{k}" for k in range(len(one.present))))
    return (len(forward.results) - 1) << 32 | sum(1 << k for k, name in enumerate(operands) if name in read)


class RowPrinter:
    """Prints one half for one dtype."""

    def __init__(self, one: Rows, half: Half, dtype: DType, used: Used) -> None:
        self.one, self.half, self.dtype, self.used = one, half, dtype, used
        self._varying = one.varying(half.values)
        self._levels: dict[str, int] = {}
        for name, value in half.values.items():
            along = bool(value.kind) and not value.down
            self._levels[name] = max((self._levels.get(read, 0) for read in value.reads), default=0) + along
        self._is_cut = any(SEEN in value.reads for value in half.values.values())
        if self._is_cut and any(lies == "column" for _, lies in half.results):
            raise not_by_rows(one, "sums down the rows of columns that not all see")
        if self._is_cut and any(value.kind and REDUCING[value.kind].operator == "*" for value in half.values.values()):
            raise not_by_rows(one, "a product of a row whose columns are not all seen")
        self._end = "seen" if self._is_cut else "n"
        self._stored, self._is_stored = self._costly(), False
        self._behind: dict[str, str] = {}  # variables of what stands behind the columns that are seen

    def text(self) -> str:
        """The function."""
        name, kind = self.half.name, self.dtype.ctype
        told = "const Tuple* t, int64_t dims" + "".join(f", double {k}_given" for k in self.one.numbers)
        general = f"template <class T> static int64_t {name}_of({told});\n" if self.dtype is float32 else ""
        arrays = [(f"const {kind}*", f"{name}s", lies) for name, lies in self.half.operands]
        arrays += [(f"{kind}*", f"out{k}", lies) for k, (_, lies) in enumerate(self.half.results)]
        lines = [f"{type_} {array} = at<{kind}>(t, {k});" for k, (type_, array, lies) in enumerate(arrays) if lies]
        begin = sum(lies == "all" for _, lies in self.half.operands)
        lines += [f"if (is_other(t, dims, {begin}, {begin + len(self.one.present)})) return 1;"]
        lines += ["const int64_t n = last(t->items[0], dims), rows = numel(t->items[0]) / n;"]
        lines += [f"const {kind} {number}_ = ({kind}){number}_given;" for number in self.one.numbers]
        lines += [f"const {kind} {MANY} = ({kind})n, {EACH} = 1 / {MANY};"]
        columns = [f"out{k}" for k, (_, lies) in enumerate(self.half.results) if lies == "column"]
        lines += [f"for (int64_t i = 0; {out} && i < n; ++i) {out}[i] = 0;" for out in columns]
        lines += ["for (int64_t r = 0; r < rows; ++r) {"]
        if self._is_cut:
            lines.append("const int64_t length = last(t->items[0], dims + 1) / n;")
            lines.append("const int64_t seen = r % length + 1 < n ? r % length + 1 : n;")
        lines += [f"const {kind} {name} = {name}s[r];" for name, lies in self.half.operands if lies == "row"]
        lines += self._row()
        lines += [f"if ({array}) {array} += n;" for _, array, lies in arrays if lies == "all"]
        body = "\n".join([*lines, "}", "return 0;"])
        return f"{general}template <> int64_t {name}_of<{kind}>({told}) {{\n{body}\n}}\n"

    def _row(self) -> list[str]:
        """What is done with a row."""
        lines: list[str] = []
        for level in range(max(self._levels.values(), default=0) + 1):
            here = [v for v in self.half.values.values() if self._levels[v.name] == level]
            for value in here:
                if value.name not in self._varying and not value.kind:
                    lines.append(self._local(value.name, value.value, value.dtype))
            kept = [(k, name) for k, (name, lies) in enumerate(self.half.results) if lies == "row"]
            lines += [self._keep(k, name) for k, name in kept if self._levels[name] == level]
            lines += self._loops(level)
        return lines

    def _keep(self, number: int, name: str) -> str:
        return f"out{number}[r] = {name};"

    def _loops(self, level: int) -> list[str]:
        """Those that begin when all of `level` is known: reductions, by what they are for; then results."""
        lines: list[str] = []
        loops: list[tuple[set[int], list[Value]]] = []
        for value in self.half.values.values():
            if value.kind and not value.down and self._levels[value.name] == level + 1:
                wanted = self._wanted(value.name)
                same = next((values for found, values in loops if found == wanted), None)
                if same is None:
                    loops.append((wanted, same := []))
                same.append(value)
        for wanted, values in loops:
            lines += [f"{self.dtype.ctype} {value.name} = 0;" for value in values]
            lines += self._guarded(wanted, self._reductions(values))
        for k, (name, lies) in enumerate(self.half.results):
            if lies in ("all", "column") and self._levels.get(name, 0) == level:
                lines += self._guarded({k}, self._result(k, name, lies))
        return lines

    def _wanted(self, name: str) -> set[int]:
        """The results that depend on a value."""
        later = readers(self.half.values, {name})
        return {k for k, (result, _) in enumerate(self.half.results) if result in later}

    def _guarded(self, wanted: set[int], lines: list[str]) -> list[str]:
        """`lines`, done if one of these results is wanted. All of a forward are."""
        if self.half.name == self.one.name:
            return lines
        return [f"if ({' || '.join(f'out{k}' for k in sorted(wanted))}) {{", *lines, "}"]

    def _reductions(self, values: list[Value]) -> list[str]:
        """One loop, in blocks."""
        kind, joined = self.dtype.ctype, self._joined(values)
        lines = [f"double {name}_all = {join.start(float64)};" for name, _, join in joined]
        for name, value, join in joined if self._is_cut else ():
            behind = self._text(self._invariant(value, lines))
            lines.append(f"if (seen < n) {name}_all = {join.text(f'{name}_all', join.repeated(behind))};")
        lines += [f"for (int64_t from = 0; from < {self._end}; from += BLOCK) {{"]
        lines += [f"const int64_t to = from + BLOCK < {self._end} ? from + BLOCK : {self._end};"]
        lines += [f"{kind} {name}_part = {join.start(self.dtype)};" for name, _, join in joined]
        lines += ["#pragma omp simd " + " ".join(f"reduction({join.name} : {name}_part)" for name, _, join in joined)]
        lines += ["for (int64_t i = from; i < to; ++i) {", *self._locals([v.value for v in values])]
        lines += [f"{n}_part = {join.text(f'{n}_part', self._text(value))};" for n, value, join in joined]
        lines += ["}", *(f"{n}_all = {join.text(f'{n}_all', f'(double){n}_part')};" for n, _, join in joined)]
        lines += [f"{name} = {name}_part;" for name, _, _ in joined]
        test = "" if self._is_cut else "if (n > BLOCK) "  # one block's sum needs no other
        return [*lines, "}", *(f"{test}{name} = ({kind}){name}_all;" for name, _, _ in joined)]

    def _joined(self, values: list[Value]) -> list[tuple[str, x.Expr, _Join]]:
        return [(value.name, value.value, _Join(value.kind, self.used)) for value in values]

    def _result(self, number: int, name: str, lies: str) -> list[str]:
        """The loop that writes it."""
        target, join = f"out{number}[i]", "+=" if lies == "column" else "="
        value = self.half.values[name].value if lies == "column" else x.Var(name, self.dtype)
        lines: list[str] = []
        if self._is_cut:
            behind = self._text(self._invariant(value, lines))
            lines.append(f"for (int64_t i = seen; i < n; ++i) {target} = {behind};")
        lines += ["#pragma omp simd", f"for (int64_t i = 0; i < {self._end}; ++i) {{", *self._locals([value])]
        return [*lines, f"{target} {join} {self._text(value)};", "}"]

    # ---- what a loop computes of an element

    def _locals(self, roots: list[x.Expr]) -> list[str]:
        """The variables that the roots read of element i, in order."""
        needed = self._closure(roots, self._stored if self._is_stored else "")
        lines = [
            f"const {self.dtype.ctype} {name} = {self._element(name, lies)};"
            for name, lies in self.half.operands
            if lies in ("all", "column") and name in needed
        ]
        for name, value in self.half.values.items():
            if name not in needed:
                continue
            if name == self._stored and self._is_stored:
                lines.append(f"const {self.dtype.ctype} {name} = out0[i];")
                continue
            lines.append(self._local(name, value.value, value.dtype))
            if name == self._stored:
                lines.append(f"out0[i] = {name};")
        self._is_stored |= self._stored in needed
        return lines

    def _element(self, name: str, lies: str) -> str:
        return f"{name}s[i]"

    def _closure(self, roots: list[x.Expr], leaf: str = "") -> set[str]:
        """What varies along a row that the roots read, and what that reads, but for a leaf."""
        found, waiting = set[str](), [*roots]
        while waiting:
            for part in x.walk_expr(self._settled(waiting.pop(), is_seen=True)):
                if isinstance(part, x.Var) and part.name in self._varying and part.name not in found:
                    found.add(part.name)
                    if part.name in self.half.values and part.name != leaf:
                        waiting.append(self.half.values[part.name].value)
        return found

    def _costly(self) -> str:
        """The first costly value that several loops of a forward read before its result is written; "" if none is."""
        if self.half.name != self.one.name:
            return ""
        (out, _), *_ = self.half.results
        loops = [(self._levels.get(out, 0), self._closure([x.Var(out, self.dtype)]))]
        loops += [(self._levels[v.name] - 1, self._closure([v.value])) for v in self.half.values.values() if v.kind]
        for name, value in self.half.values.items():
            levels = {level for level, needed in loops if name in needed}
            calls = [part for part in x.walk_expr(value.value) if isinstance(part, x.ScalarCall)]
            is_kept = name != out and value.dtype is self.dtype and any(x.SCALARS[call.scalar].costly for call in calls)
            if is_kept and len(levels) > 1 and max(levels) <= loops[0][0]:
                return name
        return ""

    # ---- what stands behind the columns that a row sees

    def _invariant(self, expr: x.Expr, lines: list[str]) -> x.Expr:
        """`expr` where columns are not seen, of variables of the row, which `lines` get if they are new."""

        def part(inner: x.Expr) -> x.Expr:
            if not isinstance(inner, x.Var) or inner.name not in self._varying:
                return x.rebuilt(inner, part, lambda index: index)
            if inner.name not in self.half.values:
                raise not_by_rows(self.one, "what stands behind the columns that are seen differs along a row")
            if inner.name not in self._behind:
                value = part(self._settled(self.half.values[inner.name].value, is_seen=False))
                self._behind[inner.name] = f"{inner.name}_behind"
                lines.append(self._local(self._behind[inner.name], value, inner.dtype))
            return x.Var(self._behind[inner.name], inner.dtype)

        return part(self._settled(expr, is_seen=False))

    def _settled(self, expr: x.Expr, *, is_seen: bool) -> x.Expr:
        """`expr` where it is known whether a column is seen."""
        if not self._is_cut:
            return expr
        if isinstance(expr, x.Var) and expr.name == SEEN:
            return x.Const(is_seen, bool_)
        done = x.rebuilt(expr, lambda part: self._settled(part, is_seen=is_seen), lambda index: index)
        if isinstance(done, x.Where) and isinstance(done.cond, x.Const):
            return done.then if done.cond.value else done.other
        return done

    # ---- text

    def _local(self, name: str, value: x.Expr, dtype: DType) -> str:
        return f"const {register_type(dtype)} {name} = {self._text(value)};"

    def _text(self, expr: x.Expr) -> str:
        printer = ExprPrinter(CppIndexPrinter(self.used.helpers), self.used, {}, {})
        return printer.text(self._settled(expr, is_seen=True))


@dataclass(frozen=True, slots=True)
class _Join:
    """How two values of a reduction become one."""

    kind: str
    used: Used

    @property
    def name(self) -> str:
        """In a clause of a loop."""
        return REDUCING[self.kind].operator or f"dc_{self.kind}"

    def text(self, left: str, right: str) -> str:
        if REDUCING[self.kind].operator:
            return f"{left} {self.name} {right}"
        self.used.helpers.add(f"reduce_{self.kind}")
        return f"{self.name}({left}, {right})"

    def start(self, dtype: DType) -> str:
        return literal(identity(self.kind, dtype).item(), dtype)

    def repeated(self, value: str) -> str:
        """All that stands behind the columns that are seen, if each is `value`: of a sum, a maximum or a minimum."""
        return f"(double)(n - seen) * {value}" if REDUCING[self.kind].operator == "+" else f"(double){value}"
