"""torch.while_loop in a graph: one turn is captured, its two graphs are taken out, and one op repeats them.

In: Tensors that go from turn to turn, and what the machine runs in between (`start`): the test, then the body. Out: the
Tensors after the last turn (aot/loop.py), with gradients. Under vmap, and of numbers (`holds`), Python runs the loop,
and the graph ends where it needs the value of the test.
Raises GraphBreak and BranchError as branches do (branching.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.aot.loop import looped
from compiler_core.capture.branching import Recording
from compiler_core.errors import GraphBreak
from compiler_core.forward import level as forward
from compiler_core.graph.ir import Node
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.value import levels
from compiler_core.ops.registry import current_trace
from compiler_core.symbolic.size import symbols_in
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.autograd.taped import depth
from compiler_core.tensor.tensor import Tensor


def holds(carried: Sequence[Any]) -> bool:
    """Whether a graph can hold the loop that carries these."""
    if current_trace() is None or levels():
        return False
    return all(isinstance(x, Tensor) and not x.is_cuda for x in carried)


def check_turned(test: Any) -> None:
    """Raises GraphBreak if a graph cannot hold a loop whose test gives this, and Python cannot run it in a graph."""
    if current_trace() is not None and isinstance(test, Tensor):
        why = "under vmap, each example has a test" if levels() else "it carries a number, or a tensor of a GPU"
        raise GraphBreak(f"torch.while_loop: {why}", where=user_location())


class Loop(Recording):
    """A loop that is captured. See the head of this file. carried: what the turn is to be captured with."""

    part = "a turn"

    def __init__(self, functions: Sequence[Callable[..., Any]], given: Sequence[Tensor]) -> None:
        super().__init__("torch.while_loop", functions)
        self.given = given
        self.carried = [prims.reshape(x, tuple(x.shape)) for x in given]
        self.nodes: list[Node] = [x._read() for x in self.carried]

    def result(self, test: Tensor, made: Sequence[Tensor]) -> list[Tensor]:
        """The Tensors after the last turn. test: what the test gave; made: the body, as carried."""
        self._end()
        parts = self._parts([[test], list(made)])
        self._take_out(self.starts[0])
        others = [node for node in dict.fromkeys(n for part in parts for n in part.free) if node not in self.nodes]
        free: list[Node] = [*self.nodes, *others]
        if any(symbols_in(node.shape) for part in parts for node in (*part.nodes, *free)):
            raise self._broken("it works on sizes that change from call to call")
        texts = [part.text(free) for part in parts]
        requiring = is_grad_enabled() and any(x.requires_grad for x in (*self.given, *made))
        is_recorded = requiring or forward.on or bool(depth())
        return looped(self.given, [self._handle(node) for node in others], *texts, has_gradients=is_recorded)
