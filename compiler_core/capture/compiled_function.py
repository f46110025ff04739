"""A function or module that is captured at its first call and runs compiled from then on.

In: a callable and how to compile it. Out: `CompiledFunction`, called as the original is.
A call tries the entries it has, the last used first; an entry whose guards hold runs. Otherwise the call is captured
and compiled into a new entry; past `config.recompile_limit` entries, calls that fit none run eager, warned once, naming
the guards that failed. A call that cannot be captured (`GraphBreak`) runs eager, warned once, and is remembered by its
guards, so that it is not traced again; one that changed Python state is tried once more, for what a first call fills
(a library's cache) later calls only read. Under fullgraph=True both raise instead. What is not understood runs eager:
never a wrong result.
Inside another capture (or a backward that is being traced) the original runs, and is inlined.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

from compiler_core import log, observe
from compiler_core.aot.strategy import ParameterInfo
from compiler_core.backend import Backend, GraphCompiler, InterpreterBackend, check_backend, find_backend
from compiler_core.capture.capture import Captured, capture, guard_call, root_module, still_holds
from compiler_core.capture.entry import CompiledEntry, Entry, TapeEntry, known_of
from compiler_core.capture.explain import EntryReport, Explanation
from compiler_core.capture.guards import Check
from compiler_core.capture.module_protocol import ModuleProtocol, gradient_strategy
from compiler_core.config import config
from compiler_core.errors import EffectBreak, GraphBreak, RecompileLimitError
from compiler_core.ops.registry import current_trace
from compiler_core.pipeline import Request, compile_captured, simplify
from compiler_core.steps import timed


@dataclass(frozen=True, slots=True)
class Broken:
    """Calls that cannot be captured: the check that knows them, and why."""

    check: Check
    why: GraphBreak


class CompiledFunction:
    """What `compile` makes of a function; `CompiledModule` of a module."""

    __wraps_original__ = True

    def __init__(
        self,
        function: Callable[..., Any],
        backend: str | Backend | GraphCompiler,
        *,
        fullgraph: bool,
    ) -> None:
        self._function = function
        self._backend_choice = backend
        self._fullgraph = fullgraph
        self._entries: list[tuple[Check, Entry]] = []
        self._broken: list[Broken] = []
        self._misses: list[str] = []
        self._breaks: dict[str, None] = {}  # texts, in order
        self._effects: set[str] = set()  # texts of breaks that may have been a first call's
        self._lock = threading.Lock()
        self._name = _name_of(function)
        check_backend(backend)
        functools.update_wrapper(self, function, updated=())  # sets __wrapped__

    # -- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return self._function(*args, **kwargs)
        for position, item in enumerate(self._entries):
            found = item[0](args, kwargs)
            if not isinstance(found, int):
                if position:
                    self._keep_first(item)
                with observe.phase("forward", self._name):
                    return item[1].run(*found)
        return self._missed(args, kwargs)

    def _keep_first(self, item: tuple[Check, Entry]) -> None:
        """Put an entry, new or not, in front. Ranks that are threads may share one compiled function."""
        with self._lock:
            self._entries = [item, *(other for other in self._entries if other is not item)]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _missed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """No entry fits: compile one, or run eager and say why. No lock is held: ranks agree on plans meanwhile."""
        for broken in self._broken:
            if not isinstance(broken.check(args, kwargs), int):
                return self._function(*args, **kwargs)
        self._report_miss(args, kwargs)
        if len(self._entries) + len(self._broken) >= config.recompile_limit:
            return self._over_limit(args, kwargs)
        try:
            check, entry = self._compile(args, kwargs)
            found = still_holds(entry.captured.guards, check(args, kwargs))
        except GraphBreak as why:
            return self._break(why, args, kwargs)
        self._keep_first((check, entry))
        with observe.phase("forward", self._name):
            return entry.run(*found)

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Check, Entry]:
        number = len(self._entries)
        name = f"{self._name}_{number}" if number else self._name
        with timed(name, "capture"):
            captured = capture(self._function, args, kwargs, name)
        log.emit("guards", f"{name}:\n" + "\n".join(captured.guards.texts))
        backend = find_backend(self._backend_choice)
        module = captured.gradient_owner or root_module(self._function)
        strategy = gradient_strategy(module)
        if isinstance(backend, InterpreterBackend) and backend.name == "eager":
            return captured.check, TapeEntry(captured, simplify(captured.graph), strategy)
        request = Request(
            captured.graph,
            [_takes_gradient(captured, i) for i in range(len(captured.inputs))],
            len(captured.outputs.nodes),
            captured.boundaries,
            strategy,
            functools.partial(_parameters, captured, module),
            {lift.cell: lift.placeholder for lift in captured.inputs if lift is not None},
        )
        return captured.check, CompiledEntry(captured, compile_captured(request, backend), strategy)

    # -- what does not fit

    def _report_miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._entries:
            return
        check, entry = self._entries[0]
        failed = check(args, kwargs)
        if isinstance(failed, int):
            text = entry.captured.guards.describe(failed)
            self._misses.append(text)
            log.emit(
                "recompiles", f"{self._name}: entry {entry.captured.graph.name} does not fit, failed guard: {text}"
            )

    def _over_limit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        failed = "; ".join(dict.fromkeys(self._misses))
        what = (
            f"{self._name} was compiled {config.recompile_limit} times (recompile_limit); last failed guards: {failed}"
        )
        remedy = "keep these constant, or raise DISTCOMPILE_RECOMPILE_LIMIT"
        if self._fullgraph:
            raise RecompileLimitError(what, remedy=remedy)
        log.warn_once(
            f"limit {id(self)}", f"{what}. Calls that fit none of these run eager now: {remedy}.", stacklevel=4
        )
        return self._function(*args, **kwargs)

    def _break(self, why: GraphBreak, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        log.emit("breaks", f"{self._name}: {why}")
        if self._fullgraph:
            raise why
        if isinstance(why, EffectBreak) and str(why) not in self._effects:
            self._effects.add(str(why))
            return self._function(*args, **kwargs)
        self._breaks.setdefault(str(why))
        with contextlib.suppress(GraphBreak):  # then every such call finds that out, before anything is traced
            guards, _ = guard_call(self._function, args, kwargs)
            self._broken.append(Broken(guards.build(f"{self._name} broken"), why))
        log.warn_once(
            f"break {self._name} {why.where} {why.what}", f"{self._name} runs eager for such calls: {why}", stacklevel=4
        )
        return self._function(*args, **kwargs)

    # -- looking at it

    def explain(self) -> Explanation:
        """What was compiled so far: graphs, guards, breaks, recompiles, times. Print it."""
        entries = tuple(
            EntryReport(entry.captured.graph.name, tuple(entry.captured.guards.texts), entry.graphs)
            for _, entry in self._entries
        )
        return Explanation(self._name, entries, tuple(self._breaks), tuple(self._misses))

    def __repr__(self) -> str:
        return f"compiled({self._function!r})"


def _name_of(function: Callable[..., Any]) -> str:
    """A word for the graph's name."""
    name = getattr(function, "__name__", type(function).__name__)
    return re.sub(r"\W+", "_", name).strip("_") or "graph"


def _takes_gradient(captured: Captured, place: int) -> bool:
    lift = captured.inputs[place]
    return lift is not None and lift.known is not None and lift.known.handle.requires_grad


def _parameters(captured: Captured, module: ModuleProtocol | None, gradients: tuple[int, ...]) -> list[ParameterInfo]:
    """The module's parameters. gradients: the graph input that each output of the backward is the gradient of."""
    output = {id(known_of(captured, place).handle): index for index, place in enumerate(gradients)}
    named = [] if module is None else list(module.named_parameters())
    return [ParameterInfo(name, parameter, output.get(id(parameter))) for name, parameter in named]
