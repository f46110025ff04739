"""A perceptron that reads handwritten digits (1,797 images of 8x8 in scikit-learn), 95 % of held-out ones right.

    python examples/mlp_digits.py                             one rank, compiled
    distcompile-run -n 2 examples/mlp_digits.py               two ranks, compiled, gradients averaged
    distcompile-run -n 2 examples/mlp_digits.py --backend none    without compilation

Needs `pip install "distcompile[mpich,examples]"`. Out: a line per epoch; exit code 1 if the accuracy was not reached.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.utils.data import DataLoader, DistributedSampler, TensorDataset

WANTED_ACCURACY = 0.95


class Classifier(nn.Module):
    """64 pixels -> 128 -> 64 -> 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels)


def load(seed: int) -> tuple[TensorDataset, torch.Tensor, np.ndarray]:
    """Training set, held-out pixels f32[450, 64], held-out labels i64[450]."""
    digits = load_digits()
    pixels = (digits.data / 16).astype(np.float32)
    split = train_test_split(pixels, digits.target, test_size=450, stratify=digits.target, random_state=seed)
    train_x, test_x, train_y, test_y = split
    train = TensorDataset(torch.from_numpy(train_x), torch.from_numpy(train_y.astype(np.int64)))
    return train, torch.from_numpy(test_x), test_y


def accuracy(model: nn.Module, pixels: torch.Tensor, labels: np.ndarray) -> float:
    """Share of `pixels`' rows whose largest logit is the right class."""
    model.eval()
    with torch.no_grad():
        predicted = model(pixels).argmax(dim=1).numpy()
    model.train()
    return float((predicted == labels).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description="Digits by a perceptron.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="a rank's batch")
    parser.add_argument(
        "--backend", default="codegen", help="of compile(): codegen, aot_eager, eager; none: no compilation"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(options.seed)
    train, test_x, test_y = load(options.seed)
    model = DistributedDataParallel(Classifier())
    compiled = model if options.backend == "none" else torch.compile(model, backend=options.backend)
    sampler = DistributedSampler(train, seed=options.seed, drop_last=True)
    loader = DataLoader(train, batch_size=options.batch, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    reached = 0.0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        losses = []
        for pixels, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(compiled(pixels), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        reached = accuracy(compiled, test_x, test_y)
        if rank == 0:
            print(f"epoch {epoch + 1:>2}: loss {np.mean(losses):.3f}, held-out accuracy {reached:.3f}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if reached >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
