"""Graph: the tensor IR. Immutable nodes over ops, in topological order.

    Graph   := [Declarations] graph NAME ( Placeholder* ) [on DEVICE] { (Constant | Call)* Event* [Host] return Node* }
                                               Declarations: of the sizes that the call decides (symbolic/size_text.py)
                                               DEVICE: where its arrays are, "cuda:0"; the CPU if not said
    Event   := wait K [behind J]: inputs PLACE*  input PLACE (counted from 0) is read only after event K was waited for
                                               behind J: which comes after signal J: a collective makes them of it
             | signal K: outputs PLACE*        event K is signalled as soon as these outputs are complete
    Host    := host: outputs PLACE*            these are handed over in the host's memory
    Node    := Placeholder(name, meta, role, source) | Constant(name, array)
             | Call(name, op, operands, attrs, meta, location, region)
    meta, attrs: sizes are numbers, or expressions over the declared symbols: f32[s0, 2*s0 + 1]

In: ops applied to nodes (`GraphBuilder.bind`, reached through `ops.bind`). Out: `Graph`.
Invariants (checked by `verify.py`): names are unique; an operand stands before its user; every `meta` is what the op's
`infer` says; placeholders stand first, in call order; the outputs are nodes of the graph; an input waits for one event,
an output is announced by one.
Nodes compare by identity. Two graphs are equal when their text is (`print.py`, without locations).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from compiler_core import cuda
from compiler_core.dtype import DType
from compiler_core.errors import GraphError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.registry import Array, Attrs, Op, Value, current_trace, meta_of
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """What every node has: a name unique in its graph, and the meta of its one output."""

    name: str
    meta: TensorMeta

    __bind_priority__ = 1

    @property
    def shape(self) -> Shape:
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return ()

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        trace = current_trace()
        if trace is None:
            raise GraphError(
                f"op {op.name} was applied to graph nodes, but nothing records",
                remedy="apply it inside `with use_trace(builder):`",
            )
        return trace.bind(op, values, attrs)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.meta}"


SAVED = frozenset({"saved", "spent", "hosted"})  # roles of what a forward keeps for its backward
OF_BACKWARDS = SAVED | {"tangent", "hooked"}  # roles of inputs that a forward has none of


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Placeholder(Node):
    """A graph input. role: "input", "parameter", "buffer", "saved", "spent", "hosted", "tangent", "hooked", "rng" or
    "scale". spent: saved, and read by nobody else: a program may write over its memory once it has read it. hosted:
    saved, and handed over in the host's memory, though the graph is a GPU's.

    source: where the caller finds it, as the user would write it (`args[0]`, `model.l1.weight`).
    """

    role: str = "input"
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Node):
    """An array known when the graph was made. `array` is never written."""

    array: Array = field(kw_only=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Node):
    """One op applied to earlier nodes. `location` is the user's `file:line`, or empty.

    region: the checkpointed function that it belongs to, and what its policy does with the value (`kept.py`); 0: none.
    Like the location, it is no part of a graph's identity; the partition reads it.
    """

    op: Op = field(kw_only=True)
    args: tuple[Node, ...] = field(kw_only=True)
    attrs: Mapping[str, Any] = field(kw_only=True)
    location: str = ""
    region: int = 0

    @property
    def operands(self) -> tuple[Node, ...]:
        return self.args

    def changed(self, name: str, args: tuple[Node, ...]) -> Call:
        """The same application under another name, or to other operands of the same metas."""
        return Call(
            name, self.meta, op=self.op, args=args, attrs=self.attrs, location=self.location, region=self.region
        )


def _is_of_gpu(device: str) -> bool:
    return device != "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A function from arrays to arrays. `nodes` holds all nodes, placeholders first, in topological order.

    signals[k]: the places of the outputs that event k announces; waits[k]: those of the inputs that event k makes
    readable. A caller that gives no events gets a plain function. behind[k]: the signal that wait k comes after, -1 for
    none; empty if it is none for all. Signals that waits are behind come in their order, and between other effects.
    device: where inputs and outputs are, "cpu" or "cuda:0"; host values in a graph of a GPU (numbers, keys of draws,
    0-d tensors of the CPU) are handed over as they are. hosted: the places of the outputs of a GPU's graph that are to
    be handed over in the host's memory; only who runs it on one heeds that.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]
    signals: tuple[tuple[int, ...], ...] = ()
    waits: tuple[tuple[int, ...], ...] = ()
    device: str = "cpu"
    behind: tuple[int, ...] = ()
    hosted: tuple[int, ...] = ()

    @property
    def on_gpu(self) -> bool:
        return _is_of_gpu(self.device)

    @property
    def inputs(self) -> tuple[Placeholder, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Placeholder))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Call))

    @property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Constant))

    def with_nodes(self, nodes: Iterable[Node], outputs: Iterable[Node] | None = None) -> Graph:
        """The graph of these nodes, of this name and device, without events. outputs: by default its own."""
        kept = self.outputs if outputs is None else tuple(outputs)
        return Graph(self.name, tuple(nodes), kept, device=self.device)

    def called_as(self, other: Graph) -> Graph:
        """The graph with the events of another, which has the same inputs and outputs, and its places in the host."""
        return replace(self, signals=other.signals, waits=other.waits, behind=other.behind, hosted=other.hosted)

    def users(self) -> dict[Node, list[Call]]:
        """Node -> the calls that read it, in order, once each."""
        table: dict[Node, list[Call]] = {node: [] for node in self.nodes}
        for call in self.calls:
            for operand in dict.fromkeys(call.args):
                table[operand].append(call)
        return table

    def forward(self, *inputs: Value) -> list[Value]:
        """Its outputs, op by op (interpret.py): so a graph, or this, is what a backend may give back for it."""
        from compiler_core.graph.interpret import interpret

        return interpret(self, inputs)

    __call__ = forward

    def __str__(self) -> str:
        from compiler_core.graph.print import print_graph

        return print_graph(self)


class GraphBuilder:
    """Collects nodes while something is traced; `build` closes it into a Graph. Implements `ops.registry.Trace`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.placeholders: list[Placeholder] = []
        self.body: list[Node] = []
        self.region = 0  # of the calls to come
        self.device = "cpu"  # of the graph
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[str, Shape, bytes], Constant] = {}

    @property
    def on_gpu(self) -> bool:
        return _is_of_gpu(self.device)

    def unique_name(self, stem: str) -> str:
        """`stem`, or `stem_1`, `stem_2`, ... : an ASCII identifier, deterministic, so equal traces print equal text."""
        if not (stem.isidentifier() and stem.isascii()):
            stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)
            stem = stem if stem.isidentifier() else f"v{stem}"
        count = self._counts.get(stem, 0)
        self._counts[stem] = count + 1
        if count == 0:
            return stem
        return self.unique_name(f"{stem}_{count}")

    def placeholder(self, name: str, meta: TensorMeta, *, role: str = "input", source: str = "") -> Placeholder:
        """Add an input, after those added before."""
        node = Placeholder(self.unique_name(name), meta, role, source)
        self.placeholders.append(node)
        return node

    def constant(self, array: Array) -> Constant:
        """The node holding `array`; equal arrays share one node."""
        if cuda.is_array(array):  # a constant is the host's
            array = cuda.fetch(array)
        meta = meta_of(array)
        key = (meta.dtype.short, meta.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = Constant(self.unique_name("const"), meta, array=array)
            self.body.append(self._constants[key])
        return self._constants[key]

    def call(
        self, op: Op, args: Iterable[Node], attrs: Mapping[str, Any], *, location: str = "", name: str = ""
    ) -> Call:
        """Append `op(*args, **attrs)`; its meta comes from `op.infer`."""
        args = tuple(args)
        meta = op.infer(*(a.meta for a in args), **attrs)
        name = self.unique_name(name or op.name)
        node = Call(name, meta, op=op, args=args, attrs=dict(attrs), location=location, region=self.region)
        self.body.append(node)
        return node

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        """`ops.bind`'s way in: arrays among `values` become constants."""
        return self.call(op, [v if isinstance(v, Node) else self.constant(v) for v in values], attrs)

    def build(self, outputs: Iterable[Node]) -> Graph:
        """The finished graph. Dead nodes stay; `passes.dce` removes them."""
        return Graph(self.name, (*self.placeholders, *self.body), tuple(outputs), device=self.device)
