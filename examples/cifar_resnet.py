"""A small ResNet on images as CIFAR-10 has them, 32x32 in three colours; what is in them is made up: no download.

    python examples/cifar_resnet.py                           one rank, compiled
    distcompile-run -n 2 examples/cifar_resnet.py             two ranks: BatchNorm's statistics are each rank's own

A class is a pattern (stripes, rings, squares or a slope) at a random place, of random colours, under noise. Out: a line
every ten steps; exit code 1 if fewer than 90 % of held-out images are read right.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile.nn.parallel import DistributedDataParallel

CLASSES, WANTED_ACCURACY = 4, 0.9


class Residual(nn.Module):
    """Two convolutions whose result is added to what came in; a third one fits it where the size changes."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        fits = stride == 1 and width_in == width
        self.fit = nn.Identity() if fits else nn.Conv2d(width_in, width, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm_1(self.first(x)))
        return F.relu(self.norm_2(self.second(hidden)) + self.fit(x))


class ResNet(nn.Module):
    """32x32 -> 16 -> 8 -> 4, then the mean of each channel."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(F.relu(self.stem(images))).mean(dim=(2, 3)))


def make_images(count: int, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """f32[count, 3, 32, 32] and i64[count]."""
    y, x = np.mgrid[0:32, 0:32][:, None] - generator.uniform(8, 24, (2, count, 1, 1))  # (count, 32, 32) each
    size = generator.uniform(0.5, 0.9, (count, 1, 1))
    patterns = np.stack(
        [
            np.sin(size * (x + y)),
            np.sin(size * np.hypot(x, y)),
            np.sign(np.sin(size * x) * np.sin(size * y)),
            (x - y) / 16,
        ]
    )  # (classes, count, 32, 32)
    labels = generator.integers(0, CLASSES, count)
    pattern = patterns[labels, np.arange(count)][:, None]  # (count, 1, 32, 32)
    images = pattern * generator.uniform(0.3, 1, (count, 3, 1, 1)) + generator.normal(0, 0.3, (count, 3, 32, 32))
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels)


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of `images` that are read right, with the statistics that training has gathered."""
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).float().mean()
    model.train()
    return float(right)


def main() -> int:
    parser = argparse.ArgumentParser(description="A ResNet on made-up images.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="a rank's batch")
    options = parser.parse_args()

    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(ResNet())
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=options.steps)
    generator = np.random.default_rng(1 + rank)  # every rank has images of its own

    for step in range(1, options.steps + 1):
        images, labels = make_images(options.batch, generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step:>3}: loss {loss.item():.3f}", flush=True)

    reached = accuracy(model.module, *make_images(256, np.random.default_rng(0)))
    if rank == 0:
        print(f"held-out accuracy {reached:.3f}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if reached >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
