"""A GPT of letters, trained on two ranks, writes a line of its own. `distcompile.demo` is the same with all reports.

    distcompile-run -n 2 examples/char_gpt.py
    python examples/char_gpt.py --steps 400                   one rank, for longer

The text is Python's own help. Out: losses in nats a character, then a sample; exit code 1 if the last loss is over 2.7
(letters by their frequency alone: 3.1).
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

TIME, WANTED_LOSS = 48, 2.7


class Block(nn.Module):
    """Attention and a perceptron, each on the normalised stream and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        heads = self.attention(self.norm_1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # (B, heads, T, width / heads) each
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.perceptron(self.norm_2(x))


class GPT(nn.Module):
    """Letters in, for each place the logits of the next letter out."""

    def __init__(self, letters: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(TIME, width)
        self.blocks = nn.Sequential(*[Block(width, heads=4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])
        return self.head(self.norm(self.blocks(self.letters(tokens) + self.places(places))))


def batch_of(text: np.ndarray, size: int, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows i64[size, TIME], and the same one letter later."""
    windows = text[generator.integers(0, len(text) - TIME, (size, 1)) + np.arange(TIME + 1)]
    return torch.from_numpy(windows[:, :-1].copy()), torch.from_numpy(windows[:, 1:].copy())


def write(model: nn.Module, start: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """`count` letters after `start`, drawn one by one."""
    text = start.copy()
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.from_numpy(text[None, -TIME:]))[0, -1] / 0.7
            chances = torch.softmax(logits.double(), dim=0).numpy()
            text = np.append(text, generator.choice(len(chances), p=chances))
    return text[len(start) :]


def main() -> int:
    parser = argparse.ArgumentParser(description="A GPT of letters.")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=16, help="a rank's batch")
    options = parser.parse_args()

    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    alphabet, text = np.unique(list("\n".join(topics.values())), return_inverse=True)
    model = DistributedDataParallel(GPT(len(alphabet)), bucket_cap_mb=0.1)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = np.random.default_rng(rank)

    losses = []
    for step in range(1, options.steps + 1):
        tokens, targets = batch_of(text, options.batch, generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 30 == 0 and rank == 0:
            print(f"step {step:>3}: loss {np.mean(losses[-30:]):.3f}", flush=True)

    if rank == 0:
        letters = write(model.module, text[:TIME], 80, generator)
        print("it writes:", "".join(alphabet[letters]).replace("\n", " "), flush=True)
    torch.distributed.destroy_process_group()
    return 0 if np.mean(losses[-30:]) <= WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
