"""Graph -> ONNX ModelProto.

In: a Graph, decomposed for `TABLE` (graph/passes/decompose.py). Out: a model whose inputs and outputs are the graph's,
in order, by name; sizes that the call decides are `dim_param`s. `TABLE` is the one table of ops for all engines that
take ONNX; `refused` says why a call has no place in a model.
Raises: BackendError for a call that has none, and for a model of over 2 GB, which protobuf cannot hold in one piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from compiler_core.engines.onnx.emitter import OPSET, Emitter, Rule, element_type
from compiler_core.engines.onnx.movement import MOVEMENT
from compiler_core.engines.onnx.pointwise import POINTWISE
from compiler_core.engines.onnx.whole import REFUSALS, WHOLE
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops.rules import OwnCode

TABLE: Mapping[str, Rule] = {**POINTWISE, **MOVEMENT, **WHOLE}
IR_VERSION = 10  # that came with opset 20 and 21
PROTOBUF_LIMIT = 2**31 - 1  # bytes


def refused(call: Call) -> str:
    """Why ONNX does not take a call; "" if it does."""
    if TABLE.get(call.op.name) is None:
        rule = call.op.engines
        return f"ONNX has no such operator; {rule.why}" if isinstance(rule, OwnCode) else "ONNX has no such operator"
    for node in (*call.args, call):
        if node.dtype.is_complex:
            return "ONNX has no operators for complex numbers"
    refusal = REFUSALS.get(call.op.name)
    return refusal(call) if refusal is not None else ""


def to_model(graph: Graph, *, opset: int = OPSET, outputs: Sequence[str] | None = None) -> onnx.ModelProto:
    """The model of a graph. outputs: names for its results; None: as the nodes are called."""
    for call in graph.calls:
        why = refused(call)
        if why:
            raise BackendError(f"{call.op.name} cannot be exported: {why}", where=call.location, got=f"%{call.name}")
    emitter = Emitter(graph, TABLE)
    emitter.emit()
    names = [_output(emitter, node, k, outputs) for k, node in enumerate(graph.outputs)]
    made = helper.make_graph(
        emitter.nodes,
        graph.name,
        [_described(node.name, node.meta) for node in graph.inputs],
        [_described(name, node.meta) for name, node in zip(names, graph.outputs)],
        list(emitter.initializers.values()),
    )
    nbytes = sum(len(tensor.raw_data) for tensor in emitter.initializers.values())
    if nbytes > PROTOBUF_LIMIT:
        raise BackendError(
            f"graph {graph.name} holds constants of {nbytes} bytes, which one ONNX file cannot hold",
            expected=f"at most {PROTOBUF_LIMIT} bytes",
            remedy="export with external data: weights then stand in a file beside the model",
        )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(made, opset_imports=imports, ir_version=IR_VERSION, producer_name="distcompile")


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
    shape = [n if isinstance(n, int) else str(n) for n in meta.shape]
    return helper.make_tensor_value_info(name, element_type(meta.dtype), shape)
