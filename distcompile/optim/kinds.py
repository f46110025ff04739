"""Questions that optimizers written for torch ask of its helpers: which implementation, which groups of tensors.

In: parameters, lists of tensors. Out: no fused and no foreach kernels by default, since every update is one already;
tensors by device and dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.tensor.autograd.grad_mode import set_grad_enabled
from compiler_core.tensor.tensor import Tensor

Group = tuple[list[list[Any]], list[int]]


def default_to_fused_or_foreach(
    params: Sequence[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(fused, foreach) that an optimizer takes where the user said nothing: neither."""
    return False, False


def capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The types of devices whose optimizers may be `capturable`."""
    return ["cuda"]


def group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], Group]:
    """Lists of equal length, cut into groups by the device and dtype of the first one's tensors; their places, too."""
    groups: dict[tuple[Any, Any], Group] = {}
    for place, first in enumerate(tensorlistlist[0]):
        lists, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for held, whole in zip(lists, tensorlistlist):
            if whole:
                held.append(whole[place])
        if with_indices:
            places.append(place)
    return groups


def use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """`step`, recorded if the optimizer's option `differentiable` says so, and else not."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(self.defaults.get("differentiable", False)):
            return func(self, *args, **kwargs)

    return step
