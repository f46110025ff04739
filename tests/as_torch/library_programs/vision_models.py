"""Trains models of torchvision, timm and einops for three steps: the same file under torch and under distcompile.

In: a folder and words MODEL:DTYPE:MODE (mode: eager, compiled). Out: for each word a file FOLDER/WORD.npz: the loss,
every parameter's gradient, every buffer after the forward (`loss`, `g.NAME`, `b.NAME`), the `losses` of three steps.
Weights come from the names of parameters, images from a seed, so that both sides have the same. What draws random
numbers (dropout, stochastic depth) is off, the models are in training mode.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from library_common import provide_torchvisions_operators
from torch import nn

CLASSES, BATCH = 10, 4


def from_torchvision(name: str, **options: Any) -> nn.Module:
    import torchvision

    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)


def small_vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=CLASSES
    )


def small_mobilenet() -> nn.Module:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    settings = [
        (16, 3, 16, 16, True, "RE", 2, 1),
        (16, 3, 40, 24, False, "HS", 1, 1),
        (24, 5, 48, 24, True, "HS", 1, 1),
    ]
    return MobileNetV3([InvertedResidualConfig(*s, 1.0) for s in settings], 64, num_classes=CLASSES)


def from_timm(name: str, **options: Any) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)


class Einops(nn.Module):
    """Every function and layer of einops on the way from an image to classes."""

    def __init__(self) -> None:
        super().__init__()
        from einops.layers.torch import EinMix, Rearrange, Reduce

        self.patches = Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=8, q=8)
        self.mix = EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=192, d=16)
        self.mean, self.most = Reduce("b t d -> b d", "mean"), Reduce("b (t k) d -> b (t d)", "max", k=4)
        self.key, self.head = nn.Linear(16, 8), nn.Linear(16 + 64 + 8, CLASSES)

    def forward(self, x: Any) -> Any:
        from einops import einsum, pack, rearrange, reduce, repeat, unpack

        h = self.mix(self.patches(x))  # (B, 16, 16)
        packed, shapes = pack([h, self.mean(h)], "b * d")  # (B, 17, 16)
        h, mean = unpack(packed, shapes, "b * d")
        scores = einsum(self.key(h), repeat(self.key(mean), "b e -> b t e", t=3), "b t e, b u e -> b t u e")
        scores = reduce(scores.sigmoid(), "b t u e -> b e", "prod") + reduce(h, "b t (e k) -> b e", "min", k=2)
        h = rearrange([h, h.tanh()], "l b t d -> (l b) t d")[: x.shape[0]]
        return self.head(torch.cat([mean, self.most(h), scores], 1))


# vit_base draws no weights, which are replaced: 28 M erfinv, a minute; timm's way to draw is convnext_tiny's too
MODELS: dict[str, tuple[int, Any]] = {  # name -> (pixels, how it is made)
    "einops": (32, Einops),
    "small_vit": (32, small_vit),
    "small_mobilenet": (32, small_mobilenet),
    "test_efficientnet": (32, lambda: from_timm("test_efficientnet")),
    "test_convnext": (32, lambda: from_timm("test_convnext")),
    "test_resnet": (32, lambda: from_timm("test_resnet")),
    "resnet18": (64, lambda: from_torchvision("resnet18")),
    "resnet50": (64, lambda: from_torchvision("resnet50")),
    "vit_base": (64, lambda: from_timm("vit_base_patch16_224", img_size=64, depth=4, weight_init="skip")),  # a third
    "mobilenet_v3_large": (64, lambda: from_torchvision("mobilenet_v3_large")),
    "resnext50_32x4d": (64, lambda: from_timm("resnext50_32x4d")),
    "convnext_tiny": (32, lambda: from_timm("convnext_tiny", depths=(1, 1, 2, 1))),  # a third of its blocks, too
}


def without_chance(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if type(module).__name__ in ("Dropout", "StochasticDepth"):
            module.p = 0.0
        elif type(module).__name__ == "DropPath":
            module.drop_prob = 0.0
    return model.train()


def with_weights(model: nn.Module) -> nn.Module:
    """Weights drawn from a parameter's name, so that values neither vanish nor explode."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(parameter.shape))
            if parameter.ndim > 1:
                drawn /= np.sqrt(np.prod(parameter.shape[1:]))
            else:
                drawn = drawn * 0.1 + (1.0 if name.endswith(("weight", "gamma")) else 0.0)
            if name.endswith("bn3.weight"):  # the end of a residual branch, of a hundred layers
                drawn *= 0.2
            parameter.copy_(torch.from_numpy(drawn.astype(np.float32)))
    return model


def trained(name: str, dtype: str, mode: str) -> dict[str, np.ndarray]:
    pixels, make = MODELS[name]
    torch.set_default_dtype(getattr(torch, dtype))
    model = with_weights(without_chance(make()))
    if name == "einops":
        model(torch.zeros(BATCH, 3, pixels, pixels))  # fills einops's caches: it looks for its backends once a process
    call = torch.compile(model) if mode == "compiled" else model
    draw = np.random.default_rng(7)
    x = torch.from_numpy(draw.standard_normal((BATCH, 3, pixels, pixels)).astype(dtype))
    y = torch.from_numpy(draw.integers(0, CLASSES, BATCH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    found: dict[str, np.ndarray] = {}
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(call(x), y)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            found |= {f"g.{key}": p.grad.numpy().copy() for key, p in model.named_parameters()}
            found |= {f"b.{key}": np.array(b.detach().numpy()) for key, b in model.named_buffers()}
        optimizer.step()
    if mode == "compiled" and "distcompile" in torch.__version__:
        report = call.explain()
        assert (len(report.entries), report.breaks) == (1, ()), str(report)
    return found | {"loss": np.array(losses[0]), "losses": np.array(losses)}


def main(folder: str, words: list[str]) -> None:
    provide_torchvisions_operators()
    for word in words:
        np.savez(Path(folder) / f"{word}.npz", **trained(*word.split(":")))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
