"""`export`: a module, or an exported program, as an ONNX model.

In: what `torch.export` takes, and names. Out: an ONNXProgram. Parameters and buffers are initialisers under their
names; sizes that may change are `dim_param`s. The graph is decomposed for ONNX's operators
(compiler_core/engines/onnx); what has none is a named error, with the line that asked for it. Checks of indices are
left to the operators. What the call writes to buffers (running statistics) is no part of a model: a warning says so
once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from compiler_core import log
from compiler_core.dtype import int64
from compiler_core.engines.engine import require_package
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes import Canonicalise, Cse, Dce, Decompose, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, Array, Op
from compiler_core.ops.rules import Decomposed
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.export.dynamic_shapes import Dim
from distcompile.export.exported_program import ExportedProgram, Place
from distcompile.export.exporting import export as export_program
from distcompile.export.graph_signature import InputKind, TensorArgument
from distcompile.nn.module import Module
from distcompile.onnx.program import ONNXProgram
from distcompile.onnx.state import exporting

# of what only says an error sooner, nothing is left
_UNCHECKED: dict[str, Callable[..., Any]] = {
    "check_index": lambda idx, size: idx,
    "require": lambda x, fails, **_: x,
}
_NEWEST = 23


def export(
    model: Module | ExportedProgram,
    args: tuple[Any, ...] | Any = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool | None = None,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    verify: bool = False,
    **others: Any,
) -> ONNXProgram | None:
    """The model of `model(*args, **kwargs)`; written to `f`, if that is given.

    Args:
        model: a Module, exported in the mode in which it is (call `eval()` first), or an ExportedProgram.
        args, kwargs: of an example call; a tensor alone stands for a tuple of it.
        input_names, output_names: of the tensors among the arguments, and of the results, in order.
        opset_version: 20 to 23, or an older one that onnx can convert the model to. None: 20.
        dynamo: False: nothing is returned, as from torch.
        external_data: as in `ONNXProgram.save`.
        dynamic_shapes: as in `export.export`. dynamic_axes: torch's older way to say it, by input names:
            {"x": {0: "batch"}}.
        export_params: with weights. verify: the outputs of ONNX Runtime on these arguments are held to the module's.

    Raises: BackendError for an operation that ONNX does not have, with the user's line; NotSupportedError for a program
    that draws random numbers; MissingPackageError without `onnx`; what `export.export` raises.
    """
    require_package("onnx", "onnxrt")
    _check_others(others)
    given = args if isinstance(args, tuple) else (args,)
    with exporting():
        shapes = _shapes(dynamic_shapes, dynamic_axes, input_names, given)
        program = _program(model, given, kwargs, shapes)
        made = ONNXProgram(_model(program, input_names, output_names, opset_version), program)
    if verify:
        _verify(made, given, dict(kwargs or {}))
    if f is not None:
        made.save(
            f,
            include_initializers=export_params,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
        )
    return made if dynamo else None


# torch's, which change nothing here
_IGNORED = """
verbose do_constant_folding training operator_export_types custom_opsets export_modules_as_functions autograd_inlining
report optimize profile dump_exported_program artifacts_dir fallback
"""


def _check_others(others: Mapping[str, Any]) -> None:
    unknown = sorted(others.keys() - set(_IGNORED.split()))
    if unknown:
        raise NotSupportedError(f"onnx.export does not take {', '.join(unknown)}")


def _program(model: Any, args: tuple[Any, ...], kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        return model
    if not isinstance(model, Module):
        raise ArgumentError("onnx.export takes a Module or an ExportedProgram", got=type(model).__name__)
    return export_program(model, args, kwargs, dynamic_shapes=dynamic_shapes)


def _shapes(shapes: Any, axes: Mapping[str, Any] | None, names: Sequence[str] | None, args: tuple[Any, ...]) -> Any:
    """dynamic_shapes, made of dynamic_axes where these are given."""
    if not axes:
        return shapes
    if shapes is not None or not all(isinstance(arg, Tensor) for arg in args) or len(names or ()) < len(args):
        raise ArgumentError(
            "dynamic_axes needs input_names of all arguments, which are tensors", remedy="use dynamic_shapes"
        )
    made = []
    for name in (names or ())[: len(args)]:
        dims = axes.get(name, {})
        named = dims.items() if isinstance(dims, Mapping) else ((dim, f"{name}_{dim}") for dim in dims)
        made.append({dim: Dim.DYNAMIC if not text.isidentifier() else Dim(text) for dim, text in named})
    return tuple(made)


# ---- the model


def _model(program: ExportedProgram, inputs: Any, outputs: Any, opset: int | None) -> Any:
    from compiler_core.engines.onnx.emitter import OPSET
    from compiler_core.engines.onnx.exported import EXPORTED
    from compiler_core.engines.onnx.model import to_model

    if program.draws:
        raise NotSupportedError("a program that draws random numbers has no ONNX model", remedy="call eval() first")
    graph = program.dc_graph
    held = {node: tensor for node, (_, tensor) in zip(graph.inputs, program.held())}
    names: dict[Node, str] = {node: spec.target or node.name for node, (spec, _) in zip(graph.inputs, program.held())}
    user = graph.inputs[len(held) :]
    names.update(zip(user, inputs or _user_names(program)))
    results = [_result(graph, out) for out in program.outputs if isinstance(out, Place | Sym)]
    if program.written:
        written = ", ".join(name for _, name in program.written)
        log.warn_once(f"onnx written {written}", f"what the call writes is no part of an ONNX model: {written}")
    shown = [*(outputs or ()), *(f"output_{k}" for k in range(len(outputs or ()), len(results)))]
    whole = Graph(graph.name, (*graph.nodes, *[n for n in results if n not in graph.nodes]), tuple(results))
    ready = _decomposed(whole)
    arrays: dict[Node, Array] = {node: tensor.detach().cpu().contiguous().numpy() for node, tensor in held.items()}
    version = OPSET if opset is None or opset < OPSET else opset
    if version > _NEWEST:
        raise ArgumentError(f"opset_version={opset} is not known here", expected=f"at most {_NEWEST}")
    made = to_model(ready, opset=version, names=names, outputs=shown, held=arrays, table=EXPORTED)
    return made if opset is None or opset >= OPSET else _converted(made, opset)


def _user_names(program: ExportedProgram) -> list[str]:
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return [spec.arg.name for spec in specs if isinstance(spec.arg, TensorArgument)]


def _result(graph: Graph, out: Place | Sym) -> Node:
    if isinstance(out, Place):
        return graph.outputs[out.index]
    attrs = {"shape": (), "value": out, "dtype": int64}
    return Call("size", TensorMeta((), int64), op=OPS["full"], args=(), attrs=attrs)


def _decomposed(graph: Graph) -> Graph:
    from compiler_core.engines.onnx.exported import EXPORTED
    from compiler_core.engines.onnx.model import refused

    rules: dict[Op, Callable[..., Any]] = {
        op: op.engines.expand for op in OPS.values() if isinstance(op.engines, Decomposed)
    }
    rules |= {OPS[name]: rule for name, rule in _UNCHECKED.items()}
    return run_passes(
        graph,
        (Canonicalise(after_autograd=True), Decompose(lambda call: not refused(call, EXPORTED), rules), Dce(), Cse()),
    )


def _converted(model: Any, opset: int) -> Any:
    """The model in an older version of the operators. Raises NotSupportedError where onnx cannot."""
    from onnx import checker, version_converter

    try:
        older = version_converter.convert_version(model, opset)
        checker.check_model(older, full_check=True)
    except Exception as error:
        raise NotSupportedError(
            f"the model cannot be written with opset {opset}", got=str(error), remedy="leave opset_version out"
        ) from error
    return older


def _verify(made: ONNXProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    expected = [x for x in flatten(made.exported_program.module()(*args, **kwargs))[0] if isinstance(x, Tensor)]
    for k, (ours, theirs) in enumerate(zip(expected, made(*args, **kwargs))):
        if not ours.detach().cpu().allclose(theirs, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ArgumentError(f"output {k} of the ONNX model is not the module's", remedy="please report the module")
