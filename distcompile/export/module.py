"""ExportedModule: an exported program as a Module.

In: an ExportedProgram. Out: a Module with its parameters and buffers under their names, whose forward takes what was
exported: a call of another shape of arguments, of other constants, dtypes or sizes is a named error.
Method: the graph op by op on Tensors (graph/interpret.py), so the tape records it, and captured code inlines it. What
the program writes is written to the buffers, and to the caller's tensors, afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.export.exported_program import ExportedProgram
from distcompile.export.graph_signature import ConstantArgument, InputKind, OutputKind
from distcompile.export.running import result, run
from distcompile.fx.graph import Graph
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class ExportedModule(Module):
    """See the head of this file. Raises NotSupportedError for `train()` and `eval()`: the mode is part of the graph."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.program = program
        left_out = program.graph_signature.non_persistent_buffers
        for name, tensor in program.state.items():
            *path, last = name.split(".")
            owner: Module = self
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, Module())
                owner = owner._modules[part]  # type: ignore[assignment]
            if isinstance(tensor, Parameter):
                owner.register_parameter(last, tensor)
            else:
                owner.register_buffer(last, tensor, persistent=name not in left_out)
        for module in self.modules():
            module.training = program.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        program = self.program
        leaves = matched(program, args, kwargs)
        held = [self._held(spec.kind, spec.target or "") for spec, _ in program.held()]
        values = run(program, held, [leaf for leaf in leaves if isinstance(leaf, Tensor)])
        made = [self._write(k, name, value, leaves) for (k, name), value in zip(program.written, values)]
        return result(program, values, made)

    @property
    def graph(self) -> Graph:
        """Its nodes, as fx has them."""
        return self.program.graph

    @property
    def code(self) -> str:
        """The graph as Python, a function of all its inputs."""
        return self.program.graph_module.code

    def _held(self, kind: InputKind, name: str) -> Tensor:
        if kind is InputKind.CONSTANT_TENSOR:
            return self.program.tensor_constants[name]
        return self.get_parameter(name) if kind is InputKind.PARAMETER else self.get_buffer(name)

    def _write(self, kind: OutputKind, name: str, value: Any, leaves: Sequence[Any]) -> Tensor:
        if kind is OutputKind.USER_INPUT_MUTATION:
            at = next(k for k, spec in enumerate(self.program.user_specs) if spec.arg.name == name)
            made: Tensor = leaves[at].copy_(value)
            return made
        owner = InputKind.PARAMETER if kind is OutputKind.PARAMETER_MUTATION else InputKind.BUFFER
        with no_grad():
            return self._held(owner, name).copy_(value)

    def train(self, mode: bool = True) -> Any:
        """Raises NotSupportedError: the mode is part of the graph."""
        raise NotSupportedError("train() and eval() of an exported program", remedy="export it in the other mode")


def matched(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call. Raises ArgumentError for arguments of another form, or other constants."""
    spec = program.call_spec.in_spec
    try:
        leaves = spec.flatten_up_to((args, kwargs))
    except ArgumentError as error:
        what = f"the arguments have another form than those the program was exported with: {error.what}"
        raise ArgumentError(what, expected=str(spec)) from error
    for leaf, one in zip(leaves, program.user_specs):
        constant = isinstance(one.arg, ConstantArgument)
        if constant and not _is_same(leaf, one.arg.value):  # type: ignore[union-attr]
            expected = repr(one.arg.value)  # type: ignore[union-attr]
            what = f"{one.arg.name} is a constant of the exported program"
            raise ArgumentError(what, expected=expected, got=repr(leaf), remedy="export it with this value")
        if not constant and not isinstance(leaf, Tensor):
            raise ArgumentError(f"{one.arg.name} is a tensor", got=type(leaf).__name__)
    return leaves


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other or (value != value and other != other))
