"""torch.while_loop in a graph: one turn is captured, its two graphs are taken out, and one op repeats them.

In: Tensors that go from turn to turn, and what the machine runs in between (`begin`): the test, then the body. Out: the
Tensors after the last turn (aot/loop.py). Gradients need every turn: where there are any, or under vmap or a transform
(`holds`), Python runs the loop, and the graph ends where it needs the value of the test.
Raises GraphBreak and BranchError as branches do (branching.py), and for a body whose results have a history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.aot.loop import looped, unpacked
from compiler_core.capture.branching import Recording
from compiler_core.forward import level as forward
from compiler_core.graph.ir import Node
from compiler_core.ops.batching.value import levels
from compiler_core.ops.primitives.convert import DETACH
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.symbolic.size import symbols_in
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.autograd.taped import depth
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor


def holds(carried: Sequence[Any]) -> bool:
    """Whether a graph can hold the loop that carries these."""
    if current_trace() is None or levels() or depth() or forward.on:
        return False
    are_plain = all(isinstance(x, Tensor) and not x.is_cuda for x in carried)
    return are_plain and not (is_grad_enabled() and any(x.requires_grad for x in carried))


class Loop(Recording):
    """A loop that is captured. See the head of this file."""

    def __init__(self, functions: Sequence[Callable[..., Any]], carried: Sequence[Tensor]) -> None:
        super().__init__("torch.while_loop", functions)
        self.nodes = [self.trace.bind(DETACH, (x._read(),), {}) for x in carried]
        self.carried = [Tensor._from_cell(Cell(node)) for node in self.nodes]

    def result(self, test: Tensor, made: Sequence[Tensor]) -> list[Tensor]:
        """The Tensors after the last turn. test: what the test gave; made: the body, as carried."""
        self._end()
        if any(x.requires_grad for x in made):
            raise self._broken("its gradient needs what every turn has computed")
        parts = self._parts([[test], list(made)])
        self._take_out(self.starts[0])
        others = [node for node in dict.fromkeys(n for part in parts for n in part.free) if node not in self.nodes]
        free: list[Node] = [*self.nodes, *others]
        if any(symbols_in(node.shape) for part in parts for node in (*part.nodes, *free)):
            raise self._broken("it works on sizes that change from call to call")
        test_text, body_text = parts[0].text(free), parts[1].text(free)
        packed = looped(self.carried, [self._handle(node) for node in others], test_text, body_text)
        return unpacked(packed.detach(), [meta_of(x) for x in self.carried])
