"""The compiler as a straight list of steps. A step's name is the key of the log, of the dump and of the timer.

In: a captured call (`compile_captured`), or a plain graph (`compile_graph`). Out: executables.

    capture         user's frames -> Graph, guards, recipe                       capture/points.py
    simplify        Graph -> Graph                                               graph/passes
    joint           Graph -> forward and gradient in one Graph                   aot/joint.py
    simplify_joint  Graph -> Graph                                               graph/passes
    layout          Graph -> Graph, its arrays as the backend wants them         graph/passes/channels_last.py
    partition       joint Graph -> forward Graph, backward Graph, saved values   aot/partition.py
    plan            backward Graph -> segments (DDP cuts at its buckets)         aot/strategy.py
                    segments -> pieces, cut where Python runs (hooks)            aot/cutting.py
    backend         Graphs -> Executables                                        backend.py
      of "codegen", on a cache miss (lowering/lower.py, codegen/native_backend.py):
      expand        ops that loops do not compute whole, written with others     graph/passes/expand.py
      define        Graph -> definitions: one expression per element             lowering/define.py
      inline        elements read in another order written into their reader     lowering/inline.py
      place         products written where their only reader wants them          lowering/place.py
      schedule      definitions -> fused kernels, calls, memory plan: a Program   schedule/program.py
      emit          Programs -> C++                                              codegen/cpp
      build         C++ -> shared object                                         runtime/build.py

Names, times, log and dump of the steps: steps.py.
An inference call goes from simplify_joint (which also drops what only differentiation reads) straight to backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from compiler_core.aot.cutting import Piece
from compiler_core.aot.inner_uses import used_inside
from compiler_core.aot.joint import Joint, differentiable_nodes, make_joint
from compiler_core.aot.linking import link_backward, link_segments, pieces_to_run
from compiler_core.aot.needs import Needs, needs_of
from compiler_core.aot.partition import Partition, partition
from compiler_core.aot.pruning import only_read
from compiler_core.aot.strategy import ComparedPlan, GradientPlan, GradientStrategy, LocalPlan, ParameterInfo, Segment
from compiler_core.aot.wrapper import CompiledBackward, Cut
from compiler_core.backend import Backend, Executable, GraphCompiler, find_backend
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.steps import collector_paused, compiling, record, record_graph, timed


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled call. forward returns (results..., written values..., values only saved...).

    backward: None if nothing takes a gradient. graphs: (kind, graph), for `explain`. waits[k]: the input of the forward
    that its event k makes readable.
    """

    forward: Executable
    backward: CompiledBackward | None
    tangents: tuple[int, ...]
    graphs: tuple[tuple[str, Graph], ...]
    waits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What capture hands to the compiler.

    wanted[i]: input i takes a gradient. results: how many of the graph's first outputs are results; the rest are
    written back. parameters: gives the strategy's view of the parameters, from the joint's gradient inputs.
    """

    graph: Graph
    wanted: Sequence[bool]
    results: int
    strategy: GradientStrategy
    parameters: Callable[[tuple[int, ...]], Sequence[ParameterInfo]]


def compile_captured(request: CompileRequest, backend: Backend) -> Compiled:
    """All steps after capture."""
    with collector_paused():
        return _compile_captured(request, backend)


def _compile_captured(request: CompileRequest, backend: Backend) -> Compiled:
    name = request.graph.name
    record_graph(name, "capture", request.graph)
    graph = simplify(request.graph)
    flows = differentiable_nodes(graph, request.wanted)
    if not any(node in flows for node in graph.outputs[: request.results]):
        graph = lay_out(backend, simplify_joint(graph))
        return Compiled(run_backend(backend, [graph], name)[0], None, (), (("forward", graph),))
    joint, needs = differentiate(graph, request)
    joint = replace(joint, graph=lay_out(backend, joint.graph))
    parts = split(joint)
    plain = cache(partial(without_hooks, graph, request, backend))
    plan = plan_gradients(request, joint, parts, backend, plain)
    waits = parameter_places(parts.forward) if request.strategy.parameters_may_wait else ()
    pieces = cut_at_stops(joint, parts, plan)
    graphs = [replace(parts.forward, waits=tuple((i,) for i in waits)), *(piece.graph for piece in pieces)]
    forward, *executables = run_backend(backend, graphs, name)
    recut = partial(cut_again, request, joint, parts, backend, plain)
    cut = link_segments(joint, parts, plan, pieces, executables) if pieces else Cut(plan, (), 0)  # none: it is put off
    inside = used_inside(request.graph, request.wanted, joint.tangents)
    pruned = partial(compile_pruned, joint, parts, backend)
    backward = link_backward(
        joint, parts, cut, recut, inside, needs, cache(partial(exact_needs, request, joint.tangents)), pruned
    )
    shown = (("joint", joint.graph), ("forward", parts.forward), ("backward", parts.backward))
    return Compiled(forward, backward, joint.tangents, shown, waits)


def parameter_places(forward: Graph) -> tuple[int, ...]:
    """The inputs that are parameters."""
    return tuple(i for i, node in enumerate(forward.inputs) if node.role == "parameter")


def cut_again(
    request: CompileRequest, joint: Joint, parts: Partition, backend: Backend, plain: Callable[[], Partition]
) -> Cut:
    """The backward's segments by what its owner plans now; the forward stays."""
    plan = plan_gradients(request, joint, parts, backend, plain)
    name = f"{joint.graph.name}_cut_again"
    pieces = cut_at_stops(joint, parts, plan)
    executables = run_backend(backend, [piece.graph for piece in pieces], name)
    return link_segments(joint, parts, plan, pieces, executables)


def compile_pruned(joint: Joint, parts: Partition, backend: Backend, graph: Graph, outputs: Sequence[int]) -> Cut:
    """What is left of the backward when only some cotangents come: `graph`, which makes these of its outputs."""
    record_graph(joint.graph.name, "plan", graph, part="pruned", artefact="aot")
    plan, rest = LocalPlan((Segment(only_read(graph), tuple(outputs)),)), replace(parts, backward=graph)
    pieces = pieces_to_run(joint, rest, plan)
    executables = run_backend(backend, [piece.graph for piece in pieces], graph.name)
    return link_segments(joint, rest, plan, pieces, executables, [k for k in outputs if k < len(joint.gradients)])


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


def exact_needs(request: CompileRequest, tangents: Sequence[int]) -> Needs:
    """What the backward of each output needs, by the graph as it was captured: simplified, equal values are one."""
    joint = make_joint(request.graph, request.wanted, results=request.results, remakes=True)
    return needs_of(joint, request.graph, request.results).of(tangents)


def split(joint: Joint) -> Partition:
    """Joint graph -> forward and backward graphs."""
    name = joint.graph.name
    with compiling(name, "partition"):
        parts = partition(joint)
    record_graph(name, "partition", parts.forward, part="forward", artefact="aot")
    record_graph(name, "partition", parts.backward, part="backward", artefact="aot")
    record(name, "partition", parts.describe, part="saved", artefact="aot")
    return parts


def without_hooks(graph: Graph, request: CompileRequest, backend: Backend) -> Partition:
    """The forward and backward graphs of a captured graph as they are where nobody hooked anything."""
    joint = make_joint(graph, request.wanted, results=request.results, hooks=False)
    return partition(replace(joint, graph=backend.lay_out(run_passes(joint.graph, SIMPLIFY_JOINT))))


def plan_gradients(
    request: CompileRequest, joint: Joint, parts: Partition, backend: Backend, plain: Callable[[], Partition]
) -> GradientPlan:
    """Backward graph -> segments, by whoever owns the gradients. plain: `without_hooks`."""
    name = joint.graph.name
    with timed(name, "plan"):
        parameters = request.parameters(joint.gradients)
        plan = request.strategy.plan(parts.forward, parts.backward, parameters, backend.announces)
    if joint.stops and isinstance(plan, ComparedPlan):
        plan.stand_for(plain().forward, plain().backward)
    if len(plan.segments) > 1 or any(segment.graph.signals for segment in plan.segments):
        for number, segment in enumerate(plan.segments):
            record_graph(name, "plan", segment.graph, part=f"segment{number}", artefact="ddp")
    return plan


def cut_at_stops(joint: Joint, parts: Partition, plan: GradientPlan) -> Sequence[Piece]:
    """Segments -> pieces, between which Python functions run."""
    pieces = pieces_to_run(joint, parts, plan)
    if joint.stops:
        for number, piece in enumerate(pieces):
            record_graph(joint.graph.name, "plan", piece.graph, part=f"piece{number}", artefact="aot")
    return pieces


def run_backend(backend: Backend, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
    """Graphs -> executables, compiled together."""
    with compiling(name, "backend"):
        return backend.compile(graphs, name)
