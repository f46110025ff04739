"""Residual networks (He et al., 2015), written once for both frameworks.

In: images f32[N, 3, H, W], labels i64[N]. Out: the mean cross entropy. `resnet18` has the CIFAR stem (3x3, stride 1, no
pooling); `resnet50` bottleneck blocks, the stride in the 3x3 convolution, and the ImageNet stem (7x7, max pooling).
"""

from __future__ import annotations

from typing import Any

from framework import F, nn


def _norm_conv(inputs: int, outputs: int, size: int, stride: int = 1) -> Any:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut is a 1x1 convolution where shapes differ."""

    def __init__(self, body: Any, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut = _norm_conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


def basic(inputs: int, width: int, stride: int) -> Any:
    """Two 3x3 convolutions."""
    body = nn.Sequential(_norm_conv(inputs, width, 3, stride), nn.ReLU(), _norm_conv(width, width, 3))
    return Residual(body, inputs, width, stride)


def bottleneck(inputs: int, width: int, stride: int) -> Any:
    """1x1 down to a quarter, 3x3, 1x1 up."""
    narrow = width // 4
    parts = (_norm_conv(inputs, narrow, 1), nn.ReLU(), _norm_conv(narrow, narrow, 3, stride), nn.ReLU())
    return Residual(nn.Sequential(*parts, _norm_conv(narrow, width, 1)), inputs, width, stride)


class ResNet(nn.Module):
    """stem, four stages of `block`s that halve the image but the first, the mean over positions, a linear layer."""

    def __init__(self, stem: Any, block: Any, blocks: tuple[int, ...], widths: tuple[int, ...]) -> None:
        super().__init__()
        layers, inputs = [], 64
        for number, (count, width) in enumerate(zip(blocks, widths)):
            for k in range(count):
                layers.append(block(inputs, width, 2 if number > 0 and k == 0 else 1))
                inputs = width
        self.stem, self.layers, self.head = stem, nn.Sequential(*layers), nn.Linear(inputs, 10)

    def forward(self, x: Any, y: Any) -> Any:
        h = self.layers(self.stem(x))  # (N, width, h, w)
        return F.cross_entropy(self.head(h.mean((2, 3))), y)


def resnet18() -> Any:
    """11.2 M parameters."""
    stem = nn.Sequential(_norm_conv(3, 64, 3), nn.ReLU())
    return ResNet(stem, basic, (2, 2, 2, 2), (64, 128, 256, 512))


def resnet50() -> Any:
    """23.5 M parameters."""
    stem = nn.Sequential(_norm_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return ResNet(stem, bottleneck, (3, 4, 6, 3), (256, 512, 1024, 2048))
