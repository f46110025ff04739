"""Optimizers and learning rate schedules: torch.optim's names.

In: parameters with gradients. Out: updated parameters.
"""

from __future__ import annotations

from distcompile.optim import lr_scheduler
from distcompile.optim.adam import Adam, AdamW
from distcompile.optim.optimizer import Optimizer
from distcompile.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
