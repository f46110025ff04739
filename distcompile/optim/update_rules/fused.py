"""All parameters' updates as one graph, compiled to one native call.

In: for each update its rule, parameter and scalar set. Out: a call [parameter, gradient, *state, ..., *scalars] ->
[new parameter, *new state, ...], in that order; or several such calls, for updates that are made one group after the
other, compiled together. Gradients may be views of bucket buffers: they are read where they lie.
Invariant: a layout (rules, shapes, dtypes, which scalars each uses) compiles once; numbers never recompile.
The call takes places for its outputs; element i of an output depends on element i of its inputs alone, so a place may
be the array that is read; not of a rule that is whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from compiler_core.device import device_of
from compiler_core.dtype import of
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Graph, GraphBuilder, Placeholder
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array, meta_of, use_trace
from distcompile.optim.update_rules.rule import UpdateRule, apply_rule

if TYPE_CHECKING:
    from compiler_core.backend import Executable

Layout: TypeAlias = Sequence[tuple[UpdateRule, Array, int]]  # rule, parameter, index of its scalar set
ScalarSets: TypeAlias = Sequence[Mapping[str, Array]]


class FusedUpdates:
    """The compiled updates of one optimizer, by layout. A copy, or one that is unpickled, starts with none."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, Sequence[Executable]] = {}
        self._numbers: dict[UpdateRule, int] = {}
        self._failure: BackendError | None = None

    def get(self, layouts: Sequence[Layout], scalars: ScalarSets) -> Sequence[Executable]:
        """The call of each layout, compiled at first use. Raises BackendError, again at every call after the first."""
        if self._failure is not None:
            raise self._failure
        rules = {id(rule): rule for layout in layouts for rule, _, _ in layout}  # an object a group: each hashed once
        numbers = {key: self._numbers.setdefault(rule, len(self._numbers)) for key, rule in rules.items()}
        key = tuple(
            [
                (
                    *[(numbers[id(rule)], value.shape, value.dtype, place) for rule, value, place in layout],
                    device_of(layout[0][1]),
                )
                for layout in layouts
            ]
            + [tuple([(name, array.dtype) for name, array in named.items()]) for named in scalars]
        )
        if key not in self._calls:
            from compiler_core.pipeline import compile_graphs

            try:
                graphs = [update_graph(layout, scalars) for layout in layouts]
                self._calls[key] = compile_graphs(graphs, "optimizer_step")
            except BackendError as error:
                self._failure = error  # do not try again at every step
                raise
        return self._calls[key]

    def __reduce__(self) -> tuple[type[FusedUpdates], tuple[()]]:
        return FusedUpdates, ()


def update_graph(layout: Layout, scalars: ScalarSets) -> Graph:
    """The graph of all updates of a layout, whose parameters are on one device."""
    builder = GraphBuilder("optimizer_step")
    builder.device = str(device_of(layout[0][1]))
    operands = [_operands(builder, i, rule, meta_of(parameter)) for i, (rule, parameter, _) in enumerate(layout)]
    sets = [
        {name: builder.placeholder(f"{name}_{i}", TensorMeta((), of(a.dtype))) for name, a in numbers.items()}
        for i, numbers in enumerate(scalars)
    ]
    with use_trace(builder):
        outputs = [
            output
            for (rule, _, place), (parameter, gradient, *state) in zip(layout, operands, strict=True)
            for output in apply_rule(rule, parameter, gradient, dict(zip(rule.state, state, strict=True)), sets[place])
        ]
    return builder.build(outputs)


def _operands(builder: GraphBuilder, i: int, rule: UpdateRule, meta: TensorMeta) -> list[Placeholder]:
    parameter = builder.placeholder(f"p{i}", meta, role="parameter", source=f"parameters[{i}]")
    gradient = builder.placeholder(f"g{i}", meta, source=f"gradients[{i}]")
    shapes = {name: rule.state_shape(name, meta.shape) for name in rule.state}
    state = [builder.placeholder(f"{name}_{i}", replace(meta, shape=shape)) for name, shape in shapes.items()]
    return [parameter, gradient, *state]
