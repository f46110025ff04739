"""An LSTM adds two numbers that it saw long ago: the adding problem (Hochreiter and Schmidhuber, 1997).

    python examples/lstm.py
    distcompile-run -n 2 examples/lstm.py

A sequence has random numbers, two of them marked; the answer is their sum. Who always answers 1 is off by 1/6 (mean
square). Out: a line every fifty steps; exit code 1 if the error is not below 0.02.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile.nn.parallel import DistributedDataParallel

WANTED_ERROR = 0.02


class Adder(nn.Module):
    """An LSTM over the sequence, and a linear map of its last state."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.lstm, self.answer = nn.LSTM(2, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(sequences)  # (B, T, width)
        return self.answer(states[:, -1])[:, 0]


def make_sequences(count: int, time: int, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """f32[count, time, 2]: a number and whether it is marked; f32[count]: the sum of the marked two."""
    numbers = generator.random((count, time))
    marks = np.zeros((count, time))
    half = time // 2
    rows = np.arange(count)
    marks[rows, generator.integers(0, half, count)] = 1
    marks[rows, generator.integers(half, time, count)] = 1
    sequences = np.stack([numbers, marks], axis=2).astype(np.float32)
    return torch.from_numpy(sequences), torch.from_numpy((numbers * marks).sum(axis=1).astype(np.float32))


def main() -> int:
    parser = argparse.ArgumentParser(description="An LSTM that adds.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--time", type=int, default=16, help="length of a sequence")
    parser.add_argument("--batch", type=int, default=64, help="a rank's batch")
    options = parser.parse_args()

    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Adder())
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = np.random.default_rng(1 + rank)

    for step in range(1, options.steps + 1):
        sequences, sums = make_sequences(options.batch, options.time, generator)
        optimizer.zero_grad()
        loss = F.mse_loss(compiled(sequences), sums)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print(f"step {step:>3}: error {loss.item():.4f}", flush=True)

    sequences, sums = make_sequences(256, options.time, np.random.default_rng(0))
    with torch.no_grad():
        error = F.mse_loss(model.module(sequences), sums).item()
    if rank == 0:
        print(f"error on new sequences {error:.4f}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if error < WANTED_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
