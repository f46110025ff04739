"""Schedules that come back: warm restarts, and the one-cycle policy.

In: an optimizer and the cycle's constants. Out: learning rates (and, in one-cycle, momenta).
Sources: Loshchilov, Hutter 2017 (SGDR); Smith, Topin 2018 (super-convergence).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from compiler_core.capture.held_numbers import changing_attributes, number_of
from distcompile.errors import ArgumentError
from distcompile.optim.examples import rates
from distcompile.optim.lr_scheduler.base import LRScheduler, per_group, require_optimizer
from distcompile.optim.optimizer import Optimizer


@rates("T_0=2", 1.0, 0.5, 1.0, 0.5)
class CosineAnnealingWarmRestarts(LRScheduler):
    """A cosine from lr₀ to eta_min over T_i epochs, again and again.

        lr = eta_min + (lr₀ - eta_min)·(1 + cos(π·T_cur/T_i))/2        T_cur: epochs since the last restart

    Args:
        T_0: epochs to the first restart.
        T_mult: T_i is T_mult times as long after each restart; an integer, at least 1.

    `step(epoch)` takes a fraction, too: for a rate that changes with every batch.
    Source: Loshchilov, Hutter 2017 (ICLR), equation 5.
    """

    _counters = (*LRScheduler._counters, "T_cur", "T_i")

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ArgumentError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = number_of(_height, self.T_cur, self.T_i)
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to `epoch`, which may be a fraction."""
        changing_attributes(self, self._counters)
        if epoch is not None and epoch < 0:
            raise ArgumentError(f"Expected non-negative epoch, but got {epoch}")
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            now, period = self.T_cur + 1, self.T_i
            self.T_cur = number_of(_since_restart, now, period)
            self.T_i = number_of(_period, now, period, self.T_mult)
        else:
            epoch = 0 if epoch is None else epoch
            self._seek(epoch)
        self.last_epoch = math.floor(epoch)
        self._set_lr(self.get_lr())

    def _seek(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**cycle


def _height(now: float, period: int) -> float:
    return (1 + math.cos(math.pi * now / period)) / 2


def _since_restart(now: float, period: int) -> float:
    return now % period if now >= period else now


def _period(now: float, period: int, factor: int) -> int:
    return period * factor if now >= period else period


@dataclass(frozen=True, slots=True)
class _Phase:
    """From the group's entry `*_from` to `*_to`, ending at step `end`."""

    end: float
    lr_from: str
    lr_to: str
    momentum_from: str
    momentum_to: str


class OneCycleLR(LRScheduler):
    """One cycle over the whole training, stepped once a batch: up to max_lr, then down to next to nothing.

        max_lr/div_factor → max_lr → max_lr/(div_factor·final_div_factor)

    Args:
        max_lr: the top; a list: one for each group.
        total_steps: how many steps; or give epochs and steps_per_epoch.
        pct_start: the share of steps that the rate rises for, a float.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: momentum, or the first beta, goes the other way: max_momentum → base_momentum → max_momentum.
        three_phase: go down to the initial rate as fast as up, and then on to the last one.

    Raises: ArgumentError for a step beyond total_steps; for cycle_momentum of an optimizer without momentum.
    Source: Smith, Topin 2018 (arXiv:1708.07120).

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0, momentum=0.9)
        >>> schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.4)
        >>> for step in range(4):
        ...     print(step, round(schedule.get_last_lr()[0], 4), round(optimizer.param_groups[0]["momentum"], 4))
        ...     optimizer.step()
        ...     schedule.step()
        0 0.04 0.95
        1 1.0 0.85
        2 0.75 0.875
        3 0.25 0.925
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = require_optimizer(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ArgumentError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.anneal_strategy, self.cycle_momentum = anneal_strategy, cycle_momentum
        self.pct_start, self.three_phase = pct_start, three_phase
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr), strict=True):
                low = top / div_factor
                group.update(initial_lr=low, max_lr=top, min_lr=low / final_div_factor)
        if cycle_momentum:
            self._init_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _init_momentum(self, base: Any, top: Any, last_epoch: int) -> None:
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        bases, tops = per_group("base_momentum", self.optimizer, base), per_group("max_momentum", self.optimizer, top)
        if last_epoch == -1:
            for group, low, high in zip(self.optimizer.param_groups, bases, tops, strict=True):
                set_momentum(group, high)
                group.update(max_momentum=high, base_momentum=low)

    def _phases(self) -> list[_Phase]:
        last, turn = float(self.total_steps - 1), self.pct_start * self.total_steps - 1
        up = _Phase(turn, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if not self.three_phase:
            return [up, _Phase(last, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        down = _Phase(
            2 * self.pct_start * self.total_steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"
        )
        return [up, down, _Phase(last, "initial_lr", "min_lr", "max_momentum", "max_momentum")]

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ArgumentError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        phases, is_linear = self._phases(), self.anneal_strategy == "linear"
        ends = tuple([phase.end for phase in phases])
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                bounds = tuple([(group[phase.momentum_from], group[phase.momentum_to]) for phase in phases])
                set_momentum(group, number_of(_annealed, step, ends, bounds, is_linear))
        rates = []
        for group in self.optimizer.param_groups:
            bounds = tuple([(group[phase.lr_from], group[phase.lr_to]) for phase in phases])
            rates.append(number_of(_annealed, step, ends, bounds, is_linear))
        return rates


def _annealed(step: int, ends: tuple[float, ...], bounds: tuple[tuple[float, float], ...], is_linear: bool) -> float:
    """Between the bounds of the phase that `step` is in, on a line or a cosine. ends: the last step of each."""
    place = next((i for i, end in enumerate(ends) if step <= end), len(ends) - 1)
    begin, (start, stop) = ends[place - 1] if place else 0.0, bounds[place]
    done = (step - begin) / (ends[place] - begin)
    if is_linear:
        return start + (stop - start) * done
    return stop + (start - stop) / 2.0 * (math.cos(math.pi * done) + 1)


def set_momentum(group: dict[str, Any], value: float) -> None:
    """Set a group's momentum, or its first beta."""
    if "betas" in group:
        group["betas"] = (value, group["betas"][1])
    else:
        group["momentum"] = value


def _total_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None:
        if epochs is None or steps_per_epoch is None:
            raise ArgumentError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        total_steps = epochs * steps_per_epoch
    if not isinstance(total_steps, int) or total_steps <= 0:
        raise ArgumentError(f"Expected positive integer total_steps, but got {total_steps}")
    return total_steps
