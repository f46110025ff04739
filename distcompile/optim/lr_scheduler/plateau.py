"""ReduceLROnPlateau: lower the rate when a measured value stops improving.

In: the metric, once an epoch. Out: learning rates.
"""

from __future__ import annotations

import math
from typing import Any, Literal, SupportsFloat

from compiler_core.capture.held_numbers import changing_attributes
from distcompile.errors import ArgumentError
from distcompile.optim.lr_scheduler.base import LRScheduler, per_group, require_optimizer
from distcompile.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """lr ← max(lr·factor, min_lr) when a metric has not improved for more than `patience` epochs.

    Args:
        mode: "min": smaller is better; "max": larger is.
        factor: less than 1.
        threshold: by how much a value must be better than the best, to count.
        threshold_mode: "rel": threshold·best; "abs": threshold.
        cooldown: epochs after a fall in which none is counted as bad.
        min_lr: a list: one for each group.
        eps: a fall by no more than this is left out.

    `step` takes the metric. Raises: ArgumentError for an unknown mode, or a factor of 1 or more.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        >>> for loss in (3.0, 2.0, 2.0, 2.0):
        ...     schedule.step(loss)
        ...     print(loss, schedule.get_last_lr())
        3.0 [1.0]
        2.0 [1.0]
        2.0 [1.0]
        2.0 [0.1]
    """

    _counters = ("last_epoch", "best", "num_bad_epochs", "cooldown_counter")

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ArgumentError("Factor should be < 1.0.", got=str(factor))
        if mode not in ("min", "max"):
            raise ArgumentError(f"mode {mode} is unknown!", expected="min or max")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"threshold mode {threshold_mode} is unknown!", expected="rel or abs")
        self.optimizer = require_optimizer(optimizer)
        self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.min_lrs: list[float] = per_group("min_lr", optimizer, min_lr)
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0
        self._last_lr = self._lrs()

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the epoch's metric, and lower the rates if it has stood still for too long."""
        current = float(metrics)
        changing_attributes(self, self._counters)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._lrs()

    def _reduce(self) -> None:
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            new = max(group["lr"] * self.factor, lowest)
            if group["lr"] - new > self.eps:
                group["lr"] = new

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        margin: Any = self.threshold if self.threshold_mode == "abs" else self.threshold * self.best * sign
        return sign * value < sign * self.best - margin if math.isfinite(self.best) else sign * value < sign * self.best
