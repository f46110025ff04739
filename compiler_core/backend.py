"""Backends: who turns graphs into something that runs.

In: `Graph`s, straight-line and without autograd (except for "eager"). Out: one `Executable` a graph.
  "eager"      the captured graph, op by op on Tensors; the tape differentiates it
  "aot_eager"  forward and backward graphs, op by op on arrays (`graph/interpret.py`): the oracle of what follows
  "codegen"    one native shared object for all graphs of a compiled function (imported when first asked for)
               (graphs of a CUDA device: Triton kernels and a host function that launches them)
  "cudagraphs" as "codegen"; programs of a CUDA device are replayed as CUDA graphs where they can be
  "tuned"      as "codegen"; kernels of a CUDA device are cut as measured there; "tuned-cudagraphs": both
  "onnxrt"...  other people's compilers and runtimes, with our own code beside them (compiler_core/engines)
  "triton"     a GPU's kernels on the CPU, in Triton's interpreter: slow, for tests (imported when first asked for)
  a callable   fn(graph_module, example_inputs) -> callable(*tensors) -> tensors, called once for each graph (forward,
               backward segments); graph_module: the graph as a torch.fx.GraphModule; example_inputs are zeros of the
               right shapes and dtypes. Under compile(dynamic=True) a graph without gradients is given once, its sizes
               symbols
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from compiler_core.device import check_device, is_array
from compiler_core.errors import BackendError, CompilationError, DistCompileError, TakenNameError
from compiler_core.events import Events
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.late import Late
from compiler_core.meta import TensorMeta
from compiler_core.names.nearest import nearest
from compiler_core.ops.registry import Array, meta_of
from compiler_core.records import dataclass

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Executable(Protocol):
    """A compiled graph."""

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """Run it. outs[i], if given, is written in place and returned as output i; the others are fresh arrays.

        events: where the graph's signals go and who lets its waits pass; None: nobody, and nothing waits. An output
        that is to be used when it is announced must be given a place.
        """


@runtime_checkable
class SharesMemory(Protocol):
    """An executable whose fresh outputs may share memory, if it is told which of them live equally long."""

    def hold_together(self, groups: Sequence[Sequence[int]], stacks: Sequence[Mapping[int, int]] = ()) -> None:
        """groups: outputs of which no one is to outlive the others by much. stacks: of each, at which byte of one block
        its outputs begin."""


def stack_of(run: object) -> tuple[tuple[int, int], ...]:
    """(input, first byte) of the inputs that an executable wants in one block: others it copies there at each call."""
    return tuple(getattr(run, "stack", ()))


@runtime_checkable
class Spends(Protocol):
    """An executable that may compute in the memory of inputs of role "spent".

    spends: the inputs that `spend`, which is as a call otherwise, writes over. A call leaves them as they are.
    """

    spends: tuple[int, ...]

    def spend(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]: ...


@runtime_checkable
class WritesOver(Executable, Protocol):
    """An executable that may be given inputs' memory as places for outputs.

    over_inputs: (output, input) pairs of which this holds. A call that fails has written to no such place.
    """

    over_inputs: frozenset[tuple[int, int]]

    def made(self, output: int, array: Array) -> bool:
        """Whether an array is memory for an output that is handed out again once nobody else refers to it. On a GPU:
        whether it has such memory, and alone."""


@runtime_checkable
class AsksForPlaces(Protocol):
    """An executable that has something to do before it needs to know where outputs go."""

    def run_then_ask(self, inputs: Sequence[Array], places: Callable[[], Sequence[Array | None]]) -> list[Array]:
        """Run it; places: gives `outs`, once it is needed."""


class Backend(Protocol):
    """A way to run graphs.

    announces: whether a graph's signals come while it runs, not all at its end. lay_out(graph): the graph, not yet cut
    into forward and backward, as this backend wants it; itself if there is nothing to prepare.
    """

    @property
    def name(self) -> str: ...
    @property
    def announces(self) -> bool: ...
    def lay_out(self, graph: Graph) -> Graph: ...
    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]: ...


@dataclass(frozen=True, slots=True)
class InterpreterBackend:
    """Runs graphs with the interpreter. On Tensors it leaves differentiation to the tape: that is backend "eager"."""

    name: str
    announces = True

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        return [partial(interpret, graph) for graph in graphs]


class GraphsOnly:
    """`backend` up to where it compiles: what that would be given is kept in `graphs`. What it makes cannot be run."""

    def __init__(self, backend: Backend) -> None:
        self.name, self.announces, self.lay_out = backend.name, backend.announces, backend.lay_out
        self.graphs: Sequence[Graph] = ()

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        self.graphs = graphs
        return [_not_compiled] * len(graphs)


def _not_compiled(*_: object, **__: object) -> list[Array]:
    raise AssertionError("a graph that was made to be looked at is run")


GraphCompiler: TypeAlias = Callable[[Any, Sequence[Any]], Callable[..., Sequence[Any]]]
Run: TypeAlias = Callable[..., Sequence[Array]]
AS_MODULE: Late[Callable[[GraphCompiler, Graph, Sequence[Array]], Run]] = Late("backend: graph as a module")


@dataclass(frozen=True, slots=True)
class CallableBackend:
    """A user's function as a backend."""

    function: GraphCompiler
    announces = False

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        return [self._compile(graph) for graph in graphs]

    def _compile(self, graph: Graph) -> Executable:
        return partial(_run_checked, self.name, graph, self.call(graph, graph))

    def call(self, graph: Graph, sized: Graph) -> Run:
        """What the function makes of `graph`. sized: the same, without symbols."""
        place = check_device(graph.device)
        examples = [place.put(np.zeros(node.shape, node.dtype.numpy)) for node in sized.inputs]
        try:
            run = AS_MODULE.get()(self.function, graph, examples)
        except DistCompileError:
            raise
        except Exception as error:
            text = f"backend {self.name!r} raised {type(error).__name__}: {error}"
            raise CompilationError(text, step="backend", graph=graph.name) from error
        if not callable(run):
            raise BackendError(f"backend {self.name} returned a {type(run).__name__}", expected="a callable(*tensors)")
        return run


@runtime_checkable
class ServesAllSizes(Backend, Protocol):
    """A backend that may have one program for all sizes of a graph."""

    def for_all_sizes(self, graph: Graph) -> Run | None:
        """What runs a graph whose sizes are symbols; None: it is compiled for each size."""


class OneForAllSizes:
    """A backend for one graph, whose sizes are symbols: what runs it serves all the sizes of the calls.

    make: that, by the same graph without symbols, which is asked for once.
    """

    announces = False

    def __init__(self, inner: Backend, make: Callable[[Graph], Run]) -> None:
        self.name, self.lay_out, self._make = inner.name, inner.lay_out, make
        self._run: Run | None = None

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """graphs: that graph, of the sizes of one call."""
        (sized,) = graphs
        self._run = self._run or self._make(sized)
        return [partial(_run_checked, self.name, sized, self._run)]


def _run_checked(
    name: str,
    graph: Graph,
    run: Run,
    inputs: Sequence[Array],
    outs: Sequence[Array | None] | None = None,
    events: Events | None = None,
) -> list[Array]:
    """Run somebody else's executable; its results must be what the graph says. Its events come before and after."""
    for event in range(len(graph.waits)):
        if events is not None:
            events.wait(event)
    results = [value if is_array(value) else np.asarray(value) for value in run(*inputs)]
    expected, got = [node.meta for node in graph.outputs], [meta_of(value) for value in results]
    if expected != got:
        raise BackendError(f"what backend {name} made of {graph.name} returned something else", **_sides(expected, got))
    for k, out in enumerate(outs or ()):
        if out is not None:
            np.copyto(out, results[k])
            results[k] = out
    for event in range(len(graph.signals)):
        if events is not None:
            events.signal(event)
    return results


def _sides(expected: Sequence[TensorMeta], got: Sequence[TensorMeta]) -> dict[str, str]:
    return {"expected": ", ".join(map(str, expected)), "got": ", ".join(map(str, got))}


OtherSizes: TypeAlias = Sequence[Callable[[], Sequence[Graph]]]  # each: what would be compiled at other sizes
_MANY_SIZES: ContextVar[tuple[OtherSizes, bool] | None] = ContextVar("many_sizes", default=None)


def come_in_many_sizes() -> bool:
    """Whether what is compiled is a graph at one of the sizes that it comes in."""
    return _MANY_SIZES.get() is not None


def at_other_sizes() -> OtherSizes:
    """What it is at some others, where that is known, to see what differs. Calls may raise what compiling does."""
    return (_MANY_SIZES.get() or ((), True))[0]


def sizes_are_round() -> bool:
    """Whether the sizes of this one are worth code of their own, in which they are multiples of 16."""
    return (_MANY_SIZES.get() or ((), True))[1]


@contextmanager
def for_many_sizes(many: bool = True, others: OtherSizes = (), *, are_round: bool = True) -> Iterator[None]:
    """What is compiled within the block is a graph at one of many sizes: a backend may compile code that serves all."""
    token = _MANY_SIZES.set((others, are_round) if many else None)
    try:
        yield
    finally:
        _MANY_SIZES.reset(token)


# backends that are loaded when they are asked for: what makes one
_NATIVE: Late[Callable[[], Backend]] = Late("backend: native")
NATIVE: dict[str, Late[Callable[[], Backend]]] = {
    "codegen": _NATIVE,
    "inductor": _NATIVE,  # so is torch's default called
    "cudagraphs": Late("backend: cudagraphs"),
    "tuned": Late("backend: tuned"),
    "tuned-cudagraphs": Late("backend: tuned-cudagraphs"),
    "triton": Late("backend: triton"),
}
# other people's compilers (compiler_core/engines), loaded like those
ENGINES: dict[str, Late[Callable[[], Backend]]] = {
    name: Late(f"backend: {name}") for name in ("onnxrt", "openvino", "openxla", "tensorrt", "tvm")
}
INTERPRETERS: dict[str, Backend] = {name: InterpreterBackend(name) for name in ("eager", "aot_eager")}
_CALLED = "fn(graph_module, example_inputs) -> callable(*tensors) -> tensors"
ENTRY_POINTS = "distcompile.backends"  # the group
_registered: dict[str, GraphCompiler] = {}  # what a program has given names to
_tags: dict[str, tuple[str, ...]] = dict.fromkeys(INTERPRETERS, ("debug",))


def register_backend(function: GraphCompiler, name: str, tags: Sequence[str] = ()) -> None:
    """Let `name` mean a user's function. Raises BackendError: an AssertionError too for a name that is taken."""
    if not callable(function):
        raise BackendError(f"backend {name!r} is nothing that can be called", expected=_CALLED, got=_told(function))
    if name in backend_names():
        raise TakenNameError(f"duplicate name: {name}", remedy="give the backend another name")
    _registered[name], _tags[name] = function, tuple(tags)


def check_backend(backend: object) -> None:
    """Raise BackendError if `backend` names or is none, without importing a native one."""
    if not (isinstance(backend, str) and backend in NATIVE):
        find_backend(backend)


def find_backend(backend: object) -> Backend:
    """The backend that `backend` names or is. Raises BackendError for an unknown name."""
    if isinstance(backend, str):
        if backend in INTERPRETERS:
            return INTERPRETERS[backend]
        if backend in _registered:
            return CallableBackend(_registered[backend])
        if backend in ENGINES:
            return ENGINES[backend].get()()
        if backend in NATIVE:  # before installed packages are looked through, which takes longer than to start
            return NATIVE[backend].get()()
        if backend in strangers():
            return _loaded(backend)
        known = backend_names()
        near = nearest(backend, known)
        raise BackendError(
            f"there is no backend {backend!r}",
            expected=f"{', '.join(known)}, or a callable",
            remedy=f"did you mean {near!r}?" if near else "",
        )
    if _follows(backend):
        return cast(Backend, backend)
    if callable(backend):
        return CallableBackend(backend)
    raise BackendError("this is no backend", expected="a name, a Backend, or a callable", got=_told(backend))


@cache
def strangers() -> Mapping[str, EntryPoint]:
    """The backends that installed packages offer as entry points of the group `distcompile.backends`, by name.

    An entry point is a `Backend`, a function `fn(graph, example_inputs)`, or a class of one, made without arguments.
    """
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _loaded(name: str) -> Backend:
    """A stranger's backend. Raises BackendError where its package fails."""
    point = strangers()[name]
    try:
        loaded = point.load()
        return find_backend(loaded() if isinstance(loaded, type) else loaded)
    except Exception as error:
        raise BackendError(
            f"backend {name!r} of the installed package {point.value.partition(':')[0]} cannot be loaded",
            got=f"{type(error).__name__}: {error}",
            remedy="repair or remove that package",
        ) from error


def takes_words(backend: object) -> bool:
    """Whether it is a function, or the name that a program gave one: such may take mode= and options=."""
    if isinstance(backend, str):
        return backend in _registered
    return callable(backend) and not _follows(backend)


def _follows(backend: object) -> bool:
    """Whether it follows the protocol Backend."""
    return hasattr(backend, "compile") and hasattr(backend, "name")


def with_words(backend: Any, words: dict[str, Any]) -> GraphCompiler:
    """That function, called with these words besides, under its own name."""
    function = _registered[backend] if isinstance(backend, str) else backend
    called: Any = partial(function, **words)
    called.__name__ = CallableBackend(function).name
    return called  # type: ignore[no-any-return]


def _told(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"


def backend_names(without: Sequence[str] = ()) -> list[str]:
    """All names that `find_backend` knows, but those with one of these tags."""
    names = dict.fromkeys([*INTERPRETERS, *NATIVE, *ENGINES, *_registered, *strangers()])
    return sorted(name for name in names if not set(without) & set(_tags.get(name, ())))
