"""The stages of the pipeline, one after the other, on one case: the first that raises, or computes something else.

In: a `Case`. Out: `find`: a `Fault`, or None. Every form is run by the interpreter of its language on the same inputs,
and held to the form before it:

    capture         the graph, op by op: what all others are held to
    simplify        the graph
    rule            each operation's gradient, against differences                              rules.py
    joint           forward and gradients, against the tape, which runs the graph on Tensors; of a graph that holds
                    backwards, the graph
    simplify_joint, layout                                                                     the joint graph
    partition       forward, then backward on what it saved
    plan            the segments
    expand          of each graph that the backend gets, the graph
    define ... triangle                                                                        its definitions
    schedule        its loop IR, temps in one arena; where that heals, what of the schedule:
                    "schedule, memory" (every value in memory of its own), "schedule, fusion" (nothing fused)
    emit            the native code
    run             what raises while that runs

Other backends than the native one have no stages inside: theirs is "backend".
Limits: graphs on the CPU. The loop IR's interpreter is slow: `schedule` and `emit` of a large case are told apart only
once it is small (`shrink.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler_core.aot.in_turn import comes_in_turn
from compiler_core.aot.joint import Joint, differentiable_nodes, make_joint
from compiler_core.aot.linking import pieces_to_run
from compiler_core.aot.partition import partition
from compiler_core.aot.strategy import LocalGradients
from compiler_core.aot.within import Within, backwards_marked, backwards_within
from compiler_core.backend import Backend, Executable, find_backend
from compiler_core.config import config
from compiler_core.errors import DATA_ERRORS, CompilationError, DistCompileError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.graph.minify import example_inputs
from compiler_core.graph.passes import EXPAND, SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.lowering.define import define
from compiler_core.lowering.interpret import interpret_definitions
from compiler_core.lowering.passes import PASSES
from compiler_core.lowering.target import CPU
from compiler_core.ops.registry import Array
from compiler_core.pipeline import CompileRequest, compile_captured
from compiler_core.repro.case import Case, Fault, apart, far_apart, fault_of
from compiler_core.repro.rules import wrong_rule
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.steps import compiling, unrecorded
from compiler_core.tensor.autograd.backward import backward
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.tensor import Tensor

LARGE = 1 << 22  # elements of all values of a graph beyond which its loop IR is not interpreted
NATIVE = ("codegen", "inductor", "tuned", "cudagraphs", "tuned-cudagraphs")


def find(case: Case, *, errors_only: bool = False, builds: bool = True) -> Fault | None:
    """What is wrong with a case. errors_only: only what raises. builds: False: up to C++ text, and no further. None
    also where the inputs that are made are none that the graph can take."""
    with unrecorded(), config.patch(repro="", repro_after="", use_cache=config.use_cache), np.errstate(all="ignore"):
        try:
            _compile_whole(case, builds)
            return Climb(case, builds, compares=not errors_only).climb() if builds or not errors_only else None
        except DATA_ERRORS:
            return None
        except DistCompileError as error:
            return fault_of(error)


def _compile_whole(case: Case, builds: bool) -> None:
    backend = find_backend(case.backend)
    if not builds and case.backend in NATIVE:
        backend = _TextOnly(backend)
    budget = case.memory_budget
    request = CompileRequest(case.graph, case.wanting, case.results, LocalGradients(), lambda _: (), budget)
    compile_captured(request, backend)


class _TextOnly:
    """The native backend up to the text of its code."""

    def __init__(self, inner: Backend) -> None:
        self.name, self.announces, self.lay_out = inner.name, inner.announces, inner.lay_out

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        from compiler_core.codegen.native_backend import generate

        generate(graphs, name)
        return [_unbuilt] * len(graphs)


def _unbuilt(*_: object, **__: object) -> list[Array]:
    raise AssertionError("code that was not built is run")


class _Found(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Climb:
    """The stages on one case; `held` are those that hold, and of which graph. Each method begins at another stage.

    builds, compares: as `find` has them.
    """

    def __init__(self, case: Case, builds: bool, compares: bool) -> None:
        self.case, self.builds, self.backend, self.compares = case, builds, find_backend(case.backend), compares
        self.held: list[tuple[str, str]] = []

    def climb(self) -> Fault | None:
        """All stages, from the captured graph on."""
        return self.found_by(self.run)

    def found_by(self, stages: Callable[[], None]) -> Fault | None:
        """What ends `stages`."""
        try:
            stages()
        except _Found as found:
            return found.fault
        return None

    def hold(self, stage: str, graph: Graph, got: Sequence[Array], want: Sequence[Array]) -> None:
        """What a stage gives is what the one before it gives, or the climb ends here."""
        why = far_apart(got, want) if self.compares else ""
        if why:
            raise _Found(apart(graph, stage, why))
        self.held.append((stage, graph.name))

    def run(self) -> None:
        """From the captured graph on."""
        case, name = self.case, self.case.graph.name
        inputs = case.inputs()
        want = interpret(case.graph, inputs)
        if backwards_marked(case.graph) and (within := self._within()) is not None:
            self._holds_backward(within, inputs, want)
            return
        with compiling(name, "simplify"):
            graph = run_passes(case.graph, SIMPLIFY)
        self.hold("simplify", graph, interpret(graph, inputs), want)
        flows = differentiable_nodes(graph, case.wanting)
        if not any(node in flows for node in graph.outputs[: case.results]):
            self.undifferentiated(graph, inputs, want)
            return
        fault = wrong_rule(graph, case.seed) if self.compares else None
        if fault is not None:
            raise _Found(fault)
        with compiling(name, "joint"):
            joint = make_joint(graph, case.wanting, results=case.results)
        if joint.stops:  # Python runs in the course of the backward: it is no graph
            self.compiled([(graph, inputs)])
            return
        tangents = example_inputs(joint.graph, case.seed)[len(inputs) :]
        given = [*inputs, *tangents]
        both = interpret(joint.graph, given)
        if self.compares:
            self.hold("joint", joint.graph, both, [*want, *_by_tape(graph, joint, inputs, tangents)])
        self.after_joint(joint, given, both)

    def _within(self) -> Within | None:
        case = self.case
        flows = differentiable_nodes(case.graph, case.wanting)
        if any(node in flows for node in case.graph.outputs[: case.results]):
            return None
        with compiling(case.graph.name, "joint"):
            return backwards_within(case.graph, lambda graph: run_passes(graph, SIMPLIFY))

    def _holds_backward(self, within: Within, inputs: Sequence[Array], want: Sequence[Array]) -> None:
        """From a graph on whose backwards were made anew."""
        whole = within.whole()
        self.hold("joint", whole, interpret(whole, inputs), want)
        if not comes_in_turn(within, self.case.memory_budget):
            self.undifferentiated(whole, inputs, want)
            return
        given = [*inputs, *interpret(within.first_gradients(), inputs)]
        joint, _ = within.changed(self._joint_passes(within.graph, given, interpret(within.graph, given))).joint()
        self.compiled(self._halves(joint, given, interpret(joint.graph, given)))

    def after_joint(self, joint: Joint, given: Sequence[Array], want: Sequence[Array]) -> None:
        """From the joint graph on. given: its inputs; want: its outputs on them."""
        joint = replace(joint, graph=self._joint_passes(joint.graph, given, want))
        self.compiled(self._halves(joint, given, want))

    def undifferentiated(self, graph: Graph, inputs: Sequence[Array], want: Sequence[Array]) -> None:
        """From a graph on that nobody differentiates."""
        self.compiled([(self._joint_passes(graph, inputs, want), inputs)])

    def _joint_passes(self, graph: Graph, inputs: Sequence[Array], want: Sequence[Array]) -> Graph:
        with compiling(graph.name, "simplify_joint"):
            graph = run_passes(graph, SIMPLIFY_JOINT)
        self.hold("simplify_joint", graph, interpret(graph, inputs), want)
        with compiling(graph.name, "layout"):
            graph = self.backend.lay_out(graph)
        self.hold("layout", graph, interpret(graph, inputs), want)
        return graph

    def _halves(
        self, joint: Joint, given: Sequence[Array], want: Sequence[Array]
    ) -> list[tuple[Graph, Sequence[Array]]]:
        """Forward and segments, each with its inputs."""
        graph = joint.graph
        with compiling(graph.name, "partition"):
            parts = partition(joint, self.case.memory_budget)
        values: dict[str, Array] = dict(zip((node.name for node in graph.inputs), given, strict=True))
        forward = parts.forward
        for_forward = _named(forward, values)
        results = interpret(forward, for_forward)
        self.hold("partition", forward, results[: joint.outputs], want[: joint.outputs])
        saved = [parts.forward.outputs[i].name for i in parts.saved]
        values |= dict(zip(saved, (results[i] for i in parts.saved), strict=True))
        for node, i in zip(parts.backward.inputs, parts.saved):
            values[node.name] = results[i]
        gradients = interpret(parts.backward, _named(parts.backward, values))
        self.hold("partition", parts.backward, gradients, want[joint.outputs :])
        plan = LocalGradients().plan(forward, parts.backward, (), announces=False)
        found: list[tuple[Graph, Sequence[Array]]] = [(forward, for_forward)]
        for piece in pieces_to_run(joint, parts, plan):
            piece_inputs = _named(piece.graph, values)
            made = interpret(piece.graph, piece_inputs)
            values |= {node.name: value for node, value in zip(piece.graph.outputs, made)}
            wanted = [(value, gradients[k]) for value, k in zip(made, piece.outputs) if k is not None]
            self.hold("plan", piece.graph, [a for a, _ in wanted], [b for _, b in wanted])
            found.append((piece.graph, piece_inputs))
        return found

    # -- the backend

    def compiled(self, pairs: Sequence[tuple[Graph, Sequence[Array]]]) -> None:
        """From the graphs on that the backend gets, each with its inputs."""
        wants = [interpret(graph, inputs) for graph, inputs in pairs]
        is_native = self.case.backend in NATIVE
        if is_native and self.compares:
            for (graph, inputs), want in zip(pairs, wants, strict=True):
                self._lowered(graph, inputs, want)
        if not self.builds or self.case.backend in ("eager", "aot_eager"):
            return
        name = self.case.graph.name
        with compiling(name, "backend"):
            executables = self.backend.compile([graph for graph, _ in pairs], name)
        for (graph, inputs), want, run in zip(pairs, wants, executables, strict=True):
            got = run_native(graph, run, inputs)
            if is_native and self.compares and far_apart(got, want):
                self._scheduled(graph, inputs, want)
            self.hold("emit" if is_native else "backend", graph, got, want)

    def _lowered(self, graph: Graph, inputs: Sequence[Array], want: Sequence[Array]) -> None:
        with compiling(graph.name, "expand"):
            expanded = run_passes(graph, EXPAND)
        self.hold("expand", expanded, interpret(expanded, inputs), want)
        values = by_name(expanded, inputs)
        with compiling(graph.name, "define"):
            defined = define(expanded)
        self.hold("define", expanded, interpret_definitions(defined, values), want)
        for one in PASSES:
            if one.is_for(CPU):
                with compiling(graph.name, one.name):
                    defined = one.apply(defined, CPU)
                self.hold(one.name, expanded, interpret_definitions(defined, values), want)

    def _scheduled(self, graph: Graph, inputs: Sequence[Array], want: Sequence[Array]) -> None:
        """Whether the loop IR is wrong, and what of the schedule is."""
        if sum(node.meta.numel for node in graph.nodes) > LARGE:
            return
        (program,) = lower_and_schedule([graph])
        why = _program_apart(program, inputs, want)
        if why:
            raise _Found(apart(graph, f"schedule{_healed(graph, program, inputs, want)}", why))


def _healed(graph: Graph, program: ir.Program, inputs: Sequence[Array], want: Sequence[Array]) -> str:
    """What of the schedule it is that a right one does without."""
    (kept,) = lower_and_schedule([_keeping(graph)])
    if not all(_program_apart(_roomy(one), inputs, want) for one in (program, kept)):
        return ", memory"
    with config.patch(fusion=False):
        (unfused,) = lower_and_schedule([graph])
    return "" if _program_apart(_roomy(unfused), inputs, want) else ", fusion"


def _keeping(graph: Graph) -> Graph:
    """The same, none of whose inputs may be written over."""
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if isinstance(node, Placeholder) and node.role == "spent":
            new[node] = replace(node, role="saved")
        else:
            new[node] = (
                node.changed(node.name, tuple(new[arg] for arg in node.args)) if isinstance(node, Call) else node
            )
    return graph.with_nodes(new.values(), (new[node] for node in graph.outputs))


def _program_apart(program: ir.Program, inputs: Sequence[Array], want: Sequence[Array]) -> str:
    try:
        return far_apart(interpret_program(program, [np.ravel(array) for array in inputs]), want)
    except DistCompileError as error:  # a place outside of its memory
        return error.what


def _roomy(program: ir.Program) -> ir.Program:
    """The same, every temp in memory of its own."""
    buffers, end = [], 0
    for buffer in program.buffers:
        if buffer.kind == "temp":
            buffer = replace(buffer, offset=end)
            end += -(-buffer.numel * buffer.dtype.itemsize // 64) * 64
        buffers.append(buffer)
    return replace(program, buffers=tuple(buffers), arena_nbytes=end)


def run_native(graph: Graph, run: Executable, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of what a backend made. Raises CompilationError of step "run"."""
    try:
        return run([np.array(array, order="C") for array in inputs])
    except DistCompileError:
        raise
    except Exception as error:
        text = f"{type(error).__name__} in step 'run' of graph {graph.name}: {error}"
        raise CompilationError(text, step="run", graph=graph.name) from error


def _named(graph: Graph, values: Mapping[str, Array]) -> list[Array]:
    return [values[node.name] for node in graph.inputs]


def by_name(graph: Graph, inputs: Sequence[Array]) -> dict[str, Array]:
    """Inputs and constants."""
    found = {node.name: array for node, array in zip(graph.inputs, inputs, strict=True)}
    return found | {node.name: node.array for node in graph.constants}


def _by_tape(graph: Graph, joint: Joint, inputs: Sequence[Array], tangents: Sequence[Array]) -> list[Array]:
    """The gradients, from the tape."""
    takes = set(joint.gradients)
    leaves = [leaf(np.array(array))._require(i in takes) for i, array in enumerate(inputs)]
    with enable_grad():
        found = interpret(graph, leaves)
    wanted: list[Tensor] = [found[i] for i in joint.tangents]
    given = [leaf(np.array(tangent)) for tangent in tangents]
    backward(wanted, given)
    return [_gradient(leaves[i]) for i in joint.gradients]


def _gradient(tensor: Tensor) -> Array:
    grad = tensor.grad
    return np.zeros(tensor.shape, tensor.dtype.numpy) if grad is None else grad._array("repro")
