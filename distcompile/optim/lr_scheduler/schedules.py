"""Schedules given by a formula of the epoch number.

In: an optimizer and the formula's constants. Out: learning rates. t is the epoch, lr₀ the initial rate.
`get_lr` steps from the present rate, so that schedules multiply when chained; `_get_closed_form_lr` is the formula.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from distcompile.errors import ArgumentError
from distcompile.optim.examples import rates
from distcompile.optim.lr_scheduler.base import LRScheduler, per_group
from distcompile.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class _ByFunction(LRScheduler):
    """A schedule with one function a group. Plain functions are not saved; callable objects' attributes are."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Factor] = per_group("lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["lr_lambdas"] = [None if isinstance(f, FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                function.__dict__.update(saved)


@rates("lambda epoch: 1 / (1 + epoch)", 1.0, 0.5, 0.3333, 0.25)
class LambdaLR(_ByFunction):
    """lr = lr₀·f(t).

    Args:
        lr_lambda: f, or a list with one for each group. A plain function is not saved in the state dict; of a
            callable object the attributes are.
    """

    def get_lr(self) -> list[float]:
        return [base * factor(self.last_epoch) for factor, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


@rates("lambda epoch: 0.5", 1.0, 0.5, 0.25, 0.125)
class MultiplicativeLR(_ByFunction):
    """lr ← lr·f(t), from t = 1 on.

    Args:
        lr_lambda: f, or a list with one for each group; saved as LambdaLR's are.
    """

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self._lrs()
        return [lr * factor(self.last_epoch) for factor, lr in zip(self.lr_lambdas, self._lrs(), strict=True)]


@rates("step_size=2", 1.0, 1.0, 0.1, 0.1, 0.01)
class StepLR(LRScheduler):
    """lr = lr₀·gamma^⌊t/step_size⌋.

    Args:
        step_size: epochs between two falls.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._each(_stepped, self.last_epoch, self.step_size, self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


def _stepped(lr: float, base: float, t: int, size: int, gamma: float) -> float:
    return lr * gamma if t != 0 and t % size == 0 else lr


@rates("milestones=[1, 3]", 1.0, 0.1, 0.1, 0.01)
class MultiStepLR(LRScheduler):
    """lr = lr₀·gamma^(how many milestones are reached).

    Args:
        milestones: epochs at which the rate falls; one that is given twice counts twice.
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._each(_fallen, self.last_epoch, tuple(self.milestones.elements()), self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        reached = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**reached for base in self.base_lrs]


def _fallen(lr: float, base: float, t: int, milestones: tuple[int, ...], gamma: float) -> float:
    return lr * gamma ** milestones.count(t)


@rates("factor=0.5, total_iters=2", 0.5, 0.5, 1.0, 1.0)
class ConstantLR(LRScheduler):
    """lr = lr₀·factor while t < total_iters, then lr₀.

    Args:
        factor: in [0, 1].
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        _check_range("Constant multiplicative factor", factor, low_allowed=True)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._each(_released, self.last_epoch, self.total_iters, self.factor)

    def _get_closed_form_lr(self) -> list[float]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


def _released(lr: float, base: float, t: int, total: int, factor: float) -> float:
    if t == 0:
        return lr * factor
    return lr * (1.0 / factor) if t == total else lr


@rates("start_factor=0.5, total_iters=2", 0.5, 0.75, 1.0, 1.0)
class LinearLR(LRScheduler):
    """lr = lr₀·(start_factor + (end_factor - start_factor)·min(t/total_iters, 1)): a warm-up, most often.

    Args:
        start_factor: in (0, 1].
        end_factor: in [0, 1].
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        _check_range("Starting multiplicative factor", start_factor, low_allowed=False)
        _check_range("Ending multiplicative factor", end_factor, low_allowed=True)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        factors = self.start_factor, self.end_factor
        return self._each(_risen, self.last_epoch, self.total_iters, *factors, self._is_initial)

    def _get_closed_form_lr(self) -> list[float]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [base * factor for base in self.base_lrs]


def _risen(lr: float, base: float, t: int, total: int, start: float, end: float, is_initial: bool) -> float:
    if t == 0:
        return lr * start
    if is_initial or t > total:
        return lr
    rise = end - start
    return lr * (1.0 + rise / (total * start + (t - 1) * rise))


@rates("gamma=0.9", 1.0, 0.9, 0.81, 0.729)
class ExponentialLR(LRScheduler):
    """lr = lr₀·gamma^t."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._lrs() if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


@rates("total_iters=2", 1.0, 0.5, 0.0, 0.0)
class PolynomialLR(LRScheduler):
    """lr = lr₀·(1 - t/total_iters)^power, and zero from total_iters on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._lrs() if self._is_initial else self._each(_powered, self.last_epoch, self.total_iters, self.power)

    def _get_closed_form_lr(self) -> list[float]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


def _powered(lr: float, base: float, t: int, total: int, power: float) -> float:
    if t > total:
        return lr
    left, left_before = 1.0 - t / total, 1.0 - (t - 1) / total
    factor: float = (left / left_before) ** power
    return lr * factor


@rates("T_max=4", 1.0, 0.8536, 0.5, 0.1464, 0.0)
class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (lr₀ - eta_min)·(1 + cos(πt/T_max))/2.

    Args:
        T_max: epochs from lr₀ down to eta_min; after that the rate rises again, for as long.

    Source: Loshchilov, Hutter 2017 (ICLR), without its restarts; with them: CosineAnnealingWarmRestarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self._lrs()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        return self._each(_cosine, self.last_epoch, self.T_max, self.eta_min)

    def _get_closed_form_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


def _check_range(what: str, factor: float, *, low_allowed: bool) -> None:
    if factor > 1.0 or factor < 0 or (factor == 0 and not low_allowed):
        raise ArgumentError(f"{what} expected to be between 0 and 1.", got=str(factor))


def _cosine(lr: float, base: float, t: int, period: int, low: float) -> float:
    if (t - 1 - period) % (2 * period) == 0:  # leaving a trough, where the ratio below is 0/0
        return lr + (base - low) * (1 - math.cos(math.pi / period)) / 2
    ratio = (1 + math.cos(math.pi * t / period)) / (1 + math.cos(math.pi * (t - 1) / period))
    return ratio * (lr - low) + low
