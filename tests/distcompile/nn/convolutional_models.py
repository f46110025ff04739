"""Convolutional networks as people publish them, small, of our own writing: one source for both libraries.

In: `nn`, torch's or ours (`F` is its functional). Out: `MODELS`: name -> (build(nn) -> a module, the input's shape).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

Build = Callable[[Any], Any]


def library_of(nn: Any) -> Any:
    """The package that `nn` belongs to."""
    return importlib.import_module(nn.__name__.partition(".")[0])


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


def densenet(nn: Any) -> Any:
    """Dense blocks that concatenate, transitions that average (Huang et al. 2016)."""

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, growth: int) -> None:
            super().__init__()
            self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 2 * growth, 1, bias=False)
            self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

        def forward(self, x: Any) -> Any:
            new = self.conv1(nn.functional.relu(self.norm1(x)))
            return self.conv2(nn.functional.relu(self.norm2(new)))

    class Dense(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, growth: int, layers: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer(channels + k * growth, growth) for k in range(layers))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = library_of(nn).cat([x, layer(x)], 1)
            return x

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect"),
        Dense(8, 4, 3),
        nn.BatchNorm2d(20),
        nn.ReLU(inplace=True),
        nn.Conv2d(20, 10, 1),
        nn.AvgPool2d(2, 2),
        Dense(10, 4, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(18, 10),
    )


def mobilenet(nn: Any, squeeze: bool = False) -> Any:
    """Inverted residuals (Sandler et al. 2018); with `squeeze`, gated by channel means (EfficientNet, Tan, Le 2019)."""
    activation = nn.SiLU if squeeze else nn.ReLU6

    def convolve(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(out, eps=1e-3, momentum=0.01), activation(inplace=True))

    class Gate(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc1, self.fc2 = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

        def forward(self, x: Any) -> Any:
            scale = self.fc2(nn.functional.silu(self.fc1(self.avgpool(x))))
            return x * scale.sigmoid()

    class Inverted(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, out: int, kernel: int, stride: int) -> None:
            super().__init__()
            hidden = channels * 4
            self.is_residual = stride == 1 and channels == out
            self.block = nn.Sequential(
                convolve(channels, hidden, 1),
                convolve(hidden, hidden, kernel, stride, groups=hidden),
                Gate(hidden) if squeeze else nn.Identity(),
                nn.Conv2d(hidden, out, 1, bias=False),
                nn.BatchNorm2d(out),
            )

        def forward(self, x: Any) -> Any:
            return x + self.block(x) if self.is_residual else self.block(x)

    return nn.Sequential(
        convolve(3, 8, 3, 2),
        Inverted(8, 12, 5, 2),
        Inverted(12, 12, 3, 1),
        convolve(12, 24, 1),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(1),
        nn.Dropout(0.0),
        nn.Linear(24, 10),
    )


def efficientnet(nn: Any) -> Any:
    """See `mobilenet`."""
    return mobilenet(nn, squeeze=True)


def unet(nn: Any) -> Any:
    """An encoder and a decoder joined by skips (Ronneberger et al. 2015): one transposed step, one bilinear."""

    def double(channels: int, out: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(channels, out, 3, padding=1),
            nn.GroupNorm(2, out),
            nn.LeakyReLU(0.1),
            nn.Conv2d(out, out, 3, padding=1, padding_mode="replicate"),
            nn.LeakyReLU(0.1),
        )

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.bottom = double(3, 6), double(6, 8), double(8, 10)
            self.pool = nn.MaxPool2d(2)
            self.up2 = nn.ConvTranspose2d(10, 8, 2, stride=2)
            self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.merge2, self.merge1 = double(16, 8), double(14, 6)
            self.head = nn.Conv2d(6, 2, 1)

        def forward(self, x: Any) -> Any:
            first = self.down1(x)
            second = self.down2(self.pool(first))
            cat = library_of(nn).cat
            out = self.merge2(cat([self.up2(self.bottom(self.pool(second))), second], 1))
            return self.head(self.merge1(cat([self.up1(out), first], 1)))

    return UNet()


MODELS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "lenet": (lenet, (2, 1, 28, 28)),
    "resnet": (resnet, (4, 3, 33, 32)),
    "bottleneck_resnet": (bottleneck_resnet, (4, 3, 32, 32)),
    "densenet": (densenet, (4, 3, 12, 12)),
    "mobilenet": (mobilenet, (4, 3, 24, 24)),
    "efficientnet": (efficientnet, (4, 3, 24, 24)),
    "unet": (unet, (2, 3, 16, 16)),
}
