"""torch.while_loop and long scans in a graph: a turn is captured, its graphs are taken out, and one op repeats them.

In: Tensors that go from turn to turn, and what the machine runs in between (`start`): the test, then the body. Out: the
Tensors after the last turn (aot/loop.py, aot/scan.py), with gradients. Under vmap the turn is that of one example, on
values that stand for its own. Python runs loops that carry numbers (`holds`); the graph ends where it needs the value
of the test.
Raises GraphBreak and BranchError as branches do (branching.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.aot.loop import looped
from compiler_core.aot.scan import scanned_over
from compiler_core.capture.branching import Part, Recording
from compiler_core.errors import GraphBreak
from compiler_core.forward import level as forward
from compiler_core.graph.ir import Node
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched, held, levels
from compiler_core.ops.registry import current_trace
from compiler_core.symbolic.size import symbols_in
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.autograd.taped import depth
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor


def holds(carried: Sequence[Any]) -> bool:
    """Whether a graph can hold the loop that carries these."""
    if current_trace() is None:
        return False
    return all(isinstance(x, Tensor) and not x.is_cuda for x in carried)


def check_turned(test: Any) -> None:
    """Raises GraphBreak if a graph cannot hold a loop whose test gives this, and Python cannot run it in a graph."""
    if current_trace() is not None and isinstance(test, Tensor):
        raise GraphBreak("torch.while_loop: it carries a number, or a tensor of a GPU", where=user_location())


class Loop(Recording):
    """A loop that is captured. See the head of this file. carried: what the turn is to be captured with."""

    part = "a turn"

    def __init__(self, functions: Sequence[Callable[..., Any]], given: Sequence[Tensor]) -> None:
        super().__init__("torch.while_loop", functions)
        self.trace.tell_apart()
        self.given = given
        self.carried = [_alone(x, x.shape) for x in given]
        self.nodes: list[Node] = [x._read() for x in self.carried]

    def _state(self) -> tuple[Any, ...]:
        """Memory from outside that a turn writes goes from turn to turn."""
        _, *others = super()._state()
        return {}, *others

    def _end(self) -> None:
        if self.starts:
            self.changed = self._put_back()
            if self.changed and len(self.starts) == 1:
                raise self._broken("its test writes to a tensor that is there outside of it")
            super()._end()

    def result(self, test: Tensor, made: Sequence[Tensor]) -> list[Tensor]:
        """The Tensors after the last turn. test: what the test gave; made: the body, as carried."""
        self._end()
        if any(type(x._cell.raw) is Batched for x in (test, *made)):
            raise self._broken("its functions enclose what each example of vmap has")
        if levels() and self.changed:
            raise self._broken("a turn writes to a tensor that is there outside of it, under vmap")
        if any(x._cell.root in self.changed for x in made):
            raise self._broken("a turn writes to a tensor that is there outside of it, and hands it on")
        values = [self.trace.written[cell] for cell in self.changed]
        found = self._looped(test, [*made, *map(_held, self.changed.values())], values)
        for cell, value in zip(self.changed, found[len(made) :], strict=True):
            cell.write(value._read())
        return found[: len(made)]

    def _looped(self, test: Tensor, made: Sequence[Tensor], values: Sequence[Node]) -> list[Tensor]:
        """values: of memory from outside, which go from turn to turn too."""
        parts = self._parts([[test], list(made)])
        self._take_out(self.starts[0])
        carried = [*self.nodes, *values]
        others = [node for node in dict.fromkeys(n for part in parts for n in part.free) if node not in carried]
        free: list[Node] = [*carried, *others]
        if any(symbols_in(node.shape) for part in parts for node in (*part.nodes, *free)):
            raise self._broken("it works on sizes that change from call to call")
        texts = [part.text(free) for part in parts]
        requiring = is_grad_enabled() and any(x.requires_grad for x in (*self.given, *made))
        is_recorded = requiring or forward.on or bool(depth())
        begun = [*self.given, *map(_held, values)]
        return looped(begun, [self._handle(node) for node in others], *texts, has_gradients=is_recorded)


def _alone(x: Tensor, shape: Sequence[int]) -> Tensor:
    """What stands for a value of this shape, `x` or what is at a place of it: under vmap, of one example."""
    if levels():
        return _held(prims.full(tuple(shape), 0, x.dtype))
    made: Tensor = prims.reshape(x if len(shape) == x.dim() else x.select(0, 0), tuple(shape))
    return made


def _held(node: Node) -> Tensor:
    return Tensor._from_cell(Cell(node))


class Scan(Recording):
    """A scan of which one turn is captured. turn: what with. begun, xs: Tensors; xs along their first dim."""

    part = "a turn"

    def __init__(self, function: Callable[..., Any], begun: Sequence[Tensor], xs: Sequence[Tensor]) -> None:
        super().__init__("scan", (function,))
        self.begun, self.xs = begun, xs
        self.turn = [_alone(x, x.shape) for x in begun] + [_alone(x, x.shape[1:]) for x in xs]
        self.nodes: list[Node] = [x._read() for x in self.turn]

    def _state(self) -> tuple[Any, ...]:
        """What it writes to memory from outside is put back, and what it draws is drawn again."""
        _, _, *others = super()._state()
        return {}, (), *others

    def result(self, made: Sequence[Tensor], reverse: bool) -> list[Tensor] | None:
        """What the turns hand on, then their results. made: by the one that was captured. None if it does more than
        compute: then each turn stands for itself."""
        drawn = self.trace.draws, len(self.trace.outside_draws)
        does_more = bool(self._put_back()) or drawn != self.drawn
        self._end()
        if any(type(x._cell.raw) is Batched for x in made):
            return None
        part = Part(self.trace, set(self.trace.body[self.starts[0] :]), [held(x._read()) for x in made])
        others = [node for node in part.free if node not in self.nodes]
        sized = any(symbols_in(node.shape) for node in (*part.nodes, *self.nodes, *others))
        self._take_out(self.starts[0])
        if does_more or part.is_of_autograd or sized:
            return None
        requiring = is_grad_enabled() and any(x.requires_grad for x in (*self.begun, *self.xs, *made))
        body = part.text([*self.nodes, *others])
        handles = [self._handle(node) for node in others]
        is_recorded = requiring or forward.on or bool(depth())
        return scanned_over(self.begun, self.xs, handles, body, reverse=reverse, has_gradients=is_recorded)

    def start(self) -> None:
        """A turn is about to be run."""
        self.drawn = self.trace.draws, len(self.trace.outside_draws)
        super().start()
