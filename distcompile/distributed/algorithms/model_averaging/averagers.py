"""Model averagers: now and then, every rank's parameters are replaced by their average over the ranks.

In: parameters, or an optimizer's parameter groups, the same on all ranks. Out: new values in the parameters.
One all-reduce per dtype: parameters travel together. Those that have no gradient are left alone, as in torch.
Source: local SGD, Stich, ICLR 2019; post-local SGD, Lin et al., ICLR 2020.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.group import ProcessGroup, group_or_default
from distcompile.errors import ArgumentError


def average_parameters(params: Iterable[Tensor], process_group: ProcessGroup | None = None) -> None:
    """Replace each parameter by its average over the ranks of the group. Collective."""
    group = group_or_default(process_group)
    lanes: dict[np.dtype[np.generic], list[tuple[Tensor, Array]]] = {}
    for parameter in params:
        value = parameter._cell.current()
        lanes.setdefault(value.dtype, []).append((parameter, value))
    flats = [np.concatenate([value.reshape(-1) for _, value in lane]) for lane in lanes.values()]
    works = [group.all_reduce_async(flat, "avg", label="average of parameters") for flat in flats]
    for work, flat, lane in zip(works, flats, lanes.values()):
        work.wait()
        start = 0
        for parameter, value in lane:
            parameter._cell.write(flat[start : start + value.size].reshape(value.shape))
            start += value.size


def average_parameters_or_parameter_groups(
    params: Iterable[Tensor] | Iterable[Mapping[str, Any]], process_group: ProcessGroup | None = None
) -> None:
    """`average_parameters` of those parameters, or groups' parameters, that have a gradient."""
    listed: list[Tensor] = []
    for item in params:
        listed += item["params"] if isinstance(item, Mapping) else [item]
    if not listed:
        raise ArgumentError("there are no parameters to average")
    average_parameters([parameter for parameter in listed if parameter.grad is not None], process_group)


class ModelAverager(ABC):
    """Base of averagers. `step`: how often average_parameters was called."""

    def __init__(self, process_group: ProcessGroup | None = None) -> None:
        self.process_group = group_or_default(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Tensor] | Iterable[Mapping[str, Any]]) -> None:
        """Called after every optimizer step; averages when it is time to."""


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps, after `warmup_steps` steps in which gradients are averaged instead."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ArgumentError("Arg ``warmup_steps`` must be a non-negative number", got=str(warmup_steps))
        if period < 1:
            raise ArgumentError("Arg ``period`` must be a positive value", got=str(period))
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Tensor] | Iterable[Mapping[str, Any]]) -> None:
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
