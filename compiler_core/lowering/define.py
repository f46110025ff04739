"""Graph -> definitions: each op's lower rule, with views composed away and index-only values inlined.

In: a Graph. Out: `Defined`: definitions in an order that respects reads, and the name of the value behind each output.
Invariants: every graph output has a definition of its own (a view, an input or a repeated output gets a copy); dead
nodes have none. A value without any load and without costly scalars (constants, iota, causal masks) is written into
its readers. A scatter that touches each result element at most once, at a place that can be told from the element's
index, becomes an Element.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

from compiler_core.dtype import DType, bfloat16, bool_, complex64, complex128, float16, float32, float64
from compiler_core.errors import LoweringError
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.interpret import identity
from compiler_core.loop_ir.ir import REDUCING, ReduceKind, Slot, View
from compiler_core.lowering import definition as d
from compiler_core.lowering.boxes import joined, tighten
from compiler_core.lowering.emitter import Emitter, call, cast, with_checks
from compiler_core.lowering.gemm import define_matmul
from compiler_core.lowering.ranges import Ranges
from compiler_core.lowering.scatter import scatter_as_element
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import rules
from compiler_core.ops.linear_algebra.gemm import GEMM
from compiler_core.ops.routine import Routine, Strided
from compiler_core.symbolic.index import ZERO, Index, IntLike, as_index, of_axis

Place = tuple[IntLike, ...]  # an index, one entry a dimension
_WIDE = {float16: float64, bfloat16: float64, float32: float64, complex64: complex128}  # what long sums run in
# places of a window up to which its reduction is one expression, so that results lie side by side
_MAX_WINDOW = 16
_MAX_INLINE_OPS = 12
_SIDE_BY_SIDE = 16  # elements behind a dim from which places along it are sought in lines (schedule/places.py)
_MAX_PIECES = 8  # of a concatenation that is one expression


def define(graph: Graph, halves: frozenset[DType] = frozenset()) -> d.Defined:
    """The definitions of everything that `graph`'s outputs need.

    halves: the 16-bit floats that the library multiplies, summing in f32; others are converted for it.
    """
    definer = Definer(halves)
    definer.result.name = graph.name
    products_out = {node for node in graph.outputs if _shows_product(node)}
    for node in live_nodes(graph):
        definer.ranges.note(node)
        if node in products_out:
            definer.materialise(node)
        elif isinstance(node, Call):
            definer.define_call(node)
        else:
            definer.result.metas[node.name] = node.meta
    definer.define_outputs(graph)
    definer.result.shares = frozenset(node.name for node in graph.inputs if node.role == "scale")
    return definer.result


def _shows_product(node: Node) -> bool:
    """Whether an output is a view of all of a matrix product: its readers then read the output, not the product."""
    numel = node.meta.numel
    seen: Node = node
    while isinstance(seen, Call) and isinstance(seen.op.lower, rules.Movement):
        seen = seen.args[0]
    is_product = isinstance(seen, Call) and seen.op.lower is GEMM
    return is_product and seen is not node and seen.meta.numel == numel


def live_nodes(graph: Graph) -> list[Node]:
    """The nodes that the outputs depend on, in order."""
    live = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node in live:
            live.update(node.operands)
    return [node for node in graph.nodes if node in live]


class Definer:
    """Holds the definitions while nodes are visited in order. halves: see `define`."""

    def __init__(self, halves: frozenset[DType] = frozenset()) -> None:
        self.halves = halves
        self.result = d.Defined()
        self._inline: dict[str, d.Element] = {}
        self.ranges = Ranges()
        self._emitter = Emitter(self.ranges)

    # ---- reading

    def read(self, value: Node, index: Place) -> x.Expr:
        """Element `index` of `value`: through its views to what lies behind them."""
        node: Node = value
        while isinstance(node, Call) and isinstance(node.op.lower, rules.Movement):
            if node.name in self.result.metas:
                break  # a view that has memory of its own
            source = node.args[0]
            index = node.op.lower.source(index, source.shape, **node.attrs)
            node = source
        flat = flatten(index, node.shape)
        if isinstance(node, Constant) and node.meta.numel == 1:
            return x.Const(node.array.item(), node.dtype)
        if node.name in self._inline:
            element = self._inline[node.name]
            table = dict(zip(element.axes, map(as_index, index)))
            return d.substitute(element.value, table, {})
        return x.Load(node.name, flat, node.dtype)

    def readers(self, call_node: Call) -> tuple[Callable[[Place], x.Expr], ...]:
        return tuple(_reader(self, arg) for arg in call_node.args)

    # ---- defining

    def add(self, definition: d.Definition, meta: TensorMeta) -> None:
        self.result.definitions[definition.name] = definition
        self.result.metas[definition.name] = meta

    def define_call(self, node: Call) -> None:
        """Add what `node` needs, by the kind of its rule."""
        rule = node.op.lower
        if isinstance(rule, rules.Movement):
            return
        if node.meta.numel == 0:
            self.add_element(node, x.Const(0, node.dtype))
            return
        handler: Any = _HANDLERS.get(type(rule))
        if handler is None:
            raise LoweringError(f"op {node.op.name} has a lower rule of unknown kind", got=type(rule).__name__)
        handler(self, node, rule)

    def add_element(self, node: Node, value: x.Expr, axes: d.Axes | None = None) -> None:
        """Define `node` as `value` over its own axes, inlined into its readers if it reads nothing."""
        element = d.Element(
            node.name, node.dtype, d.make_axes(node.shape) if axes is None else axes, value, note_of(node)
        )
        if is_free(value):
            self._inline[node.name] = element
        self.add(element, node.meta)

    def add_view(self, node: Node, element: d.Element) -> None:
        """Define `node` as what stands in its readers: no memory, unless it is materialised."""
        self._inline[node.name] = element

    def materialise(self, node: Node) -> str:
        """A contiguous value equal to `node` (perhaps a view), and its name."""
        if node.name not in self.result.metas:
            self._copy(node, node.name, note_of(node))
        return node.name

    def define_outputs(self, graph: Graph) -> None:
        """Name the value of every output, and drop the definitions that only inlining used."""
        taken: set[str] = set()
        names = []
        known = set(self.result.definitions)
        for position, node in enumerate(graph.outputs):
            name = self.materialise(node) if isinstance(node, Call) else ""
            if not name or name in taken:
                name = self._copy(node, f"{node.name}__out{position}", f"copy of %{node.name}")
            taken.add(name)
            names.append(name)
        self.result.outputs = tuple(names)
        self.result.definitions = d.prune(self._early(known), names)

    def _early(self, known: set[str]) -> dict[str, d.Definition]:
        """The definitions; of those that are not known, which copy values for outputs, each behind what it reads: what
        it copies need not be kept for the rest of the program."""
        places: dict[str, int] = {}
        for place, (name, definition) in enumerate(self.result.definitions.items()):
            read = [] if name in known else [places[r] for r in d.definition_reads(definition) if r in places]
            places[name] = max(read, default=place)
        return {name: self.result.definitions[name] for name in sorted(places, key=places.__getitem__)}

    def _copy(self, node: Node, name: str, note: str) -> str:
        axes = d.make_axes(node.shape)
        value = self.read(node, indices_of(axes)) if node.meta.numel else x.Const(0, node.dtype)
        self.add(d.Element(name, node.dtype, axes, value, note), node.meta)
        return name


def _reader(definer: Definer, node: Node) -> Callable[[Place], x.Expr]:
    return lambda index: definer.read(node, index)


def flatten(index: Place, shape: Shape) -> Index:
    """Row-major offset of `index`. A place that is checked stays, also along a dim of one element."""
    total = ZERO
    for place, n, stride in zip(index, shape, d.row_major(shape)):
        if n != 1 or any(atom.message for atom in d.data_atoms(as_index(place))):
            total = total + as_index(place) * stride
    return total


def indices_of(axes: d.Axes) -> Place:
    return tuple(of_axis(axis) for axis in axes)


def note_of(node: Node) -> str:
    if not isinstance(node, Call):
        return f"%{node.name}"
    return f"%{node.name} = {node.op.name}" + (f"  {node.location}" if node.location else "")


def is_free(value: x.Expr) -> bool:
    """Whether computing `value` again costs less than reading it: no loads, few and cheap operations."""
    count = 0
    for part in d.walk_all(value):
        count += 1
        if isinstance(part, x.Load) or (isinstance(part, x.ScalarCall) and x.SCALARS[part.scalar].costly):
            return False
    return count <= _MAX_INLINE_OPS


# ---- one handler per kind of rule


def _define_pointwise(definer: Definer, node: Call, rule: rules.Pointwise) -> None:
    axes = d.make_axes(node.shape)
    index = indices_of(axes)
    operands = tuple(definer.read(arg, index) for arg in node.args)
    definer.add_element(node, fold(call(rule.scalar, operands)), axes)


def _define_indexed(definer: Definer, node: Call, rule: rules.Indexed) -> None:
    if node.op.name == "cat" and len(node.args) > _MAX_PIECES:
        _define_pieces(definer, node)
        return
    axes = d.make_axes(node.shape)
    metas, emitter = tuple(arg.meta for arg in node.args), Emitter(definer.ranges)
    value = rule.emit(emitter, indices_of(axes), definer.readers(node), metas, **node.attrs)
    value = tighten(with_checks(cast(value, node.dtype), emitter.checked))
    whole = joined(value, axes) if node.op.name == "cat" else None
    if whole is not None:
        definer.add_view(node, d.Element(node.name, node.dtype, axes, whole))
    else:
        definer.add_element(node, value, axes)


def _define_pieces(definer: Definer, node: Call) -> None:
    """A concatenation of many: each operand is written into its part of the result, rather than found by many tests."""
    strides = d.row_major(node.shape)
    dim, start, parts = node.attrs["dim"], 0, []
    for number, arg in enumerate(node.args):
        if arg.meta.numel:
            axes = d.make_axes(arg.shape)
            index = sum((of_axis(axis) * stride for axis, stride in zip(axes, strides)), ZERO)
            part = d.AssemblyPart(node.name, start * strides[dim], index)
            name = f"{node.name}__part{number}"
            value = definer.read(arg, indices_of(axes))
            definer.add(d.Element(name, node.dtype, axes, value, note_of(node), part), arg.meta)
            parts.append(name)
        start += arg.shape[dim]
    assembly = d.Assembly(node.name, node.dtype, tuple(parts), node.meta.numel, note_of(node))
    definer.add(assembly, node.meta)


def _define_reduction(definer: Definer, node: Call, rule: rules.Reduction) -> None:
    operand = node.args[0]
    axes = d.make_axes(operand.shape)
    dims = node.attrs["dims"]
    kept = tuple(axis for dim, axis in enumerate(axes) if dim not in dims)
    reduced = tuple(axes[dim] for dim in dims)
    if operand.meta.numel == 0:
        _reduce_nothing(definer, node, rule.kind)
        return
    value = definer.read(operand, indices_of(axes))
    inner = d.domain_numel(axes[dims[-1] + 1 :]) if dims else 1
    if REDUCING[rule.kind].is_place and inner < _SIDE_BY_SIDE:  # then a place is found along the columns
        axes = (*kept, *reduced)
    _reduce(definer, node, rule.kind, value, axes, kept)


def _define_indexed_reduction(definer: Definer, node: Call, rule: rules.IndexedReduction) -> None:
    metas = tuple(arg.meta for arg in node.args)
    extents = rule.extents(metas, **node.attrs)
    if 0 in extents:
        _reduce_nothing(definer, node, rule.kind)
        return
    kept = d.make_axes(node.shape)
    reduced = d.make_axes((*node.shape, *extents))[len(kept) :]
    index = indices_of((*kept, *reduced))
    value = rule.emit(definer._emitter, index, definer.readers(node), metas, **node.attrs)
    if not REDUCING[rule.kind].is_place and math.prod(extents) <= _MAX_WINDOW:
        definer.add_element(node, cast(_written_out(rule.kind, value, reduced, node.dtype.compute), node.dtype), kept)
        return
    outer = len(kept) - rule.inner(**node.attrs)
    axes = (*kept[:outer], *reduced, *kept[outer:])
    _reduce(definer, node, rule.kind, tighten(value), axes, kept)


def _written_out(kind: str, value: x.Expr, reduced: d.Axes, accumulate: DType) -> x.Expr:
    """The reduction of `value` over a few places as one expression, in their order."""
    terms = []
    for place in itertools.product(*(range(axis.extent) for axis in reduced)):
        table = {axis: as_index(k) for axis, k in zip(reduced, place)}
        terms.append(cast(tighten(resolve(d.substitute(value, table, {}))), accumulate))
    return functools.reduce(lambda left, right: call(REDUCING[kind].scalar, (left, right)), terms)


def resolve(value: x.Expr) -> x.Expr:
    """`value` with the index tests decided that the ranges of the axes decide."""
    e = Emitter()
    match value:
        case x.IndexCompare(op, left, right, _):
            return e.compare(op, left, right)
        case x.Where(cond, then, other):
            return e.where(resolve(cond), resolve(then), resolve(other))
        case x.ScalarCall(scalar, args, dtype):
            return x.ScalarCall(scalar, tuple(map(resolve, args)), dtype)
        case x.Cast(arg, dtype):
            return x.Cast(resolve(arg), dtype)
        case _:
            return value


def _reduce_nothing(definer: Definer, node: Call, kind: str) -> None:
    definer.add_element(node, x.Const(identity(kind, node.dtype).item(), node.dtype))


def _reduce(definer: Definer, node: Call, kind: ReduceKind, value: x.Expr, axes: d.Axes, kept: d.Axes) -> None:
    """Define `node` as the reduction of `value` over those of `axes` that are not `kept`."""
    is_place = REDUCING[kind].is_place
    if all(axis.extent == 1 for axis in axes if axis not in kept):
        definer.add_element(node, x.Const(0, node.dtype) if is_place else cast(value, node.dtype), kept)
        return
    flat = flatten(indices_of(kept), tuple(axis.extent for axis in kept))
    accumulate = value.dtype.compute if is_place else node.dtype.compute
    value = cast(value, accumulate)
    numel, note = node.meta.numel, note_of(node)
    definer.add(d.Reduce(node.name, node.dtype, axes, value, kind, flat, numel, accumulate, note), node.meta)


def _define_scan(definer: Definer, node: Call, rule: rules.Scan) -> None:
    axes = d.make_axes(node.shape)
    values = tuple(definer.read(arg, indices_of(axes)) for arg in node.args)
    line, reverse = axes[node.attrs["dim"]], bool(node.attrs.get("reverse", False))
    carried = values[0].dtype.compute if REDUCING[rule.kind].is_place else _WIDE.get(node.dtype, node.dtype)
    values = tuple(cast(value, value.dtype.compute) for value in values)
    definer.add(
        d.Scan(node.name, node.dtype, axes, values, rule.kind, line, reverse, carried, note_of(node)), node.meta
    )


def _define_scatter(definer: Definer, node: Call, rule: rules.Scatter) -> None:
    base, source = node.args[0], node.args[rule.source]
    metas = tuple(arg.meta for arg in node.args)
    axes = d.make_axes(source.shape)
    index = indices_of(axes)
    target = rule.target(definer._emitter, index, definer.readers(node), metas, **node.attrs)
    base_axes = d.make_axes(base.shape)
    stored = definer.read(base, indices_of(base_axes))
    if source.meta.numel == 0:
        definer.add_element(node, stored, base_axes)
        return
    value = definer.read(source, index)
    element = scatter_as_element(axes, value, base_axes, stored, tuple(map(as_index, target)), rule.mode)
    if element is not None:
        definer.add_element(node, element, base_axes)
        return
    place = flatten(target, base.shape)
    scatter = d.Scatter(node.name, node.dtype, axes, value, base_axes, stored, place, rule.mode, note_of(node))
    definer.add(scatter, node.meta)


def _define_routine(definer: Definer, node: Call, rule: Routine) -> None:
    if rule is GEMM:
        define_matmul(definer, node)
        return
    operands = tuple(routine_operand(definer, arg, rule) for arg in node.args)
    attrs = tuple(sorted(node.attrs.items()))
    definer.add(d.LibraryCall(node.name, node.dtype, rule, operands, node.shape, attrs, note_of(node)), node.meta)


def routine_operand(definer: Definer, node: Node, routine: Routine) -> View:
    """`node` as `routine` reads it: through its views if it accepts their strides, else from a contiguous copy.

    Of a constant, one element is enough where all strides may be 0.
    """
    axes = d.make_axes(node.shape)
    load = definer.read(node, indices_of(axes)) if node.meta.numel else None
    if isinstance(load, x.Load) and load.buffer in definer.result.metas and load.index.is_linear:
        strides = tuple(load.index.coefficient(axis) for axis in axes)
        layout = Strided(node.dtype, node.shape, strides)
        if min(strides, default=0) >= 0 and routine.accepts(layout):
            return View(Slot(load.buffer, load.index.const), layout)
    repeated = Strided(node.dtype, node.shape, (0,) * len(axes))
    if isinstance(load, x.Const) and routine.accepts(repeated):
        name = f"{node.name}__element"
        definer.add(d.Element(name, node.dtype, (), load, note_of(node)), TensorMeta((), node.dtype))
        return View(Slot(name), repeated)
    return View(Slot(definer.materialise(node)), Strided(node.dtype, node.shape, d.row_major(node.shape)))


_HANDLERS: dict[type, Callable[..., None]] = {
    rules.Pointwise: _define_pointwise,
    rules.Indexed: _define_indexed,
    rules.Reduction: _define_reduction,
    rules.IndexedReduction: _define_indexed_reduction,
    rules.Scatter: _define_scatter,
    rules.Scan: _define_scan,
    Routine: _define_routine,
}

_COMPARES: dict[str, x.CompareOp] = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


def fold(expr: x.Expr) -> x.Expr:
    """Comparisons and sums of index values stay indices, so that a mask made of iotas costs integer compares only."""
    if isinstance(expr, x.Where):
        return Emitter().where(expr.cond, expr.then, expr.other)
    if not isinstance(expr, x.ScalarCall) or len(expr.args) != 2:
        return expr
    left, right = (_as_plain_index(arg) for arg in expr.args)
    if left is None or right is None or (isinstance(expr.args[0], x.Const) and isinstance(expr.args[1], x.Const)):
        return expr
    if expr.scalar in _COMPARES:
        return Emitter().compare(_COMPARES[expr.scalar], left, right)
    if expr.scalar in ("add", "sub"):
        return x.IndexValue(left + right if expr.scalar == "add" else left - right, expr.dtype)
    return expr


def _as_plain_index(expr: x.Expr) -> Index | None:
    """The index that an integer expression is, if it is one and cannot have wrapped."""
    if expr.dtype.kind != "i" or expr.dtype.itemsize < 4 or expr.dtype is bool_:
        return None
    if isinstance(expr, x.Const):
        return as_index(int(expr.value.real)) if abs(int(expr.value.real)) < 1 << 30 else None
    if isinstance(expr, x.IndexValue) and max(map(abs, expr.index.bounds)) < 1 << 30:
        return expr.index
    return None
