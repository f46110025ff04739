"""A tensor-parallel MLP: each rank has a part of every layer, and the whole training step is one graph.

    python examples/tensor_parallel.py
    distcompile-run -n 2 examples/tensor_parallel.py

The first layer of a pair is cut by columns and the second by rows, so one all_reduce a pair is all that ranks exchange
forward; its gradient is another one. Ends well if the loss fell to a fifth, in one graph without a break, and all ranks
computed the same losses.
"""

from __future__ import annotations

import sys
from typing import Any

import distcompile as torch
from distcompile import distributed as dist
from distcompile import nn
from distcompile.distributed import _functional_collectives as funcol
from distcompile.nn import functional as F

WIDTH, INNER, STEPS = 32, 128, 60


class Pair(nn.Module):
    """x + row(gelu(column(x))), of whose inner features this rank has a part."""

    def __init__(self) -> None:
        super().__init__()
        mine = INNER // dist.get_world_size()
        self.column, self.row = nn.Linear(WIDTH, mine), nn.Linear(mine, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return x + funcol.all_reduce(self.row(F.gelu(self.column(x))), "sum")


def main() -> int:
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # every rank begins with other weights
    model = nn.Sequential(Pair(), Pair(), Pair())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # the gradient of the sum of all ranks' losses: each rank has the whole loss, so it counts an Nth
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(64, WIDTH, generator=generator)
    y = torch.roll(x, 1, dims=1).sin()

    @torch.compile(fullgraph=True)
    def step() -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        (loss / ranks).backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item() for _ in range(STEPS)]
    with dist.watch_collectives() as seen:
        step()
    if rank == 0:
        print(seen)
    everyones: list[Any] = [None] * ranks
    dist.all_gather_object(everyones, losses)
    same = all(other == losses for other in everyones)
    whole = not step.explain().breaks
    if rank == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; one graph: {whole}; equal on {ranks} rank(s): {same}")
    dist.destroy_process_group()
    return 0 if losses[-1] < losses[0] / 5 and whole and same else 1


if __name__ == "__main__":
    sys.exit(main())
