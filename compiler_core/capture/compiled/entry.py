"""One compiled entry of a function: runs a call whose guards hold, from input values to the user's result.

In: `Captured` and what the pipeline made of it. Out: `compute(inputs, arguments, hooks)`, then `results.build`: the
call's result, as eager would have returned it: same tree, same aliasing, tensors written back, one tape node for the
whole call. A `compute` that raises one of `errors.DATA_ERRORS` has changed nothing.
`inputs` are the graph's values as the guards' check delivers them; `arguments` the Tensors among the call's arguments.
`CompiledEntry` runs executables on arrays; `TapeEntry` (backend "eager") runs the graph op by op on Tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias

from compiler_core.aot.boundary import Hook
from compiler_core.aot.needs import memory_of
from compiler_core.aot.packed import pack_call
from compiler_core.aot.strategy import GradientStrategy
from compiler_core.aot.wrapper import BackwardCall
from compiler_core.backend import SharesMemory
from compiler_core.bytecode.frame import Frame
from compiler_core.capture.captured import Captured
from compiler_core.capture.compiled.in_place import writes_in_place
from compiler_core.capture.compiled.kept import KeptCell, KeptInput, KeptTensor
from compiler_core.capture.crossing import Replay, TapeGraph, as_tensor, own_hooks
from compiler_core.capture.guards.module_protocol import forwards_ran
from compiler_core.capture.guards.sources import Source
from compiler_core.capture.recipes.outputs import Fresh
from compiler_core.device import Device, array_module, check_device, cpu
from compiler_core.errors import DATA_ERRORS
from compiler_core.graph.ir import Call, Graph, Placeholder
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, Value
from compiler_core.pipeline import Compiled
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.backward import record_function
from compiler_core.tensor.autograd.grad_mode import Inference, no_grad
from compiler_core.tensor.autograd.inference import has_no_version, saved_error
from compiler_core.tensor.autograd.tape import GradNode, OutputNode
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.making.placement import moved, place_of
from compiler_core.tensor.memory.cell import Cell, ViewCell
from compiler_core.tensor.memory.fence import ParameterEvents, anything_waits, fence_of, settle_cells
from compiler_core.tensor.memory.lent import Lending, apart, is_lent
from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Paused:
    """A call that has come to a graph break: frames, the innermost last, at the instruction that breaks.

    again: it is captured, as the first of what follows. changing: where the frames hold numbers that changed before.
    """

    frames: list[Frame]
    again: bool = False
    changing: tuple[Source, ...] = ()


class Results:
    """From the graph's results to what the program goes on with."""

    def __init__(self, captured: Captured) -> None:
        self.captured, self.outputs = captured, captured.outputs
        fresh = all(result == Fresh(i) for i, result in enumerate(self.outputs.results))
        self.all_fresh = fresh and not self.outputs.rebindings

    def tensors(self, fresh: list[Tensor], arguments: Sequence[Any]) -> Sequence[Tensor]:
        """The tensors that the program holds: fresh ones, views of them, views of those from outside."""
        if self.all_fresh:
            return fresh
        return self.outputs.tensors(fresh, arguments)

    def build(self, tensors: Sequence[Tensor], arguments: Sequence[Any], hooks: list[Hook] | None = None) -> Any:
        """The result; or the frames to go on with. hooks: gets the backward hooks. The effects happen here."""
        captured = self.captured
        root, *rest = captured.rebuild(tensors, arguments)
        if rest and hooks is not None:
            hooks.extend(*rest)
        if captured.ambient is not None:
            captured.ambient.follow()
        return Paused(root, captured.pauses == "again") if captured.pauses else root


class _Handles:
    """Tensors to be found at each call."""

    def __init__(self, items: Sequence[KeptTensor]) -> None:
        self.items = items
        refers = [item.refers for item in items if item.refers is not None]
        self.fixed = refers if len(refers) == len(items) else None

    def now(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """All of them, in a call with these argument tensors."""
        if self.fixed is not None:
            return [refer() for refer in self.fixed]  # type: ignore[misc]
        return [item.now(arguments) for item in self.items]


class _Cells:
    """Cells to be found at each call; found once, if none comes with the arguments."""

    def __init__(self, items: Sequence[KeptCell]) -> None:
        self.items = items
        self.fixed = None if any(item.changes for item in items) else [item.now(()) for item in items]

    def now(self, arguments: Sequence[Tensor]) -> list[Cell]:
        """All of them, in a call with these argument tensors."""
        return [item.now(arguments) for item in self.items] if self.fixed is None else self.fixed


class CompiledEntry:
    """A call that runs executables."""

    def __init__(self, captured: Captured, compiled: Compiled, strategy: GradientStrategy) -> None:
        self.captured, self.graphs, self.memory = captured, compiled.graphs, compiled.memory
        self.name, self.place = captured.graph.name, check_device(captured.graph.device)
        self.forward, self.backward, self.tangents = compiled.forward, compiled.backward, compiled.tangents
        self.strategy = strategy
        self.results = Results(captured)
        self.n_results = len(captured.outputs.nodes)
        self.n_kept = self.n_results + len(captured.written)
        self.in_place = None if self.backward is not None else writes_in_place(captured, self.forward)
        if isinstance(self.forward, SharesMemory):  # what is written, and what only the backward reads
            groups = [self._written_elsewhere(), self._only_saved()]
            self.forward.hold_together(groups, [] if self.backward is None else self.backward.stacks())
        self.random = captured.random
        self.buffers = buffers_of(captured)
        self.bound = bound_cells(captured)
        self.waits = {place: event for event, place in enumerate(compiled.waits) if place in self.bound}
        self.showing = showing(dict(compiled.graphs)["forward"])
        if self.backward is not None:
            layout = self.backward.layout
            self.differentiated = _Handles([known_of(captured, i) for i in layout.wanted])
            reads = list(enumerate((read_of(captured, i) for i in layout.inputs), len(layout.saved)))
            self.reads = _Cells([read for _, read in reads if read is not None])
            self.partly = [(mask, place) for mask, place in zip(layout.inside, self.tangents) if mask]
            self.read_at = [place for place, read in reads if read is not None]
            needs, read_here = layout.needs, set(layout.inputs)
            others = [(i, mask) for i, mask in needs.inputs if i not in read_here and read_of(captured, i) is not None]
            self.others = _Cells([read for i, _ in others if (read := read_of(captured, i)) is not None])
            self.other_inputs = others
            memory = [memory_of(node) for node in captured.graph.outputs]
            self.read_results = [(i, mask) for i, mask in needs.results if memory[i] not in captured.copied]
            self.replay = Replay(captured.graph, layout.wanted, self.tangents)
            self.own_hooks = own_hooks(captured.graph)
            self.is_local = self.backward.is_local
            self.separable = self.is_local and (needs.separable or len(self.tangents) > 1)
            position = {node: place for place, node in enumerate(captured.graph.nodes)}
            made_at = [position[captured.graph.outputs[i]] for i in self.tangents]
            self.order = sorted(range(len(made_at)), key=made_at.__getitem__)

    def _written_elsewhere(self) -> list[int]:
        """The outputs that are written to cells, but for those that lie over what the cells held: they are to find
        nobody else in their memory at the next call."""
        over = {output for output, *_ in self.in_place.targets} if self.in_place is not None else set()
        return [i for i in range(self.n_results, self.n_kept) if i not in over]

    def _only_saved(self) -> list[int]:
        """The outputs of the forward that are there for the backward alone."""
        return [] if self.backward is None else [i for i in self.backward.layout.saved if i >= self.n_kept]

    def compute(self, inputs: list[Array], arguments: Sequence[Any], hooks: Sequence[Hook]) -> Sequence[Tensor]:
        """The tensors that one call leaves. hooks: of its backward; they may come once it has run."""
        ticket = _begin(self.strategy, self.captured)
        for reducer in self.captured.reducing:
            reducer.begin(self.captured.graph)
        self.captured.outputs.prepare(arguments)
        for place, lift in self.buffers:
            inputs[place] = lift.now(arguments).current()
        before = None if self.random is None else self.random.put(inputs)
        try:
            if anything_waits():
                values = self._run_ahead(inputs)
            else:
                values = self.forward(inputs) if self.in_place is None else self.in_place.run(inputs)
        except DATA_ERRORS:
            if self.random is not None and before is not None:
                self.random.give_back(before)
            raise
        if self.place is not cpu:
            values = _placed(self.captured, self.place, values, arguments)
        if Lending.in_use:
            self._take_apart(inputs, values, arguments)
        for target, value in zip(self.captured.written, values[self.n_results : self.n_kept]):
            target.put(value, arguments)
        fresh = [Tensor._wrap(value) for value in values[: self.n_results]]
        if self.backward is not None:
            self._record(inputs, values, fresh, arguments, ticket, hooks)
        forwards_ran(self.captured.forwards_ended)
        for reducer in self.captured.reducing:
            reducer.end()
        return self.results.tensors(fresh, arguments)

    def _take_apart(self, inputs: list[Array], values: list[Array], arguments: Sequence[Any]) -> None:
        """No result, nor what the backward reads, is lent memory that is written to now, or may be later."""
        for place, shown in self.showing:
            lift = self.captured.inputs[shown]
            if lift is not None and is_lent(cell := lift.now(arguments)):
                values[place] = apart(values[place], cell)
        for target in self.captured.written:
            if is_lent(cell := target.now(arguments)):
                inputs[:] = [apart(array, cell) for array in inputs]

    def _run_ahead(self, inputs: list[Array]) -> list[Array]:
        """The forward, started while values of its parameters may still be on their way: it waits for each inside."""
        guarded: dict[int, Cell] = {}  # event -> the cell that it makes readable
        for place, cell in self.bound.items():
            if fence_of(cell) is None:
                if not inputs[place].flags.c_contiguous:  # what an event may be about cannot be copied later
                    inputs[place] = array_module(inputs[place]).ascontiguousarray(inputs[place])
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
        hooks: Sequence[Hook],
    ) -> None:
        """Put the call on the tape."""
        assert self.backward is not None
        layout = self.backward.layout
        values = [outputs[i] for i in layout.saved] + [inputs[i] for i in layout.inputs]
        cells = self.reads.now(arguments)
        if Inference.in_use and any(map(has_no_version, cells)):
            raise saved_error()
        call = BackwardCall(self.name, self.backward, values, cells, self.read_at, ticket, hooks)
        call.replay, call.inputs = self.replay, inputs
        if watch.active:
            pack_call(call)
        outputs_of = [fresh[i] for i in self.tangents]
        record_function(self.name, self.differentiated.now(arguments), outputs_of, call, self.order)
        if self.own_hooks:
            mark_own_hooks(self.own_hooks, fresh, hooks)
        if self.other_inputs or self.read_results:
            roots = [cell.root for cell in self.others.now(arguments)]
            watched = [(root, mask, i, True) for root, (i, mask) in zip(roots, self.other_inputs)]
            watched += [(fresh[i]._cell, mask, i, False) for i, mask in self.read_results]
            call.watched = [(weakref.ref(cell), cell.version, mask, i, which) for cell, mask, i, which in watched]
        if self.separable:
            call.outputs = [weakref.ref(node) for output in outputs_of if (node := output._node) is not None]
        for mask, place in self.partly:
            node = fresh[place]._node
            if node is not None:
                call.partly.append((mask, weakref.ref(node)))


class TapeEntry:
    """A call that runs the captured graph on Tensors; the tape differentiates it op by op.

    Results keep the ticket where the graph is of a forward that is captured; of one that is not, its output is kept.
    """

    def __init__(self, captured: Captured, graph: Graph, strategy: GradientStrategy, *, is_whole: bool) -> None:
        self.captured, self.graph, self.strategy = captured, graph, strategy
        self.keeps_ticket = bool(captured.gradient_owners) or not is_whole
        self.place = check_device(captured.graph.device)
        self.graphs: tuple[tuple[str, Graph], ...] = (("forward", graph),)
        self.results = Results(captured)
        self.random = captured.random
        self.bound = bound_cells(captured)
        self.copied = {i for i, node in enumerate(captured.graph.outputs) if memory_of(node) in captured.copied}
        self.tape, self.own_hooks = TapeGraph(graph, has_hooks=False), own_hooks(graph)

    def compute(self, inputs: list[Array], arguments: Sequence[Any], hooks: Sequence[Hook]) -> Sequence[Tensor]:
        """The tensors that one call leaves. hooks: of its backward; they may come once it has run."""
        ticket = _begin(self.strategy, self.captured)
        for reducer in self.captured.reducing:
            reducer.begin(self.captured.graph)
        self.captured.outputs.prepare(arguments)
        if anything_waits():
            settle_cells(list(self.bound.values()))
        values: list[Value] = list(inputs)
        for i, lift in enumerate(self.captured.inputs):
            if lift is not None and lift.known is not None:
                may_change = lift.rewritten or lift.placeholder in self.captured.copied
                values[i] = _operand(lift, may_change, arguments)
        before = None if self.random is None else self.random.put(values)
        try:
            results = _distinct(self.tape.run(values, hooks), values, self.copied)
        except DATA_ERRORS:
            if self.random is not None and before is not None:
                self.random.give_back(before)
            raise
        if self.place is not cpu:
            results = _placed(self.captured, self.place, results, arguments)
        mark_own_hooks(self.own_hooks, results, hooks)
        for result in results if self.keeps_ticket else ():
            if isinstance(edge := result._edge(), GradNode):
                edge.keeps = ticket
        forwards_ran(self.captured.forwards_ended)
        for reducer in self.captured.reducing:
            reducer.end()
        n_results = len(self.captured.outputs.nodes)
        with no_grad():
            for target, tensor in zip(self.captured.written, results[n_results:]):
                target.put(tensor._read(), arguments)
        return self.results.tensors(results[:n_results], arguments)


def _placed(captured: Captured, place: Device, values: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The results of a GPU's graph (arrays or Tensors), each where it belongs: what no input leads to is on the host.

    What the backward reads beside them stays as it is.
    """
    results = len(captured.outputs.nodes)
    places = [cpu if i in captured.hosts else place for i in range(results)]
    places += [place_of(target.now(arguments).raw) for target in captured.written]
    put = [moved(v, to) if isinstance(v, Tensor) else to.put(v) for v, to in zip(values, places)]
    return [*put, *values[len(put) :]]


def _operand(lift: KeptInput, rewritten: bool, arguments: Sequence[Tensor]) -> Tensor:
    """The tensor behind an input. rewritten: its memory may be written later; its rule must find what it was."""
    assert lift.known is not None
    tensor = lift.known.now(arguments)
    if not lift.takes_gradient:
        cell = lift.now(arguments)
        return Tensor._wrap(cell.taken()) if rewritten else Tensor._from_cell(cell)
    return prims.cast(tensor, tensor.dtype) if rewritten else tensor


def _distinct(results: Sequence[Value], inputs: Sequence[Value], copied: Set[int]) -> list[Tensor]:
    """A tensor of its own for each result: simplifying may have left an input, a view, or one result twice.

    copied: the results of which the program has copies, which the rules may read.
    """
    taken = {value._cell.root for value in inputs if isinstance(value, Tensor)}
    distinct = []
    for i, value in enumerate(results):
        tensor = as_tensor(value)
        if i in copied or tensor._cell.root in taken or isinstance(tensor._cell, ViewCell):
            tensor = prims.cast(tensor, tensor.dtype)
        taken.add(tensor._cell.root)
        distinct.append(tensor)
    return distinct


class PlainEntry:
    """A call without any computation: only Python objects, effects, and the frames to go on with."""

    def __init__(self, captured: Captured, strategy: GradientStrategy) -> None:
        self.captured = captured
        self.graphs: tuple[tuple[str, Graph], ...] = ()
        self.results = Results(captured)
        self.strategy = strategy if captured.gradient_owners else None

    def compute(self, inputs: list[Array], arguments: Sequence[Any], hooks: Sequence[Hook]) -> Sequence[Tensor]:
        """The tensors from outside that one call leaves, or views of them."""
        if self.strategy is not None:  # a forward begins here
            _begin(self.strategy, self.captured)
        forwards_ran(self.captured.forwards_ended)
        return self.results.tensors([], arguments)


Instance: TypeAlias = CompiledEntry | TapeEntry | PlainEntry  # an entry of a graph whose sizes are constants


def mark_own_hooks(places: Mapping[int, int], tensors: Sequence[Tensor], hooks: Sequence[Hook]) -> None:
    """Hooks that are registered on an output later join those that the captured code registered on that tensor.

    places: output -> boundary (`crossing.own_hooks`).
    """
    for place, key in places.items():
        if place < len(tensors) and isinstance(node := tensors[place]._node, OutputNode):
            node.inner = (hooks, key)


def _begin(strategy: GradientStrategy, captured: Captured) -> object:
    """`strategy.on_forward()`, in the modes in which the forward began when it was captured."""
    if captured.begins_in is None:
        return strategy.on_forward()
    with captured.begins_in.held():
        return strategy.on_forward()


def buffers_of(captured: Captured) -> list[tuple[int, KeptInput]]:
    """(place, input) of a gradient owner's buffers: its strategy may write them in `on_forward`, after the guards."""
    if not captured.gradient_owners:
        return []
    lifts = enumerate(captured.inputs)
    return [(i, lift) for i, lift in lifts if lift is not None and lift.placeholder.role == "buffer"]


def bound_cells(captured: Captured) -> dict[int, Cell]:
    """Input -> its cell, for those that the check hands over `raw`; who runs the graph settles what they wait for."""
    cells = [(i, lift.cell) for i, lift in enumerate(captured.inputs) if lift is not None]
    return {i: cell for i, cell in cells if cell is not None and not isinstance(cell, ViewCell)}


def showing(graph: Graph) -> list[tuple[int, int]]:
    """(output, input) of a graph where the output may be the input's memory: executables need not copy it."""
    places = {node: place for place, node in enumerate(graph.inputs)}
    found = []
    for i, node in enumerate(graph.outputs):
        while isinstance(node, Call) and node.op.shares:
            node = node.args[0]
        if isinstance(node, Placeholder):
            found.append((i, places[node]))
    return found


def known_of(captured: Captured, place: int) -> KeptTensor:
    """The tensor behind input `place`, which takes a gradient."""
    lift = captured.inputs[place]
    assert lift is not None
    assert lift.known is not None
    return lift.known


def read_of(captured: Captured, place: int) -> KeptInput | None:
    """What finds the cell behind input `place`; None for random ones, and for what the program copied."""
    lift = captured.inputs[place]
    return None if lift is None or lift.placeholder in captured.copied else lift
