"""DataParallel: one process, several GPUs. Without GPUs it runs its module, as in torch.

In: a module whose parameters are on the first of the devices. Out: its forward, the batch cut among the devices (each
has a copy of the module, made anew at each call), the results joined on `output_device`. For several processes, and
for speed, there is DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from compiler_core.device import Device
from compiler_core.errors import DeviceError
from distcompile.nn.module import Module
from distcompile.nn.parallel.spreading import gather, parallel_apply, places, replicate, scatter_kwargs

M = TypeVar("M", bound=Module)

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids: Sequence[Any] | None) -> list[Device]:
    """The devices meant, all GPUs if none are named; where there is no GPU, none."""
    from distcompile import cuda

    if not cuda.is_available():
        return []
    return places(range(cuda.device_count()) if device_ids is None else device_ids)


def _check_home(module: Module, home: Device) -> None:
    """Raise DeviceError unless all parameters and buffers are on the first device."""
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.device != home:
            raise DeviceError(
                f"module must have its parameters and buffers on device {home} (device_ids[0]) "
                f"but found one of them on device: {tensor.device}",
                remedy=f"module.to({str(home)!r})",
            )


class DataParallel(Module, Generic[M]):
    """One process, several GPUs: the batch is cut among copies of `module`, and the results are joined.

    Without GPUs it runs the module as it is.

    For several processes, and for speed, take `DistributedDataParallel`.

    Args:
        module: what is called; its state dict's keys begin with "module."
        device_ids: the GPUs to spread over; None: all
        output_device: where results go; None: the first GPU
        dim: which dimension of the arguments is the batch

    Example:
        >>> model = nn.DataParallel(nn.Linear(3, 2))
        >>> list(model.state_dict())
        ['module.weight', 'module.bias']
    """

    def __init__(
        self,
        module: M,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        devices = _devices(device_ids)
        self.module, self.dim = module, dim
        self.device_ids: list[Any] = [place.index for place in devices]
        self.output_device = None if not devices else devices[0].index if output_device is None else output_device
        if len(devices) == 1:
            self.module.to(devices[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        return data_parallel(self.module, inputs, self.device_ids, self.output_device, self.dim, kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """module(*inputs, **module_kwargs), spread over GPUs as `DataParallel` does."""
    arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = _devices(device_ids)
    if not devices:
        return module(*arguments, **(module_kwargs or {}))
    target = devices[0] if output_device is None else output_device
    _check_home(module, devices[0])
    given, named = scatter_kwargs(arguments, module_kwargs, devices, dim)
    if not given:  # a module without arguments
        given, named = ((),), ({},)
    if len(given) == 1:
        outputs = parallel_apply([module], given, named, devices[:1])
        return gather(outputs, target, dim) if Device(target) != devices[0] else outputs[0]
    used = devices[: len(given)]
    replicas = [module, *replicate(module, used[1:])]
    return gather(parallel_apply(replicas, given, named, used), target, dim)
