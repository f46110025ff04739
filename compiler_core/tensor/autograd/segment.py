"""A segment of the tape that is thrown away and computed again when the backward reaches it.

In: a function that records, called once. Out: its result, whose history is one tape node in place of all that the call
made, so what these saved is freed at once. In backward the node runs the function again and pulls gradients through
that second recording, down to the edges (parameters, results of earlier operations) at which the segment begins.
Invariants: an edge of the segment is older than the call, or a leaf; gradients reach it through this node alone, so its
hooks run once, in the outer pass. Tensors that are given to the function, or written to by it, show the second run the
values and the history that they had before the first.
Method: Chen et al. 2016. What torch does with hooks on saved tensors is here done to the recording as a whole.
Limit: while the function runs, its whole recording exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from compiler_core.aot.strategy import HANDLED
from compiler_core.errors import AutogradError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.autograd.engine import Backward
from compiler_core.tensor.autograd.grad_mode import enable_grad, thread_mode
from compiler_core.tensor.autograd.tape import Edge, FunctionNode, GradNode, OpNode, OutputNode, tape_position
from compiler_core.tensor.memory.cell import Cell, cell_of
from compiler_core.tensor.tensor import Tensor

Trail = list[tuple[str, TensorMeta | None]]  # what was recorded: of each node its name, and the meta of its output
Run = Callable[[], Iterable[Tensor]]


class RecomputationError(AutogradError):
    """The second run of a checkpointed function did not do what the first one did."""


def record_segment(run: Run, rerun: Run, *, check: bool) -> None:
    """Call `run`, which gives the tensors that came out of it or may have changed, and make its recording one node.

    rerun: the same again, as things stood before. check: compare what the two recorded (RecomputationError).
    """
    start = tape_position()
    ends = _ends(run(), start)
    edges, trail = _survey(ends, start)
    if not edges:
        return

    def backward(grads: Sequence[Any]) -> Sequence[Any]:
        return _pull_back(rerun, grads, edges, trail if check else None)

    node = FunctionNode("Checkpoint", edges, len(ends), backward, raw=False)
    for index, end in enumerate(ends):
        end._node, end._view = OutputNode(node, index, meta_of(end)), None


def frozen(tensor: Tensor) -> Callable[[], Tensor]:
    """Gives again what `tensor` is now. A leaf with a gradient is given itself: it may not be written to meanwhile."""
    edge, value, version = tensor._edge(), tensor._read(), tensor._cell.version

    def thaw() -> Tensor:
        if not isinstance(edge, Tensor):
            return Tensor._from_cell(cell_of(value), edge)
        if tensor._cell.version != version:
            raise RecomputationError(
                "an argument of a checkpointed function was changed in place before the backward",
                expected=f"version {version}", got=f"version {tensor._cell.version} of {meta_of(tensor)}",
            )  # fmt: skip
        return tensor

    return thaw


def _ends(results: Iterable[Tensor], start: int) -> list[Tensor]:
    """Those with a history made since `start`. Views of older tensors are left alone: nothing was saved for them."""
    found: dict[int, Tensor] = {}
    for result in results:
        edge, root = result._edge(), result
        while root._view is not None:
            root = root._view.base
        older = root is not result and not _is_since(root._edge(), start) and root.requires_grad
        if _is_since(edge, start) and not older:
            found[id(result)] = result
    return list(found.values())


def _is_since(edge: Edge, start: int) -> bool:
    return isinstance(edge, GradNode) and edge.seq > start


def _survey(ends: Sequence[Tensor], start: int) -> tuple[tuple[Edge, ...], Trail]:
    """The edges at which the recording behind `ends` begins, and what was recorded."""
    borders: dict[Edge, None] = {}
    seen: set[GradNode] = set()
    todo = [end._node for end in ends]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for edge in node.edges:
            if isinstance(edge, GradNode) and edge.seq > start:
                todo.append(edge)
            elif edge is not None:
                borders[edge] = None
    return tuple(borders), [_mark(node) for node in sorted(seen, key=lambda node: node.seq)]


def _mark(node: GradNode) -> tuple[str, TensorMeta | None]:
    made = isinstance(node, OpNode) and isinstance(node.out, Cell)
    return node.name(), meta_of(node.out.raw) if made else None  # type: ignore[attr-defined]


def _pull_back(rerun: Run, grads: Sequence[Any], edges: Sequence[Edge], trail: Trail | None) -> list[Any]:
    """Run again; the gradients of `edges` from those of the ends."""
    create_graph = thread_mode.enabled
    start = tape_position()
    with enable_grad():
        ends = _ends(rerun(), start)
    _, again = _survey(ends, start)
    if trail is not None:
        _compare(trail, again)
    if len(ends) != len(grads):
        raise RecomputationError("a checkpointed function gave other results when it was computed again",
                                 expected=f"{len(grads)} with a gradient", got=str(len(ends)))  # fmt: skip
    run = _SegmentPass(start, create_graph)
    run.run([(end._edge(), grad) for end, grad in zip(ends, grads) if grad is not None])
    if not run.reached.keys() <= set(edges):
        raise RecomputationError(
            "a checkpointed function made a leaf of its own, or used other tensors when it was computed again",
            remedy="make leaves that require a gradient outside of it",
        )
    return [run.reached.get(edge) for edge in edges]


def _compare(first: Trail, second: Trail) -> None:
    """Raises RecomputationError at the first difference, in torch's words."""
    if len(first) != len(second):
        raise RecomputationError(
            "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
            "recomputation.", expected=f"{len(first)} recorded operations", got=str(len(second)),
        )  # fmt: skip
    for place, (old, new) in enumerate(zip(first, second)):
        if old != new:
            raise RecomputationError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass: operation {place}",
                expected=f"{old[0]}: {old[1]}", got=f"{new[0]}: {new[1]}",
            )  # fmt: skip


class _SegmentPass(Backward):
    """A pass that stops at what is older than `start`, and at leaves; hooks of these are the outer pass's to run."""

    reaches_all = False

    def __init__(self, start: int, create_graph: bool) -> None:
        super().__init__(retain_graph=create_graph, create_graph=create_graph, is_part=True)
        self.start = start
        self.reached: dict[Edge, Any] = {}

    def _plan(self, roots: Sequence[Edge]) -> list[GradNode]:
        todo = [edge for edge in roots if isinstance(edge, GradNode)]
        while todo:
            node = todo.pop()
            if node not in self.active:
                self.active.add(node)
                todo.extend(e for e in node.edges if isinstance(e, GradNode) and e.seq > self.start)
        return sorted(self.active, key=lambda node: node.seq, reverse=True)

    def _deliver(self, edge: Edge, grad: Any) -> None:
        if edge is None or grad is None:
            return
        if isinstance(edge, GradNode) and edge.seq > self.start:
            self._accumulate(edge, grad)
            return
        before = self.reached.get(edge)
        if before is not None and (before is HANDLED or grad is HANDLED):
            raise RecomputationError("a compiled DistributedDataParallel module, and its parameters, in one checkpoint",
                                     remedy="checkpoint inside the module")  # fmt: skip
        self.reached[edge] = grad if before is None else prims.add(before, grad)


def backward_within(results: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
    """Accumulate gradients into the leaves behind `results`, as a part of the pass that runs."""
    run = Backward(retain_graph=False, create_graph=False, is_part=True)
    run.run([(result._edge(), grad._read()) for result, grad in zip(results, grads)])
