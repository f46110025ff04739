"""torch.utils.module_tracker: in which modules a program is, in the forward and in the backward.

In: module calls within a block. Out: `parents`, names of the modules whose call, or whose part of the backward, is
under way: the class's name for the outermost, `Net.body.0` below it; "Global" always; `is_bw`.
Method: hooks on all modules, and on the gradients of their inputs and outputs. A module whose inputs take no gradient
is left at the end of the backward, as in torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

from compiler_core.tensor.autograd.engine import queue_callback, running_backwards
from compiler_core.tensor.tensor import Tensor
from distcompile.autograd.graph import register_multi_grad_hook
from distcompile.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from distcompile.nn.module import Module
from distcompile.utils import _pytree as pytree

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """parents: where the program is now."""

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self._of_gradients: list[Any] = []
        self._leaves_at_end = False

    @property
    def is_bw(self) -> bool:
        """Whether a backward is under way in this thread."""
        return bool(running_backwards())

    def __enter__(self) -> Self:
        self._handles = [
            register_module_forward_pre_hook(self._enter_forward),
            register_module_forward_hook(self._leave_forward, always_call=True),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in (*self._handles, *self._of_gradients):
            handle.remove()
        self._of_gradients.clear()

    def _name(self, module: Module) -> str:
        """Its name, by which its children are known from now on."""
        name = self._names.setdefault(module, type(module).__name__)
        for child_name, child in module.named_children():
            self._names[child] = f"{name}.{child_name}"
        return name

    def _enter_forward(self, module: Module, inputs: Any) -> None:
        name = self._name(module)
        self.parents.add(name)
        self._at_gradients(inputs, lambda: self.parents.discard(name))

    def _leave_forward(self, module: Module, inputs: Any, outputs: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        self._at_gradients(outputs, lambda: self._enter_backward(name))

    def _enter_backward(self, name: str) -> None:
        self.parents.add(name)
        if not self._leaves_at_end:
            self._leaves_at_end = True
            queue_callback(self._leave_backward)

    def _leave_backward(self) -> None:
        self.parents, self._leaves_at_end = {"Global"}, False

    def _at_gradients(self, tree: Any, do: Callable[[], None]) -> None:
        """Once the gradients of the tensors in `tree` are known."""
        tensors = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if tensors:
            self._of_gradients.append(register_multi_grad_hook(tensors, lambda grads: do()))
