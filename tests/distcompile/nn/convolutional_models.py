"""Convolutional networks as people publish them, small, of our own writing: one source for both libraries.

In: `nn`, torch's or ours (`F` is its functional). Out: `MODELS`: name -> (build(nn) -> a module, the input's shape).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Build = Callable[[Any], Any]


def lenet(nn: Any) -> Any:
    """LeNet-5 (LeCun et al. 1998), with max pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def resnet(nn: Any, bottleneck: bool = False) -> Any:
    """A residual network (He et al. 2015): stem with max pooling, two stages, a projection where sizes change."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            out = width * 4 if bottleneck else width
            first, last = (1, 1) if bottleneck else (3, 3)
            self.conv1 = nn.Conv2d(channels, width, first, 1 if bottleneck else stride, first // 2, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            if bottleneck:
                self.middle = nn.Conv2d(width, width, 3, stride, 1, groups=2, bias=False)
            self.conv2 = nn.Conv2d(width, out, last, 1, last // 2, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or channels != out:
                self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x: Any) -> Any:
            out = self.relu(self.bn1(self.conv1(x)))
            if bottleneck:
                out = self.relu(self.middle(out))
            out = self.bn2(self.conv2(out))
            out += x if self.downsample is None else self.downsample(x)
            return self.relu(out)

    class ResNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            growth = 4 if bottleneck else 1
            self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(8)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8 * growth, 8, 1))
            self.layer2 = nn.Sequential(Block(8 * growth, 16, 2), Block(16 * growth, 16, 1))
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(16 * growth, 10)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x: Any) -> Any:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.avgpool(self.layer2(self.layer1(x)))
            return self.fc(x.flatten(1))

    return ResNet()


def bottleneck_resnet(nn: Any) -> Any:
    """Bottleneck blocks with a grouped 3x3 (ResNeXt, Xie et al. 2016)."""
    return resnet(nn, bottleneck=True)


MODELS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "lenet": (lenet, (2, 1, 28, 28)),
    "resnet": (resnet, (4, 3, 33, 32)),
    "bottleneck_resnet": (bottleneck_resnet, (4, 3, 32, 32)),
}
