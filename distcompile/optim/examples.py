"""The examples that the docstrings of optimizers and of schedules end with: each says only what is its own.

In: a class, the arguments of its example, and what that prints. Out: the class, its docstring with the example added.
tests/docs run them, as all examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

Kind = TypeVar("Kind", bound=type[object])


def one_step(options: str, result: str) -> Callable[[Kind], Kind]:
    """Shows what one step makes of the parameter [1, -2] with the gradient [2, -4]."""
    return lambda kind: _ended(
        kind,
        ">>> w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))",
        f">>> optimizer = torch.optim.{kind.__name__}([w], {options})",
        ">>> w.square().sum().backward()",
        ">>> optimizer.step()",
        ">>> w.detach()",
        f"tensor({result})",
    )


def rates(options: str, *rates: float) -> Callable[[Kind], Kind]:
    """Shows the first rates of an optimizer that began with lr=1.0."""
    return lambda kind: _ended(
        kind,
        ">>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)",
        f">>> schedule = torch.optim.lr_scheduler.{kind.__name__}(optimizer, {options})",
        f">>> for t in range({len(rates)}):",
        "...     print(t, round(schedule.get_last_lr()[0], 4))",
        "...     optimizer.step()",
        "...     schedule.step()",
        *(f"{t} {rate}" for t, rate in enumerate(rates)),
    )


def _ended(kind: Kind, *lines: str) -> Kind:
    """The class, its docstring ended by an example of these lines."""
    said = inspect.cleandoc(kind.__doc__ or "")
    kind.__doc__ = "\n    ".join([f"{said}\n\nExample:", *lines])
    return kind
