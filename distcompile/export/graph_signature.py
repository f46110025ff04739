"""torch.export.graph_signature's names: what the inputs and outputs of an exported graph are.

In: specs in the order of the graph. Out: `ExportGraphSignature`, which answers by names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

__all__ = [
    "ConstantArgument", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind", "OutputSpec",
    "SymIntArgument", "TensorArgument",
]  # fmt: skip


class InputKind(Enum):
    """What an input of the graph is. RNG_KEY: the key of its draws, taken from the default generator at every call."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    RNG_KEY = auto()


class OutputKind(Enum):
    """What an output of the graph is."""

    USER_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    USER_INPUT_MUTATION = auto()


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """The value `name` of the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class SymIntArgument:
    """A size. value: what it is, of the graph's symbols."""

    name: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class ConstantArgument:
    """A value that is the same in every call."""

    name: str
    value: Any = None


Argument: TypeAlias = TensorArgument | SymIntArgument | ConstantArgument


@dataclass(frozen=True, slots=True)
class InputSpec:
    """kind, arg; target: its name in the state; persistent: of a buffer, whether it is in the state dict."""

    kind: InputKind
    arg: Argument
    target: str | None = None
    persistent: bool | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """kind, arg; target: what is written: the name in the state, or that of the user's input."""

    kind: OutputKind
    arg: Argument
    target: str | None = None


@dataclass(frozen=True, slots=True)
class ExportGraphSignature:
    """Inputs in the order of the graph, non-tensors among the user's; outputs: what is written first."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [spec for spec in self.input_specs if spec.kind is kind]

    def _named(self, kind: InputKind) -> dict[str, str]:
        return {spec.arg.name: spec.target or "" for spec in self._inputs(kind)}

    def _written(self, kind: OutputKind) -> dict[str, str]:
        return {spec.arg.name: spec.target or "" for spec in self.output_specs if spec.kind is kind}

    @property
    def parameters(self) -> list[str]:
        return list(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> list[str]:
        return list(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> set[str]:
        return {spec.target or "" for spec in self._inputs(InputKind.BUFFER) if not spec.persistent}

    @property
    def lifted_tensor_constants(self) -> list[str]:
        return list(self.inputs_to_lifted_tensor_constants.values())

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of tensors; values of what is constant."""
        return tuple(_said(spec.arg) for spec in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """Names of tensors; values of what is constant."""
        return tuple(_said(spec.arg) for spec in self.output_specs if spec.kind is OutputKind.USER_OUTPUT)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        return self._named(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        return self._named(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        return self._named(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        return self._written(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        return self._written(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        return self._written(OutputKind.USER_INPUT_MUTATION)


def _said(arg: Argument) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
