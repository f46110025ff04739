"""torch.compiler's names: what is captured and how, when it is compiled again, and what became of it.

In: functions. Out: functions; answers; reports. Capture looks at a call in this order: what was said here about the
function, then where its code is from (`compiler_core/capture/policy.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType, TracebackType
from typing import Any, TypeVar, overload

from compiler_core import backend as core
from compiler_core.backend import backend_names
from compiler_core.breaking import breaks_graph
from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.capture import compile, policy
from compiler_core.capture.compiled.control import check_stance, reset, stance
from compiler_core.capture.compiled.function import shallow
from compiler_core.capture.compiled.reached import evaluation
from compiler_core.errors import ConfigError, GraphBreak
from compiler_core.location import user_location
from compiler_core.numpy_trace import wrap_numpy
from compiler_core.ops.registry import current_trace
from distcompile.surface.artefacts import load_cache_artifacts, save_cache_artifacts

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "disallow_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "load_cache_artifacts",
    "reset",
    "save_cache_artifacts",
    "set_stance",
    "substitute_in_graph",
    "wrap_numpy",
]

F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether `compile` is capturing what runs now."""
    return current_trace() is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether `export` is capturing what runs now."""
    return getattr(current_trace(), "exports", False)


def cudagraph_mark_step_begin() -> None:
    """A step begins. Nothing here keeps memory from one step to the next."""


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` knows. exclude_tags: () also lists those for finding faults."""
    return backend_names(without=exclude_tags or ())


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Let `compile(backend=name)` mean `compiler_fn(graph_module, example_inputs)`; its own name by default. Without
    it, a decorator. tags: "debug" and "experimental" keep it out of `list_backends()`. Raises TakenNameError.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    core.register_backend(compiler_fn, name or compiler_fn.__name__, tags)
    return compiler_fn


def lookup_backend(compiler_fn: Any) -> Any:
    """What `compile(backend=compiler_fn)` calls: fn(graph_module, example_inputs). Raises BackendError for no backend.

    Of a backend of ours: a function that compiles the module as it is now, changed by the program or not.
    """
    found = core.find_backend(compiler_fn)
    if isinstance(found, core.CallableBackend):
        return found.function
    return functools.partial(_compiled_by, found)


def _compiled_by(backend: core.Backend, gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A graph module, compiled by a backend when it is first called."""
    compiled: Callable[..., Any] = compile(gm.forward, backend=backend, fullgraph=True)
    return compiled


# -- what is captured, and how


def allow_in_graph(fn: F | Sequence[F]) -> Any:
    """`fn` (or a list of functions): runs as it is while it is captured; what it does to tensors is in the graph.

    What it reads besides its arguments is not guarded, and what it changes besides tensors is changed once.
    """
    for one in fn if isinstance(fn, (list, tuple)) else [fn]:
        policy.say(one, policy.RUN)
    return fn


def disallow_in_graph(fn: F | Sequence[F]) -> Any:
    """`fn` (or a list of functions): a call of it breaks the graph, and is made as it is."""
    for one in fn if isinstance(fn, (list, tuple)) else [fn]:
        name = getattr(one, "__qualname__", type(one).__name__)
        policy.say(one, policy.Breaks(f"{name} is kept out of graphs by compiler.disallow_in_graph"))
    return fn


def assume_constant_result(fn: F) -> F:
    """`fn`: called once, while it is captured; what it gives is a constant of the graph from then on."""
    policy.say(fn, policy.Constant())
    return fn


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[F], F]:
    """A decorator: where captured code calls `original_fn`, the decorated function is captured instead.

    The other arguments are torch's, without effect. Raises ConfigError if `original_fn` has a substitute already.
    """

    def decorate(traceable_fn: F) -> F:
        if isinstance(policy.said(original_fn), policy.Replaced):
            raise ConfigError(f"{original_fn!r} has a substitute already")
        policy.say(original_fn, policy.Replaced(traceable_fn))
        return traceable_fn

    return decorate


@breaks_graph("a graph break was asked for")
def graph_break(msg: str = "") -> None:
    """The graph ends here, and another begins. Outside of compiled code: nothing. Under fullgraph=True: GraphBreak."""


@overload
def disable(fn: F, recursive: bool = True, *, reason: str | None = None) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[F], F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn`, never captured: a call of it breaks the graph, and is made as it is (under fullgraph=True: GraphBreak).

    Of a Module, a callable that calls it. reason: said in the break. recursive=False: the functions of the user's that
    are called from within `fn` are compiled, each by itself; where frames cannot be evaluated
    (docs/explanation/frames.md), those that `fn`, a function, itself calls.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    name = getattr(fn, "__qualname__", type(fn).__name__)
    why = f"{name} is kept out of graphs by compiler.disable" + (f": {reason}" if reason else "")

    inner = fn if recursive else shallow(fn)

    @functools.wraps(fn if hasattr(fn, "__name__") else type(fn).__call__)
    def eager(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            raise GraphBreak(why, where=user_location(), remedy="call it outside of the compiled function")
        if recursive or not isinstance(fn, FunctionType) or evaluation() is not None:
            return inner(*args, **kwargs)
        return Machine(_CallsCompiled()).run([make_frame(fn, args, kwargs)])

    eager.__graph_break__ = why, "call it outside of the compiled function"  # type: ignore[attr-defined]
    return eager


class _CallsCompiled(NativeSemantics):
    """Runs a function as Python does, but the user's functions that it calls are compiled."""

    compiled: dict[FunctionType, Any] = {}  # noqa: RUF012  # for the whole process: compiled once

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(function, FunctionType) and policy.how(function) is policy.ENTER:
            function = self.compiled.setdefault(function, compile(function))
        return super().call(function, args, kwargs)


# -- when it is compiled again


class set_stance:  # torch's name
    """What happens when a call fits nothing that was compiled, in this thread: at once, `with` it, or as a decorator.

    stance: "default" (compile), "force_eager", "eager_on_recompile", "fail_on_recompile" (RecompileLimitError) or
    "frozen" (nothing is compiled any more). Raises ConfigError for another. The other arguments are torch's.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if force_backend is not None:
            raise ConfigError("set_stance(force_backend=...) is not offered", remedy="compile(..., backend=...)")
        self._before = _stance_now()
        self._wanted = check_stance(stance)
        _set_stance(self._wanted)

    def __enter__(self) -> None:
        _set_stance(self._wanted)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _set_stance(self._before)

    def __call__(self, fn: F) -> F:
        _set_stance(self._before)

        @functools.wraps(fn)
        def standing(*args: Any, **kwargs: Any) -> Any:
            before = _stance_now()
            _set_stance(self._wanted)
            try:
                return fn(*args, **kwargs)
            finally:
                _set_stance(before)

        return standing  # type: ignore[return-value]


def _stance_now() -> str:
    return stance.name


def _set_stance(name: str) -> None:
    stance.name = name
