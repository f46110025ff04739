"""The compiler as a straight list of steps. A step's name is the key of the log, of the dump and of the timer.

In: a captured call (`compile_captured`), or a plain graph (`compile_graph`). Out: executables.

    capture         user's frames -> Graph, guards, recipe                       capture/points.py
    simplify        Graph -> Graph                                               graph/passes
    joint           Graph -> forward and gradient in one Graph                   aot/joint.py
    simplify_joint  Graph -> Graph                                               graph/passes
    layout          Graph -> Graph, its arrays as the backend wants them         graph/passes/channels_last.py
    partition       joint Graph -> forward Graph, backward Graph, saved values   aot/partition.py, aot/offload.py
    plan            backward Graph -> segments (DDP cuts at its buckets)         aot/strategy.py
                    segments -> pieces, cut where Python runs (hooks)            aot/cutting.py
    backend         Graphs -> Executables                                        backend.py
      of "codegen", on a cache miss (schedule/from_graphs.py, codegen/native_backend.py):
      expand        ops that loops do not compute whole, written with others     graph/passes/expand.py
      define        Graph -> definitions: one expression per element             lowering/define.py
        the passes over definitions (lowering/passes.py):
      inline        elements read in another order written into their reader     lowering/inline.py
      round         on a GPU: reductions rounded where they are summed           lowering/round.py
      epilogue      on a GPU: biases added by the product                        lowering/epilogue.py
      place         products written where their only reader wants them          lowering/place.py
      triangle      and only where a causal mask lets something through          lowering/triangle.py
      schedule      definitions -> fused kernels, calls, memory plan: a Program   schedule/program.py
      emit          Programs -> C++                                              codegen/cpp
      build         C++ -> shared object                                         runtime/build.py

Names, times, log and dump of the steps: steps.py.
An inference call goes from simplify_joint (which also drops what only differentiation reads) straight to backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import cached_property, partial

from compiler_core import log
from compiler_core.alive import collector_paused
from compiler_core.aot.branch import EXECUTABLE
from compiler_core.aot.cutting import Piece
from compiler_core.aot.in_turn import InTurn, comes_in_turn, turns_of
from compiler_core.aot.inner_uses import used_inside
from compiler_core.aot.joint import Joint, differentiable_nodes, make_joint
from compiler_core.aot.layout import Rest, layout_of, rest_of
from compiler_core.aot.linking import link_segments, pieces_to_run
from compiler_core.aot.memory import MemoryPlan, memory_plan
from compiler_core.aot.needs import Needs, needs_of
from compiler_core.aot.offload import brought, offloaded
from compiler_core.aot.partition import Partition, partition
from compiler_core.aot.pruning import Pruned, only_read
from compiler_core.aot.strategy import ComparedPlan, GradientPlan, GradientStrategy, LocalPlan, ParameterInfo, Segment
from compiler_core.aot.within import Within, backwards_marked, backwards_within
from compiler_core.aot.wrapper import CompiledBackward, Cut
from compiler_core.backend import (
    Backend,
    Executable,
    GraphCompiler,
    come_in_many_sizes,
    find_backend,
    for_many_sizes,
)
from compiler_core.config import config
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.graph.passes.launch import launched
from compiler_core.late import Late
from compiler_core.log import warn_once
from compiler_core.records import dataclass
from compiler_core.runtime.launching import Launching
from compiler_core.steps import compiling, record, record_graph, timed


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled call. forward returns (results..., written values..., values only saved...).

    backward: None if nothing takes a gradient. graphs: (kind, graph), for `explain`. waits[k]: the input of the forward
    that its event k makes readable. memory: None where it is not known.
    """

    forward: Executable
    backward: CompiledBackward | None
    tangents: tuple[int, ...]
    graphs: tuple[tuple[str, Graph], ...]
    waits: tuple[int, ...] = ()
    memory: MemoryPlan | None = None


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What capture hands to the compiler.

    wanted[i]: input i takes a gradient. results: how many of the graph's first outputs are results; the rest are
    written back. parameters: gives the strategy's view of the parameters, from the joint's gradient inputs.
    memory_budget: see `aot/budget.py`. offload: see `aot/offload.py`.
    """

    graph: Graph
    wanted: Sequence[bool]
    results: int
    strategy: GradientStrategy
    parameters: Callable[[tuple[int, ...]], Sequence[ParameterInfo]]
    memory_budget: float = 1.0
    offload: float = 0.0


REPRO: Late[Callable[[CompileRequest, Backend], AbstractContextManager[None]]] = Late("repro: watched")


def compile_captured(request: CompileRequest, backend: Backend) -> Compiled:
    """All steps after capture. What they make lives until their end, and would be looked through in vain.

    A BackendError of theirs has the captured graph, `kept`; where DISTCOMPILE_REPRO asks for it, a script too.
    """
    with collector_paused(), REPRO.get()(request, backend) if config.repro or config.repro_after else nullcontext():
        try:
            return _compile_captured(request, backend)
        except BackendError as error:
            error.kept = request.graph
            raise


def _compile_captured(request: CompileRequest, backend: Backend) -> Compiled:
    name = request.graph.name
    record_graph(name, "capture", request.graph)
    within = _within(request)
    if within is not None and comes_in_turn(within, request.memory_budget):
        return _compile_in_turn(within, request, backend)
    graph = simplify(request.graph) if within is None else within.whole()
    if not has_history(graph, request):
        graph = lay_out(backend, simplify_joint(graph))
        (only,) = run_backend(backend, [graph], name)
        return Compiled(only, None, (), (("forward", graph),), memory=memory_plan(only))
    joint, needs = differentiate(graph, request)
    joint = replace(joint, graph=lay_out(backend, joint.graph))
    made = Differentiated(request, backend, graph, joint, split(joint, request, backend))
    plan, pieces = made.plan_pieces()
    waits = parameter_places(made.parts.forward) if request.strategy.parameters_may_wait else ()
    forward, *executables = run_backend(
        backend, [replace(made.parts.forward, waits=tuple((i,) for i in waits)), *graphs_of(pieces)], name
    )
    with compiling(name, "plan"):
        cut = made.link(plan, pieces, executables) if pieces else Cut(plan, (), 0)  # none: it is put off
        inside = used_inside(request.graph, request.wanted, joint.tangents)
        backward = CompiledBackward(layout_of(joint, made.parts, inside, needs), cut, made)
    shown = (("joint", joint.graph), ("forward", made.parts.forward), ("backward", made.parts.backward))
    return Compiled(forward, backward, joint.tangents, shown, waits, _memory(made, cut, forward, executables))


def _memory(
    made: Differentiated, cut: Cut, forward: Executable, executables: Sequence[Executable]
) -> MemoryPlan | None:
    """None, too, where the backward is compiled later."""
    kept = [i for i in made.parts.saved if i >= made.joint.outputs]
    has_places, hosted = not isinstance(cut.plan, LocalPlan), made.parts.forward.hosted
    return memory_plan(forward, executables, kept, hosted=hosted, has_places=has_places) if cut.steps else None


def has_history(graph: Graph, request: CompileRequest) -> bool:
    """Whether gradients flow through a result of the call."""
    with compiling(graph.name, "joint"):
        flows = differentiable_nodes(graph, request.wanted)
    return any(node in flows for node in graph.outputs[: request.results])


def _within(request: CompileRequest) -> Within | None:
    """A call that holds backwards, made anew (`aot/within.py`); None: it has none, or they stay as they are."""
    graph = request.graph
    if not (marked := backwards_marked(graph)) or has_history(graph, request):
        return None
    with compiling(graph.name, "joint"):
        within = backwards_within(graph, simplify)
    if any(call.region for call in graph.calls) and (within is None or len(marked) > 1):
        warn_once(
            f"checkpoint {graph.name}",
            f"{graph.name}: of its backwards only the last one computes checkpointed functions again, and if it ends "
            "at inputs of the graph; what others read is kept",
        )
    if within is not None:
        record_graph(graph.name, "joint", within.graph, artefact="aot")
    return within


def _compile_in_turn(within: Within, request: CompileRequest, backend: Backend) -> Compiled:
    """A forward, and the backward and all that comes after it, which computes some of the forward's values again."""
    name = request.graph.name
    within = within.changed(lay_out(backend, simplify_joint(within.graph)))
    joint, places = within.joint()
    parts = split(joint, request, backend)
    first, second = run_backend(backend, [parts.forward, parts.backward], name)
    run = InTurn(first, second, turns_of(joint, parts, places, within.outputs))
    shown = (("forward", within.whole()), ("first", parts.forward), ("backward", parts.backward))
    return Compiled(run, None, (), shown)


def parameter_places(forward: Graph) -> tuple[int, ...]:
    """The inputs that are parameters."""
    return tuple(i for i, node in enumerate(forward.inputs) if node.role == "parameter")


@dataclass(frozen=True, eq=False)
class Differentiated:
    """A call that gradients flow through, split: what compiling its backward needs, now and again (`Recompiler`).

    graph: as captured, simplified. joint: as laid out for the backend. many_sizes: it is one of those it comes in.
    """

    request: CompileRequest
    backend: Backend
    graph: Graph
    joint: Joint
    parts: Partition
    many_sizes: bool = field(default_factory=come_in_many_sizes)

    def plan_pieces(self) -> tuple[GradientPlan, Sequence[Piece]]:
        """The cuts by what the gradients' owner plans now, and what runs in one native call each."""
        plan = plan_gradients(self.request, self.joint, self.parts, self.backend.announces)
        if self.joint.stops and isinstance(plan, ComparedPlan):
            plan.stand_for(self.plain.forward, self.plain.backward)
        return plan, cut_at_stops(self.joint, self.parts, plan)

    def link(self, plan: GradientPlan, pieces: Sequence[Piece], executables: Sequence[Executable]) -> Cut:
        return link_segments(self.joint, self.parts, plan, pieces, executables)

    def recut(self) -> Cut:
        """The backward's segments by what its owner plans now; the forward stays."""
        plan, pieces = self.plan_pieces()
        name = f"{self.joint.graph.name}_cut_again"
        return self.link(plan, pieces, self._run_backend(pieces, name))

    def _run_backend(self, pieces: Sequence[Piece], name: str) -> Sequence[Executable]:
        """Executables of a backward that is compiled when it is needed."""
        graphs = graphs_of(pieces)
        try:
            with for_many_sizes(self.many_sizes):
                return run_backend(self.backend, graphs, name)
        except BackendError as error:
            if not config.suppress_errors:
                raise
            log.warn_once(f"suppressed {name}", f"{name} runs op by op, for its backend failed: {error}")
            return run_backend(find_backend("aot_eager"), graphs, name)

    def prune(self, came: int) -> Pruned | None:
        """What is left of the backward when only these tangents come; None: all of it."""
        rest = rest_of(self.joint, self.parts, came)
        return None if rest is None else Pruned(rest.reads, partial(self._compile_rest, rest))

    def _compile_rest(self, rest: Rest) -> Cut:
        joint, graph, outputs = self.joint, rest.graph, tuple(rest.outputs)
        record_graph(joint.graph.name, "plan", graph, part="pruned", artefact="aot")
        plan, parts = LocalPlan((Segment(only_read(graph), outputs),)), replace(self.parts, backward=graph)
        pieces = pieces_to_run(joint, parts, plan)
        executables = self._run_backend(pieces, graph.name)
        return link_segments(joint, parts, plan, pieces, executables, [k for k in outputs if k < len(joint.gradients)])

    @cached_property
    def exact_needs(self) -> Needs:
        """What the backward of each output needs, by the graph as it was captured: simplified, equal values are one."""
        request = self.request
        joint = make_joint(request.graph, request.wanted, results=request.results, remakes=True)
        return needs_of(joint, request.graph, request.results).of(self.joint.tangents)

    @cached_property
    def plain(self) -> Partition:
        """The forward and backward graphs as they are where nobody hooked anything."""
        joint = make_joint(self.graph, self.request.wanted, results=self.request.results, hooks=False)
        joint = replace(joint, graph=self.backend.lay_out(run_passes(joint.graph, SIMPLIFY_JOINT)))
        return partition(joint, self.request.memory_budget)


def graphs_of(pieces: Sequence[Piece]) -> list[Graph]:
    return [piece.graph for piece in pieces]


def compile_graph(graph: Graph, backend: str | Backend | GraphCompiler = "codegen") -> Executable:
    """An executable of a graph that nobody differentiates: simplify, then backend.

    Outputs may be given destinations at every call (`Executable`); a destination may be the array of an input only if
    the output's element i depends on that input's element i alone.
    """
    return compile_graphs([graph], graph.name, backend)[0]


def compile_graphs(
    graphs: Sequence[Graph], name: str, backend: str | Backend | GraphCompiler = "codegen"
) -> Sequence[Executable]:
    """As `compile_graph`, for several graphs together: they share their kernels."""
    found = find_backend(backend)
    return run_backend(found, [lay_out(found, simplify_joint(graph)) for graph in graphs], name)


EXECUTABLE.fill(compile_graph)


# -- the steps


def simplify(graph: Graph) -> Graph:
    """Graph -> Graph: dead code, constants, identities, duplicates."""
    with compiling(graph.name, "simplify"):
        graph = run_passes(graph, SIMPLIFY)
    record_graph(graph.name, "simplify", graph)
    return graph


def differentiate(graph: Graph, request: CompileRequest) -> tuple[Joint, Needs]:
    """Forward graph -> simplified joint graph, and what the backward of each output needs."""
    with compiling(graph.name, "joint"):
        joint = make_joint(graph, request.wanted, results=request.results)
        needs = needs_of(joint, graph, request.results)
    record_graph(graph.name, "joint", joint.graph, artefact="aot")
    return replace(joint, graph=simplify_joint(joint.graph)), needs


def simplify_joint(graph: Graph) -> Graph:
    """Graph -> Graph, once nothing will be differentiated any more."""
    with compiling(graph.name, "simplify_joint"):
        graph = run_passes(graph, SIMPLIFY_JOINT)
    record_graph(graph.name, "simplify_joint", graph, artefact="aot")
    return graph


def lay_out(backend: Backend, graph: Graph) -> Graph:
    """Graph -> Graph, its arrays in the layouts that the backend's routines want."""
    with compiling(graph.name, "layout"):
        made = backend.lay_out(graph)
    if made is not graph:
        record_graph(graph.name, "layout", made, artefact="aot")
    return made


def split(joint: Joint, request: CompileRequest, backend: Backend) -> Partition:
    """Joint graph -> forward and backward graphs."""
    name = joint.graph.name
    with compiling(name, "partition"):
        parts = partition(joint, request.memory_budget)
        parts = offloaded(parts, joint, request.offload, backend)
    record_graph(name, "partition", parts.forward, part="forward", artefact="aot")
    record_graph(name, "partition", parts.backward, part="backward", artefact="aot")
    record(name, "partition", parts.describe, part="saved", artefact="aot")
    return parts


def plan_gradients(request: CompileRequest, joint: Joint, parts: Partition, announces: bool) -> GradientPlan:
    """Backward graph -> segments, by whoever owns the gradients."""
    name = joint.graph.name
    with timed(name, "plan"):
        parameters = request.parameters(joint.gradients)
        plan = request.strategy.plan(parts.forward, parts.backward, parameters, announces)
    if len(plan.segments) > 1 or any(segment.graph.signals for segment in plan.segments):
        for number, segment in enumerate(plan.segments):
            record_graph(name, "plan", segment.graph, part=f"segment{number}", artefact="ddp")
    return plan


def cut_at_stops(joint: Joint, parts: Partition, plan: GradientPlan) -> Sequence[Piece]:
    """Segments -> pieces, between which Python functions run."""
    with compiling(joint.graph.name, "plan"):
        pieces = pieces_to_run(joint, parts, plan)
    if joint.stops:
        for number, piece in enumerate(pieces):
            record_graph(joint.graph.name, "plan", piece.graph, part=f"piece{number}", artefact="aot")
    return pieces


def _bucket_nbytes(graph: Graph) -> int:
    """Of what may travel as one."""
    return int((config.gpu_collective_bucket_mb if graph.on_gpu else config.collective_bucket_mb) * (1 << 20))


def run_backend(backend: Backend, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
    """Graphs -> executables, compiled together; their collectives are launched early where the backend can."""
    launches = getattr(backend, "launches", False)
    plans = [launched(graph, _bucket_nbytes(graph)) if launches else None for graph in graphs]
    sent = [graph if plan is None else plan.graph for graph, plan in zip(graphs, plans)]
    for plan in plans:
        if plan is not None:
            record_graph(name, "backend", plan.graph, part=f"{plan.graph.name}_launching")
    with compiling(name, "backend"):
        made = [brought(run, graph) for run, graph in zip(backend.compile(sent, name), sent, strict=True)]
    return [
        run if plan is None else Launching(run, plan, len(graph.signals), len(graph.waits))
        for run, plan, graph in zip(made, plans, graphs, strict=True)
    ]
