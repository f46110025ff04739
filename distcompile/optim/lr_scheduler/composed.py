"""Schedules made of schedules: one after the other, or all at once.

In: schedules of one optimizer. Out: learning rates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.capture.held_numbers import changing_attributes
from distcompile.errors import ArgumentError
from distcompile.optim.lr_scheduler.base import LRScheduler
from distcompile.optim.lr_scheduler.plateau import ReduceLROnPlateau
from distcompile.optim.optimizer import Optimizer


class _Composed(LRScheduler):
    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        state = {key: value for key, value in super().state_dict().items() if key != "_schedulers"}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Composed):
    """One schedule after the other: schedulers[k] from milestones[k - 1] on, to milestones[k].

    Each starts at its own epoch 0. All were made for one optimizer.

    Args:
        milestones: one fewer than schedulers.

    Raises: ArgumentError for other numbers of them, another optimizer's schedule, or a ReduceLROnPlateau.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> warm = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=9)
        >>> fall = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, fall], milestones=[2])
        >>> for epoch in range(4):
        ...     print(epoch, round(schedule.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     schedule.step()
        0 0.1
        1 0.1
        2 1.0
        3 0.5
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        _check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                "SequentialLR expects one scheduler more than milestones",
                expected=f"{len(schedulers) - 1} milestones",
                got=str(len(milestones)),
            )
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in _leaves(self._schedulers):  # each made its first step when it was made: undo that
            scheduler.last_epoch -= 1
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch."""
        changing_attributes(self, ("last_epoch",))
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composed):
    """All schedules at every step: their factors multiply.

    Args:
        schedulers: of one optimizer, each of the kind that goes on from the present rate; no ReduceLROnPlateau.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> warm = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> fall = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> schedule = torch.optim.lr_scheduler.ChainedScheduler([warm, fall])
        >>> for epoch in range(4):
        ...     print(epoch, round(schedule.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     schedule.step()
        0 0.1
        1 0.05
        2 0.25
        3 0.125
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.optimizer = optimizer or _check(schedulers, None)
        _check(schedulers, self.optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = self._lrs()

    def step(self, epoch: int | None = None) -> None:
        """Step every schedule once."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._lrs()


def _leaves(schedulers: Sequence[LRScheduler]) -> list[LRScheduler]:
    leaves: list[LRScheduler] = []
    for scheduler in schedulers:
        leaves += _leaves(scheduler._schedulers) if isinstance(scheduler, _Composed) else [scheduler]
    return leaves


def _check(schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> Optimizer:
    if not schedulers:
        raise ArgumentError("expects at least one scheduler, but got no scheduler.")
    optimizer = optimizer or schedulers[0].optimizer
    for i, scheduler in enumerate(schedulers):
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ArgumentError(f"scheduler {i} is a ReduceLROnPlateau, whose step needs a metric")
        if scheduler.optimizer is not optimizer:
            raise ArgumentError(f"scheduler {i} belongs to another optimizer")
    return optimizer
