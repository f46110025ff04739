"""Modules whose forward breaks the graph, in several ways, that the DDP tests share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ddp_models import (
    joined_gradients,
    weight,
)

from compiler_core.tensor.tensor import Tensor
from distcompile.compiler import disable
from distcompile.nn import functional
from distcompile.nn.module import Module


class Stages(Module):
    """`tied` is used before and after the breaks, `gain` between them; `left` or `right` by the branch."""

    def __init__(self, log: Callable[[object], None] = lambda said: None, *, learns_both: bool = True) -> None:
        super().__init__()
        self.w2, self.tied, self.gain = weight(1, 5, 3), weight(2, 5, 5), weight(3, 5)
        self.left, self.w1, self.right = weight(4, 5), weight(5, 5, 5), weight(6, 5)
        self.left.requires_grad_(learns_both)
        self.right.requires_grad_(learns_both)
        object.__setattr__(self, "log", log)

    def first(self, x: Tensor) -> Tensor:
        return ((x @ self.w1).tanh() @ self.tied).tanh()

    def last(self, x: Tensor) -> Tensor:
        return (x @ self.tied).tanh() @ self.w2


class Printing(Stages):
    """Two prints: three graphs."""

    def forward(self, x: Tensor) -> Tensor:
        print(end="")
        h = self.first(x)
        print(end="")
        h = h * self.gain
        print(end="")
        return self.last(h)


class Reading(Stages):
    """A number of the data goes on into the next graph."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) * self.gain
        size = h.abs().max().item()
        return self.last(h * (1.0 / (1.0 + size)))


class Branching(Stages):
    """A branch on data, for which ranks and steps differ."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) * self.gain
        h = h * self.left if x.sum() > 0 else h * self.right
        return self.last(h)


class Looping(Stages):
    """As many breaks as the data says, all of them at one place."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for _ in range(1 + int(x[0, 0].item() > 0)):
            h = (h * self.gain).tanh()
            self.log(float(h.sum()))
        return self.last(h)


@disable
def drop_eager(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.3, training=True)


class Dropping(Stages):
    """Random draws before, between and after the breaks, in graphs and in what is not captured."""

    def forward(self, x: Tensor) -> Tensor:
        h = functional.dropout(self.first(x), 0.3, training=True)
        print(end="")
        h = functional.dropout(h * self.gain, 0.3, training=True)
        h = drop_eager(h)
        return self.last(functional.dropout(h, 0.3, training=True))


def frozen(model: type[Stages]) -> Stages:
    return model(learns_both=False)


def mean_of_ranks(model: Callable[[], Stages], arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The mean of what each rank gets by itself."""
    parts = [joined_gradients(model(), array) for array in arrays]
    names = {name for part in parts for name in part}
    return {name: sum(part[name] for part in parts if name in part) / len(parts) for name in names}
