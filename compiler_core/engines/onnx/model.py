"""Graph -> ONNX ModelProto.

In: a Graph, decomposed for `TABLE` (graph/passes/decompose.py). Out: a model whose inputs and outputs are the graph's,
in order, by name; sizes that the call decides are `dim_param`s. `TABLE` is the one table of ops for all engines that
take ONNX; `refused` says why a call has no place in a model; `serialized` makes bytes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import onnx
from onnx import helper, numpy_helper

from compiler_core.dtype import float32
from compiler_core.engines.onnx.emitter import OPSET, Emitter, Rule, element_type
from compiler_core.engines.onnx.movement import MOVEMENT
from compiler_core.engines.onnx.pointwise import POINTWISE
from compiler_core.engines.onnx.whole import REFUSALS, WHOLE
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.graph.sizes import symbols_of
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.ops.rules import OwnCode
from compiler_core.symbolic.expression import Sym, SymOrInt, of_factor, text_of

TABLE: Mapping[str, Rule] = {**POINTWISE, **MOVEMENT, **WHOLE}
_SIZES = frozenset({"shape", "size", "starts", "stops", "value", "low", "high"})  # attributes that choose no kernel
IR_VERSION = 10  # that came with opset 20 and 21
PROTOBUF_LIMIT = 2**31 - 1  # bytes


def refused(call: Call, table: Mapping[str, Rule] = TABLE) -> str:
    """Why ONNX does not take a call; "" if it does. table: an engine may have rules of its own."""
    if table.get(call.op.name) is None:
        rule = call.op.engines
        return f"ONNX has no such operator; {rule.why}" if isinstance(rule, OwnCode) else "ONNX has no such operator"
    for node in (*call.args, call):
        if node.dtype.is_complex:
            return "ONNX has no operators for complex numbers"
    refusal = REFUSALS.get(call.op.name)
    why = refusal(call) if refusal is not None else ""
    return why or _of_types(call, table)


_types: dict[tuple[Any, ...], str] = {}  # kernel -> why not


def _of_types(call: Call, table: Mapping[str, Rule]) -> str:
    """Why ONNX's operators do not take these dtypes: asked of its checker, by a model of this call alone."""
    key = (table[call.op.name], kernel_of(call))
    if key not in _types:
        graph = alone(call)
        emitter = Emitter(graph, table, {})
        try:
            onnx.checker.check_model(_made(emitter, graph, OPSET, {}, None), full_check=True)
            _types[key] = ""
        except onnx.shape_inference.InferenceError as error:
            _types[key] = str(error).strip().splitlines()[0]
    return _types[key]


def kernel_of(call: Call) -> tuple[Any, ...]:
    """What kernels are chosen by: op, dtypes, numbers of dims, attributes that are no sizes."""
    operands = tuple((arg.dtype.short, len(arg.shape)) for arg in call.args)
    attrs = tuple((key, value) for key, value in sorted(call.attrs.items()) if key not in _SIZES)
    return call.op.name, operands, call.dtype.short, len(call.shape), str(attrs)


def _line(size: Any) -> TensorMeta:
    return TensorMeta((size,), float32)


def alone(call: Call) -> Graph:
    """A graph of one call; sizes that are decided elsewhere are those of inputs more."""
    stands: dict[Node, Placeholder] = {arg: Placeholder(f"x{k}", arg.meta) for k, arg in enumerate(call.args)}
    one = call.changed("result", tuple(stands[arg] for arg in call.args))
    graph = Graph(call.op.name, (*stands.values(), one), (one,))
    told = [Placeholder(symbol.name, _line(of_factor(symbol))) for symbol in symbols_of(graph)]
    return Graph(call.op.name, (*stands.values(), *told, one), (one,))


def to_model(
    graph: Graph,
    *,
    opset: int = OPSET,
    names: Mapping[Node, str] | None = None,
    outputs: Sequence[str] | None = None,
    held: Mapping[Node, Array] | None = None,
    table: Mapping[str, Rule] = TABLE,
) -> onnx.ModelProto:
    """The model of a graph.

    names: of inputs, where they are not to be called as the nodes are; outputs: of results, likewise. held: inputs that
    the model has itself, as initialisers. Raises BackendError for a call that ONNX does not have.
    """
    for call in graph.calls:
        why = refused(call, table)
        if why:
            raise BackendError(f"{call.op.name} cannot be exported: {why}", where=call.location, got=f"%{call.name}")
    return _made(Emitter(graph, table, names or {}, outputs or ()), graph, opset, held or {}, outputs)


def _made(
    emitter: Emitter,
    graph: Graph,
    opset: int,
    held: Mapping[Node, Array],
    outputs: Sequence[str] | None,
) -> onnx.ModelProto:
    emitter.emit()
    read = {*(arg for call in graph.calls for arg in call.args), *graph.outputs}
    for node, array in held.items():
        if node not in read:
            continue
        emitter.initializers[emitter.names[node]] = numpy_helper.from_array(array, emitter.names[node])
    results = [_output(emitter, node, k, outputs) for k, node in enumerate(graph.outputs)]
    made = helper.make_graph(
        _read_by(emitter.nodes, {*results}),
        graph.name,
        [_described(emitter.names[node], node.meta) for node in graph.inputs if node not in held],
        [_described(name, node.meta) for name, node in zip(results, graph.outputs)],
        list(emitter.initializers.values()),
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(made, opset_imports=imports, ir_version=IR_VERSION, producer_name="distcompile")


def _read_by(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """The nodes that these names need, in their order: a rule for several calls leaves some that nobody reads."""
    kept = []
    for node in reversed(nodes):
        if not names.isdisjoint(node.output):
            kept.append(node)
            names.update(_reads(node))
    return kept[::-1]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:  # what a body reads of its surroundings
            yield from _reads(inner)


def nbytes(model: onnx.ModelProto) -> int:
    """Of the numbers that a model holds."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def serialized(model: onnx.ModelProto) -> bytes:
    """A model in one piece. Raises BackendError for one that is too large for protobuf."""
    size = nbytes(model)
    if size > PROTOBUF_LIMIT:
        raise BackendError(
            f"model {model.graph.name} holds weights of {size} bytes, which one ONNX file cannot hold",
            expected=f"at most {PROTOBUF_LIMIT} bytes",
            remedy="save it with external_data=True: its weights then stand in a file beside it",
        )
    return model.SerializeToString()  # type: ignore[no-any-return]


def _output(emitter: Emitter, node: Node, number: int, names: Sequence[str] | None) -> str:
    """A name of its own for each output: of an input, of a constant, and of what is returned twice, by an Identity."""
    made = emitter.value(node)
    is_result = isinstance(node, Call) and emitter.graph.outputs.index(node) == number
    if names is None and is_result and made not in emitter.initializers:
        return made
    name = names[number] if names is not None else f"{made}_out{number}"
    emitter.nodes.append(helper.make_node("Identity", [made], [name], name=f"{name}_is"))
    return name


def _described(name: str, meta: TensorMeta) -> onnx.ValueInfoProto:
    sizes: Sequence[SymOrInt] = meta.shape
    shape = [text_of(n, attrgetter("name")) if isinstance(n, Sym) else n for n in sizes]
    return helper.make_tensor_value_info(name, element_type(meta.dtype), shape)
