"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from distcompile.optim.lr_scheduler.base import LRScheduler as LRScheduler
from distcompile.optim.lr_scheduler.composed import ChainedScheduler as ChainedScheduler
from distcompile.optim.lr_scheduler.composed import SequentialLR as SequentialLR
from distcompile.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from distcompile.optim.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from distcompile.optim.lr_scheduler.cyclic import CyclicLR as CyclicLR
from distcompile.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from distcompile.optim.lr_scheduler.schedules import ConstantLR as ConstantLR
from distcompile.optim.lr_scheduler.schedules import CosineAnnealingLR as CosineAnnealingLR
from distcompile.optim.lr_scheduler.schedules import ExponentialLR as ExponentialLR
from distcompile.optim.lr_scheduler.schedules import LambdaLR as LambdaLR
from distcompile.optim.lr_scheduler.schedules import LinearLR as LinearLR
from distcompile.optim.lr_scheduler.schedules import MultiStepLR as MultiStepLR
from distcompile.optim.lr_scheduler.schedules import MultiplicativeLR as MultiplicativeLR
from distcompile.optim.lr_scheduler.schedules import PolynomialLR as PolynomialLR
from distcompile.optim.lr_scheduler.schedules import StepLR as StepLR

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
