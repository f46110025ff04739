"""A variational autoencoder of handwritten digits (8x8, in scikit-learn): four numbers an image.

    python examples/vae.py
    distcompile-run -n 2 examples/vae.py

The noise of the sampling is drawn inside the compiled graph. Out: the bound as it falls, and a digit that was
drawn from noise alone; exit code 1 if the bound is not below 26 nats an image.
Needs `pip install "distcompile[mpich,examples]"`.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits

import distcompile as torch
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.utils.data import DataLoader, DistributedSampler, TensorDataset

HIDDEN, LATENT, WANTED_BOUND = 96, 4, 26.0


class VAE(nn.Module):
    """Encoder -> a normal distribution over f32[LATENT] -> a sample -> decoder -> 64 Bernoulli logits."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 64))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The negative evidence bound, nats an image: reconstruction + KL divergence from the standard normal."""
        mean, log_variance = self.encoder(pixels).chunk(2, dim=1)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        missed = F.binary_cross_entropy_with_logits(self.decoder(sample), pixels, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        return (missed + divergence) / len(pixels)


def drawn(model: VAE) -> str:
    """A digit from noise, in characters."""
    with torch.no_grad():
        pixels = torch.sigmoid(model.decoder(torch.randn(1, LATENT))).numpy().reshape(8, 8)
    return "\n".join("".join(" .:*#"[int(4.99 * value)] * 2 for value in row) for row in pixels)


def main() -> int:
    parser = argparse.ArgumentParser(description="A variational autoencoder.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64, help="a rank's batch")
    options = parser.parse_args()

    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.from_numpy((load_digits().data / 16).astype(np.float32)))
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(VAE())
    compiled = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    bound = float("inf")
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        bounds = []
        for (pixels,) in loader:
            optimizer.zero_grad()
            loss = compiled(pixels)
            loss.backward()
            optimizer.step()
            bounds.append(loss.item())
        bound = float(np.mean(bounds))
        if rank == 0 and epoch % 4 == 0:
            print(f"epoch {epoch:>2}: {bound:.2f} nats an image", flush=True)

    if rank == 0:
        print(drawn(model.module), flush=True)
    torch.distributed.destroy_process_group()
    return 0 if bound < WANTED_BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
