"""A derivative of your own: weights of -1 and 1, trained through a rounding that has no slope.

    python examples/custom_function.py
    distcompile-run -n 2 examples/custom_function.py

`Sign` rounds in its forward and lets the gradient through in its backward, where the weight is small (the straight-
through estimator: Courbariaux, Bengio and others, 2016). It is compiled like anything else. `Cube` shows the proof: its
backward is held to finite differences, and parity finds a wrong one. Out: losses and verdicts; exit code 1 if the loss
did not fall to a half, or if a verdict is not as it should be.
"""

from __future__ import annotations

import sys
from typing import Any

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile import parity
from distcompile.autograd import Function, gradcheck
from distcompile.nn.parallel import DistributedDataParallel


class Sign(Function):
    """-1 or 1; its gradient is that of the identity where |x| <= 1, and 0 elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class Cube(Function):
    """x ** 3, with its true derivative times `wrong_by`."""

    wrong_by = 1.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x * Cube.wrong_by


class Binary(nn.Module):
    """Two layers; the weights of the first count by their signs alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 16) / 4)
        self.out = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(F.linear(x, Sign.apply(self.weight)) / 4))[:, 0]


class Cubed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Cube.apply(self.inner(x)).mean()


def main() -> int:
    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Binary())
    compiled = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(1 + rank)
    x = torch.randn(256, 16)
    y = torch.sin(x[:, 0] + x[:, 1])
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = F.mse_loss(compiled(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    gradcheck(Cube.apply, (torch.randn(3, dtype=torch.float64, requires_grad=True),))
    right = parity.check(Cubed(), torch.randn(5, 4))
    Cube.wrong_by = 1.01
    wrong = parity.check(Cubed(), torch.randn(5, 4))
    if rank == 0:
        print(f"weights of -1 and 1: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
        print(right.verdict())
        print(f"one per cent off: {wrong.verdict()}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if losses[-1] < losses[0] / 2 and right.ok and not wrong.ok else 1


if __name__ == "__main__":
    sys.exit(main())
