"""ExportedProgram: one graph, what its inputs and outputs are, and the tensors that it holds.

In: what `export` or `load` puts together. Out: a program that prints, runs as a Module (`module()`), is saved
(files.py), compiled ahead of time (`distcompile.package`), and given to other engines: `dc_graph` is the graph of
compiler_core; its inputs are `held()`, then the tensors among the user's arguments, then perhaps the key of its draws.
Invariant: nothing that the program is needs the Python that it was made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from compiler_core.graph import ir
from compiler_core.graph.passes.decompose import Decompose
from compiler_core.graph.print import print_graph
from compiler_core.graph.sizes import symbols_of
from compiler_core.symbolic.expression import of_factor
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import TreeSpec
from distcompile._dynamo.aot import primitive
from distcompile.errors import NotSupportedError
from distcompile.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from distcompile.fx.graph import Graph
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.of_compiler import module_of
from distcompile.nn.parameter import Parameter

HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class ValueRange(NamedTuple):
    """What a size may be, both included; upper may be infinite."""

    lower: float
    upper: float


class CallSpec(NamedTuple):
    """Shapes of the trees of arguments, (args, kwargs), and of the result."""

    in_spec: TreeSpec
    out_spec: TreeSpec


@dataclass(frozen=True)
class ExportedProgram:
    """See the head of this file.

    state: every parameter and buffer by all its names. tensor_constants: what else the graph reads. draws, shard: what
    the key of the draws serves. training: whether the module was training. example_sizes: the symbols' in the example.
    """

    dc_graph: ir.Graph
    graph_signature: ExportGraphSignature
    state: dict[str, Tensor]
    tensor_constants: dict[str, Tensor]
    call_spec: CallSpec
    draws: int = 0
    shard: int = 0
    training: bool = False
    example_sizes: dict[str, int] = field(default_factory=dict)
    example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = field(default=None, repr=False)

    # -- what it holds

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name, the module's own tensors."""
        left_out = self.graph_signature.non_persistent_buffers
        return {name: tensor for name, tensor in self.state.items() if name not in left_out}

    @property
    def constants(self) -> dict[str, Tensor]:
        """Tensors that the graph reads and the state dict does not hold."""
        left_out = self.graph_signature.non_persistent_buffers
        return {**self.tensor_constants, **{name: self.state[name] for name in sorted(left_out)}}

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name in self.graph_signature.parameters:
            yield name, self.state[name]  # type: ignore[misc]

    def parameters(self) -> Iterator[Parameter]:
        return (tensor for _, tensor in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, self.state[name]) for name in self.graph_signature.buffers)

    def buffers(self) -> Iterator[Tensor]:
        return (tensor for _, tensor in self.named_buffers())

    def held(self) -> list[tuple[InputSpec, Tensor]]:
        """The first inputs of the graph, which the program itself has: parameters, buffers, constants."""
        specs = [spec for spec in self.graph_signature.input_specs if spec.kind in HELD]
        return [(spec, self._tensor(spec)) for spec in specs]

    def _tensor(self, spec: InputSpec) -> Tensor:
        table = self.tensor_constants if spec.kind is InputKind.CONSTANT_TENSOR else self.state
        return table[spec.target or ""]

    # -- what it is

    @cached_property
    def graph_module(self) -> GraphModule:
        """The graph as a Module of fx, a function of all its inputs."""
        return module_of(self.dc_graph)

    @property
    def graph(self) -> Graph:
        """Its nodes, as fx has them."""
        return self.graph_module.graph

    @property
    def range_constraints(self) -> dict[str, ValueRange]:
        """Symbol -> what it may be."""
        symbols = sorted(symbols_of(self.dc_graph), key=lambda symbol: symbol.name)
        return {symbol.name: ValueRange(*symbol.sizes.ends_now(of_factor(symbol))) for symbol in symbols}

    @property
    def dialect(self) -> str:
        return "distcompile"

    @property
    def user_specs(self) -> list[InputSpec]:
        """Of the leaves of (args, kwargs), in order."""
        return [spec for spec in self.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]

    @property
    def outputs(self) -> list[Any]:
        """Of the leaves of the result, in order: places among the graph's outputs, sizes, constants."""
        place, found = 0, []
        for spec in self.graph_signature.output_specs:
            is_tensor = isinstance(spec.arg, TensorArgument)
            if spec.kind is OutputKind.USER_OUTPUT:
                found.append(Place(place) if is_tensor else spec.arg.value)  # type: ignore[union-attr]
            place += is_tensor
        return found

    @property
    def written(self) -> list[tuple[OutputKind, str]]:
        """What the first outputs are the new values of."""
        specs = self.graph_signature.output_specs
        return [(spec.kind, spec.target or "") for spec in specs if spec.kind is not OutputKind.USER_OUTPUT]

    def module(self, check_guards: bool = True) -> Any:
        """A Module that runs the program, op by op, with these very parameters and buffers. It checks its inputs.

        Gradients flow through it; `compile` captures it. Tensors are of any strides.
        """
        from distcompile.export.module import ExportedModule

        return ExportedModule(self)

    def run_decompositions(self, decomp_table: Mapping[Any, Any] | None = None, **_: object) -> ExportedProgram:
        """The same program, for inference, written with the core set of ops (compiler_core/ops/rules.py: `Core`).

        decomp_table: primitive -> composition, in place of those, as `torch._decomp.get_decompositions` gives it.
        Raises NotSupportedError for a key that is no primitive: graphs here are not of torch's operators.
        """
        rules = None if decomp_table is None else {primitive(key): rule for key, rule in decomp_table.items()}
        return replace(self, dc_graph=Decompose(rules=rules).apply(self.dc_graph))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError("an ExportedProgram is not called", remedy="exported_program.module()(...)")

    def __str__(self) -> str:
        ranges = "\n".join(f"  {name} in [{low}, {high}]" for name, (low, high) in self.range_constraints.items())
        every: list[InputSpec | OutputSpec] = [*self.graph_signature.input_specs, *self.graph_signature.output_specs]
        lines = [f"  {spec.kind.name} {_shown(spec)}" for spec in every]
        told = f"\nsizes:\n{ranges}" if ranges else ""
        graph = print_graph(self.dc_graph, locations=True, elide=True)
        return f"ExportedProgram:\n{graph}\nsignature:\n" + "\n".join(lines) + told


@dataclass(frozen=True, slots=True)
class Place:
    """Output `index` of the graph."""

    index: int


def _shown(spec: Any) -> str:
    value = f" = {spec.arg.value!r}" if isinstance(spec.arg, ConstantArgument) else ""
    return f"{spec.arg.name}{value}" + (f" ({spec.target})" if spec.target else "")
