"""CyclicLR: rates (and momenta, the other way round) that rise and fall between two bounds.

In: an optimizer and the cycle's constants. Out: learning rates. Source: Smith 2017 (cyclical learning rates).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Literal

from compiler_core.capture.held_numbers import number_of
from distcompile.errors import ArgumentError
from distcompile.optim.lr_scheduler.base import LRScheduler, per_group, require_optimizer
from distcompile.optim.lr_scheduler.cycles import set_momentum
from distcompile.optim.optimizer import Optimizer

MODES = ("triangular", "triangular2", "exp_range")


class CyclicLR(LRScheduler):
    """Rates that rise and fall between two bounds, stepped once a batch.

        lr = base_lr + (max_lr - base_lr)·height·scale
        height: 0 to 1 in step_size_up steps, and back in step_size_down

    Args:
        base_lr, max_lr: the bounds; lists: one for each group.
        step_size_down: None: as step_size_up.
        mode: scale is 1 ("triangular"), 1/2^(cycle - 1) ("triangular2") or gamma^step ("exp_range").
        scale_fn: the scale instead of the mode's: of the cycle's number, from 1, or of the step's.
        scale_mode: which of the two scale_fn gets: "cycle" or "iterations".
        cycle_momentum: momentum, or the first beta, goes the other way, between max_momentum and base_momentum.

    Raises: ArgumentError for cycle_momentum of an optimizer without momentum. Source: Smith 2017 (WACV).

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0, momentum=0.9)
        >>> schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5, step_size_up=2)
        >>> for step in range(5):
        ...     print(step, round(schedule.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     schedule.step()
        0 0.1
        1 0.3
        2 0.5
        3 0.3
        4 0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = require_optimizer(optimizer)
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                group["lr"] = rate
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in MODES and scale_fn is None:
            raise ArgumentError("mode is invalid and scale_fn is None", expected=", ".join(MODES), got=str(mode))
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        own_mode: Literal["cycle", "iterations"] = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = own_mode if scale_fn is None else scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._init_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_momentum(self, base: Any, top: Any, last_epoch: int) -> None:
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults
        self.base_momentums = per_group("base_momentum", self.optimizer, base)
        self.max_momentums = per_group("max_momentum", self.optimizer, top)
        if last_epoch == -1:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in bounds:
                set_momentum(group, high)
                group.update(max_momentum=high, base_momentum=low)

    def scale_fn(self, x: float) -> float:
        """The height of cycle x, or of step x: as scale_mode says."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else float(self.gamma**x)

    def get_lr(self) -> list[float]:
        cycle = number_of(_cycle, self.last_epoch, self.total_size)
        height = number_of(_triangle, self.last_epoch, self.total_size, self.step_ratio)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in bounds:
                set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        custom = state["_scale_fn_custom"]
        state["_scale_fn_custom"] = None if custom is None or isinstance(custom, FunctionType) else dict(vars(custom))
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if state_dict["_scale_fn_custom"] is not None:
            vars(self._scale_fn_custom).update(state_dict["_scale_fn_custom"])


def _cycle(step: int, size: float) -> int:
    return math.floor(1 + step / size)


def _triangle(step: int, size: float, ratio: float) -> float:
    """How high step `step` is, between 0 and 1, in its cycle of `size` steps, which rises for `ratio` of them."""
    x = 1.0 + step / size - _cycle(step, size)
    return x / ratio if x <= ratio else (x - 1) / (ratio - 1)
