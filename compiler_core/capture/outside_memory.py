"""Memory from outside, as a trace sees it: which cells it lifts to placeholders, what it writes to them, who changed.

In: reads and writes of cells made before the trace (`tensor.cell.CellTrace`). Out: `lifted` (what each placeholder
reads), `written` (cells that an epilogue writes back), `overlapping` and `rebound`, for guards and effects.
Windows: a cell is lifted and written by itself for as long as it is the only one of its root that is used after a
write, so a graph that writes into `a[:, i]` serves every i. Once another cell of that root is read or written, the
root's value is what the trace keeps (`_join`): each cell is then a chain of view ops from it, and the root is in
`overlapping`: there, offsets and strides are part of what the graph means.
Histories: one placeholder for a cell and a history (a detached handle on a parameter's cell is another value to
differentiation). A value that was written outside of autograd keeps the history that its memory had (`custom_gradient`
with HISTORY). A handle whose history, memory or shape the trace changes is noted in `rebound`, with what it was.
Invariants: nothing outside is changed by the trace itself but stamps and versions, which `leave` puts back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from weakref import ref

from compiler_core.aot.needs import memory_of
from compiler_core.capture.devices import PlacedBuilder
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Node, Placeholder
from compiler_core.location import user_location
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.primitives.custom_gradient import HISTORY
from compiler_core.ops.registry import Array, Value, bind, meta_of, use_trace
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.grad_mode import Inference
from compiler_core.tensor.autograd.inference import check_written
from compiler_core.tensor.autograd.tape import TRACED, Edge, GradNode, is_traced
from compiler_core.tensor.memory import views
from compiler_core.tensor.memory.cell import Cell, ViewCell
from compiler_core.tensor.memory.journal import Journal
from compiler_core.tensor.memory.lent import overlap
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.memory.sized import SizedValue, hide, show
from compiler_core.tensor.tensor import Tensor, ViewLink

MemoryPlace: TypeAlias = "tuple[Shape, str, int, views.Strides]"


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor from outside. role, source: of its placeholder.

    code, argument: the variable of the check function that holds it, and its number among the argument tensors, if it
    comes anew with every call. Otherwise the handle itself is bound.
    """

    handle: Tensor
    role: str
    source: str
    code: str = ""
    argument: int = -1

    @property
    def changes(self) -> bool:
        """Whether it comes anew with every call."""
        return self.argument >= 0

    def now(self, arguments: Sequence[Tensor]) -> Tensor:
        """The tensor in a call with these argument tensors."""
        return self.handle if self.argument < 0 else arguments[self.argument]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A placeholder, the cell it reads, and the tensor (if there is one) that the cell was reached through.

    at_root: the cell is the root of that tensor's. edge: the history that the value has to the trace. None: none, so
    the placeholder takes no gradient, whatever the tensor does.
    """

    placeholder: Placeholder
    cell: Cell
    known: Known | None
    at_root: bool = False
    edge: Edge = None

    @property
    def changes(self) -> bool:
        """Whether it comes anew with every call."""
        return self.known is not None and self.known.argument >= 0

    def now(self, arguments: Sequence[Tensor]) -> Cell:
        """The cell in a call with these argument tensors."""
        return _cell_now(self.known, self.cell, self.at_root, arguments)


@dataclass(frozen=True, slots=True)
class Written:
    """A cell from outside that a call writes, found as that of a `Lifted`. count: how often the traced code does."""

    cell: Cell
    known: Known | None
    at_root: bool
    count: int

    def now(self, arguments: Sequence[Tensor]) -> Cell:
        """The cell in a call with these argument tensors."""
        return _cell_now(self.known, self.cell, self.at_root, arguments)

    def put(self, value: Array, arguments: Sequence[Tensor]) -> None:
        """Write the last of the values; the version rises as if all had been written."""
        cell = self.now(arguments)
        if Inference.in_use:
            check_written(cell)
        cell.write(value)
        cell.counter.version += self.count - 1


@dataclass(frozen=True, slots=True)
class Rebound:
    """What a handle from outside was before the trace gave it another memory, shape or history."""

    handle: Tensor
    cell: Cell
    node: GradNode | None
    view: ViewLink | None
    requires_grad: bool

    def restore(self) -> None:
        """Make the handle that again."""
        handle = self.handle
        handle._cell, handle._node, handle._view = self.cell, self.node, self.view
        handle._requires_grad = self.requires_grad
        rebound(handle)


class OutsideMemory(PlacedBuilder):
    """A graph under construction that reads and writes tensors from outside.

    knows_all: one that it was not told of (`know`) breaks the graph, else it is bound: the same in every call.
    """

    knows_all = False

    def __init__(self, name: str, known: Iterable[Known]) -> None:
        super().__init__(name)
        self.journal = Journal()
        self.outside = Journal()  # what is taken back when the trace is over
        self.by_handle: dict[int, Known] = {}
        self.by_value: dict[tuple[Cell, Edge], Known] = {}
        self.by_cell: dict[Cell, Known] = {}
        self.lifted: dict[tuple[Cell, Edge], Lifted] = {}
        self.written: dict[Cell, Node] = {}
        self.overlapping: dict[Cell, None] = {}  # roots of which several cells were used beside a write
        self.rebound: dict[int, Rebound] = {}
        self.copied: set[Node] = set()  # of these the program has copies, which are the same nodes
        self.told: set[Cell] = set()  # that hold a number which is no value of the graph (`held_numbers.py`)
        self.takes_leaves = True  # that the traced code makes
        self.takes_picked = True  # parts that numbers in tensors select, as copies
        self.wrote_picked = False  # whether one was written, which eager code has as a view, or its source
        self.picked: dict[Cell, list[ref[Cell]]] = {}  # such parts of a storage
        self.leaves: dict[Node, Tensor] = {}  # those, by what their gradient is asked for
        self.stand_ins: dict[Cell, SizedValue] = {}  # cells whose sizes the call decides
        self.lost_sizes = False  # whether another thread has made one of these cells another
        self._writers: dict[Cell, Cell] = {}  # root -> the cell of it that `written` holds
        self._versions: dict[Cell, int] = {}  # counter -> its version before something was written
        self._stamps: dict[Cell, int] = {}  # root -> its stamp before it was written
        self._histories: dict[Cell, tuple[Edge, ...]] = {}  # root -> the histories that its written value has
        for entry in known:
            self.know(entry)

    def know(self, entry: Known) -> None:
        """A tensor from outside that may be read."""
        cell = entry.handle._cell
        self.by_handle.setdefault(id(entry.handle), entry)
        self.by_value.setdefault((cell, entry.handle._edge()), entry)
        self.by_cell.setdefault(cell, entry)

    # -- sizes

    def show_as(self, cell: Cell, stand_in: SizedValue) -> None:
        """Until `leave` the trace sees this in the place of the cell's array."""
        self.stand_ins[cell] = stand_in
        show(cell)

    def _fix_sizes(self, root: Cell) -> None:
        """The sizes of what shows the memory of `root` are constants from here on: views are taken by numbers."""
        for cell, stand_in in self.stand_ins.items():
            if cell.root is root:
                for size in stand_in.shape:
                    int(size)

    # -- reading

    def read_cell(self, cell: Cell, handle: Tensor | None) -> Value:
        """The node that `cell`, made outside, holds at this point of the trace."""
        self._check_told(cell)
        writer = self._writers.get(cell.root)
        if writer is None:
            return self._lift(cell, None if handle is None else handle._edge(), handle).placeholder
        if writer is not cell:
            self._join(cell.root)
        value = self._shown(cell)
        return value if handle is None else self._seen_by(handle, cell, value)

    def _check_told(self, cell: Cell) -> None:
        if cell.root in self.told:
            raise GraphBreak("a step's count is computed with after the step", where=user_location())

    def _shown(self, cell: Cell) -> Value:
        """What a cell of a root that was written shows now."""
        if cell in self.written or not isinstance(cell, ViewCell):
            return self.written[cell]
        return bind(cell.op, self._shown(cell.base), **cell.attrs)

    def _seen_by(self, handle: Tensor, cell: Cell, value: Value) -> Value:
        """A written value with the history that `handle` has: none, that of the writes, or the one from outside."""
        histories = self._histories.get(cell.root, ())
        edge = handle._edge()
        if not meta_of(value).dtype.is_inexact or (edge is not None and any(edge is known for known in histories)):
            return value
        if is_traced(edge):
            return value
        if edge is None:
            return prims.detach(value) if histories else value
        if histories:
            raise GraphBreak("a tensor is written to that has two histories, and is then read", where=user_location())
        value = prims.custom_gradient(value, self._lift(cell, edge, handle).placeholder, rule=HISTORY)
        if cell in self.written:
            self._hold(cell, value, (edge,))
        return value

    def _lift(self, cell: Cell, edge: Edge, handle: Tensor | None) -> Lifted:
        key = (cell, edge)
        if handle is None and key not in self.lifted:  # any will do
            key = next((other for other in self.lifted if other[0] is cell), key)
        if key not in self.lifted:
            known = self.known(handle, key)
            if isinstance(cell.value, MetaValue):
                what = "a tensor of device meta cannot be compiled"
                raise GraphBreak(what, where=user_location(), remedy="give it data first")
            if handle is not None and edge is handle and known is not None and known.handle is not handle:
                what = "a leaf that was made in the graph, on memory from outside, is used there, and seen outside"
                raise GraphBreak(what, where=user_location())
            if cell.root.is_lent:
                self._check_apart(cell, self._writers)
            role, source = ("input", "") if known is None else (known.role, known.source)
            at_root = known is not None and self.outside_cell(known.handle) is not cell
            place = self.check_lifted(cell)
            placeholder = self.placeholder(_short(source), meta_of(cell.current()), role=role, source=source)
            self.devices[placeholder] = place
            self.lifted[key] = Lifted(placeholder, cell, known, at_root, edge)
        return self.lifted[key]

    def tell_apart(self) -> None:
        """What was written to memory from outside is from here on the value of that memory alone."""
        for cell, value in list(self.written.items()):
            self._hold(cell, prims.reshape(value, tuple(value.shape)), self._histories.get(cell.root, ()))

    def read_before(self, cell: Cell) -> Node:
        """What `cell`, made outside, held when the trace began, without a history."""
        return self._lift(cell, None, None).placeholder

    def note_copy(self, node: Value) -> None:
        """The program copied `node`, or the memory that it shows."""
        if isinstance(node, Node):
            self.copied.add(memory_of(node))

    def known(self, handle: Tensor | None, key: tuple[Cell, Edge]) -> Known | None:
        """What is known of a tensor from outside, by the handle itself or by the value or cell that it stands for."""
        if handle is not None and id(handle) in self.by_handle and self.outside_cell(handle) is key[0]:
            return self.by_handle[id(handle)]
        entry = self.by_value.get(key) or self.by_cell.get(key[0])
        if entry is not None or handle is None:
            return entry or self._on_root(key[0])
        if self.knows_all:
            raise GraphBreak("a tensor from outside is read that capture has not seen being reached")
        entry = Known(handle, "input", f"tensor {len(self.lifted)} from outside")
        self.by_handle[id(handle)] = self.by_value[key] = entry
        return entry

    def outside_cell(self, handle: Tensor) -> Cell:
        """The cell that a handle from outside had before the trace."""
        rebound = self.rebound.get(id(handle))
        return handle._cell if rebound is None else rebound.cell

    def _on_root(self, root: Cell) -> Known | None:
        """A known view of `root`."""
        return next((entry for cell, entry in self.by_cell.items() if cell.root is root), None)

    # -- writing

    def write_cell(self, cell: Cell, node: Value) -> None:
        """From here on `cell`, made outside, holds `node`, with the histories that the node has itself."""
        if not isinstance(node, Node):  # an array is what this call gives: the next would give another
            raise GraphBreak("memory from outside is written by what is not captured", where=user_location())
        self._check_told(cell)
        root = cell.root
        if root.is_lent and root not in self._stamps:
            self._check_apart(root, [lift.cell for lift in self.lifted.values()])
        for table, owner, count in ((self._stamps, root, root.stamp), (self._versions, cell.counter, cell.version)):
            if owner not in table:
                self.journal.note_entry(table, owner)
                table[owner] = count
        value = node
        writer = self._writers.get(root)
        if writer is None and not _repeats(cell):
            self.journal.note_entry(self._writers, root)
            writer = self._writers[root] = cell
        if writer is not cell:
            self._join(root)
            while isinstance(cell, ViewCell):
                value = views.scatter(cell.op, self._shown(cell.base), value, cell.attrs)
                cell = cell.base
        self._hold(cell, value, self._histories.get(root, ()))

    def _check_apart(self, cell: Cell, others: Iterable[Cell]) -> None:
        """Raises GraphBreak for lent memory that overlaps that of another root: a write to one would change both."""
        with use_trace(None):  # which may be shown others in the place of these
            meet = any(overlap(cell, other) for other in others)
        if meet:
            raise GraphBreak(
                "two tensors overlap in memory that was lent, and one of them is written to",
                where=user_location(),
                remedy="make one of them of the array, and the other a view of that",
            )

    def _hold(self, cell: Cell, value: Node, histories: tuple[Edge, ...]) -> None:
        self.journal.note_entry(self.written, cell)
        self.journal.note_entry(self._histories, cell.root)
        self.written[cell], self._histories[cell.root] = value, histories

    def _join(self, root: Cell) -> None:
        """From here on the value of the root is what the trace keeps of this memory."""
        self._fix_sizes(root)
        if root not in self.overlapping:
            self.journal.note_entry(self.overlapping, root)
            self.overlapping[root] = None
        writer = self._writers.get(root)
        if writer is root:
            return
        value: Value = self._lift(root, None, None).placeholder
        for table in (self._writers, self.written):
            self.journal.note_entry(table, root)
        self._writers[root], self.written[root] = root, value
        if writer is not None:
            self.journal.note_entry(self.written, writer)
            new = self.written.pop(writer)
            while isinstance(writer, ViewCell):
                new = views.scatter(writer.op, bind_chain(writer.base, value), new, writer.attrs)
                writer = writer.base
            self.written[root] = new

    # -- writes outside of autograd

    def history(self, cell: Cell) -> Node | None:
        """What the gradient of a reader of `cell`'s memory depends on now, of memory that has a history; else None."""
        root = cell.root
        if self._histories.get(root):
            return self.written[self._writers[root]]
        found = [lift for (c, edge), lift in self.lifted.items() if c.root is root and edge is not None]
        if len(found) > 1 or any(lift.cell is not self._writers.get(root, cell) for lift in found):
            raise GraphBreak(
                "memory from outside that has two histories is written to outside of autograd", where=user_location()
            )
        return found[0].placeholder if found else None

    def keep_history(self, cell: Cell, before: Node) -> None:
        """`cell` was written outside of autograd: its readers depend on `before` (see `history`) as they did."""
        root = cell.root
        writer = self._writers[root]
        if self.written[writer].meta != before.meta:
            raise GraphBreak("a view of a tensor with a history is written to beside it", where=user_location())
        histories = self._histories.get(root) or tuple(
            edge for (c, edge) in self.lifted if c is writer and edge is not None
        )
        self._hold(writer, prims.custom_gradient(self.written[writer], before, rule=HISTORY), histories)

    # -- handles

    def takes_leaf(self, handle: Tensor) -> bool:
        """Whether a tensor that now requires a gradient was made in the trace, which can take it."""
        return self.takes_leaves and id(handle) not in self.by_handle

    def note_leaf(self, handle: Tensor, node: Node) -> None:
        """The gradient of a leaf that was made in the trace is that of `node`."""
        self.leaves[node] = handle

    def note_rebinding(self, handle: Tensor) -> None:
        """A handle from outside is about to get another memory, shape or history, which it has after the graph too."""
        if id(handle) not in self.rebound and id(handle) in self.by_handle:
            self.journal.note_entry(self.rebound, id(handle))
            self.rebound[id(handle)] = Rebound(handle, handle._cell, handle._node, handle._view, handle._requires_grad)

    def note_move(self, handle: Tensor) -> None:
        """As `note_rebinding`, of another memory or shape. Raises GraphBreak where a history was written to it, too."""
        if any(map(is_traced, self._histories.get(handle._cell.root, ()))):
            raise _moved_and_recorded()
        self.note_rebinding(handle)

    def note_recorded_write(self, handle: Tensor) -> None:
        """A value with a history was written to `handle`, from outside, whose history is now that of the value."""
        root = handle._cell.root
        if handle._cell is not self._writers[root] or id(handle) not in self.by_handle:
            raise GraphBreak(
                "a value with a gradient is written through a view of a tensor that was not given",
                where=user_location(),
                remedy="pass the tensor itself to the compiled function",
            )
        if any(r.cell.root is root and r.handle._cell is not r.cell for r in self.rebound.values()):
            raise _moved_and_recorded()
        self.note_rebinding(handle)
        self._hold(handle._cell, self.written[handle._cell], (TRACED,))

    def has_changed(self, handle: Tensor) -> bool:
        """Whether a tensor from outside is no longer what it was when the trace began."""
        return id(handle) in self.rebound or handle._cell.root in self._stamps

    def is_frozen_anew(self, handle: Tensor) -> bool:
        """Whether a tensor from outside has begun, or ceased, to require a gradient."""
        before = self.rebound.get(id(handle))
        return before is not None and before.requires_grad is not handle._requires_grad

    # -- the end

    def write_backs(self) -> tuple[Written, ...]:
        """What is to be written when the graph has run, in the order of `written`. To be asked before `leave`."""
        return tuple(self._write_back(cell) for cell in self.written)

    def _write_back(self, cell: Cell) -> Written:
        known = self.known(None, (cell, None))
        at_root = known is not None and self.outside_cell(known.handle) is not cell
        counter = cell.counter
        return Written(cell, known, at_root, counter.version - self._versions.get(counter, counter.version))

    def places(self) -> list[tuple[Known, MemoryPlace]]:
        """The known tensors on memory of which several cells are used beside a write, and where they must lie in it."""
        found = [(known, self.outside_cell(known.handle)) for known in self.by_handle.values()]
        return [(known, memory_place(cell)) for known, cell in found if cell.root in self.overlapping]

    def leave(self) -> None:
        """The trace is over: versions and handles, and what views from outside made of them, are as they were."""
        self.outside.rewind(0)
        shown, self.stand_ins = list(self.stand_ins), {}
        self.lost_sizes |= bool(hide(shown))
        for before in self.rebound.values():
            before.restore()
        for counter, version in self._versions.items():
            counter.version = version
        for root, stamp in self._stamps.items():
            root.stamp = stamp


def memory_place(cell: Cell) -> MemoryPlace:
    """Where a cell lies in its root: the root's shape and dtype, its offset there and its strides, in elements."""
    root = cell.root.value
    return tuple(root.shape), str(root.dtype), cell.offset(), cell.strides()


def _moved_and_recorded() -> GraphBreak:
    return GraphBreak(
        "a tensor from outside gets another shape or memory, and a value with a gradient", where=user_location()
    )


def _cell_now(known: Known | None, cell: Cell, at_root: bool, arguments: Sequence[Tensor]) -> Cell:
    if known is None or known.argument < 0:
        return cell
    found = known.now(arguments)._cell
    return found.root if at_root else found


def bind_chain(cell: Cell, root_value: Value) -> Value:
    """What `cell` shows if its root holds `root_value`."""
    return bind(cell.op, bind_chain(cell.base, root_value), **cell.attrs) if isinstance(cell, ViewCell) else root_value


def _repeats(cell: Cell) -> bool:
    """Whether several elements of `cell` are one memory location; a write then raises, which a scatter does."""
    return any(step == 0 and size > 1 for size, step in zip(cell.value.shape, cell.strides()))


def _short(source: str) -> str:
    """A name for a placeholder: `self.l1.weight` -> `l1_weight`, `args[0]` -> `arg0`, `args[1]['x']` -> `arg1_x`."""
    tail = source.removeprefix("self.").removeprefix("kwargs").replace("args[", "arg")
    return "_".join("".join(c if c.isalnum() else " " for c in tail).split()) or "outer"
