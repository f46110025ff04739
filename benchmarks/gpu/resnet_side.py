"""One side of resnet.py: the training step of ResNet-50 on a GPU, channels last, written once for both frameworks.

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

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first
SIZE, CLASSES, EXPANSION = 224, 1000, 4


class Bottleneck(nn.Module):
    """x: f[N, C, H, W] -> f[N, 4 width, H / stride, W / stride] (He et al. 2015, stride at the 3x3)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.short = None
        if stride != 1 or channels != out:
            self.short = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    """Images f[N, 3, 224, 224] -> scores of 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for width, count, stride in STAGES:
            for number in range(count):
                blocks.append(Bottleneck(channels, width, stride if number == 0 else 1))
                channels = EXPANSION * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(channels, CLASSES)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 3, stride=2, padding=1)
        return self.fc(self.blocks(x).mean((2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="compile")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = ResNet().cuda().to(memory_format=torch.channels_last)
    run, optimizer = compiled(model, given.mode), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(given.batch, 3, SIZE, SIZE, device="cuda").to(memory_format=torch.channels_last)
    classes = torch.randint(0, CLASSES, (given.batch,), device="cuda")

    step = step_on_images(run, optimizer, images, classes, given.mode)
    print(report(step, mode=given.mode, world=1, warm=5, steps=given.steps, begun_s=BEGUN_S), flush=True)


if __name__ == "__main__":
    main()
