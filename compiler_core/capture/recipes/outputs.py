"""What a traced function returned, described so that every later call can return the like.

In: the leaves of the traced result. Out: one `Result` each, and the nodes that the graph must return for them.
Aliasing is eager's: an input or parameter returned is that very handle; a view of one is taken anew from it at every
call; results that share memory share it again (one is the base, the others are views of it). What aliases nothing is a
fresh tensor, the common case. Anything else than Tensors and plain values cannot be rebuilt: GraphBreak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from compiler_core.capture.compiled.kept import KeptTensor
from compiler_core.capture.differentiating import flowing, requiring, spent_among
from compiler_core.capture.guards.guards import is_plain
from compiler_core.capture.numbers.selections import SelectionCell
from compiler_core.capture.outside_memory import Known, Rebound
from compiler_core.capture.recipes.rebinding import RESULT, Rebinding, stand_in, what_changed
from compiler_core.capture.trace import CaptureTrace
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Call, Node
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched, held
from compiler_core.ops.registry import OPS, Attrs, Op, Value, bind
from compiler_core.records import dataclass
from compiler_core.symbolic.size import SizeSymbol, at_sizes, symbols_in
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.autograd.tape import SpentNode
from compiler_core.tensor.memory.cell import Cell, DataCell, ViewCell
from compiler_core.tensor.tensor import Size, Tensor

Keep = Callable[[Known], KeptTensor]
Chain = tuple[tuple[Op | None, Attrs], ...]  # None: `.data`


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
    """Output `index` of the graph, seen through `chain`; others see it too. own: the output whose history it has."""

    index: int
    chain: Chain
    own: int | None = None


@dataclass(frozen=True, slots=True)
class Existing:
    """Tensor `origin` of those from outside, seen through `chain` (empty: that very handle).

    history: if it has one. own: the output of the graph whose history it has.
    """

    origin: int
    chain: Chain
    history: bool = True
    own: int | None = None


@dataclass(frozen=True, slots=True)
class Selected:
    """What output `mask` of the graph selects of output `value`."""

    value: int
    mask: int


DETACHED: Chain = ((OPS["detach"], {}),)


@dataclass(frozen=True, slots=True)
class Leaf:
    """What `result` is, as a leaf that requires a gradient."""

    result: Fresh | ViewOf | Existing


@dataclass(frozen=True, slots=True)
class Spent:
    """What `result` is, with a history whose saved values a backward in the graph has freed. of: that graph."""

    result: Fresh | ViewOf
    of: str = field(compare=False, repr=False)


class LeafEscapes(GraphBreak):
    """Others see what only a graph knows of: a leaf that it makes."""


Result = Plain | Fresh | ViewOf | Existing | Leaf | Selected | Spent


@dataclass(frozen=True, slots=True)
class Outputs:
    """One result a leaf, the nodes the graph returns for them, and the tensors from outside that they start from.

    rebindings: of handles from outside, which may need nodes too.
    """

    results: tuple[Result, ...]
    nodes: tuple[Node, ...]
    origins: tuple[KeptTensor, ...]
    rebindings: tuple[Rebinding, ...] = ()

    @property
    def symbols(self) -> set[SizeSymbol]:
        """The sizes that views are taken by."""
        chains = [chain for result in self._described() if result is not None for chain in _chains(result)]
        return {s for chain in chains for _, attrs in chain for s in symbols_in(tuple(attrs.values()))}

    def at(self, numbers: Mapping[SizeSymbol, int], nodes: Sequence[Node]) -> Outputs:
        """The same for these sizes. nodes: what the graph of these returns, and more after it."""
        return replace(
            self,
            results=tuple(_at(result, numbers) for result in self.results),
            nodes=tuple(nodes[: len(self.nodes)]),
            rebindings=tuple(replace(r, result=r.result and _at(r.result, numbers)) for r in self.rebindings),
        )

    def _described(self) -> list[Result | None]:
        return [*self.results, *(rebinding.result for rebinding in self.rebindings)]

    def prepare(self, arguments: Sequence[Tensor]) -> None:
        """Before the graph runs: what becomes a leaf in it that requires a gradient is one already when it is used."""
        for rebinding in self.rebindings:
            if rebinding.requires_grad and rebinding.history != RESULT:
                rebinding.known.now(arguments)._requires_grad = True

    def tensors(self, fresh: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Any]:
        """The leaves for this call, whose writes are done; and handles from outside are made what they become.

        What a handle that moves becomes is taken from a stand-in, which keeps what the handle was.
        """
        origins = [known.now(arguments) for known in self.origins]
        if not self.rebindings:
            return [rebuild(result, fresh, origins) for result in self.results]
        moved = [rebinding.known.now(arguments) for rebinding in self.rebindings if rebinding.moves]
        stand_ins = [stand_in(t) if any(t is other for other in moved) else t for t in origins]
        targets = [r.result and rebuild(r.result, fresh, stand_ins) for r in self.rebindings]
        pairs = list(zip(self.rebindings, targets))
        for rebinding, target in pairs:
            if not rebinding.moves and rebinding.history == RESULT:
                rebinding.apply(target, arguments)
        leaves = [rebuild(result, fresh, origins) for result in self.results]
        for rebinding, target in pairs:
            if rebinding.moves or rebinding.history != RESULT:
                rebinding.apply(target, arguments)
        return leaves


def describe_outputs(leaves: Sequence[Any], trace: CaptureTrace, keep: Keep) -> Outputs:
    """How to rebuild `leaves`. Runs under the trace. Raises GraphBreak for what cannot be rebuilt."""
    return _Description(leaves, trace, keep).outputs()


class _Description:
    """The tables that grow while the leaves are looked at one after the other."""

    def __init__(self, leaves: Sequence[Any], trace: CaptureTrace, keep: Keep) -> None:
        self.leaves, self.trace, self.keep_tensor = leaves, trace, keep
        self.nodes: list[Value] = []
        self.places: dict[int, int] = {}  # id of a handle or of a root cell -> which of the nodes is its
        self.keep: list[object] = []  # what `places` names by id
        self.origins: list[Known] = []  # tensors from outside
        self.origin_places: dict[int, int] = {}  # id of a handle -> which of these it is
        self.sharers: dict[Cell, set[int]] = {}  # root -> the handles on it that are returned
        self.owners: dict[Cell, Tensor] = {}  # root -> the one of these that is the output itself
        self.spent = spent_among(trace)
        self.inward = self.seen_inward() if trace.leaves else set()
        moved = [before.handle for before in trace.rebound.values() if what_changed(before)[0]]
        for leaf in (*leaves, *moved):
            if isinstance(leaf, Tensor):
                self.sharers.setdefault(leaf._cell.root, set()).add(id(leaf))
                if leaf._cell is leaf._cell.root and leaf._edge() is not None:
                    self.owners.setdefault(leaf._cell, leaf)

    def seen_inward(self) -> set[Node]:
        """What has a history that somebody can tell ends in a leaf which the graph makes: it has no other, or others
        have the leaf."""
        calls = [node for node in self.trace.body if isinstance(node, Call)]
        found = flowing(calls, {*self.trace.leaves})
        is_kept = any(leaf is own for own in self.trace.leaves.values() for leaf in self.leaves)
        return found if is_kept else found - requiring(calls, self.trace)

    def outputs(self) -> Outputs:
        results = tuple(map(self.result, self.leaves))
        rebindings = tuple(map(self.rebinding, self.trace.rebound.values()))
        return Outputs(results, tuple(self.nodes), tuple(map(self.keep_tensor, self.origins)), rebindings)

    def result(self, leaf: Any) -> Result:
        if not isinstance(leaf, Tensor):
            return _plain(leaf)
        known = self.trace.by_handle.get(id(leaf))
        if known is not None:
            return Existing(self.origin(known), ())
        if type(leaf._cell) is SelectionCell:
            full, mask = leaf._cell.full, leaf._cell.mask
            return Selected(self.place(full, full._read()), self.place(mask, mask._read()))
        shown = self.shown(leaf)
        if leaf._node is None and leaf._requires_grad:
            if leaf._grad is not None and any(leaf is own for own in self.trace.leaves.values()):
                raise LeafEscapes("a leaf that the graph makes is kept, with its gradient")
            return Leaf(shown)
        return shown if isinstance(shown, Existing) else self.spent_or_not(shown, leaf)

    def spent_or_not(self, shown: Fresh | ViewOf, leaf: Tensor) -> Fresh | ViewOf | Spent:
        """How a tensor with its history is made."""
        is_spent = bool(self.spent) and leaf._edge() is not None and held(leaf._read()) in self.spent
        if not is_spent and leaf._edge() is not None and held(leaf._read()) in self.inward:
            raise LeafEscapes("a result has a history that ends in a leaf which the graph makes")
        return Spent(shown, self.trace.name) if is_spent else shown

    def shown(self, tensor: Tensor) -> Fresh | ViewOf | Existing:
        """A tensor by the memory that it shows."""
        root = tensor._cell.root
        if type(tensor._cell.raw) is Batched:  # its level has ended: nobody can see what it shares memory with
            return Fresh(self.place(tensor, held(tensor._read())))
        if not root.is_external and len(self.sharers[root]) == 1:
            return Fresh(self.place(tensor, tensor._read()))
        seen = self.existing(tensor) if root.is_external else self.view_of(root, tensor)
        return replace(seen, own=self.place(tensor, tensor._read())) if self.is_hooked(tensor._cell) else seen

    def view_of(self, root: Cell, tensor: Tensor) -> ViewOf:
        """One of several tensors on memory that the graph makes."""
        chain = _chain(tensor._cell)
        if not chain and self.owners.setdefault(root, tensor) is not tensor:
            chain = DETACHED  # another handle on the same memory
        return ViewOf(self.place(root, root.current()), chain + _without_history(tensor))

    def is_hooked(self, cell: Cell) -> bool:
        """Whether hooks are on a view on the way to `cell`: one that is taken anew would know nothing of them."""
        while isinstance(cell, ViewCell) and not cell.is_external:
            if cell.raw in self.trace.hooked:
                return True
            cell = cell.base
        return False

    def rebinding(self, before: Rebound) -> Rebinding:
        """What becomes of a handle from outside that the trace has given another memory, shape or history."""
        handle = before.handle
        moves, history = what_changed(before)
        result: Result | None = None
        if moves:
            result = self.shown(handle if history == RESULT else handle.detach())
        elif history == RESULT:
            result = self.spent_or_not(Fresh(self.place(handle, handle._read())), handle)
        known = self.keep_tensor(self.trace.by_handle[id(handle)])
        return Rebinding(known, result, moves, history, handle._view is not None, handle._requires_grad)

    def place(self, key: object, node: Value) -> int:
        """The output that returns `node`."""
        place = self.places.setdefault(id(key), len(self.nodes))
        if place == len(self.nodes):
            self.keep.append(key)
            self.nodes.append(prims.detach(node) if node in self.spent else node)
        return place

    def origin(self, known: Known) -> int:
        """The place of a tensor from outside among the origins."""
        place = self.origin_places.setdefault(id(known.handle), len(self.origins))
        if place == len(self.origins):
            self.origins.append(known)
        return place

    def existing(self, leaf: Tensor) -> Existing:
        """A tensor on memory from outside, found by the handles it was viewed through, or by the memory alone."""
        handle = leaf
        while not handle._cell.is_external and handle._view is not None:
            handle = handle._view.base
        cell = leaf._cell
        while isinstance(cell, ViewCell) and not cell.is_external:
            cell = cell.base
        known = self.trace.known(handle if handle._cell is cell else None, (cell, handle._edge()))
        if known is None or self.trace.outside_cell(known.handle) is not cell:
            raise GraphBreak("a tensor is kept on memory from outside that no known tensor shows")
        chain = _chain(leaf._cell) or DETACHED  # at least a new handle on the same memory
        return Existing(self.origin(known), chain + _without_history(leaf), leaf._edge() is not None)


def _plain(leaf: Any) -> Plain:
    if is_plain(leaf) or isinstance(leaf, DType | Device | Size | type):
        return Plain(leaf)
    raise GraphBreak(
        f"a compiled function cannot return a {type(leaf).__name__}",
        expected="Tensors and plain values, in tuples, lists, dicts, dataclasses or objects that the function makes",
    )


def _without_history(leaf: Tensor) -> Chain:
    """A step more for a view that was taken without gradients from a tensor that takes them."""
    if leaf._view is None or leaf._edge() is not None:
        return ()
    base: Tensor | None = leaf._view.base
    while base is not None and base._edge() is None:
        base = None if base._view is None else base._view.base
    return () if base is None or _detaches(leaf._cell) else DETACHED


def _detaches(cell: Cell) -> bool:
    """Whether the last step to `cell` is a detach, so that nothing above takes gradients."""
    return isinstance(cell, ViewCell) and cell.op.name == "detach"


def _chain(cell: Cell) -> Chain:
    """The view ops that lead to `cell` from what it is a view of: memory from outside, or a root made in the trace."""
    chain: list[tuple[Op | None, Attrs]] = []
    while isinstance(cell, ViewCell) and not cell.is_external:
        chain.append((None if isinstance(cell, DataCell) else cell.op, cell.attrs))
        cell = cell.base
    return tuple(reversed(chain))


def _chains(result: Result) -> list[Chain]:
    if isinstance(result, Leaf | Spent):
        return _chains(result.result)
    return [result.chain] if isinstance(result, ViewOf | Existing) else []


def _at(result: Result, numbers: Mapping[SizeSymbol, int]) -> Result:
    """The result for these sizes."""
    if isinstance(result, Leaf):
        return Leaf(_shown_at(result.result, numbers))
    if isinstance(result, Spent):
        shown = _shown_at(result.result, numbers)
        assert not isinstance(shown, Existing)
        return replace(result, result=shown)
    return _shown_at(result, numbers) if isinstance(result, Fresh | ViewOf | Existing) else result


def _shown_at(result: Fresh | ViewOf | Existing, numbers: Mapping[SizeSymbol, int]) -> Fresh | ViewOf | Existing:
    if isinstance(result, Fresh):
        return result
    chain = tuple((op, {key: at_sizes(value, numbers) for key, value in attrs.items()}) for op, attrs in result.chain)
    return replace(result, chain=chain)


def rebuild(result: Result, fresh: Sequence[Tensor], origins: Sequence[Tensor]) -> Any:
    """The leaf for this call. fresh: the graph's outputs. origins: the tensors from outside, in `Outputs.origins`."""
    tensor: Any
    if isinstance(result, Fresh):
        return fresh[result.index]
    if isinstance(result, Plain):
        return result.value
    if isinstance(result, Selected):
        with enable_grad():  # the graph says itself what is detached
            return fresh[result.value][fresh[result.mask]]
    if isinstance(result, Leaf):
        return rebuild(result.result, fresh, origins).detach()._require()
    if isinstance(result, Spent):
        tensor = rebuild(result.result, fresh, origins)
        tensor._node = SpentNode(result.of)
        return tensor
    if isinstance(result, ViewOf):
        tensor = fresh[result.index]
    else:
        tensor = origins[result.origin]
    for op, attrs in result.chain:
        tensor = tensor.data if op is None else bind(op, tensor, **attrs)
    if isinstance(result, Existing) and result.chain and not result.history and tensor.requires_grad:
        return tensor.detach()  # the handle that it is a view of had none at that point
    if result.own is not None:
        tensor._node = fresh[result.own]._node
    return tensor
