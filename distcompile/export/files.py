"""Exported programs as files: `.dcpt`.

In: an ExportedProgram, a path or a binary file. Out: the like of it. The file is a safetensors file of what the program
holds; its metadata has, under `distcompile.export`, JSON with the version of the format, the graph's text, and what its
inputs and outputs are (docs/reference/file_formats.md). Loading reads text and tensors: nothing of the file is run.
Raises: CheckpointError for a file that is none, is damaged, or is of a newer format.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from compiler_core import dtype as dtypes
from compiler_core.aot import branch, loop  # they register ops
from compiler_core.device import Device, check_device
from compiler_core.errors import ArgumentError, GraphError
from compiler_core.graph.parse import parse_graph, parse_size
from compiler_core.graph.print import print_graph
from compiler_core.graph.sizes import symbols_of
from compiler_core.graph.verify import verify
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import CheckpointError
from distcompile.export.exported_program import CallSpec, ExportedProgram
from distcompile.export.graph_signature import (
    Argument,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from distcompile.nn.parameter import Parameter
from distcompile.serialization import File, digest_of, read_tensors, write_tensors
from distcompile.utils._pytree import treespec_dumps, treespec_loads

assert branch
assert loop
KEY, DIGEST = "distcompile.export", "distcompile.sha256"
VERSION = 1


def save(ep: ExportedProgram, f: File, *, extra_files: dict[str, Any] | None = None, **_: object) -> None:
    """Write a program. extra_files: name -> text, kept beside it. Raises CheckpointError, NotSupportedError."""
    state = _places(ep)
    said = json.dumps(
        {
            "version": VERSION,
            "graph": print_graph(ep.dc_graph, locations=True),
            "inputs": [[s.kind.name, _said(s.arg), s.target, s.persistent] for s in ep.graph_signature.input_specs],
            "outputs": [[s.kind.name, _said(s.arg), s.target] for s in ep.graph_signature.output_specs],
            "in_spec": treespec_dumps(ep.call_spec.in_spec),
            "out_spec": treespec_dumps(ep.call_spec.out_spec),
            "state": state,
            "parameters": {n: t.requires_grad for n, t in ep.state.items() if isinstance(t, Parameter)},
            "draws": ep.draws,
            "shard": ep.shard,
            "training": ep.training,
            "example_sizes": ep.example_sizes,
            "extra_files": dict(extra_files or {}),
        }
    )
    tensors = {place: ep.state[name] for name, place in reversed(state.items())}
    tensors |= {f"constant:{name}": tensor for name, tensor in ep.tensor_constants.items()}
    arrays = {name: tensor.detach().cpu()._array("save") for name, tensor in tensors.items()}
    write_tensors(f, arrays, {KEY: said, DIGEST: digest_of(said, arrays)})


def _places(ep: ExportedProgram) -> dict[str, str]:
    """Name -> name under which the tensor is stored: of tied ones the first."""
    first: dict[int, str] = {}
    return {name: f"state:{first.setdefault(id(tensor), name)}" for name, tensor in ep.state.items()}


def load(f: File, *, extra_files: dict[str, Any] | None = None, **_: object) -> ExportedProgram:
    """The program that `save` wrote. extra_files: its values are filled in. See the head of this file."""
    tensors, metadata = read_tensors(f)
    if KEY not in metadata:
        raise CheckpointError("this is no exported program", expected="a file that distcompile.export.save wrote")
    arrays = {name: tensor._array("load") for name, tensor in tensors.items()}
    if metadata.get(DIGEST) != digest_of(metadata[KEY], arrays):
        raise CheckpointError("a damaged file: its contents are not what was saved", expected="the SHA-256 it carries")
    said = json.loads(metadata[KEY])
    if said["version"] > VERSION:
        raise CheckpointError(f"an exported program of a newer format, {said['version']}", expected=f"{VERSION}",
                              remedy="update distcompile, or save it with this version")  # fmt: skip
    try:
        return _program(said, tensors, extra_files)
    except (KeyError, IndexError, TypeError, GraphError) as error:
        raise CheckpointError(f"an exported program that this version cannot read: {error}") from error


def _program(said: dict[str, Any], tensors: dict[str, Tensor], extra_files: dict[str, Any] | None) -> ExportedProgram:
    for name in extra_files or {}:
        extra_files[name] = said["extra_files"].get(name, "")  # type: ignore[index]
    graph = parse_graph(said["graph"])
    verify(graph)
    symbols = {symbol.name: symbol for symbol in symbols_of(graph)}

    def size(text: str) -> Any:
        return parse_size(text, symbols.values())

    made: dict[str, Tensor] = {}
    state: dict[str, Tensor] = {}
    for name, place in said["state"].items():
        if place not in made:
            tensor = tensors[place].to(graph.device)
            takes = said["parameters"].get(name)
            made[place] = tensor if takes is None else Parameter(tensor, requires_grad=takes)
        state[name] = made[place]
    constants = {
        n.removeprefix("constant:"): t.to(graph.device) for n, t in tensors.items() if n.startswith("constant:")
    }
    inputs = [InputSpec(InputKind[kind], _heard(arg, size), target, kept) for kind, arg, target, kept in said["inputs"]]
    outputs = [OutputSpec(OutputKind[kind], _heard(arg, size), target) for kind, arg, target in said["outputs"]]
    try:
        spec = CallSpec(treespec_loads(said["in_spec"]), treespec_loads(said["out_spec"]))
    except ArgumentError as error:
        what = f"the program's arguments or results are containers that are not known here: {error.what}"
        raise CheckpointError(what, remedy="import what defines and registers them first") from error
    return ExportedProgram(
        graph,
        ExportGraphSignature(inputs, outputs),
        state,
        constants,
        spec,
        said["draws"],
        said["shard"],
        said["training"],
        said["example_sizes"],
    )


# -- arguments as JSON


def _said(arg: Argument) -> Any:
    if isinstance(arg, TensorArgument):
        return {"tensor": arg.name}
    if isinstance(arg, SymIntArgument):
        assert isinstance(arg.value, Sym)
        return {"size": repr(arg.value)}
    return {"name": arg.name, **_said_value(arg.value)}


def _said_value(value: Any) -> dict[str, Any]:
    if isinstance(value, dtypes.DType):
        return {"dtype": value.name}
    if isinstance(value, Device):
        return {"device": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return {"value": value}


def _heard(said: dict[str, Any], size: Callable[[str], Any]) -> Argument:
    if "tensor" in said:
        return TensorArgument(said["tensor"])
    if "size" in said:
        return SymIntArgument(said["size"], size(said["size"]))
    if "dtype" in said:
        return ConstantArgument(said["name"], dtypes.by_name(said["dtype"]))
    if "device" in said:
        return ConstantArgument(said["name"], check_device(said["device"]))
    if "complex" in said:
        return ConstantArgument(said["name"], complex(*said["complex"]))
    return ConstantArgument(said["name"], said["value"])
