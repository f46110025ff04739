"""Branches of torch.cond in a graph: both are captured, the graphs are taken out, and one op chooses between them.

In: a truth value that is traced, the branches, which the machine runs one after the other (`begin`, `between`), and
what they returned. Out: the result, as ops that choose (aot/branch.py), or, in short branches that cannot fail, as both
of them computed and one taken (`where`), with gradients that go through that one alone.
A graph is what the branch recorded, from the values that it read on, whoever handed it these. What was recorded in
between and may fail is taken out of the trace again; the rest is dead.
What a branch writes to memory from outside (a buffer) is one more result of both.
Raises GraphBreak for branches that do more: change objects, hook, write to tensors of the function, or to what has a
history; BranchError for results that do not match. Under vmap, and for a truth value of each example, both are
computed: torch's rule. There only the operands, not what else a branch reads, are shut off from gradients.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

from compiler_core.aot.boundary import is_boundary
from compiler_core.aot.branch import applied, closed, is_selectable, is_total, unpacked
from compiler_core.errors import BranchError, GraphBreak
from compiler_core.forward import level as forward
from compiler_core.graph.ir import Call, Constant, Graph, GraphBuilder, Node
from compiler_core.location import user_location
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.batching.value import held, levels, levels_of
from compiler_core.ops.primitives.convert import DETACH
from compiler_core.ops.primitives.custom_gradient import BEGINS, CUSTOM_GRADIENT, ENDS, HISTORY
from compiler_core.ops.registry import Value, bind, current_trace, meta_of, use_trace
from compiler_core.symbolic.size import symbols_in
from compiler_core.tensor.autograd.taped import depth
from compiler_core.tensor.memory.cell import Cell, ViewCell
from compiler_core.tensor.memory.writing import HistoryCell
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten

MOST_ELEMENTS = 16  # of a constant that a branch's text holds
NOT_HELD = (str, bytes, int, float, complex, type, ModuleType, BuiltinFunctionType, Tensor)  # they hold no state here
MOST_SEEN = 50_000  # objects that a branch may reach


def is_mapped(pred: Tensor) -> bool:
    """Whether there is a truth value for each example (vmap)."""
    return bool(levels_of(pred._cell.raw))


_DOES = (  # what the parts of `Branches._state` say
    "writes to a tensor that is there outside of it",
    "draws random numbers",
    "has hooks",
    "changes what is there outside of it",
    "changes what is there outside of it",
    "takes part in a collective",
)


class Recording:
    """Functions that are captured one after the other, so that their parts of the graph can be taken out.

    part: what each is. starts: where each begins in the trace; notes: what it read; before: how things were.
    """

    part = "a branch"

    def __init__(self, name: str, functions: Sequence[Callable[..., Any]]) -> None:
        self.name, self.functions = name, functions
        self.trace: Any = current_trace()
        self.starts: list[int] = []
        self.notes: list[dict[Node, Tensor]] = []
        self.before: list[Any] = []
        self.held: dict[Cell, Node] = {}  # what memory from outside held before the last of them, if it was written

    def start(self) -> None:
        """One of them is about to be run."""
        if self.trace is not None:
            self._end()
            self.before.append(self._state())
            self.held = dict(self.trace.written)
            self.starts.append(len(self.trace.body))
            self.changes = len(self.trace.journal)
            self.notes.append({})
            self.trace.noted.append(self.notes[-1])

    def _end(self) -> None:
        """The branch that was run has ended."""
        if self.starts:
            self.trace.noted[:] = [notes for notes in self.trace.noted if notes is not self.notes[-1]]
            if self._writes():
                raise self._broken(f"{self.part} {_DOES[0]}")
            for why, before, now in zip(_DOES, self.before[-1], self._state(), strict=True):
                if before != now:
                    raise self._broken(f"{self.part} {why}")

    def drop(self) -> None:
        """Nothing is taken out."""
        self.trace.noted[:] = [notes for notes in self.trace.noted if all(notes is not mine for mine in self.notes)]

    def _writes(self) -> bool:
        """Whether a tensor holds something else that was not made in this branch."""
        own, journal = set(self.trace.body[self.starts[-1] :]), self.trace.journal
        written = [(cell, value) for cell, value in journal.before(self.changes, "raw") if not cell.is_external]
        cells = [value for cell, value in written if not isinstance(cell, ViewCell)]
        moved = [change for change in journal.before(self.changes, "_cell") if not self._is_leaf(*change)]
        cells += [cell.raw for _, cell in moved]
        are_own = all(isinstance(held(value), Node) and held(value) in own for value in cells)
        return not are_own or bool(journal.before(self.changes, "_grad"))

    def _is_leaf(self, handle: Tensor, before: Cell) -> bool:
        """Whether a tensor has become a leaf, by `requires_grad_()`, that the functions do not reach from outside."""
        seen = {part for parts in self.before[-1][-2].values() for part in parts}
        return isinstance(handle._cell, HistoryCell) and handle._cell.base is before and id(handle) not in seen

    def _put_back(self) -> dict[Cell, Node]:
        """What the branch has written to memory from outside, which holds again what it held."""
        now, changed = dict(self.trace.written), {}
        for cell, value in now.items():
            before = self.held.get(cell) or self.trace.read_before(cell)
            if value is not before:
                changed[cell] = value
                cell.write(before)
                if isinstance(cell, ViewCell) or self.trace.history(cell) is not None:
                    raise self._broken(f"{self.part} {_DOES[0]}")
        if not now.keys() >= self.held.keys():
            raise self._broken(f"{self.part} {_DOES[0]}")
        return changed

    def refuse(self, error: Exception) -> None:
        """A branch raises. Raises GraphBreak while that is captured: perhaps the other one is taken."""
        if self.trace is not None:
            raise self._broken(f"{self.part} raises {type(error).__name__}: {error}")

    def _broken(self, why: str) -> GraphBreak:
        return GraphBreak(f"{self.name}: {why}", where=user_location())

    def _state(self) -> tuple[Any, ...]:
        """What a branch may not change."""
        trace = self.trace
        written = tuple((id(cell), id(value)) for cell, value in trace.written.items())
        draws = trace.rng, trace.draws, len(trace.outside_draws)
        told = len(trace.boundaries), len(trace.hooked)
        return written, draws, told, trace.changes(), reached(self.functions), trace.effects

    def _parts(self, columns: Sequence[Sequence[Tensor]]) -> list[Part]:
        """What each recorded. columns: its results. Raises GraphBreak for gradients of its own."""
        ends = [*self.starts[1:], len(self.trace.body)]
        parts = [
            Part(self.trace, set(self.trace.body[start:end]), [held(x._read()) for x in column])
            for start, end, column in zip(self.starts, ends, columns, strict=True)
        ]
        if any(part.is_of_autograd for part in parts):
            raise self._broken(f"{self.part} has a gradient of its own, or hooks")
        return parts

    def _handle(self, node: Node) -> Tensor:
        """What held the value of `node` when a branch read it."""
        for notes in self.notes:
            if node in notes:
                return notes[node]
        if node.dtype.is_inexact and (depth() or forward.on):
            raise self._broken(f"{self.part} reads a value of which it is not known what it was computed from")
        return Tensor._from_cell(Cell(node))

    def _take_out(self, start: int) -> None:
        """What may fail, and what needs it, is no longer in the trace."""
        body = self.trace.body
        gone: set[Node] = set()
        for node in body[start:]:
            if isinstance(node, Call) and (not is_total(node) or not gone.isdisjoint(node.args)):
                gone.add(node)
        body[start:] = [node for node in body[start:] if node not in gone]


class Branches(Recording):
    """Two branches that are captured. See the head of this file."""

    def __init__(
        self, name: str, pred: Tensor, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]
    ) -> None:
        super().__init__(name, functions)
        flat = prims.reshape(pred, ())
        self.pred: Tensor = flat if flat.dtype.kind == "b" else prims.ne(flat, prims.full_like(flat, 0))
        self.operands = operands
        self.is_mapped = bool(levels()) or is_mapped(pred)
        self.changed: list[dict[Cell, Node]] = []  # for each branch: what it leaves there

    def _state(self) -> tuple[Any, ...]:
        """Memory from outside it may write, and numbers of the key draw, unless eager code would draw the same."""
        _, draws, *others = super()._state()
        return {}, draws if self.is_mapped or self.pred.is_cuda else draws[-1], *others

    def _end(self) -> None:
        if self.starts:
            self.changed.append(self._put_back())
            if self.is_mapped and self.changed[-1]:
                raise self._broken(f"{self.part} {_DOES[0]}")
            super()._end()

    def begin(self, number: int) -> tuple[Any, ...]:
        """A branch is about to be run; what it is to be called with."""
        self.start()
        if not self.is_mapped:
            return tuple(self.operands)
        leaves, spec = flatten(tuple(self.operands))
        gated = [self.gated(leaf, number) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return tuple(spec.unflatten(gated))

    def result(self, *found: Any) -> Any:
        """What torch.cond returns. found: what the branches have."""
        if self.trace is not None:
            self._end()
        columns, spec = self._matched(found)
        size = len(columns[0])
        cells = list(dict.fromkeys(cell for changed in self.changed for cell in changed))
        if any(isinstance(x, Tensor) and x._cell.root in cells for column in columns for x in column):
            raise self._broken(f"{self.part} {_DOES[0]}, and returns it")
        for column, changed in zip(columns, self.changed):
            column += [Tensor._from_cell(Cell(changed.get(cell) or self.trace.written[cell])) for cell in cells]
        pairs = list(zip(*columns, strict=True))
        places = [k for k, (a, _) in enumerate(pairs) if isinstance(a, Tensor)]
        chosen = self._choose([[column[k] for k in places] for column in columns]) if places else []
        result = [a for a, _ in pairs]
        for k, value in zip(places, chosen, strict=True):
            result[k] = value
        for cell, value in zip(cells, result[size:], strict=True):
            cell.write(value._read())
        return spec.unflatten(result[:size])

    # ---- checks

    def _matched(self, found: Sequence[Any]) -> tuple[list[list[Any]], Any]:
        """(the leaves of each result, their structure). Raises BranchError if they do not match."""
        (first, spec), (second, other) = (flatten(result) for result in found)
        if spec != other:
            raise BranchError(f"{self.name}: Expected branches to return the same pytree structure.",
                              expected=str(spec), got=str(other))  # fmt: skip
        for a, b in zip(first, second, strict=True):
            if isinstance(a, Tensor) != isinstance(b, Tensor):
                raise BranchError(f"{self.name}: a branch returns a tensor where the other one does not",
                                  got=f"{type(a)}, {type(b)}")  # fmt: skip
            if isinstance(a, Tensor):
                self._match(meta_of(a), meta_of(b))
            elif type(a) is not type(b) or a != b:
                raise self._broken("its result is a number that the branches do not agree on")
        return [first, second], spec

    def _match(self, a: TensorMeta, b: TensorMeta) -> None:
        merging = f"When merging two branches' output in {self.name}, expected same"
        if a.dtype is not b.dtype:
            raise BranchError(f"{merging} dtype but got {a.dtype} and {b.dtype}.")
        if len(a.shape) != len(b.shape):
            raise BranchError(f"{merging} dim but got {len(a.shape)} and {len(b.shape)}.")
        if a.shape != b.shape:
            raise self._broken(f"the shape of its result depends on the truth value: {a.shape} or {b.shape}")

    # ---- the choice

    def gated(self, x: Tensor, number: int) -> Tensor:
        """`x`, with a gradient only if branch `number` is taken."""
        if not (x.dtype.is_inexact and (x.requires_grad or forward.on)):
            return x
        still = x.detach()
        return self.where(x, still) if number == 0 else self.where(still, x)

    def where(self, a: Tensor, b: Tensor) -> Tensor:
        """`a` if it is true, else `b`."""
        shape = tuple(a.shape)
        condition = prims.expand(prims.reshape(self.pred, tuple(1 for _ in shape)), shape)
        return prims.where(condition, a, b)  # type: ignore[no-any-return]

    def _choose(self, columns: list[list[Tensor]]) -> list[Tensor]:
        """One of two tensors each."""
        if self.trace is None:
            return [self.where(a, b) for a, b in zip(*columns, strict=True)]
        parts = self._parts(columns)
        if self.is_mapped:
            if not is_mapped(self.pred) and not all(part.is_total for part in parts):
                raise self._broken("under vmap both branches are computed, and one may fail")
            return [self.where(a, b) for a, b in zip(*columns, strict=True)]
        self._take_out(self.starts[0])
        free = list(dict.fromkeys(node for part in parts for node in part.free))
        handles = [self._handle(node) for node in free]
        if all(part.is_short for part in parts):
            gated = [[self.gated(x, number) for x in handles] for number in (0, 1)]
            found = [part.again(dict(zip(free, given, strict=True))) for part, given in zip(parts, gated, strict=True)]
            return [self.where(a, b) for a, b in zip(*found, strict=True)]
        if any(symbols_in(node.shape) for part in parts for node in (*part.nodes, *free)):
            raise self._broken("its branches work on sizes that change from call to call")
        return self._applied(parts, free, handles, columns[0])

    def _applied(
        self, parts: Sequence[Part], free: list[Node], handles: list[Tensor], like: list[Tensor]
    ) -> list[Tensor]:
        """By one op for each dtype."""
        metas = [meta_of(x) for x in like]
        chosen: list[Any] = [None] * len(metas)
        for dtype in dict.fromkeys(meta.dtype for meta in metas):
            places = [k for k, meta in enumerate(metas) if meta.dtype is dtype]
            texts = [part.text(free, places) for part in parts]
            value = applied(self.pred, handles, *texts)
            for k, one in zip(places, unpacked(value, [metas[k].shape for k in places]), strict=True):
                chosen[k] = one
        return chosen


class Part:
    """What one branch recorded. nodes: what its outputs need; free: of that, what was there before."""

    def __init__(self, trace: Any, own: set[Node], outputs: list[Node]) -> None:
        self.outputs = outputs
        needed: set[Node] = set()
        todo = list(outputs)
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += node.operands if node in own else ()
        self.nodes = [node for node in trace.body if node in needed and node in own]
        small = {node for node in needed if isinstance(node, Constant) and node.meta.numel <= MOST_ELEMENTS}
        self.constants = sorted(small - own, key=lambda node: node.name)
        inside = {*own, *small}
        self.free = [node for node in (*trace.placeholders, *trace.body)
                     if node in needed and node not in inside]  # fmt: skip
        self.calls = [node for node in self.nodes if isinstance(node, Call)]

    @property
    def is_total(self) -> bool:
        return all(map(is_total, self.calls))

    @property
    def is_short(self) -> bool:
        return is_selectable(self._graph(self.nodes, self.outputs))

    @property
    def is_of_autograd(self) -> bool:
        return any(is_boundary(call) or (call.op is CUSTOM_GRADIENT and not _is_within(call)) for call in self.calls)

    def _graph(self, nodes: Sequence[Node], outputs: Sequence[Node]) -> Graph:
        return Graph("branch", tuple(nodes), tuple(outputs))

    def again(self, values: dict[Node, Value]) -> list[Value]:
        """The outputs, computed from others in the place of what is free."""
        found: dict[Node, Value] = dict(values)
        for node in (*self.constants, *self.nodes):
            if isinstance(node, Constant):
                found[node] = node
            elif isinstance(node, Call):
                found[node] = _bound(node, [found[arg] for arg in node.args])
        return [x if hasattr(x, "_cell") else Tensor._from_cell(Cell(x)) for x in (found[out] for out in self.outputs)]

    def text(self, free: Sequence[Node], places: Sequence[int] | None = None) -> str:
        """The graph of the outputs, or of those in some places, from these values."""
        builder = GraphBuilder("branch")
        found: dict[Node, Node] = {node: builder.placeholder(f"x{k}", node.meta) for k, node in enumerate(free)}
        with use_trace(builder):
            for node in (*self.constants, *self.nodes):
                if isinstance(node, Constant):
                    found[node] = builder.constant(node.array)
                elif isinstance(node, Call):
                    found[node] = _bound(node, [found[arg] for arg in node.args])
        chosen = range(len(self.outputs)) if places is None else places
        return closed(builder, *(found[self.outputs[k]] for k in chosen))


def _is_within(call: Call) -> bool:
    """Whether a rule is that of a gradient which the branch itself asks for, of a leaf that it makes."""
    rule, source = call.attrs["rule"], call.args[1]
    return rule in (BEGINS, ENDS) or (rule == HISTORY and isinstance(source, Call) and source.op is DETACH)


def _bound(call: Call, args: Sequence[Value]) -> Value:
    """`call` of other operands. What such a rule is of is told without it."""
    if call.op is CUSTOM_GRADIENT:
        return prims.detach(args[0]) if call.attrs["rule"] == HISTORY else args[0]
    return bind(call.op, *args, **call.attrs)


def reached(functions: Sequence[Callable[..., Any]]) -> Any:
    """What functions reach through their variables, defaults and objects, as it is: for a comparison."""
    seen: dict[int, Any] = {}
    todo: list[Any] = list(functions)
    while todo and len(seen) < MOST_SEEN:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, NOT_HELD) or thing is None:
            continue
        if hasattr(type(thing), "__next__"):
            raise GraphBreak("a function given to torch.cond or while_loop holds an iterator", where=user_location())
        parts = _parts_of(thing)
        seen[id(thing)] = tuple(map(id, parts))
        todo += parts
    if todo:
        raise GraphBreak("a function given to torch.cond or while_loop reaches too many objects", where=user_location())
    return seen


def _parts_of(thing: Any) -> list[Any]:
    """What it holds, asked for without running code of the program's."""
    if isinstance(thing, FunctionType):
        return [*(thing.__closure__ or ()), *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, CellType):
        try:
            return [thing.cell_contents]
        except ValueError:
            return []
    found: list[Any] = []
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
    for kind in kinds:
        found += kind.__iter__(thing) if isinstance(thing, kind) else ()
    if isinstance(thing, dict):
        found += [*dict.keys(thing), *dict.values(thing)]
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return found
    return [*found, own] if type(own) is dict else found
