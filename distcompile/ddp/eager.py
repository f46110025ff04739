"""Owners of leaves: they hand gradients that the tape has completed to the DDP instances that reduce them.

In: a leaf whose `.grad` the tape has just completed; the user's hooks have run, and have seen, as in torch, the local
gradient, not averaged. Out: the gradient is delivered to the pass of its instance. So come all gradients of a module
that runs uncompiled (or after a graph break), and of a compiled one those that have hooks, or contributions from
outside the compiled call.
A leaf may belong to several instances (a module shared by two, a module wrapped again). Then those whose forward ran
take part (`forwards.py`); each sees the local gradient, and the averages, which are equal, are shown at the end of the
backward. Of a module that is called without any of its instances gradients stay local, as in torch (`pass_now`).
An instance that is gone (weak reference) takes no part. What a forward of it returned keeps it, for its backward.
"""

from __future__ import annotations

import weakref
from typing import Any

from compiler_core.aot.strategy import GradientStrategy
from compiler_core.tensor.autograd.engine import running_backwards
from compiler_core.tensor.autograd.tape import GradNode
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.books import Books
from distcompile.ddp.passes import pass_now
from distcompile.utils._pytree import tree_iter


class Owners:
    """The instances that reduce one leaf's gradient, and its name in each."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: list[tuple[weakref.ref[Books], str]] = []

    def alive(self) -> list[tuple[Books, str]]:
        """The instances that still exist."""
        found = [(books, name) for ref, name in self.members if (books := ref()) is not None]
        if len(found) != len(self.members):
            self.members = [(weakref.ref(books), name) for books, name in found]
        return found

    def is_one(self) -> bool:
        """Whether there is one such instance."""
        return len(self.members) == 1 or len(self.alive()) == 1

    def strategies(self) -> list[GradientStrategy]:
        """What cuts the backwards of graphs that use this leaf, and are parts of a forward of one of its instances."""
        found = (books.strategy() for books, _ in self.alive() if books.strategy is not None)
        return [strategy.parts for strategy in found if strategy is not None]

    def __call__(self, leaf: Tensor) -> None:
        taking_part = self._taking_part()
        for books, name in taking_part:
            if books.parameters.get(name) is leaf:
                here = pass_now(books, books.forward_synchronises)
                here.deliver(name, leaf, show=len(taking_part) == 1)

    def _taking_part(self) -> list[tuple[Books, str]]:
        """Those of whose forwards the backward is that runs, or else the one that it is nested in."""
        alive = self.alive()
        if len(alive) > 1:
            for run in reversed(running_backwards()):
                found = [(books, name) for books, name in alive if books.takes_part(run)]
                if found:
                    return found
        return alive


def own(books: Books) -> None:
    """Have the gradients of all parameters of `books` handed to it."""
    for name, parameter in books.parameters.items():
        owners = owners_of(parameter)
        if all(member is not books for member, _ in owners.alive()):
            owners.members.append((weakref.ref(books), name))


def keep_for_backward(instance: object, output: Any, levels: int = 3) -> None:
    """Have the instance live as long as the tape below the tensors of `output`: its program may have dropped it.

    levels: of objects within objects, in whose attributes tensors are looked for.
    """
    for value in tree_iter(output):
        if isinstance(value, Tensor):
            if isinstance(edge := value._edge(), GradNode):
                edge.keeps = instance
        elif levels and hasattr(value, "__dict__"):
            keep_for_backward(instance, dict(vars(value)), levels - 1)


def owners_of(parameter: Tensor) -> Owners:
    """Who reduces this leaf's gradient; made if there is nobody yet."""
    hooks = parameter._leaf_hooks()
    if not isinstance(hooks.owner, Owners):
        hooks.owner = Owners()
    return hooks.owner
