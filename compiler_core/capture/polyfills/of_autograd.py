"""What a backward in the graph does to `.grad`, entered like the program's code: what is read there is guarded, what is
written is an effect.

In: leaves, and the gradients that came to them. Out: `.grad`, as `tensor/autograd/engine.py` leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.capture.differentiating import add_in_place
from compiler_core.capture.held_numbers import is_kept, put_gradients


def accumulate(leaves: Sequence[Any], gradients: Sequence[Any]) -> None:
    without: list[Any] = []
    new: list[Any] = []
    for leaf, gradient in zip(leaves, gradients):
        before = leaf.grad
        if before is not None:
            add_in_place(before, gradient)
        elif is_kept(leaf):
            without.append(leaf)
            new.append(gradient)
        else:
            leaf.grad = gradient
    if without:
        put_gradients(without, new)
