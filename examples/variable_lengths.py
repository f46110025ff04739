"""A language model whose batches have another length at each step and on each rank: two captures, gradients joined.

    distcompile-run -n 2 examples/variable_lengths.py
    python examples/variable_lengths.py --steps 80                one rank, for longer

The text is Python's own help, in windows of 10 to 40 letters; rank 0's last batch of each round is smaller. Ranks weigh
their letters alike, so a step is that of one process over all of them. Out: losses, and at the end how many captures
there were and how far the ranks' gradient is from the joined one's; exit code 1 where that is over 1e-4, or captures
over 2.
"""

from __future__ import annotations

import argparse
import sys
from pydoc_data.topics import topics

import numpy as np

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile.nn.parallel import DistributedDataParallel

SHORTEST, LONGEST, ROUND = 10, 40, 10


class Model(nn.Module):
    """Letters in, the mean loss of the next ones out."""

    def __init__(self, letters: int, width: int = 48) -> None:
        super().__init__()
        self.letters, self.head = nn.Embedding(letters, width), nn.Linear(width, letters)
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.letters(tokens[:, :-1]))
        return F.cross_entropy(self.head(states).flatten(0, 1), tokens[:, 1:].flatten())


def batch_of(text: np.ndarray, step: int, rank: int) -> torch.Tensor:
    """Random windows i64[8, length + 1] of one length, of another at each step and rank; rank 0's last are fewer."""
    generator = np.random.default_rng([step, rank])
    length = int(generator.integers(SHORTEST, LONGEST + 1))
    count = 5 if step % ROUND == 0 and rank == 0 else 8
    return torch.from_numpy(text[generator.integers(0, len(text) - length, (count, 1)) + np.arange(length + 1)])


def targets_in(tokens: torch.Tensor) -> int:
    return tokens.shape[0] * (tokens.shape[1] - 1)


def joined_gradients(model: nn.Module, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of one process that has all batches: of the mean loss of all their letters."""
    total = sum(map(targets_in, batches))
    loss = sum(model(tokens) * (targets_in(tokens) / total) for tokens in batches)
    return torch.autograd.grad(loss, list(model.parameters()))


def main() -> int:
    parser = argparse.ArgumentParser(description="A language model over batches of many lengths.")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()

    torch.distributed.init_process_group()
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(0)
    alphabet, text = np.unique(list("\n".join(topics.values())), return_inverse=True)
    net = Model(len(alphabet))
    model = DistributedDataParallel(net, bucket_cap_mb=0.05)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    furthest = 0.0
    for step in range(1, options.steps + 1):
        batches = [batch_of(text, step, other) for other in range(ranks)]
        total = sum(map(targets_in, batches))
        optimizer.zero_grad()
        loss = compiled(batches[rank])
        (loss * (targets_in(batches[rank]) * ranks / total)).backward()  # DDP averages over ranks
        if step % ROUND in (0, 1):
            for parameter, joined in zip(net.parameters(), joined_gradients(net, batches), strict=True):
                furthest = max(furthest, float((parameter.grad - joined).abs().max()))
        optimizer.step()
        if step % ROUND == 0 and rank == 0:
            print(f"step {step:>3}: loss {loss.item():.3f}", flush=True)

    captures = len(compiled.explain().entries)
    if rank == 0:
        print(f"{captures} capture(s); furthest from the joined gradient: {furthest:.1e}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if furthest <= 1e-4 and captures <= 2 else 1


if __name__ == "__main__":
    sys.exit(main())
