"""An engine as a backend: graphs are decomposed for it, cut by what it takes, and the rest is our own code's.

In: an `Engine` (engine.py). Out: `EngineBackend`, which compiles as `codegen/native_backend.py` does.

    decompose    calls beyond the core set, where the engine takes what they become    graph/passes/decompose.py
    cut          segments of the engine's calls and of the others                      cutting.py
    build        the engine's segments by the engine, the others by "codegen", together
    run          one executable                                                        executable.py

What the engine does not take is said once per engine and op: the op, why, and the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from compiler_core import log
from compiler_core.backend import Executable, Run, find_backend
from compiler_core.engines.cutting import Segment, cut
from compiler_core.engines.engine import Engine, Places, Program
from compiler_core.engines.executable import Segmented, Step
from compiler_core.errors import BackendError, ClosedSizesError, DistCompileError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.graph.passes import Cse, Dce, Decompose, run_passes
from compiler_core.ops.registry import OPS, Array
from compiler_core.ops.rules import Decomposed
from compiler_core.records import dataclass

OWN = "codegen"  # the backend of what an engine does not take


@dataclass(frozen=True, slots=True)
class EngineBackend:
    """See the head of this file. own: the backend that compiles what the engine does not take."""

    engine: Engine
    own: str = OWN
    announces = False

    @property
    def name(self) -> str:
        return self.engine.name

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """Executables of `graphs`, in order. Raises BackendError for a graph of a device that is not the engine's."""
        ready = [self.decomposed(graph) for graph in graphs]
        parts = [self.segments(graph) for graph in ready]
        programs = self._own([segment.graph for part in parts for segment in part if not segment.by_engine], name)
        return [
            Segmented(graph, [self._step(segment, programs) for segment in part], self.name)
            for graph, part in zip(ready, parts, strict=True)
        ]

    def for_all_sizes(self, graph: Graph) -> Run | None:
        """What runs a graph whose sizes are symbols, where the engine takes it whole; None: it does not."""
        if not self.engine.any_sizes:
            return None
        try:
            ready = self.decomposed(graph)
            why = next((f"{call.op.name}: {why}" for call in ready.calls if (why := self.engine.refuses(call))), "")
            parts = [] if why else cut(ready, dict.fromkeys(ready.calls, ""))
            programs = [self.engine.build(part.graph) for part in parts]
        except (BackendError, ClosedSizesError) as error:
            why, programs = str(error), []
        if not programs:
            log.emit("recompiles", f"{graph.name} by {self.name} is compiled for each size: {why or 'it has no calls'}")
            return None
        return partial(_at_any_sizes, ready, parts[0], programs[0])

    def decomposed(self, graph: Graph) -> Graph:
        """The graph as the engine is asked for it."""
        if graph.on_gpu not in self.engine.devices:
            raise BackendError(
                f"backend {self.name!r} does not run graphs of {graph.device}",
                where=graph.name,
                remedy="move the module and its inputs to a device that it has, or use backend='inductor'",
            )
        every = [(op, op.engines) for op in OPS.values() if self.engine.whole.get(op.name) is None]
        rules = {op: rule.expand for op, rule in every if isinstance(rule, Decomposed)}
        made = run_passes(graph, (Decompose(self._takes, rules), Dce(), Cse()))
        return made.called_as(graph)

    def segments(self, graph: Graph) -> list[Segment]:
        """The parts of a decomposed graph."""
        refusals = {call: self.engine.refuses(call) for call in graph.calls}
        for call, why in refusals.items():
            if why:
                self._say(call, why)
        return cut(graph, refusals)

    def _takes(self, call: Call) -> bool:
        return not self.engine.refuses(call)

    def _say(self, call: Call, why: str) -> None:
        where = f" ({call.location})" if call.location else ""
        text = f"{call.op.name}{where} is run by our own code beside {self.name}: {why}"
        log.warn_once(f"engine {self.name} {call.op.name}", text)

    def _own(self, graphs: Sequence[Graph], name: str) -> dict[Graph, Executable]:
        if not graphs:
            return {}
        own = find_backend(self.own)
        laid = [own.lay_out(graph) for graph in graphs]
        return dict(zip(graphs, own.compile(laid, f"{name}_own"), strict=True))

    def _step(self, segment: Segment, own: dict[Graph, Executable]) -> Step:
        if segment.by_engine:
            program = partial(_checked, self.name, segment.graph, self.engine.build(segment.graph))
            return Step(program, segment.inputs, segment.outputs)
        return Step(own[segment.graph], segment.inputs, segment.outputs)


def _at_any_sizes(graph: Graph, whole: Segment, program: Program, *inputs: Array) -> list[Array]:
    """The outputs of a graph of which one segment is all calls."""
    values = dict[Node, Array](zip(graph.inputs, inputs, strict=True))
    made = program([values[node] for node in whole.inputs], [None] * len(whole.outputs))
    values.update(zip(whole.outputs, made, strict=True))
    return [node.array if isinstance(node, Constant) else values[node] for node in graph.outputs]


def _checked(name: str, graph: Graph, program: Program, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
    """Run an engine's program. Where it fails, the definitions say by which error, if they fail too."""
    try:
        return program(inputs, outs)
    except DistCompileError:
        raise
    except Exception as error:
        interpret(graph, list(inputs))
        raise BackendError(
            f"{name} failed on {graph.name}: {error}", remedy="backend='inductor' runs it; please report the graph"
        ) from error
