"""torch.autograd.graph: nodes of the graph, hooks on them and on what they save.

In: Tensors with a history. Out: torch's names. Nodes are compiler_core/tensor/nodes/node.py, what is saved saving.py.
A compiled call is one node, and what it keeps for its backward is packed too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from compiler_core.device import copy_of
from compiler_core.errors import AutogradError
from compiler_core.tensor.autograd.engine import running_backwards
from compiler_core.tensor.autograd.tape import Edge
from compiler_core.tensor.nodes.edges import GradientEdge
from compiler_core.tensor.nodes.node import Node, gradient_edge_of
from compiler_core.tensor.nodes.saving import disable_saved_tensors_hooks, saved_tensors_hooks
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, MutationContextError

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

get_gradient_edge = gradient_edge_of


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Say of one tensor, or of each of several, that its memory was written: who saved it finds that it has changed."""
    for one in (tensor,) if isinstance(tensor, Tensor) else tensor:
        one._cell.touch()


class save_on_cpu(saved_tensors_hooks):
    """Inside, what is saved for backward lies in the host's memory until it is needed.

    pin_memory: there in page-locked memory, if there is a device. device_type: of the devices that it is saved from.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            there = tensor.device
            kept: Tensor = tensor.detach().cpu()
            return there, kept.pin_memory() if pin_memory and there.is_gpu else kept

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            there, kept = packed
            return kept.to(there, non_blocking=pin_memory)

        super().__init__(pack, unpack)


class _MutationContext:
    """What `allow_mutation_on_saved_tensors` gives: whether its block has ended."""

    ended = False

    def clear(self) -> None:
        """From now on nothing that was saved in the block is to be had."""
        self.ended = True


_allowing = threading.local()


@contextmanager
def allow_mutation_on_saved_tensors() -> Generator[_MutationContext]:
    """Inside, tensors that were saved for backward may be written to: the values that they had are what counts.

    The backward must run in the block, too.
    """
    if getattr(_allowing, "on", False):
        raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _MutationContext()

    def pack(tensor: Tensor) -> Tensor:
        return Tensor._wrap(copy_of(tensor._own_array("saving")))

    def unpack(kept: Tensor) -> Tensor:
        if context.ended:
            raise MutationContextError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return kept

    _allowing.on = True
    try:
        with saved_tensors_hooks(pack, unpack):
            yield context
    finally:
        _allowing.on = False
        context.clear()


class _Handles:
    """Several handles as one."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Take all of them away."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _Handles:
    """Call `fn` once in each backward pass.

    mode "all": when the gradients of all `tensors` that the pass computes have come, with them, None for the others;
    "any": with the first that comes.
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        first = _FirstOfPass(fn)
        return _Handles([tensor.register_hook(first) for tensor in tensors if tensor.requires_grad])
    gathered = _AllOfPass(tensors, fn)
    return _Handles([tensor.register_hook(gathered.taker(k)) for k, tensor in enumerate(tensors)])


class _FirstOfPass:
    """Hands on the first gradient of each pass."""

    def __init__(self, fn: Callable[[Tensor], Any]) -> None:
        self.fn, self.done = fn, None

    def __call__(self, grad: Tensor) -> None:
        run: Any = running_backwards()[-1]
        if run is not self.done:
            self.done = run
            self.fn(grad)


class _AllOfPass:
    """Gathers the gradients of some tensors in each pass, and hands them on when all have come."""

    def __init__(self, tensors: Sequence[Tensor], fn: Callable[[list[Tensor | None]], Any]) -> None:
        self.edges: list[Edge] = [tensor._edge() for tensor in tensors]
        self.fn = fn
        self.come: dict[int, list[Tensor | None]] = {}  # by id of a running pass

    def taker(self, place: int) -> Callable[[Tensor], None]:
        """The hook of tensor number `place`."""

        def take(grad: Tensor) -> None:
            run = running_backwards()[-1]
            come = self.come.setdefault(id(run), [None] * len(self.edges))
            come[place] = grad
            if sum(g is not None for g in come) == sum(map(run.computes, self.edges)):
                del self.come[id(run)]
                self.fn(come)

        return take
