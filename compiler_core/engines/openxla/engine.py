"""The backend "openxla": XLA compiles the graphs, through JAX (`pip install "distcompile[openxla]"`).

In: graphs of calls that JAX can trace (rules.py). Out: a compiled program a graph: traced, lowered to StableHLO
(`stablehlo` gives its text), compiled. No input is donated: XLA is lent memory of NumPy's or CuPy's (why:
docs/howto/engines.md). What must hold of values (an index in range) is computed beside the results, and raised here. On
the CPU XLA's threads are its own: XLA_FLAGS says how many. A graph of a GPU needs JAX's plugin for it (`pip install
"jax[cuda13]"`); arrays change hands by DLPack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.backend import ENGINES
from compiler_core.engines.backend import EngineBackend
from compiler_core.engines.engine import Places, Program, require_package
from compiler_core.errors import BackendError, failed_check
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.ops.registry import Array
from compiler_core.ops.rules import OwnCode
from compiler_core.records import dataclass

NAME = "openxla"
EXACT = {"xla_disable_hlo_passes": "algsimp"}  # (a / b) / c is not a / (b * c): on the CPU it costs nothing


class OpenXla:
    """The engine."""

    name = NAME
    devices = frozenset((False, True))
    any_sizes = False
    whole: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.jax = require_package("jax", NAME)
        self._refusals: dict[tuple[Any, ...], str] = {}

    def refuses(self, call: Call) -> str:
        key = (call.op.name, tuple(arg.meta for arg in call.args), tuple(call.attrs.items()))
        if key not in self._refusals:
            self._refusals[key] = self._tried(call)
        return self._refusals[key]

    def _tried(self, call: Call) -> str:
        """Why one call alone cannot be traced."""
        from compiler_core.engines.openxla.rules import RULES, Tests, computed

        if isinstance(call.op.engines, OwnCode) and RULES.get(call.op.name) is None:
            return call.op.engines.why
        with self._wide():
            try:
                made = self.jax.eval_shape(
                    lambda *operands: computed(call.op, operands, dict(call.attrs), Tests()),
                    *map(self._spec, call.args),
                )
            except Exception as error:  # noqa: BLE001 - whatever stops a definition from being traced
                return f"JAX cannot trace it: {str(error).partition(chr(10))[0]}"
        got = (tuple(made.shape), np.dtype(made.dtype))
        expected = (call.shape, call.dtype.numpy)
        return "" if got == expected else f"JAX makes {got} of it, not {expected}"

    def _wide(self) -> AbstractContextManager[Any]:
        """Where 64 bits stay 64 bits."""
        return self.jax.enable_x64(True)  # type: ignore[no-any-return]

    def _spec(self, node: Node) -> Any:
        return self.jax.ShapeDtypeStruct(node.shape, node.dtype.numpy)

    def lowered(self, graph: Graph) -> tuple[Any, list[str]]:
        """The graph as JAX lowers it, and the message of each test that its last output holds the answers of."""
        from compiler_core.engines.openxla.rules import Tests, computed

        messages: list[str] = []

        def run(*inputs: Any) -> list[Any]:
            tests, values = Tests(), dict[Node, Any](zip(graph.inputs, inputs, strict=True))
            for node in graph.nodes:
                if isinstance(node, Constant):
                    values[node] = self.jax.numpy.asarray(node.array)
                elif isinstance(node, Call):
                    values[node] = computed(node.op, [values[arg] for arg in node.args], dict(node.attrs), tests)
            messages[:] = tests.messages
            holds = [self.jax.numpy.stack(tests.holds)] if tests.holds else []
            return [*(values[node] for node in graph.outputs), *holds]

        with self._wide():
            made = self.jax.jit(run, keep_unused=True).lower(*map(self._spec, graph.inputs))
        return made, messages

    def build(self, graph: Graph) -> Program:
        lowered, messages = self.lowered(graph)
        try:
            compiled = lowered.compile(compiler_options=None if graph.on_gpu else EXACT)
        except Exception as error:
            raise BackendError(f"XLA does not take {graph.name}: {error}") from error
        return _Compiled(self.jax, compiled, messages, graph.on_gpu)


def stablehlo(graph: Graph) -> str:
    """The graph as StableHLO, in MLIR's text form. Raises BackendError where a call cannot be traced by JAX."""
    engine = OpenXla()
    for call in graph.calls:
        if why := engine.refuses(call):
            raise BackendError(f"{call.op.name} has no StableHLO: {why}", where=call.location)
    text: str = engine.lowered(graph)[0].as_text()
    return text


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled program. messages: of the tests whose answers are its last output."""

    jax: Any
    run: Callable[..., Sequence[Any]]
    messages: Sequence[str]
    on_gpu: bool

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
        with self.jax.enable_x64(True):
            made = self.run(*map(self.taken, inputs))
        results = list(map(self.given, made))
        if self.messages:
            check(self.messages, results.pop())
        return [_placed(result, out) for result, out in zip(results, outs, strict=True)]

    def taken(self, array: Array) -> Any:
        if not cuda.is_array(array):
            return array
        return self.jax.dlpack.from_dlpack(array if array.flags.c_contiguous else array.copy())

    def given(self, value: Any) -> Array:
        """Memory of XLA's, which may be read alone."""
        return cuda.module().from_dlpack(value) if self.on_gpu else np.asarray(value)


def _placed(result: Array, out: Array | None) -> Array:
    if out is None:
        return result.copy() if type(result) is np.ndarray else result
    out[...] = result
    return out


def check(messages: Sequence[str], holds: Array) -> None:
    """Raise the error of the first test that does not hold."""
    held_by = holds if type(holds) is np.ndarray else cuda.fetch(holds)
    for message, held in zip(messages, held_by.tolist(), strict=True):
        if not held:
            raise failed_check(message)


ENGINES[NAME].fill(lambda: EngineBackend(OpenXla()))
