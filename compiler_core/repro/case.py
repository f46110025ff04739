"""What is tried again: a captured graph, what is wanted of it, and how far what two stages give may be apart.

In: text, or what capture hands to the compiler. Out: `Case`; `Fault`: what is wrong with it, and in which stage.
Inputs are made from a seed: floats in (-1, 1), small whole numbers, bits. `far_apart` is the one measure of accuracy:
the largest difference, against the largest value, of each output; NaNs and infinities must be in the same places. An
output that is much smaller than others is measured against these: a gradient that is zero but for rounding (of a bias
before a batch norm) is rounded otherwise by every form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compiler_core.backend import GraphCompiler
from compiler_core.errors import CompilationError, DistCompileError
from compiler_core.graph.ir import Call, Graph
from compiler_core.graph.minify import example_inputs
from compiler_core.graph.parse import parse_graph
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass

_LIMITS = {8: 1e-7, 4: 1e-4}  # itemsize -> how far apart floats may be; narrower ones:
_NARROW = 3e-2
_SMALL = 3e-2  # of the largest value of all outputs


@dataclass(frozen=True, slots=True)
class Case:
    """graph: as captured. wanted: the names of the inputs that take gradients. results: how many of its first outputs
    gradients come from. backend: by name. memory_budget: see aot/budget.py."""

    graph: Graph
    wanted: frozenset[str] = frozenset()
    results: int = 0
    backend: str | GraphCompiler = "codegen"
    seed: int = 0
    memory_budget: float = 1.0

    @classmethod
    def read(
        cls,
        text: str,
        wanted: str = "",
        results: int = 0,
        backend: str = "codegen",
        seed: int = 0,
        memory_budget: float = 1.0,
    ) -> Case:
        """As a script spells it. wanted: names, between blanks."""
        return cls(parse_graph(text), frozenset(wanted.split()), results, backend, seed, memory_budget)

    @property
    def wanting(self) -> list[bool]:
        """For each input whether it takes a gradient."""
        return [node.name in self.wanted for node in self.graph.inputs]

    def with_graph(self, graph: Graph) -> Case:
        """Another graph; what was cut off into an input takes a gradient, if any does."""
        floats = frozenset(node.name for node in graph.inputs if node.dtype.is_floating_point)
        kept = {node.name for node in self.graph.inputs}
        wanted = (
            frozenset(name for name in floats if name in self.wanted or name not in kept) if self.wanted else floats
        )
        return replace(self, graph=graph, wanted=wanted if self.wanted else frozenset(), results=len(graph.outputs))

    def inputs(self) -> list[Array]:
        """Values for the graph's inputs, the same for the same seed."""
        return example_inputs(self.graph, self.seed)


@dataclass(frozen=True, slots=True)
class Fault:
    """kind: "error" (a step raises) or "accuracy" (what it makes computes something else). stage: a step of the
    pipeline, with what of it where that is known. mark: the exception's class. op, where: the operation, and the
    user's line. text: the sentence."""

    kind: str
    stage: str
    mark: str
    text: str
    op: str = ""
    where: str = ""

    @property
    def key(self) -> str:
        """What another fault must have in common to be the same one."""
        return f"{self.kind} in {self.stage}" + (f": {self.mark}" if self.mark else "")

    def __str__(self) -> str:
        at = f", op {self.op}" if self.op else ""
        return f"{self.key}{at}{f', {self.where}' if self.where else ''}"


def fault_of(error: DistCompileError) -> Fault:
    """The fault that an error of the compiler is."""
    cause = error.__cause__
    mark = type(cause if isinstance(error, CompilationError) and cause is not None else error).__name__
    step = getattr(error, "step", "") or "backend"
    node = str(getattr(error, "node", ""))
    op = node.partition(" = ")[2].partition("(")[0]
    return Fault("error", step, mark, error.what, op, error.where)


def apart(graph: Graph, stage: str, why: str) -> Fault:
    """A stage whose form of `graph` computes something else. The last operation of a small graph is the one."""
    last: Sequence[Call] = [node for node in graph.outputs if isinstance(node, Call)] or graph.calls[-1:]
    op, where = (last[0].op.name, last[0].location) if last else ("", "")
    return Fault("accuracy", stage, "", why, op, where)


def far_apart(got: Sequence[Array], want: Sequence[Array]) -> str:
    """Where two lists of outputs are not the same but for rounding, and by how much; empty if they are."""
    least = _SMALL * max(map(_largest, want), default=0.0)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        why = _difference(np.asarray(a), np.asarray(b), least)
        if why:
            return f"output {k}: {why}"
    return ""


def _largest(array: Array) -> float:
    wide = np.abs(np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _difference(got: Array, want: Array, least: float) -> str:
    if got.size != want.size or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} in place of {want.dtype}{list(want.shape)}"
    got = got.reshape(want.shape)
    if want.dtype.kind in "iub":
        return "" if np.array_equal(got, want) else "other whole numbers"
    limit = _NARROW if want.dtype.itemsize < 4 or want.dtype.name == "bfloat16" else _LIMITS.get(_width(want), 1e-7)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "NaNs or infinities are in other places"
    most = np.abs(a - b)[finite].max(initial=0.0) / max(np.abs(b[finite]).max(initial=0.0), least, 1e-6)
    return "" if most <= limit else f"apart by {most:.3g} of the largest value"


def _width(array: Array) -> int:
    return array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
