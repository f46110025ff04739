"""What a traced function returned, described so that every later call can return the like.

In: the leaves of the traced result. Out: one `Result` each, and the nodes that the graph must return for them.
Aliasing is eager's: an input or parameter returned is that very handle; a view of one is taken anew from it at every
call; results that share memory share it again (one is the base, the others are views of it). What aliases nothing is a
fresh tensor, the common case. Anything else than Tensors and plain values cannot be rebuilt: GraphBreak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.capture.guards import is_plain
from compiler_core.capture.trace import CaptureTrace, Known
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Node
from compiler_core.ops.registry import OPS, Attrs, Op, Value, bind
from compiler_core.tensor.cell import Cell, ViewCell
from compiler_core.tensor.tensor import Size, Tensor

Chain = tuple[tuple[Op, Attrs], ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """A value that does not depend on tensors."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fresh:
    """Output `index` of the graph."""

    index: int


@dataclass(frozen=True, slots=True)
class ViewOf:
    """Output `index` of the graph, seen through `chain`; others see it too."""

    index: int
    chain: Chain


@dataclass(frozen=True, slots=True)
class Existing:
    """Tensor `origin` of those from outside, seen through `chain` (empty: that very handle)."""

    origin: int
    chain: Chain


Result = Plain | Fresh | ViewOf | Existing


@dataclass(frozen=True, slots=True)
class Outputs:
    """One result a leaf, the nodes the graph returns for them, and the tensors from outside that they start from."""

    results: tuple[Result, ...]
    nodes: tuple[Node, ...]
    origins: tuple[Known, ...]


def describe_outputs(leaves: Sequence[Any], trace: CaptureTrace) -> Outputs:
    """How to rebuild `leaves`. Runs under the trace. Raises GraphBreak for what cannot be rebuilt."""
    return _Description(leaves, trace).outputs()


class _Description:
    """The tables that grow while the leaves are looked at one after the other."""

    def __init__(self, leaves: Sequence[Any], trace: CaptureTrace) -> None:
        self.leaves, self.trace = leaves, trace
        self.nodes: dict[int, Value] = {}  # id of a handle or of a root cell -> node
        self.origins: dict[int, Known] = {}  # id of a handle -> tensor from outside
        self.sharers: dict[Cell, set[int]] = {}  # root -> the handles on it that are returned
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                self.sharers.setdefault(leaf._cell.root, set()).add(id(leaf))

    def outputs(self) -> Outputs:
        results = tuple(map(self.result, self.leaves))
        return Outputs(results, tuple(self.nodes.values()), tuple(self.origins.values()))

    def result(self, leaf: Any) -> Result:
        if not isinstance(leaf, Tensor):
            return _plain(leaf)
        root = leaf._cell.root
        if root.is_external:
            return self.existing(leaf)
        if len(self.sharers[root]) == 1:
            return Fresh(self.place(leaf, leaf._read()))
        return ViewOf(self.place(root, root.current()), _chain(leaf._cell))

    def place(self, key: object, node: Value) -> int:
        """The output that returns `node`."""
        self.nodes.setdefault(id(key), node)
        return list(self.nodes).index(id(key))

    def existing(self, leaf: Tensor) -> Existing:
        """A tensor on memory from outside, found by the handles it was viewed through."""
        handle = leaf
        while not handle._cell.is_external:
            assert handle._view is not None
            handle = handle._view.base
        known = self.trace.known(handle, (handle._cell, handle._edge()))
        assert known is not None
        chain = _chain(leaf._cell)
        if not chain and known.handle is not leaf:
            chain = ((OPS["detach"], {}),)  # a new handle on the same memory
        self.origins.setdefault(id(known.handle), known)
        return Existing(list(self.origins).index(id(known.handle)), chain)


def _plain(leaf: Any) -> Plain:
    if is_plain(leaf) or isinstance(leaf, DType | Device | Size | type):
        return Plain(leaf)
    raise GraphBreak(
        f"a compiled function cannot return a {type(leaf).__name__}",
        expected="Tensors and plain values, in tuples, lists, dicts, dataclasses or objects that the function makes",
    )


def _chain(cell: Cell) -> Chain:
    """The view ops that lead to `cell` from what it is a view of: memory from outside, or a root made in the trace."""
    chain: list[tuple[Op, Attrs]] = []
    while isinstance(cell, ViewCell) and not cell.is_external:
        chain.append((cell.op, cell.attrs))
        cell = cell.base
    return tuple(reversed(chain))


def rebuild(result: Result, fresh: Sequence[Tensor], origins: Sequence[Tensor]) -> Any:
    """The leaf for this call. fresh: the graph's outputs. origins: the tensors from outside, in `Outputs.origins`."""
    if isinstance(result, Fresh):
        return fresh[result.index]
    if isinstance(result, Plain):
        return result.value
    tensor: Any = fresh[result.index] if isinstance(result, ViewOf) else origins[result.origin]
    for op, attrs in result.chain:
        tensor = bind(op, tensor, **attrs)
    return tensor
