"""Capture for export: one call of a module as one graph of given tensors, which leaves everything as it was.

In: a module, the arguments of a call, the tensors that are to be inputs of the graph, and what is asked of their dims.
Out: `Traced`: a graph whose inputs are these tensors, in their order (what else the code reads, constants, stands
before the first of role "input"), then the key of its draws. Its outputs are the new values of the tensors that the
code writes, then the results.
Method: the capture of `compile` (capturing.py), taken back when it is closed: nothing is run, nothing has happened.
Raises: GraphBreak where a call is not one graph; CannotExport for what a graph from tensors to tensors cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from compiler_core import log
from compiler_core.capture.captured import Captured, Survivors
from compiler_core.capture.capturing import Broke, Capture, Raised, Returned
from compiler_core.capture.compiled.function import REMEDY, State
from compiler_core.capture.marks import Asked
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.points import Point
from compiler_core.capture.recipes.outputs import Chain, Existing, Fresh, Leaf, Plain, Result, Selected, Spent, ViewOf
from compiler_core.capture.record import Change
from compiler_core.capture.trace import Lifted, Mark
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import CannotExport, GraphBreak
from compiler_core.graph.ir import Call, Constant, Graph, GraphBuilder, Node, Placeholder
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.print import LITERAL_ELEMENTS
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, Attrs, Op, meta_of
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sizes, Sym
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import TreeSpec, flatten

PLAIN = (int, float, complex, bool, str, type(None), DType, Device)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor that is an input of the graph. name: of its placeholder. dims: which of its sizes are symbols."""

    tensor: Tensor
    name: str
    role: str
    source: str
    dims: Mapping[int, Asked]


@dataclass(frozen=True, slots=True)
class Output:
    """A leaf of the result: output `index` of the graph, or if that is -1 `value`: a number, a text, a size (Sym)."""

    index: int
    value: Any = None


@dataclass(frozen=True, slots=True)
class Traced:
    """See the head of this file.

    inputs: the placeholders of the wanted. constants: name of the placeholder -> tensor. written: the wanted whose new
    values are the first outputs. draws, shard: what the key is for, which is the last input if there are draws. sizes:
    the symbols, and what is assumed of them. asked: (number of the wanted, dim, its symbol, what was asked of it).
    """

    graph: Graph
    inputs: tuple[Placeholder, ...]
    constants: dict[str, Tensor]
    written: tuple[int, ...]
    results: tuple[Output, ...]
    tree: TreeSpec
    draws: int
    shard: int
    sizes: Sizes
    asked: tuple[tuple[int, int, Sym, Asked], ...]


def trace_call(
    module: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wanted: Sequence[Wanted]
) -> Traced:
    """The graph of `module(*args, **kwargs)`. See the head of this file."""
    owner = State(module, "codegen", True, False, False)
    point = Point(owner, is_root=True)
    point.memory.declared = {id(one.tensor): one.dims for one in wanted if one.dims}
    capture = partial(_Export, wanted=wanted)
    traced: Traced = capture(point, args, kwargs).run()
    return traced


class _Export(Capture):
    """See the head of this file."""

    def __init__(self, *args: Any, wanted: Sequence[Wanted]) -> None:
        super().__init__(*args)
        self.wanted = wanted
        self.buffers = _buffers(self.owner.function, {id(one.tensor) for one in wanted if one.role == "buffer"})
        self.assigned: dict[Cell, Tensor] = {}  # buffers that others are put in the places of
        self.segment.sizes.ignores_layout = self.segment.trace.exports = True
        self.traced: Traced | None = None

    def again(self, *args: Any) -> Capture:
        return _Export(*args, wanted=self.wanted)

    def _closed(self, ended: Returned | Broke | Raised, start: Mark) -> tuple[Captured, Survivors]:
        if not isinstance(ended, Returned):
            self._take_back(start)
            if isinstance(ended, Raised):
                raise ended.error
            raise GraphBreak(ended.why.reason, where=ended.where, remedy=ended.why.remedy or REMEDY)
        captured, survivors = super()._closed(ended, start)
        try:
            self._check_changes(captured)
            self.traced = _Finish(self, captured, survivors, ended.value).traced()
        finally:
            self._take_back(start)
        return captured, survivors

    def _close(self, ended: Returned | Broke | Raised) -> tuple[Captured, Survivors]:
        trace = self.segment.trace
        self.shapes = {cell: value.shape for cell, value in trace.stand_ins.items()}
        self.asked = tuple(self.segment.outside_sizes.asked)
        made = super()._close(ended)
        self.written = dict(trace.written)
        if not self.repeats:
            raise CannotExport(self.point.skipped[-1].why)
        return made

    def _check_changes(self, captured: Captured) -> None:
        ours = {id(one.tensor) for one in self.wanted}  # `self.n += 1` sets the buffer that is there
        for change in self.segment.record.replayed():
            whose = type(change.target).__name__
            tensors = [leaf for leaf in flatten(list(change.args))[0] if isinstance(leaf, Tensor)]
            if tensors and all(id(tensor) in ours for tensor in tensors):
                continue
            if (buffer := self._buffer(change)) is not None:
                self.assigned[buffer._cell] = tensors[0]
                continue
            if tensors:
                name = next((repr(arg) for arg in change.args if isinstance(arg, str)), "something")
                raise CannotExport(
                    f"the call keeps a tensor outside of it: {name} of a {whose}",
                    remedy="register it as a buffer, and write to it in place, or return it",
                )
            if self._is_as_before(change.target):
                continue
            log.warn_once(
                f"export {whose}",
                f"an exported program does not change the {whose} that the call changes",
                stacklevel=9,
            )
        if self.segment.trace.boundaries:
            raise CannotExport("the call puts hooks on tensors, which run Python", remedy="leave them out")
        if any(rebinding.moves for rebinding in captured.outputs.rebindings):
            raise CannotExport("the call gives a tensor from outside another shape or other memory")

    def _is_as_before(self, target: Any) -> bool:
        """Whether the call has put back what it changed: a context that it left."""
        own = getattr(target, "__dict__", target)
        before = self.segment.record.original(own)
        if type(before) is not dict or before is own or before.keys() != own.keys():
            return False
        return all(value is own[name] or _are_equal(value, own[name]) for name, value in before.items())

    def _buffer(self, change: Change) -> Tensor | None:
        """The buffer that a change puts another tensor in the place of: `self.state = self.state + x`."""
        match change.args:
            case (str() as name, Tensor()):
                found = self.buffers.get((id(change.target), name))
                return found if found is None or type(found) is Tensor else None
        return None

    def _go_on(self, ended: Any, captured: Captured, survivors: Survivors) -> Any:
        return self.traced


class _Finish:
    """The graph of a capture, made one of the wanted tensors."""

    def __init__(self, capture: _Export, captured: Captured, survivors: Survivors, value: Any) -> None:
        self.capture, self.captured, self.survivors, self.value = capture, captured, survivors, value
        self.builder = GraphBuilder(captured.graph.name)
        self.builder.device = captured.graph.device
        self.new: dict[Node, Node] = {}
        self.of_cell: dict[Cell, Placeholder] = {}
        self.constants: dict[str, Tensor] = {}
        self.values: dict[Cell, Node] = {}  # what wanted tensors hold at the end

    def traced(self) -> Traced:
        capture, captured = self.capture, self.captured
        inputs = [self._wanted(one) for one in capture.wanted]
        graph = Dce().apply(captured.graph)
        key = self._read(graph)
        for node in graph.nodes:
            if isinstance(node, Constant):
                self.new[node] = self._constant(node)
            elif isinstance(node, Call):
                self.new[node] = self._add(node.changed(self.builder.unique_name(node.op.name), self._args(node)))
        written = self._written(inputs)
        leaves, tree = flatten(self.value)
        nodes = [self.values[capture.wanted[k].tensor._cell] for k in written]
        results = tuple(self._result(leaf, nodes) for leaf in leaves)
        self._sort(key)
        random, sizes = captured.random, capture.segment.sizes
        asked = tuple(self._asked(inputs))
        draws, shard = (0, 0) if random is None else (random.draws, random.shard)
        made = self.builder.build(nodes)
        return Traced(made, tuple(inputs), self.constants, tuple(written), results, tree, draws, shard, sizes, asked)

    # -- inputs

    def _sort(self, key: Placeholder | None) -> None:
        """What the program holds, what the caller gives, the key."""
        placeholders = self.builder.placeholders
        placeholders.sort(key=lambda node: (node is key, node.role == "input" and node.name not in self.constants))

    def _wanted(self, one: Wanted) -> Placeholder:
        cell = one.tensor._cell
        meta = meta_of(cell.current())
        shape = self.capture.shapes.get(cell)
        made = self.builder.placeholder(
            one.name, meta if shape is None else meta.with_shape(shape), role=one.role, source=one.source
        )
        self.of_cell.setdefault(cell, made)
        return made

    def _asked(self, inputs: Sequence[Placeholder]) -> Iterator[tuple[int, int, Sym, Asked]]:
        """(which of the wanted, dim, its symbol, what was asked) of each dim that a symbol was asked for."""
        for k, (one, node) in enumerate(zip(self.capture.wanted, inputs)):
            for dim, asked in one.dims.items():
                yield k, dim, node.shape[dim], asked  # type: ignore[misc]  # a number, where it is none

    def _read(self, graph: Graph) -> Placeholder | None:
        """What stands for each of the graph's inputs; the key of the draws."""
        lifted = {lift.placeholder: lift for lift in self.capture.segment.trace.lifted.values()}
        with_history = {lift.cell for lift in lifted.values() if lift.edge is not None}
        key = None
        for node in graph.inputs:
            lift = lifted.get(node)
            if lift is not None:
                found = self._of(lift)
                plain = lift.edge is None and lift.cell in with_history
                self.new[node] = self.builder.call(OPS["detach"], [found], {}) if plain else found
            elif node.role == "rng":
                self.new[node] = key = self.builder.placeholder("rng", node.meta, role="rng", source=node.source)
            else:
                raise CannotExport("the call draws eager code's random numbers (config.fallback_random)")
        return key

    def _of(self, lift: Lifted) -> Placeholder:
        found = self.of_cell.get(lift.cell)
        if found is None:
            if any(cell.root is lift.cell.root for cell in self.of_cell):
                what = "the call reads memory of which a parameter or buffer is a part"
                raise CannotExport(f"{what}: {lift.placeholder.source}", remedy="register the whole tensor")
            tensor = None if lift.known is None or lift.at_root else lift.known.handle
            kept = Tensor._wrap(lift.cell.current()) if tensor is None else tensor
            found = self._kept(lift.placeholder.name, lift.placeholder.meta, kept)
            self.of_cell[lift.cell] = found
        return found

    def _constant(self, node: Constant) -> Node:
        """Short ones stand in the graph's text."""
        if node.array.size <= LITERAL_ELEMENTS:
            return self.builder.constant(node.array)
        return self._kept(node.name, node.meta, Tensor._wrap(node.array))

    def _kept(self, name: str, meta: TensorMeta, tensor: Tensor) -> Placeholder:
        made = self.builder.placeholder(f"c_{name}", meta, role="buffer", source=name)
        self.constants[made.name] = tensor
        return made

    # -- nodes

    def _add(self, node: Call) -> Call:
        self.builder.body.append(node)
        return node

    def _args(self, call: Call) -> tuple[Node, ...]:
        return tuple(self.new[arg] for arg in call.args)

    def _through(self, node: Node, chain: Chain) -> Node:
        for op, attrs in chain:
            kind: Op = OPS["detach"] if op is None else op
            given: Attrs = {} if op is None else attrs
            node = self.builder.call(kind, [node], given)
        return node

    # -- outputs

    def _written(self, inputs: Sequence[Placeholder]) -> list[int]:
        """Which of the wanted are written."""
        at = {one.tensor._cell: k for k, one in reversed([*enumerate(self.capture.wanted)])}
        self.values = {one.tensor._cell: node for one, node in zip(self.capture.wanted, inputs)}
        found: list[int] = []
        for cell, node in self.capture.written.items():
            if cell not in at:
                raise CannotExport(
                    "the call writes to a tensor that is neither a parameter, a buffer nor an argument of its own",
                    remedy="register it as a buffer",
                )
            self.values[cell] = self.new[node]
            found.append(at[cell])
        for cell, handle in self.capture.assigned.items():
            self.values[cell] = self._leaf_node(handle)
            found.append(at[cell])
        return sorted(set(found))

    def _leaf_node(self, leaf: Tensor) -> Node:
        """The node of a tensor that is there when the call is over."""
        place = next((k for k, handle in enumerate(self.survivors.handles) if handle is leaf), -1)
        result = Existing(-1, ()) if place < 0 else self.captured.outputs.results[place]
        assert not isinstance(result, Plain)  # which no tensor is
        return self._node(result, leaf)

    def _result(self, leaf: Any, nodes: list[Node]) -> Output:
        if not isinstance(leaf, Tensor):
            if isinstance(leaf, Sym):
                return Output(-1, leaf)
            if is_symbol(leaf):
                raise CannotExport(f"a number that is computed of sizes is returned, {leaf!r} in the example",
                                   remedy="return the sizes themselves, or a tensor of it")  # fmt: skip
            value = leaf
            if not isinstance(value, PLAIN):
                what = f"an exported program cannot return an object of type {type(value).__name__}"
                raise CannotExport(what, remedy="register_pytree_node, or return tensors, containers and numbers")
            return Output(-1, value)
        node = self._leaf_node(leaf)
        if any(leaf is handle for handle in self.capture.assigned.values()):  # not what the buffer is, but its value
            node = self.builder.call(OPS["reshape"], [node], {"shape": node.shape})
        nodes.append(node)
        return Output(len(nodes) - 1)

    def _node(self, result: Result, leaf: Tensor) -> Node:
        if isinstance(result, Leaf | Spent):
            return self._node(result.result, leaf)
        if isinstance(result, Fresh | ViewOf):
            node = self.new[self.captured.graph.outputs[result.index]]
            return self._through(node, result.chain) if isinstance(result, ViewOf) else node
        assert isinstance(result, Existing | Selected)
        if isinstance(result, Selected):
            what = "the shape of a result depends on data: a tensor is selected by a mask"
            raise CannotExport(what, remedy="return the mask, or use where")
        if result.origin < 0:  # the very tensor
            return self._at_end(leaf)
        kept = self.captured.outputs.origins[result.origin]
        known = self.capture.segment.trace.by_handle.values()
        handle = kept.handle if kept.argument < 0 else next(k.handle for k in known if k.argument == kept.argument)
        return self._through(self._at_end(handle), result.chain)

    def _at_end(self, handle: Tensor) -> Node:
        """What a tensor from outside holds at the end."""
        cell = handle._cell
        if cell not in self.values:
            self.values[cell] = self.of_cell.get(cell) or self._kept("kept", meta_of(cell.current()), handle)
        return self.values[cell]


def fixed(sizes: Sizes, symbol: Any) -> bool:
    """Whether a size that was to be a symbol is a number."""
    if not isinstance(symbol, Sym):
        return True
    (one,) = symbol.symbols
    return one.hint is not None and bool(sizes.decided("==", symbol, one.hint))


def _buffers(module: Any, wanted: set[int]) -> dict[tuple[int, str], Tensor]:
    """(id of the owner, name) -> buffer; the owner is a module, or one of its tables."""
    return {
        (id(owner), name): tensor
        for inner in module.modules()
        for name, tensor in inner._buffers.items()
        if tensor is not None and id(tensor) in wanted
        for owner in (inner, inner._buffers, vars(inner))
    }


def _are_equal(value: Any, other: Any) -> bool:
    return type(value) is type(other) and isinstance(value, PLAIN) and bool(value == other)
