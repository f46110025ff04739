"""Composites that work row by row as values: what a row's loops compute, whatever the rows' length.

    Half  := NAME operands (NAME LIES)... values Value... results (VALUE LIES)...     the forward, or the backward
    Value := NAME = Expr                            of variables: of an element, or of all of a row
           | NAME = reduce KIND [down] Expr         along the row, or down the rows
    LIES  := all | row | column | ""                an array has a number an element, a row, a column; or is not there

In: a composition of x, of parameters that lie along a row (None where there is none), and of numbers by name; perhaps
its gradient, told from the result. Out: two Halves; rows.py prints them.
Method: the composition and its vjp are captured as one graph for a few rows, which goes through the compiler's passes
and lowering. The forward keeps what the backward wants of a row that does not depend on the cotangent. The capture is
made at two sizes: a constant that differs has to be the rows' length n, or 1/n, and is a variable.
Invariants: an element depends on its row, on the parameters and numbers, and on whether its column is at most the
row's number (`seen`). All else is a LoweringError. Limit: what a composition asks of n in Python holds for both sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from compiler_core.dtype import DType, bool_
from compiler_core.errors import LoweringError
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import EXPAND, SIMPLIFY_JOINT, run_passes
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.ir import REDUCING
from compiler_core.lowering import definition as d
from compiler_core.lowering.define import define
from compiler_core.meta import TensorMeta
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.registry import Value as OpValue
from compiler_core.ops.registry import use_trace
from compiler_core.records import dataclass
from compiler_core.symbolic.index import ZERO, Index, of_axis

SEEN, MANY, EACH = "seen", "many", "each"  # variables: whether a column is seen; n and 1/n
_SIZES = ((3, 5), (1009, 100003))  # (rows, length): no other size of a composition is one of these


@dataclass(frozen=True, slots=True)
class Rows:
    """compose(x, *parameters, **numbers, **place); present: which parameters there are. gradient(g, out, ...): x's.

    said: what it is declared to be. Of one that is pointwise the parameters are operands of x's shape.
    """

    name: str
    compose: Callable[..., OpValue]
    gradient: Callable[..., OpValue] | None
    numbers: tuple[str, ...]
    place: Mapping[str, int]
    present: tuple[bool, ...]
    said: str = "rows"

    @property
    def parameters(self) -> list[str]:
        return [f"p{k}" for k, there in enumerate(self.present) if there]

    @property
    def along(self) -> str:
        """How parameters lie."""
        return "all" if self.said == "pointwise" else "column"

    def varying(self, values: Mapping[str, Value]) -> set[str]:
        """What differs along a row: operands, and the values that depend on them but for reductions."""
        found = {"x", "g", "result", SEEN, *self.parameters}
        for name, value in values.items():
            if not value.kind and not found.isdisjoint(value.reads):
                found.add(name)
        return found


@dataclass(frozen=True, slots=True)
class Value:
    """One definition. kind: of the reduction, if it is one. down: that runs down the rows."""

    name: str
    dtype: DType
    value: x.Expr
    kind: str = ""
    down: bool = False
    note: str = ""

    @property
    def reads(self) -> list[str]:
        return [part.name for part in x.walk_expr(self.value) if isinstance(part, x.Var)]


@dataclass(frozen=True, slots=True)
class Half:
    """A function: the arrays that it reads and writes, in order, and how each lies."""

    name: str
    operands: tuple[tuple[str, str], ...]
    values: dict[str, Value]
    results: tuple[tuple[str, str], ...]


def halves(one: Rows, dtype: DType) -> tuple[Half, Half]:
    """The forward: x, *parameters -> out, *kept; the backward: g, x or out, *parameters, *kept -> cotangents."""
    (small, outputs), (large, _) = (_captured(one, dtype, sizes) for sizes in _SIZES)
    if [v.name for v in small] != [v.name for v in large]:
        raise not_by_rows(one, "other operations at other sizes")
    values = {a.name: replace(a, value=_joined(one, a.value, b.value)) for a, b in zip(small, large)}
    out, *grads = outputs
    kept = _kept(one, values, grads)
    parameters = [(f"p{k}", one.along if there else "") for k, there in enumerate(one.present)]
    rows, rest = [(name, "row") for name in kept], iter(grads)
    forward = _half(one, one.name, values, [("x", "all"), *parameters], [(out, "all"), *rows])
    read = "x" if one.gradient is None else "result"
    cotangents = [(next(rest), "all"), *((next(rest), lies) if lies else ("", "") for _, lies in parameters)]
    operands = [("g", "all"), (read, "all"), *parameters, *rows]
    return forward, _half(one, f"{one.name}_backward", values, operands, cotangents)


def narrowed(one: Rows, half: Half, lies: str) -> Half:
    """What computes those of its results alone that lie so."""
    return with_results(one, half, [(name, how) for name, how in half.results if how == lies])


def with_results(one: Rows, half: Half, results: list[tuple[str, str]]) -> Half:
    """What computes these of its results."""
    return _half(one, half.name, half.values, list(half.operands), results)


def _half(
    one: Rows, name: str, values: Mapping[str, Value], operands: list[tuple[str, str]], results: list[tuple[str, str]]
) -> Half:
    """What `results` need of `values` beyond the operands."""
    given, waiting, needed = {name for name, _ in operands}, [name for name, _ in results], set[str]()
    while waiting:
        found = waiting.pop()
        if found in values and found not in given and found not in needed:
            needed.add(found)
            waiting += values[found].reads
    half = Half(name, tuple(operands), {n: v for n, v in values.items() if n in needed}, tuple(results))
    for result, lies in results:
        if result and (lies == "column") != (result in values and values[result].down):
            raise not_by_rows(one, f"what is no sum down the rows, in {name}")
    for value in half.values.values():
        if any(read in values and values[read].down for read in value.reads):
            raise not_by_rows(one, f"a row that depends on others: {value.note}")
    return half


def _kept(one: Rows, values: Mapping[str, Value], grads: list[str]) -> list[str]:
    """Of what the backward reads and the forward knows, the values of a row that others cannot be told from."""
    later, varying = readers(values, {"g", "result"}), one.varying(values)
    waiting, read = list(grads), set[str]()
    while waiting:
        name = waiting.pop()
        if name in values and name not in read:
            read.add(name)
            waiting += values[name].reads if name in later or name in varying else ()
    kept: list[str] = []

    def is_told(name: str) -> bool:
        if name not in values:
            return name not in varying
        return name in kept or (not values[name].kind and all(map(is_told, values[name].reads)))

    for name in values:
        if name in read and name not in later and name not in varying and not is_told(name):
            kept.append(name)
            if values[name].dtype.kind not in "fb":
                raise not_by_rows(one, f"what the backward reads is no float: {values[name].note}")
    return kept


def readers(values: Mapping[str, Value], names: set[str]) -> set[str]:
    """The values that depend on one of `names`."""
    found = set(names)
    for name, value in values.items():
        if not found.isdisjoint(value.reads):
            found.add(name)
    return found


# ---- from the composition to values


def _captured(one: Rows, dtype: DType, sizes: tuple[int, int]) -> tuple[list[Value], list[str]]:
    """What a few rows and their cotangents are, and the names of the results."""
    graph = run_passes(_graph(one, dtype, *sizes), (*EXPAND, *SIMPLIFY_JOINT))
    defined = define(graph)
    names = {node.name: node.name if node.meta.shape else f"{node.name}_" for node in graph.inputs}
    reader, values = _Reader(one, dtype, sizes, names, {n: m.shape for n, m in defined.metas.items()}), list[Value]()
    for number, definition in enumerate(defined.definitions.values()):
        value = replace(reader.value(definition), name=f"v{number}")
        names[definition.name] = value.name
        values.append(value)
    return values, [names[name] for name in defined.outputs]


def _graph(one: Rows, dtype: DType, rows: int, n: int) -> Graph:
    builder = GraphBuilder(one.name)
    operand, g, result = (builder.placeholder(name, TensorMeta((rows, n), dtype)) for name in ("x", "g", "result"))
    shape = (rows, n) if one.along == "all" else (n,)
    given = [builder.placeholder(name, TensorMeta(shape, dtype)) for name in one.parameters]
    numbers = {name: builder.placeholder(name, TensorMeta((), dtype)) for name in one.numbers}

    def composed(first: OpValue, *parameters: OpValue) -> OpValue:
        rest = iter(parameters)
        return one.compose(first, *(next(rest) if there else None for there in one.present), **numbers, **one.place)

    with use_trace(builder):
        out = composed(operand, *given)
        if out.shape != operand.shape:
            raise not_by_rows(one, f"a result {out}")
        if one.gradient is None:
            grads = vjp_of(composed, g, operand, *given)
        else:
            grads = (one.gradient(g, result, **numbers, **one.place),)
    made, shapes = [out, *grads], [(rows, n), (rows, n), *([shape] * len(given))]
    if [None if m is None else (m.shape, m.dtype) for m in made] != [(shape, dtype) for shape in shapes]:
        raise not_by_rows(one, f"results and gradients {made}")
    return builder.build(made)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads definitions over (rows, length). names: what variables are called; shapes: of values."""

    one: Rows
    dtype: DType
    sizes: tuple[int, int]
    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]

    def value(self, definition: d.Definition) -> Value:
        """What it is, of variables in place of loads."""
        if not isinstance(definition, d.Element | d.Reduce) or getattr(definition, "part", None) is not None:
            raise not_by_rows(self.one, definition.note)
        place = {axis.extent: of_axis(axis) for axis in definition.axes}
        note = definition.note
        if not place.keys() <= {*self.sizes, 1}:
            raise not_by_rows(self.one, note)

        def part(expr: x.Expr) -> x.Expr:
            match expr:
                case x.Load(buffer, at, dtype) if buffer in self.names and at == self._at(buffer, place):
                    return x.Var(self.names[buffer], dtype)
                case x.IndexCompare("ge", left, right, _) if [left, right] == [place.get(n) for n in self.sizes]:
                    if not self.one.place:  # else a row has no number
                        return x.Var(SEEN, bool_)
                    raise not_by_rows(self.one, note)
                case x.Load() | x.IndexValue() | x.IndexCompare():
                    raise not_by_rows(self.one, note)
            return x.rebuilt(expr, part, lambda index: index)

        value = part(definition.value)
        if isinstance(definition, d.Element):
            return Value("", definition.dtype, value, note=note)
        kind, at = definition.kind, [place.get(n) for n in self.sizes]
        if definition.kept not in at or REDUCING[kind].is_place or definition.dtype is not self.dtype:
            raise not_by_rows(self.one, note)
        is_down = definition.kept == at[1]
        if is_down and REDUCING[kind].operator != "+":
            raise not_by_rows(self.one, note)
        return Value("", definition.dtype, value, kind, is_down, note)

    def _at(self, buffer: str, place: Mapping[int, Index]) -> Index | None:
        """Where its element of this row and column lies."""
        total, shape = ZERO, self.shapes[buffer]
        for n, stride in zip(shape, d.row_major(shape)):
            if n != 1:
                if n not in place:
                    return None
                total = total + place[n] * stride
        return total


def _joined(one: Rows, small: x.Expr, large: x.Expr) -> x.Expr:
    """The expression that both are, of whatever length the rows are."""
    parts = [_joined(one, a, b) for a, b in zip(x.children(small), x.children(large))]
    a, b = (_with_parts(expr, parts) for expr in (small, large))
    if repr(a) == repr(b):  # a NaN is no other NaN
        return a
    if isinstance(a, x.Const) and isinstance(b, x.Const) and a.dtype is b.dtype:
        number = a.dtype.numpy.type
        for name, told in ((MANY, [n for _, n in _SIZES]), (EACH, [1 / n for _, n in _SIZES])):
            if [number(a.value), number(b.value)] == [*map(number, told)]:
                return x.Var(name, a.dtype)
    raise not_by_rows(one, f"{small} of rows of {_SIZES[0][1]}, and {large} of rows of {_SIZES[1][1]}")


def _with_parts(expr: x.Expr, parts: list[x.Expr]) -> x.Expr:
    rest = iter(parts)
    return x.rebuilt(expr, lambda part: next(rest, part), lambda index: index)


def not_by_rows(one: Rows, where: str) -> LoweringError:
    return LoweringError(
        f"the composite {one.name!r} is declared `{one.said}`, and is not",
        got=where,
        remedy=f"declare it `whole` without `{one.said}`",
    )
