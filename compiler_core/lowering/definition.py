"""What each value of a graph is, as data: the form between Graph and loop IR, in which fusion is decided.

    Defined    := definitions NAME Line* outputs VALUE, ...
    Line       := input VALUE: dtype SHAPE [share]      of the graph, constants too; share: 1 over a number of ranks
                | VALUE: dtype SHAPE Definition         SHAPE: as the caller sees it; in memory it is contiguous
                | storage VALUE in VALUE                a value that lies in the memory of another
    Definition := element Axes [into VALUE+OFFSET at Index] = Expr      pointwise, gathers, padding, copies
                | reduce KIND in dtype Axes at Index = Expr             over the axes that Index does not name
                | scatter MODE Axes onto Axes [in place] = Expr, Index, Expr    value, its place, what stands there
                | scan KIND in dtype Axes along AXIS [reverse] = Expr, ...      a step from the element before
                | gemm BATCH M N K a Matrix b Matrix out Matrix [alpha=..] [scale=..] [onto=..] [bias=..]
                | routine NAME (View; ...) attributes                   a library's, by strides
                | assembly (VALUE, ...)                                 consists of what these wrote into it
    Axes := [NAME:extent, ...]     Matrix := VALUE+OFFSET BATCH_STRIDES ROW COL     Expr, Index: loop_ir/expr_text.py

    definitions norm
      input x: f32 (32, 128)
      greatest: f32 (32,) reduce max in f32 [d0:32, d1:128] at d0 = x[128*d0 + d1]
      y: f32 (32, 128) element [d0:32, d1:128] = sub(x[128*d0 + d1], greatest[d0])
      outputs y

In: nothing. Out: the classes, and what walks and substitutes in them. An Expr is one of loop IR (`loop_ir/expr.py`) in
which a Load's `buffer` names a value (of the graph, or made by the lowering), and indices are flat: row-major offsets
into that value, which may hold Data. Views have no definition: they are composed into the indices of their readers.
Invariants (verify.py): `axes` run row-major over the domain (the result of an Element, the operand of a Reduce, the
source of a Scatter); an axis of extent 1 stands in no index. A Definition reads values defined before it, or inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from compiler_core.dtype import DType
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.ir import REDUCING, ReduceKind, StoreMode, View
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.routine import Routine
from compiler_core.records import dataclass
from compiler_core.symbolic.index import ZERO, Atom, Axis, Data, Div, Index, Mod, Scalar, of_data

Axes: TypeAlias = tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AssemblyPart:
    """Where in another value's memory an Element lies:

    element `axes` at offset + index, both in elements of `target`.
    """

    target: str
    offset: int
    index: Index


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """One expression an element. note: `%name op file:line`, for comments. part: set if it has no memory of its own."""

    name: str
    dtype: DType
    axes: Axes
    value: x.Expr
    note: str = ""
    part: AssemblyPart | None = None

    @property
    def numel(self) -> int:
        return domain_numel(self.axes)


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """kept: the flat index into the result, linear in the axes that stay. accumulate: the dtype it is summed in."""

    name: str
    dtype: DType
    axes: Axes
    value: x.Expr
    kind: ReduceKind
    kept: Index
    numel: int
    accumulate: DType
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """base:

    an expression over base_axes. target: flat index into the result; may depend on data. mode: "set" or "add".
    in_place: the base, one load of a value, was written where the result lies.
    """

    name: str
    dtype: DType
    axes: Axes
    value: x.Expr
    base_axes: Axes
    base: x.Expr
    target: Index
    mode: StoreMode
    note: str = ""
    in_place: bool = False

    @property
    def numel(self) -> int:
        return domain_numel(self.base_axes)


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Running values along `line`, one of `axes`; reverse: from its last element. kind: as in rules.Scan.

    values: one expression an operand of the step. carried: the dtype of the running value.
    """

    name: str
    dtype: DType
    axes: Axes
    values: tuple[x.Expr, ...]
    kind: str
    line: Axis
    reverse: bool
    carried: DType
    note: str = ""

    @property
    def numel(self) -> int:
        return domain_numel(self.axes)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A (batched) matrix inside the value `source`: offset and strides in elements."""

    source: str
    offset: int
    batch: tuple[int, ...]
    row: int
    col: int


@dataclass(frozen=True, slots=True, eq=False)
class Gemm:
    """name[batch, i, j] = alpha * scale * sum_k a[batch, i, k] * b[batch, k, j] (+ what stands there, if `onto`).

    scale: the value (one element) that multiplies alpha at run time, or "". dtype: of the result; 16-bit operands may
    give an f32 one, where the library can.
    bias: n numbers of `dtype` that are added to each row, or "".
    out: where the product goes; its source is `name` itself unless it is written into a part of another value.
    """

    name: str
    dtype: DType
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    out: Operand
    alpha: float = 1.0
    scale: str = ""
    onto: str = ""
    note: str = ""
    bias: str = ""

    @property
    def numel(self) -> int:
        return math.prod(self.batch) * self.m * self.n


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """name = routine(*operands, **attrs), contiguous. operands: strided parts of values, named by their slots."""

    name: str
    dtype: DType
    routine: Routine
    operands: tuple[View, ...]
    shape: Shape
    attrs: tuple[tuple[str, Any], ...]
    note: str = ""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """A value whose parts other definitions write in place:

    complete once all of `parts` are. Needs no step of its own.
    """

    name: str
    dtype: DType
    parts: tuple[str, ...]
    numel: int
    note: str = ""


Definition: TypeAlias = Element | Reduce | Scatter | Scan | Gemm | LibraryCall | Assembly


@dataclass
class Defined:
    """definitions by name, in order; outputs: the value each graph output is; metas: of every value, inputs included.

    storage: values that live in the memory of another (see place.py). shares: inputs that are 1 over a number of ranks.
    """

    definitions: dict[str, Definition] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    metas: dict[str, TensorMeta] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)
    shares: frozenset[str] = frozenset()
    name: str = ""

    @property
    def inputs(self) -> list[str]:
        """The values that are read, or returned, and not defined: the graph's inputs and constants; in order of use."""
        read = [name for one in self.definitions.values() for name in definition_reads(one)]
        return [name for name in dict.fromkeys([*read, *self.outputs]) if name not in self.definitions]


def prune(definitions: dict[str, Definition], wanted: Sequence[str]) -> dict[str, Definition]:
    """The definitions that `wanted` need, in their order."""
    live = set(wanted)
    kept: list[Definition] = []
    for definition in reversed(definitions.values()):
        if definition.name in live:
            live.update(definition_reads(definition))
            kept.append(definition)
    return {definition.name: definition for definition in reversed(kept)}


def seeks_across(reduction: Reduce) -> bool:
    """Whether places are sought along an axis behind which others come."""
    how = REDUCING[reduction.kind]
    return how.is_place and not how.last_nan and reduction.axes[-1] in axes_in(reduction.kept)


def make_axes(shape: Shape) -> Axes:
    """One axis a dimension."""
    return tuple(Axis(f"d{k}", n) for k, n in enumerate(shape))


def domain_numel(axes: Axes) -> int:
    return math.prod(axis.extent for axis in axes)


def row_major(shape: Shape) -> tuple[int, ...]:
    """The strides of a contiguous array, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def flat_of(axes: Axes) -> Index:
    """The row-major offset of the point `axes` in its domain."""
    strides = row_major(tuple([axis.extent for axis in axes]))
    return Index({axis: stride for axis, stride in zip(axes, strides) if axis.extent != 1}, 0)


def unflatten(flat: Index, shape: Shape) -> list[Index]:
    """The index, one expression a dimension, of a row-major offset into an array of `shape`."""
    strides = row_major(shape)
    index = []
    for position, (n, stride) in enumerate(zip(shape, strides)):
        if n == 1:
            index.append(ZERO)
            continue
        quotient = flat // stride
        is_outermost = all(m == 1 for m in shape[:position])
        index.append(quotient if is_outermost else quotient % n)
    return index


def digits_of(flat: Index, axes: Axes) -> dict[Axis, Index]:
    """`axes` at a row-major offset into their domain."""
    return dict(zip(axes, unflatten(flat, tuple(axis.extent for axis in axes))))


def value_at(source: Element | Reduce, flat: Index) -> x.Expr:
    """What `source` is, or reduces, at a place of its domain."""
    return substitute(source.value, digits_of(flat, source.axes), {})


def substitute(expr: x.Expr, table: Mapping[Axis, Index], memo: dict[x.Expr, x.Expr]) -> x.Expr:
    """`expr` with its axes replaced, in every index. memo: of this table's substitutions."""
    if expr not in memo:
        memo[expr] = x.rebuilt(expr, lambda e: substitute(e, table, memo), lambda i: substitute_index(i, table, memo))
    return memo[expr]


def replace_load(expr: x.Expr, load: x.Load, value: x.Expr) -> x.Expr:
    """`expr` with `value` in place of `load`, also inside indices."""

    def index(at: Index) -> Index:
        if at.is_linear:
            return at
        return at.substitute({}, lambda atom: of_data(replace(atom, value=part(data_value(atom)))))

    def part(inner: x.Expr) -> x.Expr:
        return value if inner == load else x.rebuilt(inner, part, index)

    return part(expr)


def substitute_index(index: Index, table: Mapping[Axis, Index], memo: dict[x.Expr, x.Expr]) -> Index:
    """An index with its axes replaced, also inside the expressions of its Data."""
    return index.substitute(table, lambda atom: of_data(replace(atom, value=substitute(data_value(atom), table, memo))))


def data_value(atom: Data) -> x.Expr:
    """The expression that a Data atom holds."""
    value: x.Expr = atom.value
    return value


def indices(expr: x.Expr) -> tuple[Index, ...]:
    """The indices that stand in `expr` itself, not in its children."""
    if isinstance(expr, x.Load | x.IndexValue):
        return (expr.index,)
    return (expr.left, expr.right) if isinstance(expr, x.IndexCompare) else ()


def data_atoms(index: Index) -> Iterator[Data]:
    """The Data in an index, also inside Div and Mod."""
    for atom in index.terms:
        if isinstance(atom, Data):
            yield atom
        elif isinstance(atom, Div | Mod):
            yield from data_atoms(atom.arg)


def walk_all(expr: x.Expr) -> Iterator[x.Expr]:
    """`expr` and everything in it, also what its indices read."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        todo += reversed(x.children(part))
        for index in reversed(indices(part)):
            if not index.is_linear:
                todo += reversed([data_value(atom) for atom in data_atoms(index)])


def loads(expr: x.Expr) -> list[x.Load]:
    """Every load in `expr`, also those made by its indices."""
    return [part for part in walk_all(expr) if isinstance(part, x.Load)]


def axes_in(index: Index) -> set[Axis]:
    """Every axis that an index depends on, also inside Div, Mod and Data."""
    found: set[Axis] = set()
    for atom in index.terms:
        found |= _axes_of_atom(atom)
    return found


def _axes_of_atom(atom: Atom) -> set[Axis]:
    match atom:
        case Axis():
            return {atom}
        case Data():
            return axes_in_expr(data_value(atom))
        case Scalar():
            return set()
    return axes_in(atom.arg)


def axes_in_expr(expr: x.Expr) -> set[Axis]:
    """Every axis that an expression depends on."""
    found: set[Axis] = set()
    for part in x.walk_expr(expr):
        for index in indices(part):
            found |= axes_in(index)
    return found


@lru_cache(maxsize=4096)  # passes ask again and again; definitions are equal if they are the same
def definition_reads(definition: Definition) -> tuple[str, ...]:
    """The names of the values that a definition reads, in order, once each."""
    if isinstance(definition, Gemm):
        names = [definition.a.source, definition.b.source, definition.scale, definition.onto, definition.bias]
        return tuple(dict.fromkeys(name for name in names if name))
    if isinstance(definition, LibraryCall):
        return tuple(dict.fromkeys(view.slot.buffer for view in definition.operands))
    if isinstance(definition, Assembly):
        return tuple(definition.parts)
    if isinstance(definition, Scan):
        return tuple(dict.fromkeys(load.buffer for value in definition.values for load in loads(value)))
    found = [load.buffer for load in loads(definition.value)]
    if isinstance(definition, Scatter):
        found += [load.buffer for load in loads(definition.base)]
        found += [load.buffer for atom in data_atoms(definition.target) for load in loads(data_value(atom))]
    return tuple(dict.fromkeys(found))
