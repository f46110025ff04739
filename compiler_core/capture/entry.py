"""One compiled entry of a function: runs a call whose guards hold, from input values to the user's result.

In: `Captured` and what the pipeline made of it. Out: `Entry.run(inputs, arguments)`: the call's result, as eager would
have returned it: same tree, same aliasing, tensors written back, one tape node for the whole call.
`inputs` are the graph's values as the guards' check delivers them; `arguments` the Tensors among the call's arguments.
`CompiledEntry` runs executables on arrays; `TapeEntry` (backend "eager") runs the graph op by op on Tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from compiler_core.aot.boundary import Boundary, boundary_groups, gradient_boundary, run_hook
from compiler_core.aot.strategy import GradientStrategy
from compiler_core.aot.wrapper import BackwardCall
from compiler_core.capture.capture import Captured, Written
from compiler_core.capture.outputs import Fresh, rebuild
from compiler_core.capture.pytree import LEAF, unflatten
from compiler_core.capture.trace import Known
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, Value
from compiler_core.pipeline import Compiled
from compiler_core.tensor.autograd import record_function
from compiler_core.tensor.cell import Cell, ViewCell
from compiler_core.tensor.fence import ParameterEvents, anything_waits, fence_of, settle_cells
from compiler_core.tensor.grad_mode import no_grad
from compiler_core.tensor.random import default_generator, set_shard
from compiler_core.tensor.tensor import Tensor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Found(Protocol[T_co]):
    """`Known` (a tensor) or `Written` (a cell)."""

    @property
    def argument(self) -> int: ...
    def now(self, arguments: Sequence[Tensor]) -> T_co: ...


class _Results:
    """From the graph's results to the user's."""

    def __init__(self, captured: Captured) -> None:
        self.outputs, self.spec = captured.outputs, captured.spec
        self.plain = self.spec == LEAF and self.outputs.results == (Fresh(0),)

    def build(self, fresh: list[Tensor], arguments: Sequence[Tensor]) -> Any:
        """The tree to return. The common case, one fresh tensor, takes the short way."""
        if self.plain:
            return fresh[0]
        origins = [known.now(arguments) for known in self.outputs.origins]
        return unflatten(self.spec, [rebuild(result, fresh, origins) for result in self.outputs.results])


class _Resolved(Generic[T]):
    """Tensors or cells to be found at each call; found once, if none comes with the arguments."""

    def __init__(self, items: Sequence[_Found[T]]) -> None:
        self.items = items
        self.fixed = [item.now(()) for item in items] if all(item.argument < 0 for item in items) else None

    def now(self, arguments: Sequence[Tensor]) -> list[T]:
        """All of them, in a call with these argument tensors."""
        return [item.now(arguments) for item in self.items] if self.fixed is None else self.fixed


class CompiledEntry:
    """A call that runs executables."""

    def __init__(self, captured: Captured, compiled: Compiled, strategy: GradientStrategy) -> None:
        self.captured, self.graphs = captured, compiled.graphs
        self.name = captured.graph.name
        self.forward, self.backward, self.tangents = compiled.forward, compiled.backward, compiled.tangents
        self.strategy = strategy
        self.results = _Results(captured)
        self.n_results = len(captured.outputs.nodes)
        self.n_kept = self.n_results + len(captured.written)
        self.rng = rng_place(captured)
        self.buffers = buffers_of(captured)
        self.bound = bound_cells(captured)
        self.waits = {place: event for event, place in enumerate(compiled.waits) if place in self.bound}
        if self.backward is not None:
            self.differentiated = _Resolved([known_of(captured, i) for i in self.backward.wanted])
            reads = [read_of(captured, i) for i in self.backward.inputs]
            self.reads = _Resolved([read for read in reads if read is not None])

    def run(self, inputs: list[Array], arguments: Sequence[Tensor]) -> Any:
        """One call."""
        ticket = self.strategy.on_forward()
        for place, cell in self.buffers:
            inputs[place] = cell.current()
        if self.rng is not None:
            inputs[self.rng] = take_keys(self.captured)
        values = self.forward(inputs) if not anything_waits() else self._run_ahead(inputs)
        self.strategy.forward_ran(ticket)
        for target, value in zip(self.captured.written, values[self.n_results : self.n_kept]):
            target.now(arguments).write(value)
        fresh = [Tensor._wrap(value) for value in values[: self.n_results]]
        if self.backward is not None:
            self._record(inputs, values, fresh, arguments, ticket)
        return self.results.build(fresh, arguments)

    def _run_ahead(self, inputs: list[Array]) -> list[Array]:
        """The forward, started while values of its parameters may still be on their way: it waits for each inside."""
        guarded: dict[int, Cell] = {}  # event -> the cell that it makes readable
        for place, cell in self.bound.items():
            if fence_of(cell) is None:
                if not inputs[place].flags.c_contiguous:  # what an event may be about cannot be copied later
                    inputs[place] = np.ascontiguousarray(inputs[place])
            elif place in self.waits:
                guarded[self.waits[place]] = cell
            else:
                settle_cells([cell])
        if not guarded:
            return self.forward(inputs)
        values = self.forward(inputs, None, ParameterEvents(guarded))
        settle_cells(list(guarded.values()))  # those that only the backward reads
        return values

    def _record(
        self,
        inputs: list[Array],
        outputs: list[Array],
        fresh: list[Tensor],
        arguments: Sequence[Tensor],
        ticket: object,
    ) -> None:
        """Put the call on the tape."""
        assert self.backward is not None
        values = [outputs[i] for i in self.backward.saved] + [inputs[i] for i in self.backward.inputs]
        cells = self.reads.now(arguments)
        call = BackwardCall(self.name, self.backward, values, cells, ticket)
        record_function(self.name, self.differentiated.now(arguments), [fresh[i] for i in self.tangents], call)


class TapeEntry:
    """A call that runs the captured graph on Tensors; the tape differentiates it op by op."""

    def __init__(self, captured: Captured, graph: Graph, strategy: GradientStrategy) -> None:
        self.captured, self.graph, self.strategy = captured, graph, strategy
        self.graphs: tuple[tuple[str, Graph], ...] = (("forward", graph),)
        self.results = _Results(captured)
        self.rng = rng_place(captured)
        self.bound = bound_cells(captured)
        self.override = functools.partial(_run_boundary, boundary_groups(graph.calls), captured.boundaries)

    def run(self, inputs: list[Array], arguments: Sequence[Tensor]) -> Any:
        """One call."""
        ticket = self.strategy.on_forward()
        if anything_waits():
            settle_cells(list(self.bound.values()))
        values: list[Value] = list(inputs)
        for i, lift in enumerate(self.captured.inputs):
            if lift is not None and lift.known is not None:
                values[i] = lift.known.now(arguments)
        if self.rng is not None:
            values[self.rng] = take_keys(self.captured)
        results = _distinct(interpret(self.graph, values, override=self.override), values)
        self.strategy.forward_ran(ticket)
        n_results = len(self.captured.outputs.nodes)
        with no_grad():
            for target, tensor in zip(self.captured.written, results[n_results:]):
                target.now(arguments).write(tensor._read())
        return self.results.build(results[:n_results], arguments)


def _as_tensor(value: Value) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor._wrap(value)


def _distinct(results: Sequence[Value], inputs: Sequence[Value]) -> list[Tensor]:
    """A tensor of its own for each result: simplifying may have left an input, a view, or one result twice."""
    taken = {value._cell.root for value in inputs if isinstance(value, Tensor)}
    distinct = []
    for value in results:
        tensor = _as_tensor(value)
        if tensor._cell.root in taken:
            tensor = prims.cast(tensor, tensor.dtype)
        taken.add(tensor._cell.root)
        distinct.append(tensor)
    return distinct


def _run_boundary(
    groups: Mapping[Call, Sequence[Call]],
    boundaries: Mapping[int, Boundary],
    call: Call,
    environment: Mapping[Node, Value],
) -> Mapping[Node, Value] | None:
    """All tensors of a gradient boundary at once, with its hook on the tape; None for other calls."""
    if call not in groups:
        return None
    boundary = boundaries[call.attrs["boundary"]]
    slots = [member.attrs["slot"] for member in groups[call]]
    tensors = tuple(_as_tensor(environment[member.args[0]]) for member in groups[call])

    def hook(*cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        spread: list[Tensor | None] = [None] * boundary.width
        for slot, cotangent in zip(slots, cotangents):
            spread[slot] = cotangent
        replaced = run_hook(boundary.hook, spread)
        return tuple(replaced[slot] for slot in slots)

    return dict(zip(groups[call], gradient_boundary(tensors, hook)))


Entry: TypeAlias = CompiledEntry | TapeEntry  # what a compiled function keeps for one set of guards


def rng_place(captured: Captured) -> int | None:
    """Which input is the rng key."""
    places = [i for i, lift in enumerate(captured.inputs) if lift is None]
    return places[0] if places else None


def take_keys(captured: Captured) -> Array:
    """The key of this call's draws, for the shard that the traced call drew for."""
    with set_shard(captured.shard):
        return default_generator.take_keys(captured.draws)


def buffers_of(captured: Captured) -> list[tuple[int, Cell]]:
    """(input, cell) of a gradient owner's buffers: its strategy may write them in `on_forward`, after the guards."""
    if captured.gradient_owner is None:
        return []
    lifts = enumerate(captured.inputs)
    return [(i, lift.cell) for i, lift in lifts if lift is not None and lift.placeholder.role == "buffer"]


def bound_cells(captured: Captured) -> dict[int, Cell]:
    """Input -> its cell, for those that the check hands over `raw`; who runs the graph settles what they wait for."""
    lifts = [(i, lift) for i, lift in enumerate(captured.inputs) if lift is not None]
    bound = [(i, lift.cell) for i, lift in lifts if lift.known is None or not lift.known.code]
    return {i: cell for i, cell in bound if not isinstance(cell, ViewCell)}


def known_of(captured: Captured, place: int) -> Known:
    """The tensor behind input `place`, which takes a gradient."""
    lift = captured.inputs[place]
    assert lift is not None
    assert lift.known is not None
    return lift.known


def read_of(captured: Captured, place: int) -> Written | None:
    """The cell behind input `place`; None for the rng key."""
    lift = captured.inputs[place]
    if lift is None:
        return None
    return Written(lift.cell, -1 if lift.known is None else lift.known.argument)
