"""What all schedules share: when the rates change, what is saved, and the warning about the order of steps.

In: an optimizer; `step()` once an epoch. Out: `group["lr"]` = `get_lr()`, kept also as `get_last_lr()`.
A schedule's `get_lr` says the next rates from the present ones (so that schedules chain) or from `base_lrs`.
Where a function is compiled that steps a schedule, its counters and rates are inputs from the first call on, and what
computes a rate of them (`_each`) takes whichever way it takes at each call: nothing is compiled again for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from compiler_core.capture.held_numbers import changing_attributes, changing_item, number_of
from compiler_core.log import DistCompileWarning
from distcompile.errors import ArgumentError, NoInitialRateError, RegistrationTypeError
from distcompile.optim.optimizer import Optimizer


def require_optimizer(optimizer: object) -> Optimizer:
    """`optimizer`, or RegistrationTypeError."""
    if not isinstance(optimizer, Optimizer):
        raise RegistrationTypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


class LRScheduler:
    """Base of the schedules: each sets `group["lr"]` of an optimizer's groups once an epoch, or once a step.

    A subclass defines `get_lr`. It finds the epoch in `last_epoch`, and the initial rates in `base_lrs`. In the
    schedules here t is the epoch and lr₀ the initial rate; where a schedule multiplies the present rate, several of
    one optimizer may be stepped together.

    Args:
        optimizer: its rates are set, at once for the first epoch.
        last_epoch: -1 to start; else the epoch that a restored schedule was at: groups need "initial_lr" then.

    `step` comes after the optimizer's `step`; a warning tells the other order.
    Raises: RegistrationTypeError for what is no optimizer; NoInitialRateError.

    Example:
        >>> class Halving(torch.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [rate / 2**self.last_epoch for rate in self.base_lrs]
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> schedule = Halving(optimizer)
        >>> for epoch in range(3):
        ...     print(epoch, schedule.get_last_lr())
        ...     optimizer.step()
        ...     schedule.step()
        0 [1.0]
        1 [0.5]
        2 [0.25]
    """

    _counters: ClassVar[tuple[str, ...]] = ("last_epoch", "_step_count")  # attributes that `step` counts in

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = require_optimizer(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise NoInitialRateError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming a scheduler",
                    remedy="load the optimizer's state dict before making the scheduler with last_epoch >= 0",
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        self._get_lr_called_within_step = False  # published schedules, copied from torch's, ask this
        self.step()
        self._is_initial = False

    def get_lr(self) -> list[float]:
        """The next learning rate of every group."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[float]:
        """The learning rates set by the last `step`."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch (or of `epoch`). Call it after the optimizer's step."""
        changing_attributes(self, self._counters)
        if not self.optimizer.has_stepped and self._step_count == 1:
            warnings.warn(
                "lr_scheduler.step() was called before optimizer.step(): the first rate of the schedule is skipped",
                DistCompileWarning,
                stacklevel=2,
            )
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            rates = closed() if epoch is not None and closed is not None else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set_lr(rates)

    def _set_lr(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr: list[float] = list(self._lrs())

    def _lrs(self) -> list[float]:
        return [changing_item(group, "lr") for group in self.optimizer.param_groups]

    def _each(self, rate: Callable[..., float], *args: Any) -> list[float]:
        """`rate(lr, lr₀, *args)` for every group; it only computes."""
        pairs = zip(self._lrs(), self.base_lrs, strict=True)
        return [number_of(rate, lr, base, *args) for lr, base in pairs]

    def _scaled(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._lrs()]

    def state_dict(self) -> dict[str, Any]:
        """Every attribute but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self.__dict__.update(state_dict)


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each group: itself if it is a list of that length, else repeated. Raises ArgumentError."""
    count = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise ArgumentError(
                f"{name} must have one value a parameter group", expected=str(count), got=str(len(value))
            )
        return list(value)
    return [value] * count
