"""A small GPT, written as one would for torch: pre-norm blocks, learned positions, head tied to the embedding.

In: tokens i64[B, T]. Out: logits f32[B, T, V], or with targets the mean cross entropy, in nats a character.
Initialisation is GPT-2's: normal with deviation 0.02, residual projections scaled by 1/sqrt(2 layers).
"""

from __future__ import annotations

from dataclasses import dataclass

import distcompile as torch
from distcompile import Tensor, nn
from distcompile.nn import functional as F


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The model's sizes."""

    vocabulary: int
    layers: int = 4
    width: int = 128
    heads: int = 4
    time: int = 128


class Block(nn.Module):
    """Attention and a two-layer perceptron, each on the normalised stream and added to it."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.ln_1 = nn.LayerNorm(sizes.width)
        self.attention = nn.Linear(sizes.width, 3 * sizes.width)
        self.attention_out = nn.Linear(sizes.width, sizes.width)
        self.ln_2 = nn.LayerNorm(sizes.width)
        self.up = nn.Linear(sizes.width, 4 * sizes.width)
        self.down = nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.attention(self.ln_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, heads, T, width / heads)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, time, width))  # (B, T, width)
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A decoder-only transformer over characters."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Parameter(torch.zeros(sizes.time, sizes.width))
        self.blocks = nn.ModuleList([Block(sizes) for _ in range(sizes.layers)])
        self.ln = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self._initialise()
        self.head.weight = self.tokens.weight  # tied

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("attention_out.weight", "down.weight"))
                deviation = 0.02 / (2 * self.sizes.layers) ** 0.5 if residual else 0.02
                nn.init.normal_(parameter, std=deviation)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def logits(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions  # (B, T, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))  # (B, T, V)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        logits = self.logits(tokens)
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, self.sizes.vocabulary), targets.view(-1))
