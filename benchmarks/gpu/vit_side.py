"""One side of resnet.py with --model vit: the training step of ViT-B/16 on a GPU, written once for both frameworks.

In: --mode (step_side.py), --batch, --steps. Out: the line of step_side.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

BEGUN_S = time.perf_counter()
sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]

from framework import F, nn, torch  # noqa: E402
from step_side import MODES, compiled, report, step_on_images  # noqa: E402

SIZE, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 224, 16, 768, 12, 12, 1000


class Block(nn.Module):
    """x: f32[B, T, C] -> f32[B, T, C]: attention, then an MLP, each on a normalised x, added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)  # each (B, nh, T, hs)
        seen = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(seen.transpose(1, 2).reshape(b, t, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """Images f32[B, 3, SIZE, SIZE] -> scores of CLASSES (Dosovitskiy et al. 2020; as timm's vit_base_patch16_224)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2 + 1, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Any) -> Any:
        x = self.patches(images).flatten(2).transpose(1, 2)  # (B, T - 1, C)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


def training(batch: int, mode: str) -> Any:
    """The step of a new model, with AdamW."""
    torch.manual_seed(0)
    model = ViT().cuda()
    run, optimizer = compiled(model, mode), torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(batch, 3, SIZE, SIZE, device="cuda")
    classes = torch.randint(0, CLASSES, (batch,), device="cuda")
    return step_on_images(run, optimizer, images, classes, mode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="compile")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    step = training(given.batch, given.mode)
    print(report(step, mode=given.mode, world=1, warm=5, steps=given.steps, begun_s=BEGUN_S), flush=True)


if __name__ == "__main__":
    main()
