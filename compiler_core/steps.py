"""The names of the pipeline's steps, and what happens around every step: it is timed, logged and dumped.

In: a graph's name, a step's name, and a text on demand. Out: log lines, dump files, `compile_times()`; where a step
raises what no catalogue knows, a CompilationError that names step, graph, node and the user's line.
`STEPS` is the order of `pipeline.py`; `CODEGEN_STEPS` is what the backend "codegen" does inside its step "backend" on
a cache miss (`schedule/from_graphs.py`, `codegen/native_backend.py`). A dump's files are numbered in this order.
For a CUDA device there are more, which write no dump of their own: cudnn, tune, cubins, measure (cuda_backend.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from compiler_core import log, observe
from compiler_core.config import config
from compiler_core.errors import BackendError, CompilationError, DistCompileError
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.print import print_call, print_graph, print_node
from compiler_core.graph.verify import verify
from compiler_core.records import dataclass
from compiler_core.showing.notice import noticed
from compiler_core.timeline import mark

LONGEST = 4096  # steps that are remembered
STEPS = ("capture", "simplify", "joint", "simplify_joint", "layout", "partition", "plan", "backend")
CODEGEN_STEPS = (
    *("expand", "define", "inline", "round", "epilogue", "place", "triangle"),
    *("schedule", "emit", "build"),
)
_NUMBER = {step: number for number, step in enumerate((*STEPS, *CODEGEN_STEPS))}


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long one step took for one graph. The codegen steps are part of the step "backend"."""

    graph: str
    step: str
    seconds: float


_times: deque[StepTime] = deque(maxlen=LONGEST)


def compile_times() -> tuple[StepTime, ...]:
    """What each step took, for every graph compiled in this process, in the order in which they ended."""
    return tuple(_times)


@contextmanager
def timed(graph: str, step: str) -> Iterator[None]:
    """Time a step, and say in the log, to who watches this process, and after a while to who waits, that it runs."""
    start = time.perf_counter()
    try:
        with observe.phase("compiling", f"{graph}: {step}"), noticed(graph, step):
            yield
    finally:
        seconds = time.perf_counter() - start
        _times.append(StepTime(graph, step, seconds))
        mark("step", step, graph, start, seconds)
        log.emit("steps", f"{graph}: {step} {1e3 * _times[-1].seconds:.1f} ms")


@contextmanager
def compiling(graph: str, step: str) -> Iterator[None]:
    """A step that runs none of the user's code: timed, and its errors named.

    Raises CompilationError from whatever is not of the catalogue; errors of files and memory stay what they are.
    """
    try:
        with timed(graph, step):
            yield
    except BackendError as error:
        error.in_step(step, graph)
        raise
    except (DistCompileError, OSError, MemoryError):
        raise
    except Exception as error:
        node = _node_under_way(error)
        simpler = "eager" if step in STEPS[:-1] else "aot_eager"
        raise CompilationError(
            f"{type(error).__name__} in step {step!r} of graph {graph}: {error}",
            step=step,
            graph=graph,
            node="" if node is None else print_call(node) if isinstance(node, Call) else print_node(node),
            where=node.location if isinstance(node, Call) else "",
            remedy="report this, with the script that DISTCOMPILE_REPRO=error writes; "
            f"backend={simpler!r} runs without this step",
        ) from error


def _node_under_way(error: Exception) -> Node | None:
    """The node that the innermost function spoke of which speaks of one, as far as its variables tell."""
    found: Node | None = None
    trace = error.__traceback__
    while trace is not None:
        nodes = [value for value in trace.tb_frame.f_locals.values() if isinstance(value, Node)]
        found = next((node for node in nodes if isinstance(node, Call)), nodes[0] if nodes else found)
        trace = trace.tb_next
    return found


_UNRECORDED: ContextVar[bool] = ContextVar("unrecorded", default=False)


@contextmanager
def unrecorded() -> Iterator[None]:
    """What is made within the block is only looked at: no log or dump has it."""
    token = _UNRECORDED.set(True)
    try:
        yield
    finally:
        _UNRECORDED.reset(token)


def record(
    name: str,
    step: str,
    text: Callable[[], str],
    *,
    part: str = "",
    artefact: str = "graph",
    whole: Callable[[], str] | None = None,
) -> None:
    """Log and dump what a step made; `text` is called only if somebody wants it. whole: the text for the dump, where
    it has what the log leaves out: it reads back."""
    if _UNRECORDED.get():
        return
    if config.dump_dir:
        log.dump(name, _NUMBER[step], f"{step}_{part}" if part else step, (whole or text)())
    if log.is_on(artefact):
        log.emit(artefact, f"after {step}{f' ({part})' if part else ''}\n{text()}")


def record_graph(name: str, step: str, graph: Graph, *, part: str = "", artefact: str = "graph") -> None:
    """Log and dump a graph; verify it, if asked to."""
    if config.verify:
        verify(graph)
    record(
        name,
        step,
        lambda: print_graph(graph, locations=True, elide=True),
        part=part,
        artefact=artefact,
        whole=lambda: print_graph(graph, locations=True),
    )
