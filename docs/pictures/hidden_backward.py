"""README's picture: one backward on two ranks, whose communication is hidden.

    distcompile-run -n 2 docs/pictures/hidden_backward.py

In: nothing. Out: hidden_backward.svg beside this file, from `overlap_report(all_ranks=True).plot` of a real run. The
picture in the repository was made on the CPU, two ranks of one host, a core each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import distcompile as torch
import distcompile.distributed as dist
from distcompile import nn
from distcompile.nn import functional as F
from distcompile.nn.parallel import DistributedDataParallel

TARGET = Path(__file__).with_suffix(".svg")
WIDTH, BLOCKS, STEPS = 512, 4, 30


class Block(nn.Module):
    """x: f32[N, WIDTH] -> f32[N, WIDTH], a residual two-layer perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def train(steps: int) -> DistributedDataParallel:
    """A few steps on random data; returns the wrapped model, which has kept when its buckets moved."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(*(Block() for _ in range(BLOCKS))))
    compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(512, WIDTH)
    for _ in range(steps):
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        optimizer.step()
    return model


def main(target: Path, steps: int) -> None:
    dist.init_process_group()
    report = train(steps).overlap_report(all_ranks=True)
    if dist.get_rank() == 0:
        import matplotlib

        matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "distcompile"}
        report.plot(target)
        print(report.summary())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else TARGET, STEPS)
