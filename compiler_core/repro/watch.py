"""What DISTCOMPILE_REPRO does: a fault is looked for where something is compiled, made small, and written as a script.

In: what capture hands to the compiler, and what the knobs say (`Asked`). Out: a script below
DISTCOMPILE_REPRO_DIR, and a warning that names it; the error of a step gets it as `script`, and as a note.

    DISTCOMPILE_REPRO=error      a step that raises
    DISTCOMPILE_REPRO=accuracy   a step that makes something which computes something else
    DISTCOMPILE_REPRO_AFTER      dynamo: of the graph as captured; aot: of the graphs that the backend gets
    DISTCOMPILE_REPRO_LEVEL      1: the whole graph; 2: made small; 3: whole, before it is compiled; 4: accuracy

The two last are torch's words, and say the same as the first, which is "dynamo" at level 2 or 4. Each graph is looked
at once. A script that does not fail alike in a process of its own is written again with the whole graph, and that is
said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from compiler_core import log
from compiler_core.aot.strategy import OnlyLooked
from compiler_core.backend import Backend, GraphsOnly, backend_names
from compiler_core.config import config
from compiler_core.errors import BackendError, DistCompileError
from compiler_core.graph.ir import Graph
from compiler_core.pipeline import REPRO, CompileRequest, compile_captured
from compiler_core.records import dataclass
from compiler_core.repro.case import Case, Fault, fault_of
from compiler_core.repro.ladder import find
from compiler_core.repro.script import Script, write
from compiler_core.repro.shrink import find_again, shrink

LIMIT_S = 120.0  # for making one case small
_seen: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of a fault."""

    accuracy: bool
    of_backend: bool
    shrinks: bool
    before: bool


def asked() -> Asked | None:
    """By the knobs; None: nothing."""
    if config.repro_after:
        level = config.repro_level
        return Asked(level == 4, config.repro_after == "aot", level in (2, 4), level == 3)
    return Asked(config.repro == "accuracy", False, True, False) if config.repro else None


@contextmanager
def watched(request: CompileRequest, backend: Backend) -> Iterator[None]:
    """Compile within the block. What is raised there is raised, with a script."""
    wanted = asked()
    if wanted is None or not _is_named(backend):
        yield
        return
    with config.patch(repro="", repro_after=""):
        cases = list(_cases(request, backend, wanted))
        if wanted.before:
            for case in cases:
                fault = Fault("error", "run", "", "written before it was compiled")
                _tell(write(case, fault, _folder(case), runs=False), "is what is compiled now")
        try:
            yield
        except BackendError as error:
            _of_error(error, request.graph, cases, wanted)
            raise
        for case in cases:
            _of_compiled(case, wanted)


def _is_named(backend: Backend) -> bool:
    return backend.name in backend_names()


def _cases(request: CompileRequest, backend: Backend, wanted: Asked) -> Iterator[Case]:
    graph = request.graph
    if graph.on_gpu:
        log.warn_once("repro on a GPU", "DISTCOMPILE_REPRO is for graphs on the CPU: one of a GPU is left alone")
        return
    if wanted.of_backend:
        looked = GraphsOnly(backend)
        try:
            compile_captured(replace(request, strategy=OnlyLooked(request.strategy)), looked)
        except DistCompileError:  # before there are any; the compilation that is watched raises it too
            return
        yield from (Case(given, backend=backend.name) for given in looked.graphs)
        return
    names = frozenset(node.name for node, wants in zip(graph.inputs, request.wanted, strict=True) if wants)
    yield Case(graph, names, request.results, backend.name, memory_budget=request.memory_budget)


def _of_error(error: BackendError, graph: Graph, cases: list[Case], wanted: Asked) -> None:
    error.kept = graph
    for case in cases:
        fault = fault_of(error)
        found = find(case, errors_only=True)
        script = _written(case, found or fault, wanted)
        error.script = str(script.path)
        error.add_note(f"  script: {script}")


def _of_compiled(case: Case, wanted: Asked) -> None:
    key = (case.graph.name, str(case.graph))
    if key in _seen:
        return
    _seen.add(key)
    fault = find(case, errors_only=not wanted.accuracy)
    if fault is not None:
        _tell(_written(case, fault, wanted), "is compiled, and wrong")


def _written(case: Case, fault: Fault, wanted: Asked) -> Script:
    """The script of a fault, of the smallest case that fails alike alone."""
    folder = _folder(case)
    if wanted.shrinks:
        small, found = shrink(case, fault, LIMIT_S)
        script = write(small, found, folder)
        if script.failed_alike:
            return script
    return write(case, find_again(case, fault) or fault, folder)


def _folder(case: Case) -> Path:
    return Path(config.repro_dir) / f"rank{log.rank()}" / case.graph.name


def _tell(script: Script, what: str) -> None:
    log.warn_once(f"repro {script.path}", f"{script.path.parent.name} {what}; script: {script}", stacklevel=6)


REPRO.fill(watched)
