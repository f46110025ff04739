"""The end of a segment: what its machine did becomes a Graph, guards, and a recipe for later calls.

In: a `CaptureSegment` whose machine has returned, broken off or raised; the values that must exist afterwards. Out:
`Captured`, and the handles that hold traced tensors now (`Survivors`), which get real values when the graph has run.
Invariant: nothing of the user's changes here, but tensors from outside, which are again what they were before the
trace: the graph, when it runs for this very call, makes of them what the code made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from compiler_core import cuda
from compiler_core.aot.boundary import Hook
from compiler_core.aot.strategy import ReducesInGraph
from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.capture.ambient import Ambient
from compiler_core.capture.compiled.kept import Keeper, KeptInput, KeptWrite
from compiler_core.capture.guards.guards import Check, Guards
from compiler_core.capture.guards.module_protocol import ModuleProtocol
from compiler_core.capture.guards.modules import guard_modules
from compiler_core.capture.guards.overlaps import guard_memory
from compiler_core.capture.guards.sources import AtEnd, Source
from compiler_core.capture.lessons import Along
from compiler_core.capture.numbers.reads import held_by
from compiler_core.capture.numbers.selections import is_selection
from compiler_core.capture.numbers.sizes import Guarded
from compiler_core.capture.outside import Lazy
from compiler_core.capture.random_inputs import RandomInputs, guard_outside
from compiler_core.capture.recipes.holders import holders
from compiler_core.capture.recipes.outputs import Outputs, describe_outputs
from compiler_core.capture.recipes.recipes import Recipe
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.trace import CaptureTrace, Known, Lifted
from compiler_core.device import cpu
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Graph, Node
from compiler_core.graph.passes import attends_f32
from compiler_core.graph.sizes import graph_at, symbols_of
from compiler_core.ops.batching.value import Batched
from compiler_core.records import dataclass
from compiler_core.symbolic.size import SizeSymbol, at_sizes
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor

Pauses: TypeAlias = Literal["", "step", "again"]
Rebuild = Callable[[Sequence[Tensor], Sequence[Any]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured segment.

    graph: returns the nodes of `outputs`, the new values of `written`, effects that none of these needs. inputs: what
    each placeholder reads; None for random ones (`random`). rebuild: from the tensors of `outputs` and what the check
    hands over to the roots,
    with the effects; the last root is the backward hooks, where there are any. guards, check: when it may be used;
    `check` gives the graph's inputs. gradient_owners: the modules whose forwards begin in it and that have a gradient
    strategy; begins_in: the thread's modes then; forwards_ended: those whose forwards end in it. ambient: the modes of
    the thread to set at the end. pauses: the root is a list of frames to go on with: from the next instruction
    ("again"), or when that has run by itself ("step"). Else the root is the result.
    numbers: guard -> the number from outside that it is about; shapes: or the shape. copied: nodes that also stand for
    copies of themselves, so that they may be written before the backward. hosts: see `_hosts`. sizes: the symbols of
    the graph, each with the index of its number among what the check hands over; none: the graph runs as it is.
    along: which of them may not have changed yet. reducing: by whom gradients are reduced in it.
    """

    graph: Graph
    inputs: tuple[KeptInput | None, ...]
    outputs: Outputs
    rebuild: Rebuild
    written: tuple[KeptWrite, ...]
    guards: Guards
    check: Check
    random: RandomInputs | None
    gradient_owners: tuple[ModuleProtocol, ...]
    forwards_ended: tuple[ModuleProtocol, ...]
    begins_in: Ambient | None
    ambient: Ambient | None
    pauses: Pauses
    numbers: dict[int, Source]
    shapes: dict[int, Guarded]
    operations: tuple[str, ...]
    copied: frozenset[Node]
    hosts: frozenset[int]
    sizes: tuple[tuple[SizeSymbol, int], ...] = ()
    along: Along = Along.NONE
    reducing: tuple[ReducesInGraph, ...] = ()

    def at(self, numbers: Mapping[SizeSymbol, int]) -> Captured:
        """The same for these sizes, its guards aside. Raises GraphError, or what the ops raise of sizes."""
        shown = "_".join(str(numbers[symbol]) for symbol, _ in self.sizes)
        graph, new = graph_at(self.graph, numbers, f"{self.graph.name}_at_{shown}")
        return replace(
            self,
            graph=graph,
            inputs=tuple(lift and lift.on(new[lift.placeholder]) for lift in self.inputs),
            outputs=self.outputs.at(numbers, graph.outputs),
            random=self.random and replace(self.random, outside=at_sizes(self.random.outside, numbers)),
            copied=frozenset(new.get(node, node) for node in self.copied),
            sizes=(),
        )


@dataclass(frozen=True, slots=True)
class Survivors:
    """What this very call goes on with. cells: of the graph's inputs. handles: the tensors that `Captured.outputs`
    describes, as the program holds them. arguments: what the check would have handed over. hooks: of its backward."""

    cells: tuple[Cell | None, ...]
    handles: tuple[Tensor, ...]
    arguments: tuple[Any, ...]
    hooks: list[Hook]


def settle(segment: CaptureSegment) -> tuple[Captured, Survivors]:
    """What the segment computed, for this call alone: every tensor of its trace that somebody holds."""
    moved = [before.handle for before in segment.trace.rebound.values()]
    cells = holders(segment.trace.body, Cell, segment.trace.began)
    handles = holders(cells, Tensor, segment.trace.began, moved)
    handles += segment.numbers.selections.live()
    segment.record.is_replayed = False
    return close(segment, handles, "the tensors", pauses="")


def close(segment: CaptureSegment, root: Any, name: str, pauses: Pauses) -> tuple[Captured, Survivors]:
    """The captured segment, ended with `root`. Runs under its trace. Raises CannotRebuild, GraphBreak."""
    trace, guards = segment.trace, segment.code.guards
    trace.ended = ""
    handles: dict[int, tuple[int, Tensor]] = {}
    rebuild, hooks = _rebuild(segment, root, name, handles)
    leaves = _leaves(segment, handles)
    keeper = Keeper(guards.deaths.refer)
    outputs, written = describe_outputs(leaves, trace, keeper.tensor), trace.write_backs()
    trace.leave()
    known = _known(segment)
    _sort_placeholders(trace, known)
    graph = trace.build([*outputs.nodes, *trace.written.values()])
    _guard_the_rest(segment, known)
    sizes = segment.outside_sizes.hand_over(symbols_of(graph) | outputs.symbols)
    lifts = _inputs_of(graph, trace)
    captured = Captured(
        graph,
        keeper.inputs(lifts, written),
        outputs,
        rebuild,
        tuple(map(keeper.write, written)),
        guards,
        guards.build(segment.trace.name),
        RandomInputs.of(graph, trace.rng, trace.draws, trace.shard, trace.outside_draws),
        trace.gradient_owners,
        trace.forwards_ended,
        trace.begins_in if trace.gradient_owners else None,
        segment.trace.ambient.change(),
        pauses,
        dict(segment.numbers.guarded),
        dict(segment.outside_sizes.guarded),
        tuple(segment.trace.operations),
        frozenset(trace.copied),
        _hosts(trace, outputs.nodes),
        sizes,
        segment.outside_sizes.along,
        trace.reducing,
    )
    cells = tuple(None if lift is None else lift.cell for lift in lifts)
    return captured, Survivors(cells, leaves, tuple(segment.code.values), hooks)


def _leaves(segment: CaptureSegment, handles: dict[int, tuple[int, Tensor]]) -> tuple[Tensor, ...]:
    """The tensors found. Raises GraphBreak where later calls would have to make one that stands for a batch (vmap)."""
    leaves = tuple(handle for _, handle in handles.values())
    if segment.record.is_replayed and any(map(_is_of_one_example, leaves)):
        what = "a tensor of one example is kept when the call of vmap has ended"
        raise GraphBreak(what, remedy="return it from the mapped function")
    return leaves


def _is_of_one_example(leaf: Tensor) -> bool:
    return not is_selection(leaf) and type(leaf._cell.raw) is Batched


def _inputs_of(graph: Graph, trace: CaptureTrace) -> list[Lifted | None]:
    """What each of the graph's inputs was read from; None: nothing outside."""
    by_placeholder = {lift.placeholder: lift for lift in trace.lifted.values()}
    return [by_placeholder.get(node) for node in graph.inputs]


def _rebuild(
    segment: CaptureSegment, root: Any, name: str, handles: dict[int, tuple[int, Tensor]]
) -> tuple[Rebuild, list[Hook]]:
    """How later calls make the root and the effects, and the hooks of the backward. handles: the tensors found."""
    recipe = _recipe(segment, handles)
    recipe.root(name, root)
    segment.trace.settle_hooks()
    hooks = list(segment.trace.boundaries.values())
    if hooks:
        recipe.root("the backward hooks", hooks)
    for change in segment.record.replayed():
        recipe.effect(change.function, change.target, *change.args)
    for generator in segment.record.generators:
        recipe.effect(_go_on_with, generator, generator.frame, generator.state)
    return recipe.build(segment.trace.name), hooks


def _guard_the_rest(segment: CaptureSegment, known: Sequence[Known]) -> None:
    """The guards that need the whole segment: of modules, of names, of modes, of memory."""
    trace, guards = segment.trace, segment.code.guards
    guard_modules(segment)
    segment.names.settle()
    _guard_distinct(segment)
    segment.trace.ambient.guard_shard(guards, trace.rng is not None)
    _guard_precision(guards, trace)
    guard_outside(guards, trace)
    segment.trace.ambient.guard_device(guards)
    _guard_lifted(guards, trace)
    guard_memory(guards, trace, known)
    segment.arrays.guard_overlaps()


def _guard_precision(guards: Guards, trace: CaptureTrace) -> None:
    """Kernels that multiply f32 themselves are compiled for the precision that is permitted."""
    if trace.on_gpu and attends_f32(trace.build([])):
        state = guards.bind(cuda.precision, "precision")
        how = "may" if cuda.precision.tf32 else "must not"
        guards.require(f"{state}.tf32 is {cuda.precision.tf32}", f"float32 products {how} be computed in tf32")


def _hosts(trace: CaptureTrace, results: Sequence[Node]) -> frozenset[int]:
    """The results that are the CPU's, of a graph that is not."""
    if trace.device == "cpu":
        return frozenset()
    return frozenset(i for i, node in enumerate(results) if trace.place_of(node) is cpu)


def _guard_distinct(segment: CaptureSegment) -> None:
    """What the captured code changes must not be, at a later call, something else that it reads as another object."""
    changed = {
        id(change.target): known
        for change in segment.record.replayed()
        if (known := segment.outside.find(change.target))
    }
    for known in changed.values():
        for other in list(segment.outside.things.values()):
            if other is known or type(other.thing) is not type(known.thing) or (other.fixed and known.fixed):
                continue
            a, b = segment.code.local(known.source), segment.code.local(other.source)
            first, second = sorted((a, b))
            text = f"{known.source.text} is not {other.source.text}"
            segment.code.require_once(f"{first} is not {second}", text)


def _go_on_with(generator: InterpretedGenerator, frame: Frame, state: str) -> None:
    """A generator in whose body the segment started has come this far."""
    generator.frame, generator.state = frame, state


def _recipe(segment: CaptureSegment, handles: dict[int, tuple[int, Tensor]]) -> Recipe:
    """A recipe that notes in `handles`, by id, the traced tensors that it meets: as the how manieth, and which."""

    def lookup(thing: Any) -> int | None:
        if type(thing) is Lazy:
            return segment.code.place(thing.source, thing.value)
        known = segment.outside.find(thing)
        return None if known is None else segment.code.place(known.source, thing)

    def tensor(handle: Tensor) -> str | None:
        return f"fresh[{handles.setdefault(id(handle), (len(handles), handle))[0]}]"

    recipe = Recipe(lookup, tensor, segment.numbers.expression)
    for place, clock in enumerate(segment.numbers.clocks):
        recipe.first(AtEnd(place, "").name, clock)
    for place, (handle, kind) in enumerate(segment.numbers.reads):
        recipe.first(AtEnd(place, "", is_read=True).name, held_by, str(tensor(handle)), kind.__name__)
    return recipe


def _known(segment: CaptureSegment) -> list[Known]:
    """The tensors from outside: as they were met, those of modules in the order of their registration."""
    met = [entry for entry in segment.trace.by_handle.values() if entry.code]
    place = {name: i for i, name in enumerate(segment.modules.tensors)}
    rest = [entry for entry in segment.trace.by_handle.values() if not entry.code]
    return [*met, *sorted(rest, key=lambda entry: place.get(id(entry.handle), len(place)))]


def _sort_placeholders(trace: CaptureTrace, known: Sequence[Known]) -> None:
    """Arguments in call order, parameters and buffers in registration order, then the rest as met."""
    place = {id(entry): i for i, entry in reversed(list(enumerate(known)))}
    by_placeholder = {lift.placeholder: place.get(id(lift.known), len(known)) for lift in trace.lifted.values()}
    trace.placeholders.sort(key=lambda node: by_placeholder.get(node, len(known) + 1))


def _guard_lifted(guards: Guards, trace: CaptureTrace) -> None:
    """Input expressions for the placeholders, and guards on the tensors that are not arguments."""
    by_placeholder = {lift.placeholder: lift for lift in trace.lifted.values()}
    lifts = [by_placeholder.get(node) for node in trace.placeholders]
    guards.fix_tensors((known.handle, known.source) for known in trace.by_handle.values() if not known.code)
    guards.inputs.extend(_input(guards, lift) for lift in lifts)


def _input(guards: Guards, lift: Lifted | None) -> str:
    """Code for the value of a placeholder."""
    if lift is None:
        return "None"  # a random one: drawn when the call runs
    if lift.known is not None and lift.known.code:
        return f"{lift.known.code}._cell{'.root' if lift.at_root else ''}.current()"
    return guards.value_of(lift.cell)
