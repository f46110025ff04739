"""DataParallel, torch's wrapper for several GPUs of one process: without GPUs it runs its module, and so it does here.

In: a module. Out: its forward. For several processes there is DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from distcompile.nn.module import Module

M = TypeVar("M", bound=Module)

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module, Generic[M]):
    """`module`, called so in the state dict too. device_ids, output_device, dim: there is nothing to spread."""

    def __init__(
        self,
        module: M,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids: list[Any] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """module(*inputs, **module_kwargs)."""
    arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*arguments, **(module_kwargs or {}))
