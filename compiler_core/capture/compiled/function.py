"""A function or module that is captured at its first call and runs compiled from then on.

In: a callable and how to compile it. Out: `CompiledFunction`, called as the original is.
A call starts at the root `Point`. Where a graph breaks, the instruction that cannot be captured is run by itself, and
the call goes on at the point after it, which is found by where its frames stand. Under fullgraph=True a break is an
error. Inside another capture (or a backward that is being traced) the original runs, and is inlined.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any
from weakref import ReferenceType, ref

from compiler_core import log
from compiler_core.aot.joint import differentiable_nodes
from compiler_core.aot.strategy import OnlyLooked, ParameterInfo
from compiler_core.backend import (
    Backend,
    CallableBackend,
    GraphCompiler,
    GraphsOnly,
    InterpreterBackend,
    OneForAllSizes,
    ServesAllSizes,
    check_backend,
    find_backend,
)
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.captured import Captured
from compiler_core.capture.compiled.control import is_transformed, stance, states
from compiler_core.capture.compiled.counts import code_of, count_graph, counters, guard_failures
from compiler_core.capture.compiled.entry import CompiledEntry, Instance, Paused, PlainEntry, TapeEntry, known_of
from compiler_core.capture.compiled.explain import BreakReport, EntryReport, Explanation
from compiler_core.capture.compiled.reached import MethodOf, Reached, UncompiledSemantics
from compiler_core.capture.compiled.sized import Entry, SizedEntry
from compiler_core.capture.guards.module_protocol import ModuleProtocol, gradient_strategy, is_module, unwrapped
from compiler_core.capture.points import Point
from compiler_core.capture.start import after_step, key_of_frames
from compiler_core.config import config
from compiler_core.errors import BackendError, GraphBreak, RecompileLimitError
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes.dce import Dce
from compiler_core.ops.registry import current_trace
from compiler_core.pipeline import CompileRequest, compile_captured


class CompiledFunction:
    """What `compile` makes of a function; `CompiledModule` of a module."""

    __wraps_original__ = True

    def __init__(
        self,
        function: Callable[..., Any],
        backend: str | Backend | GraphCompiler,
        *,
        fullgraph: bool,
        skip_hook_guards: bool = False,
        fallback_random: bool = False,
        dynamic: bool | None = None,
        memory_budget: float | None = None,
        offload: float | None = None,
    ) -> None:
        self._function = function
        self._backend_choice = backend
        self._fullgraph = fullgraph
        check_backend(backend)
        self._state = State(
            *(function, backend, fullgraph, skip_hook_guards, fallback_random),
            dynamic=dynamic,
            memory_budget=memory_budget,
            offload=offload,
        )
        functools.update_wrapper(self, function, updated=())  # sets __wrapped__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None or stance.name == "force_eager" or is_transformed():
            return self._function(*args, **kwargs)
        outcome = self._state.root.run(args, kwargs)
        return self._state.finish(outcome) if type(outcome) is Paused else outcome

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the original: having `__get__`, this would be taken for a built-in by who asks without unwrapping."""
        return inspect.signature(self._function)

    def explain(self) -> Explanation:
        """What was compiled so far: graphs, guards, breaks, recompiles, times. Print it."""
        return self._state.explain()

    def __repr__(self) -> str:
        return f"compiled({self._function!r})"


class State:
    """What a compiled function has learnt: its points, and how their graphs are compiled.

    reached: of the compiled function that has reached this one; None of one that the program asked for. raised: how
    many calls of one that was reached have. dynamic: whether the call decides the sizes of its tensors. memory_budget,
    offload: None: those of `config`.
    """

    def __init__(
        self,
        function: Callable[..., Any] | MethodOf,
        backend: Any,
        fullgraph: bool,
        skips_hooks: bool,
        falls_back: bool,
        reached: Reached | None = None,
        *,
        dynamic: bool | None = None,
        memory_budget: float | None = None,
        offload: float | None = None,
    ) -> None:
        self.memory_budget, self.offload = memory_budget, offload
        self.function, self.backend, self.fullgraph, self.skips_hooks = function, backend, fullgraph, skips_hooks
        self.falls_back, self.dynamic = falls_back, dynamic
        self.name = _name_of(function)
        self.lock = threading.RLock()  # what dies may take it anywhere
        self.root = Point(self, is_root=True)
        self.points: dict[Hashable, Point] = {}
        self.reports: list[EntryReport] = []
        self.breaks: dict[tuple[str, str], BreakReport] = {}
        self.break_counts: Counter[tuple[str, str]] = Counter()
        self.names = self.raised = 0
        self.is_asked_for = reached is None
        self.reached = reached or Reached(self._reach)
        states.add(self)

    def forget(self) -> None:
        """As if nothing had been compiled."""
        self.root = Point(self, is_root=True)
        self.points.clear()
        self.reports.clear()
        self.breaks.clear()
        self.break_counts.clear()
        if self.is_asked_for:
            self.reached.known.clear()

    @property
    def called(self) -> Callable[..., Any]:
        """What a call of it calls."""
        return self.function.bound() if isinstance(self.function, MethodOf) else self.function

    @property
    def learns_sizes(self) -> bool:
        """Whether a size that was seen to change is a symbol from then on."""
        return self.dynamic is None and config.automatic_dynamic_shapes

    def _reach(self, function: Any) -> State:
        return State(
            *(function, self.backend, False, self.skips_hooks, self.falls_back, self.reached),
            dynamic=self.dynamic,
            memory_budget=self.memory_budget,
            offload=self.offload,
        )

    # -- running

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call."""
        outcome = self.root.run(args, kwargs)
        return self.finish(outcome) if type(outcome) is Paused else outcome

    def finish(self, paused: Paused) -> Any:
        """From a graph break to the end: the instruction by itself, then what follows it, compiled, and so on."""
        machine = Machine(UncompiledSemantics(self.reached))
        outcome: Any = paused
        while type(outcome) is Paused:
            frames = outcome.frames
            before = list(frames[-1].stack)
            try:
                if not outcome.again and machine.step(frames):
                    return machine.result
            except Break as why:  # an instruction that no machine can do
                raise GraphBreak(why.reason, where=machine.location(), remedy=f"{REMEDY}, or compiler.disable") from why
            key = key_of_frames(frames)
            point = self.points.get(key)
            if point is None:
                changing = outcome.changing if outcome.again else after_step(outcome.changing, frames, before)
                point = self.points.setdefault(key, Point(self, changing=changing))
            outcome = point.run(tuple(frames), {})
        return outcome

    # -- capturing

    def new_name(self) -> str:
        """A name for the next graph."""
        number, self.names = self.names, self.names + 1
        return f"{self.name}_{number}" if number else self.name

    @property
    def draws_as_eager(self) -> bool:
        """Whether graphs draw what eager code draws: so asked for, or run op by op, by "eager" and "aot_eager"."""
        return self.falls_back or isinstance(find_backend(self.backend), InterpreterBackend)

    def compile(self, captured: Captured, is_whole: bool) -> Entry:
        """What runs a captured segment. is_whole: from the beginning of the call to its return."""
        log.emit("guards", f"{captured.graph.name}:\n" + "\n".join(captured.guards.texts))
        backend = find_backend(self.backend)
        if captured.sizes:
            backend = self._of_all_sizes(is_whole, backend, captured)
        make = functools.partial(self._compile, is_whole, backend)
        if not captured.sizes:
            return make(captured)
        at_once = config.size_instances if self.learns_sizes and not self.fullgraph else None
        return SizedEntry(captured, make, functools.partial(self._graphs_of, is_whole), at_once)

    def _of_all_sizes(self, is_whole: bool, backend: Backend, captured: Captured) -> Backend:
        """One graph for all sizes, where no gradient flows: what is saved for one is chosen by sizes.

        A user's function is given it where that was asked for, an engine where it takes it.
        """
        is_function = isinstance(backend, CallableBackend)
        if not (self.dynamic if is_function else isinstance(backend, ServesAllSizes)):
            return backend
        request = self._request(is_whole, captured)
        flows = differentiable_nodes(request.graph, request.wanted)
        if any(node in flows for node in request.graph.outputs[: request.results]):
            return backend
        graph = Dce().apply(captured.graph)
        if isinstance(backend, CallableBackend):
            return OneForAllSizes(backend, functools.partial(backend.call, graph))
        assert isinstance(backend, ServesAllSizes)
        run = backend.for_all_sizes(graph)
        return backend if run is None else OneForAllSizes(backend, lambda _: run)

    def _compile(self, is_whole: bool, backend: Backend, captured: Captured) -> Instance:
        """The same, of a graph whose sizes are constants."""
        request = self._request(is_whole, captured)
        strategy = request.strategy
        if not captured.graph.outputs and captured.random is None:
            return PlainEntry(captured, strategy)
        if isinstance(backend, InterpreterBackend) and backend.name == "eager":
            return TapeEntry(captured, Dce().apply(captured.graph), strategy, is_whole=is_whole)
        try:
            return CompiledEntry(captured, compile_captured(request, backend), strategy)
        except BackendError as error:
            if not config.suppress_errors:
                raise
            text = f"{captured.graph.name} runs op by op, for its backend failed: {error}"
            log.warn_once(f"suppressed {captured.graph.name}", text)
            return TapeEntry(captured, Dce().apply(captured.graph), strategy, is_whole=is_whole)

    def _request(self, is_whole: bool, captured: Captured) -> CompileRequest:
        module = root_module(self.called)
        wanted = [_takes_gradient(captured, i) for i in range(len(captured.inputs))]
        bound = [known_of(captured, i) for i, takes in enumerate(wanted) if takes]
        leaves = [known.handle for known in bound if not known.changes]
        strategy = gradient_strategy(captured.gradient_owners, module, leaves, is_whole=is_whole)
        parameters = functools.partial(_parameters, captured, None if module is None else ref(module))
        budget = config.memory_budget if self.memory_budget is None else self.memory_budget
        part = config.offload if self.offload is None else self.offload
        return CompileRequest(captured.graph, wanted, len(captured.outputs.nodes), strategy, parameters, budget, part)

    def _graphs_of(self, is_whole: bool, captured: Captured) -> Sequence[Graph]:
        """What a backend would be given to compile."""
        request, backend = self._request(is_whole, captured), GraphsOnly(find_backend(self.backend))
        compile_captured(replace(request, strategy=OnlyLooked(request.strategy)), backend)
        return backend.graphs

    def note(self, point: Point, captured: Captured, entry: Entry) -> None:
        """A segment was compiled."""
        made = entry.told if isinstance(entry, SizedEntry) else {}
        texts = tuple(captured.guards.texts)
        memory = entry.memory if isinstance(entry, CompiledEntry) else None
        count_graph(len(captured.operations))
        self.reports.append(EntryReport(captured.graph.name, texts, entry.graphs, captured.operations, made, memory))

    def broke(self, why: Break, where: str, silent: bool) -> None:
        """A graph breaks. Raises GraphBreak under fullgraph."""
        error = GraphBreak(why.reason, where=where, remedy=why.remedy or REMEDY)
        if self.fullgraph:
            raise error
        if silent:
            return
        counters["graph_break"][why.reason] += 1
        self.break_counts[why.reason, where] += 1
        if (why.reason, where) not in self.breaks:
            self.breaks[why.reason, where] = BreakReport(why.reason, where)
            log.emit("breaks", f"{self.name}: {error}")

    def missed(self, why: str) -> None:
        """What was compiled does not fit a call, which is captured. why: the guard that failed, in words."""
        guard_failures[code_of(unwrapped(self.called))].append(why)

    def over_limit(self, misses: list[str], limit: int) -> None:
        """Say that calls run eager from now on. Raises RecompileLimitError under fullgraph."""
        failed = "; ".join(dict.fromkeys(misses))
        what = f"{self.name} was compiled {limit} times (recompile_limit); last failed guards: {failed}"
        remedy = "keep these constant, or raise DISTCOMPILE_RECOMPILE_LIMIT"
        if not self.is_asked_for:
            log.emit("recompiles", what)
            return
        if self.fullgraph:
            raise RecompileLimitError(what, remedy=remedy)
        log.warn_once(
            f"limit {id(self)}", f"{what}. Calls that fit none of these run eager now: {remedy}.", stacklevel=5
        )

    def explain(self) -> Explanation:
        points = [self.root, *self.points.values()]
        misses = tuple(text for point in points for text in point.misses)
        skipped = tuple(skipped.why for point in points for skipped in point.skipped)
        reached = tuple(state.explain() for state in self.reached.states()) if self.is_asked_for else ()
        return Explanation(self.name, tuple(self.reports), tuple(self.breaks.values()), misses, skipped, reached)


def shallow(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, itself as it is, what it calls compiled where frames can be evaluated."""
    state = State(unwrapped(function), "codegen", False, False, False)
    return lambda *args, **kwargs: state.reached.run(state.function, args, kwargs)


REMEDY = "keep it outside of the compiled function, or compile with fullgraph=False"


def root_module(function: Callable[..., Any]) -> ModuleProtocol | None:
    """The module that `function` is, or is a method of."""
    owner: Any = function.__self__ if isinstance(function, MethodType) else unwrapped(function)
    return owner if is_module(owner) else None


def _name_of(function: Any) -> str:
    """A word for the graph's name."""
    name = getattr(function, "__name__", type(function).__name__)
    return re.sub(r"\W+", "_", name).strip("_") or "graph"


def _takes_gradient(captured: Captured, place: int) -> bool:
    lift = captured.inputs[place]
    return lift is not None and lift.takes_gradient


def _parameters(
    captured: Captured, owner: ReferenceType[ModuleProtocol] | None, gradients: tuple[int, ...]
) -> list[ParameterInfo]:
    """The owner's parameters, or without one those that the graph reads.

    gradients: the graph input that each output of the backward is the gradient of.
    """
    taken = {place: index for index, place in enumerate(gradients)}
    output = {id(known.handle): i for place, i in taken.items() if not (known := known_of(captured, place)).changes}
    read = {
        id(lift.known.handle): lift
        for lift in captured.inputs
        if lift is not None and lift.known is not None and not lift.known.changes
    }
    named = [(lift.known.source, lift.known.handle) for lift in read.values() if lift.known is not None]
    module = None if owner is None else owner()
    if module is not None:
        named = list(module.named_parameters())
    return [
        ParameterInfo(name, p, output.get(id(p)), read[id(p)].placeholder.name if id(p) in read else "")
        for name, p in named
    ]
