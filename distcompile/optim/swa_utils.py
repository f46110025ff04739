"""Averages of a model over its training (SWA, EMA), and the schedule and the statistics that go with them.

In: a model that trains. Out: `AveragedModel`, a copy whose parameters are the average; torch's names and numbers.
Sources: Izmailov et al. 2018 (stochastic weight averaging); Polyak, Juditsky 1992.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal

from compiler_core.capture.held_numbers import hold_number, number_of, whole_held
from compiler_core.dtype import int64
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import full, zeros
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.layers.batchnorm import _BatchNorm
from distcompile.nn.module import Module
from distcompile.optim.lr_scheduler.base import LRScheduler, per_group
from distcompile.optim.optimizer import Optimizer

Average = Callable[[Tensor, Tensor, Tensor | int], Tensor]  # (average so far, new value, how many so far) -> average
MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]  # the same for lists, in place

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """An exponential average for `AveragedModel`: decay·average + (1 - decay)·new.

    Raises: ArgumentError for a decay outside [0, 1].

    Example:
        >>> ema = torch.optim.swa_utils.get_ema_avg_fn(decay=0.9)
        >>> ema(torch.tensor(1.0), torch.tensor(2.0), 5)
        tensor(1.1000)
    """
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        with no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Average:
    """The mean of all values, for `AveragedModel`: average + (new - average)/(n + 1), where n were averaged so far.

    Example:
        >>> mean = torch.optim.swa_utils.get_swa_avg_fn()
        >>> mean(torch.tensor(1.0), torch.tensor(4.0), 2)
        tensor(2.)
    """

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        with no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """`get_ema_avg_fn` for lists of parameters, in place: `AveragedModel`'s multi_avg_fn.

    Example:
        >>> average, new = [torch.tensor(1.0)], [torch.tensor(2.0)]
        >>> torch.optim.swa_utils.get_ema_multi_avg_fn(decay=0.9)(average, new, 5)
        >>> average
        [tensor(1.1000)]
    """
    return _for_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAverage:
    """`get_swa_avg_fn` for lists of parameters, in place: `AveragedModel`'s multi_avg_fn.

    Example:
        >>> average, new = [torch.tensor(1.0)], [torch.tensor(4.0)]
        >>> torch.optim.swa_utils.get_swa_multi_avg_fn()(average, new, 2)
        >>> average
        [tensor(2.)]
    """
    return _for_lists(get_swa_avg_fn())


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ArgumentError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _for_lists(average: Average) -> MultiAverage:
    def update(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Tensor | int) -> None:
        with no_grad():
            for old, new in zip(averaged, current, strict=True):
                old.copy_(average(old, new, num_averaged))

    return update


class AveragedModel(Module):
    """A copy of a model whose parameters are an average over training.

        first update: a ← p;  then a ← avg_fn(a, p, n), by default a + (p - a)/(n + 1)

    Args:
        model: copied; the copy is `module`.
        device: where the copy goes; None: where `model` is.
        avg_fn: (average, parameter, number so far) -> new average; None, and no multi_avg_fn: the mean.
        multi_avg_fn: the same for lists of all parameters, in place. At most one of the two is given.
        use_buffers: average buffers too; else they are copied from the model.

    Batch norms: call `update_bn` before evaluation. Source: Izmailov et al. 2018 (UAI).

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> average = torch.optim.swa_utils.AveragedModel(model)
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = model.weight.data.fill_(value)
        ...     average.update_parameters(model)
        >>> average.module.weight.item(), int(average.n_averaged)
        (3.0, 3)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: object = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", zeros((), dtype=int64))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged module's forward."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take `model`'s present parameters into the average."""
        with no_grad():
            own, given = self._averaged(self.module), self._averaged(model)
            count = whole_held(self.n_averaged)
            so_far = full((), count, dtype=int64, device=self.n_averaged.device)
            if count == 0:
                for old, new in zip(own, given, strict=True):
                    old.copy_(new)
            elif self.avg_fn is not None:
                for old, new in zip(own, given, strict=True):
                    old.copy_(self.avg_fn(old, new, so_far))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(own, given, so_far)
            if not self.use_buffers:
                for old, new in zip(self.module.buffers(), model.buffers(), strict=True):
                    old.copy_(new)
            hold_number([self.n_averaged], count + 1)

    def _averaged(self, model: Module) -> list[Tensor]:
        buffers = model.buffers() if self.use_buffers else ()
        return [tensor.detach() for tensor in itertools.chain(model.parameters(), buffers)]


def update_bn(loader: Iterable[Any], model: Module, device: object = None) -> None:
    """Set the running statistics of every batch norm to their cumulative average over `loader`'s batches.

    An average of parameters has no statistics of its own. The model runs in train mode, without gradients; then its
    mode and its momenta are as before.

    Args:
        loader: batches; each is the model's input, or a list or tuple that begins with it.
        device: where inputs are moved; None: they stay.

    Example:
        >>> model = torch.nn.BatchNorm1d(1)
        >>> torch.optim.swa_utils.update_bn([torch.tensor([[1.0], [3.0]]), torch.tensor([[4.0], [8.0]])], model)
        >>> model.running_mean
        tensor([4.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta, was_training = [module.momentum for module in norms], model.training
    model.train()
    for module in norms:
        module.reset_running_stats()
        module.momentum = None
    with no_grad():
        for batch in loader:
            first = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(first if device is None else first.to(device))
    for module, momentum in zip(norms, momenta, strict=True):
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From each group's rate to `swa_lr`, then there: the schedule for averaging weights.

        lr = swa_lr·a(k) + lr₀·(1 - a(k)),  k = min(1, t/anneal_epochs)
        a(k) = (1 - cos(πk))/2 ("cos") or k ("linear")

    Args:
        swa_lr: the rate at the end; a list: one for each group.
        anneal_epochs: 0: the rate is swa_lr at once.

    Example:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        >>> schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.2, anneal_epochs=2, anneal_strategy="linear")
        >>> for epoch in range(4):
        ...     print(epoch, round(schedule.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     schedule.step()
        0 1.0
        1 0.6
        2 0.2
        3 0.2
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How much of the way is done after the part t of the time."""
        return _way_done(t, self._anneal_strategy == "linear")

    def get_lr(self) -> list[float]:
        args = self._step_count - 1, self.anneal_epochs, self._anneal_strategy == "linear"
        groups = zip(self._lrs(), self.optimizer.param_groups, strict=True)
        return [number_of(_towards, lr, group["swa_lr"], *args) for lr, group in groups]


def _way_done(t: float, is_linear: bool) -> float:
    return t if is_linear else (1 - math.cos(math.pi * t)) / 2


def _towards(lr: float, goal: float, step: int, epochs: int, is_linear: bool) -> float:
    """The rate at `step` of `epochs` steps to `goal`, from the present rate, which is that of the step before."""
    step = max(1, step) if epochs == 0 else step
    before, now = (_way_done(max(0, min(1, t / max(1, epochs))), is_linear) for t in (step - 1, step))
    start = goal if before == 1 else (lr - before * goal) / (1 - before)
    return goal * now + start * (1 - now)
