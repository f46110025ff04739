"""What DISTCOMPILE_DUMP wrote, run again from one of its stages on.

In: the folder of one graph, and a stage's name. Out: `replay`: a `Replayed`: the stages that hold, in order, and the
fault that ends them, if one does. The stage's own text is read by its parser and run by its interpreter, on inputs from
a seed; that is what all that follows is held to (ladder.py). A text may have been edited by hand.
Dumps hold no gradient's shape beside the joint graph: from "capture" and "simplify" on all floats take gradients, where
there is a joint graph; a backward in the course of which Python runs (hooks) is replayed from "partition" on.
Raises: ConfigError where the folder has no such stage, or its text does not parse.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from compiler_core.aot.joint import Joint
from compiler_core.config import config
from compiler_core.errors import ConfigError, DistCompileError, GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.minify import example_inputs
from compiler_core.graph.parse import parse_graph
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_program
from compiler_core.lowering.definition import Defined
from compiler_core.lowering.interpret import interpret_definitions
from compiler_core.lowering.parse import parse_definitions
from compiler_core.lowering.passes import PASSES
from compiler_core.lowering.target import CPU
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.repro.case import Case, Fault, fault_of
from compiler_core.repro.ladder import Climb, by_name, run_native
from compiler_core.schedule.finish import KernelTable
from compiler_core.schedule.program import schedule
from compiler_core.steps import CODEGEN_STEPS, STEPS, compiling, unrecorded

Form = TypeVar("Form")
_FILE = re.compile(r"\d\d_\w+\.txt$")
_JOINT = ("joint", "simplify_joint", "layout")
_CAPTURED = ("capture", "simplify")
_GIVEN = ("partition", "plan", "expand")  # graphs by themselves
_DEFINITIONS = ("define", *(one.name for one in PASSES))
STAGES = tuple(step for step in (*STEPS, *CODEGEN_STEPS) if step not in ("backend", "emit", "build"))


@dataclass(frozen=True, slots=True)
class Replayed:
    """held: (stage, graph), in order. fault: what ended it."""

    held: tuple[tuple[str, str], ...]
    fault: Fault | None

    def __str__(self) -> str:
        rows = [f"{stage:15} {graph}: as before" for stage, graph in self.held]
        return "\n".join([*rows, f"{self.fault}\n{self.fault.text}" if self.fault else "all stages hold"])


def folders(place: Path) -> list[Path]:
    """The folders of graphs in a dump, or in a part of one."""
    found = {path.parent for path in place.rglob("*.txt") if _FILE.match(path.name)}
    return sorted(found)


def replay(folder: Path, stage: str, seed: int = 0) -> Replayed:
    """Run what `folder` has of `stage`, and all stages after it."""
    dump = _Dump(folder, seed)
    texts = dump.texts(stage)
    with unrecorded(), config.patch(repro="", repro_after=""), np.errstate(all="ignore"):
        climb = Climb(Case(dump.graphs[0], seed=seed), builds=True, compares=True)
        try:
            fault = climb.found_by(partial(_run, dump, climb, stage, texts))
        except DistCompileError as error:
            if isinstance(error, ConfigError):
                raise
            fault = fault_of(error)
    return Replayed(tuple(climb.held), fault)


class _Dump:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        files = sorted(path for path in folder.glob("*.txt") if _FILE.match(path.name))
        self.files = [(step, path) for path in files if (step := _step_of(path))]
        graphs = [_parsed(parse_graph, text) for step, path in self.files if _is_graph(text := path.read_text())]
        if not graphs:
            raise ConfigError(f"{folder} holds no graph that DISTCOMPILE_DUMP wrote")
        if any(graph.on_gpu for graph in graphs):
            raise ConfigError(f"{folder} is of a GPU: dumps of graphs on the CPU are replayed")
        self.graphs = graphs

    def texts(self, stage: str) -> list[str]:
        """What there is of a stage, but notes on it. Raises ConfigError where there is nothing."""
        found = [path.read_text() for step, path in self.files if step == stage]
        forms = [text for text in found if _is_graph(text) or text.startswith(("definitions ", "kernel ", "program "))]
        if not forms:
            there = list(dict.fromkeys(step for step, _ in self.files if step in STAGES))
            raise ConfigError(f"{self.folder} has nothing of stage {stage!r}", expected=", ".join(there))
        return forms

    def graph(self, name: str) -> Graph:
        """The last form of the graph of that name."""
        return next(graph for graph in reversed(self.graphs) if graph.name == name)

    def inputs(self, graph: Graph) -> list[Array]:
        return example_inputs(graph, self.seed)


def _step_of(path: Path) -> str:
    name = path.stem.split("_", 1)[1]
    known = [step for step in (*STEPS, *CODEGEN_STEPS) if name == step or name.startswith(f"{step}_")]
    return max(known, key=len, default="")


def _parsed(parse: Callable[[str], Form], text: str) -> Form:
    try:
        return parse(text)
    except GraphError as error:
        raise ConfigError(f"a text of the dump does not read back: {error.what}", got=error.got) from error


def _is_graph(text: str) -> bool:
    return text.startswith(("graph ", "sizes "))


def _run(dump: _Dump, climb: Climb, stage: str, texts: Sequence[str]) -> None:
    if stage in _CAPTURED:
        graph = _parsed(parse_graph, texts[0])
        differentiated = any(step == "joint" for step, _ in dump.files)
        floats = [node.name for node in graph.inputs if node.dtype.is_floating_point and differentiated]
        climb.case = Case(graph, frozenset(floats), len(graph.outputs), seed=dump.seed)
        climb.run()
    elif stage in _JOINT:
        graph = _parsed(parse_graph, texts[0])
        _from_joint(dump, climb, graph)
    elif stage in _GIVEN:
        graphs = [_parsed(parse_graph, text) for text in texts]
        climb.compiled([(graph, dump.inputs(graph)) for graph in graphs])
    elif stage in _DEFINITIONS:
        for text in texts:
            _from_definitions(dump, climb, stage, _parsed(parse_definitions, text))
    else:
        for text in texts:
            program = _parsed(parse_program, text)
            graph = dump.graph(program.name)
            inputs = dump.inputs(graph)
            _native(climb, graph, program, inputs, _by_loops(graph, program, inputs))


def _from_joint(dump: _Dump, climb: Climb, graph: Graph) -> None:
    inputs = dump.inputs(graph)
    roles = [node.role for node in graph.inputs]
    if "hooked" in roles:
        raise ConfigError("Python runs in the course of this backward", remedy="replay it from 'partition' on")
    want = interpret(graph, inputs)
    if "tangent" not in roles:
        climb.undifferentiated(graph, inputs, want)
        return
    first = parse_graph(dump.texts("capture")[0])
    count = len(graph.outputs) - len(first.outputs)
    tangents = tuple(range(roles.count("tangent")))
    climb.after_joint(
        Joint(graph, len(first.outputs), tangents, tuple(range(count)), (1,) * count, (), (0,) * count), inputs, want
    )


def _from_definitions(dump: _Dump, climb: Climb, stage: str, defined: Defined) -> None:
    graph = dump.graph(defined.name)
    inputs = dump.inputs(graph)
    values = by_name(graph, inputs)
    want = interpret_definitions(defined, values)
    for one in PASSES[_DEFINITIONS.index(stage) :]:
        if one.is_for(CPU):
            with compiling(graph.name, one.name):
                defined = one.apply(defined, CPU)
            climb.hold(one.name, graph, interpret_definitions(defined, values), want)
    with compiling(graph.name, "schedule"):
        program = schedule(graph, defined, KernelTable(CPU))
    climb.hold("schedule", graph, _by_loops(graph, program, inputs), want)
    _native(climb, graph, program, inputs, want)


def _by_loops(graph: Graph, program: ir.Program, inputs: Sequence[Array]) -> list[Array]:
    if program.inputs != tuple(node.name for node in graph.inputs):
        raise GraphError(f"program {program.name} has other inputs than its graph")
    return interpret_program(program, [np.ravel(array) for array in inputs])


def _native(climb: Climb, graph: Graph, program: ir.Program, inputs: Sequence[Array], want: Sequence[Array]) -> None:
    from compiler_core.codegen.native_backend import run_programs

    with tempfile.TemporaryDirectory(prefix="distcompile-replay-") as folder:
        (run,) = run_programs([program], [graph], Path(folder))
        climb.hold("emit", graph, run_native(graph, run, inputs), want)
