"""torchvision's tv_tensors and transforms.v2 on one image, boxes, masks, a video: the same file under both libraries.

In: nothing. Out: a line for each call: class, dtype, shape, sum, attributes of what it gives, or its error's class.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from library_common import provide_torchvisions_operators

warnings.simplefilter("ignore")
provide_torchvisions_operators()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402

G = np.random.default_rng(0)


def pixels(*shape: int, below: int = 256) -> torch.Tensor:
    return torch.from_numpy(G.integers(0, below, shape).astype("uint8"))


IMAGE, VIDEO = tv_tensors.Image(pixels(3, 32, 40)), tv_tensors.Video(pixels(4, 3, 32, 40))
MASK = tv_tensors.Mask(pixels(2, 32, 40, below=2))
BOXES = tv_tensors.BoundingBoxes(
    torch.tensor([[2.0, 3.0, 20.0, 25.0], [5.0, 5.0, 30.0, 31.0]]), format="XYXY", canvas_size=(32, 40)
)
SAMPLE = {"image": IMAGE, "boxes": BOXES, "masks": MASK, "labels": torch.tensor([1, 2])}
TRANSFORMS = {
    "flips": v2.Compose([v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)]),
    "resize": v2.Resize((16, 20), antialias=True),
    "crop and pad": v2.Compose([v2.CenterCrop(20), v2.Pad(3)]),
    "normalised": v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]),
    "gray": v2.Grayscale(3),
    "blur": v2.GaussianBlur(3, 1.0),
    "boxes": v2.Compose([v2.ConvertBoundingBoxFormat("CXCYWH"), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()]),
    "plain": v2.Compose([v2.ToImage(), v2.ToPureTensor()]),
    "colours": v2.Compose([v2.ColorJitter(brightness=(1.2, 1.2)), v2.RandomInvert(1.0), v2.RandomSolarize(128, 1.0)]),
    "more colours": v2.Compose([v2.RandomPosterize(3, 1.0), v2.RandomEqualize(1.0), v2.RandomAutocontrast(1.0)]),
    "sharp": v2.RandomAdjustSharpness(2.0, 1.0),
}
SINGLE = {
    "rotate": lambda x: F.rotate(x, 30.0),
    "affine": lambda x: F.affine(x, 10.0, [1, 2], 1.1, [1.0, 2.0]),
    "crop": lambda x: F.crop(x, 2, 3, 10, 12),
    "resized crop": lambda x: F.resized_crop(x, 2, 3, 10, 12, [8, 8]),
}
CALLS = {
    "an operation": lambda: IMAGE + 1,
    "to": lambda: IMAGE.to(torch.float32),
    "clone": lambda: BOXES.clone(),
    "detach": lambda: BOXES.detach(),
    "wrap": lambda: tv_tensors.wrap(BOXES + 1, like=BOXES),
    "repr": lambda: repr(BOXES),
    "deepcopy": lambda: copy.deepcopy(BOXES),
    "five crops": lambda: v2.FiveCrop(16)(IMAGE),
    "a batch": lambda: next(iter(torch.utils.data.DataLoader([IMAGE, IMAGE], batch_size=2))),
}


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        total = round(float(value.detach().as_subclass(torch.Tensor).double().sum()), 2)
        held = {name: str(one) for name, one in vars(value).items()}
        return type(value).__name__, str(value.dtype), tuple(value.shape), total, held
    if isinstance(value, dict):
        return {key: described(one) for key, one in value.items()}
    return [described(one) for one in value] if isinstance(value, tuple | list) else value


def say(name: str, call: Callable[[], Any]) -> None:
    try:
        print(name, described(call()))
    except Exception as error:  # noqa: BLE001
        print(name, "raises", type(error).__name__)


for name, call in CALLS.items():
    say(name, call)
with tv_tensors.set_return_type("TVTensor"):
    say("an operation that keeps", lambda: IMAGE + 2)
for name, transform in TRANSFORMS.items():
    say(name, lambda transform=transform: transform(SAMPLE))
for name, function in SINGLE.items():
    for value in (IMAGE, BOXES, MASK, VIDEO):
        say(f"{name} of a {type(value).__name__}", lambda function=function, value=value: function(value))
