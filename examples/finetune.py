"""Fine-tuning: a trunk that was trained on the digits 0 to 4 is frozen, and a new head learns 5 to 9.

    python examples/finetune.py
    distcompile-run -n 2 examples/finetune.py

Frozen parameters get no gradient, so nothing is computed or sent for them: the overlap report counts the head's four
tensors alone. Out: the accuracy on each half; exit code 1 if the new head reads fewer than 85 % right, or if the
trunk has changed. Needs `pip install "distcompile[mpich,examples]"`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
from sklearn.datasets import load_digits

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile.nn.parallel import DistributedDataParallel

WANTED_ACCURACY = 0.85


def make_head() -> nn.Module:
    return nn.Sequential(nn.Linear(128, 48), nn.ReLU(), nn.Linear(48, 5))


class Reader(nn.Module):
    """A trunk that makes features, and a head that names one of five classes."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.head = make_head()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(pixels))


def half(first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images of `first` to `first` + 4: f32[n, 64] and i64[n], counted from 0."""
    digits = load_digits()
    chosen = (digits.target >= first) & (digits.target < first + 5)
    pixels, labels = digits.data[chosen] / 16, digits.target[chosen] - first
    return torch.from_numpy(pixels.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def train(model: DistributedDataParallel, parameters: Iterable[nn.Parameter], first: int, steps: int) -> float:
    """Train `parameters` on this rank's share of a half; the accuracy on what nobody trained on."""
    pixels, labels = half(first)
    kept = len(pixels) // 4  # not trained on
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    mine = slice(kept + rank, None, ranks)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    generator = np.random.default_rng(rank)
    rows = np.arange(len(pixels))[mine]
    for _ in range(steps):
        batch = torch.from_numpy(generator.choice(rows, 64, replace=False))
        optimizer.zero_grad()
        F.cross_entropy(compiled(pixels[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        return float((model.module(pixels[:kept]).argmax(dim=1) == labels[:kept]).float().mean())


def main() -> int:
    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    reader = Reader()
    before = train(DistributedDataParallel(reader), reader.parameters(), first=0, steps=60)

    reader.trunk.requires_grad_(False)
    reader.head = make_head()
    trunk = [parameter.clone() for parameter in reader.trunk.parameters()]
    model = DistributedDataParallel(reader)  # anew: which parameters are reduced is agreed when it is made
    after = train(model, reader.head.parameters(), first=5, steps=100)

    same = all(torch.equal(a, b) for a, b in zip(trunk, reader.trunk.parameters(), strict=True))
    reduced = sum(row.parameters for row in model.overlap_report().rows)
    if rank == 0:
        print(f"0 to 4: accuracy {before:.3f}; 5 to 9 with a new head: {after:.3f}", flush=True)
        print(f"the trunk is {'as it was' if same else 'changed'}; gradients that were reduced: {reduced}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if after >= WANTED_ACCURACY and same else 1


if __name__ == "__main__":
    sys.exit(main())
