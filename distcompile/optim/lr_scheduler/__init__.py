"""Learning rate schedules: each sets `group["lr"]` of an optimizer's groups once an epoch (or step).

In: an optimizer, and `step()` after its step. Out: learning rates. Names, arguments and values are torch's.
"""

from __future__ import annotations

from distcompile.optim.lr_scheduler.base import LRScheduler
from distcompile.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR
from distcompile.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, OneCycleLR
from distcompile.optim.lr_scheduler.cyclic import CyclicLR
from distcompile.optim.lr_scheduler.plateau import ReduceLROnPlateau
from distcompile.optim.lr_scheduler.schedules import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

_LRScheduler = LRScheduler  # its old name

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
