"""One batch over the GPUs of one process: scatter, replicate, parallel_apply, gather. Recorded, so gradients come back.

In: tensors, modules, devices. Out: a list with one entry a device; of `gather` one tensor on the target. Parts are
computed one after the other by this thread: a GPU's work is only enqueued, so the devices work side by side.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.device import Device, check_device
from compiler_core.ops import functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.module import Module


def places(devices: Sequence[Any]) -> list[Device]:
    """The devices meant: numbers, names, devices. Raises DeviceError for one that is not here."""
    return [check_device(Device(one)) for one in devices]


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """`inputs`, each tensor in it cut along `dim` into a part a device; all else goes to each. Fewer parts if short."""
    targets = places(target_gpus)

    def spread(thing: Any) -> list[Any]:
        if isinstance(thing, Tensor):
            parts = thing.chunk(len(targets), dim)
            return [part.to(target) for part, target in zip(parts, targets)]
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return [type(thing)(*parts) for parts in zip(*map(spread, thing))]
        if isinstance(thing, (tuple, list)) and thing:
            return [type(thing)(parts) for parts in zip(*map(spread, thing))]
        if isinstance(thing, dict) and thing:
            return [type(thing)(parts) for parts in zip(*map(spread, thing.items()))]
        return [thing for _ in targets]

    return spread(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and keyword arguments, as many of each as the longer has."""
    first = scatter(inputs, target_gpus, dim) if inputs else []
    second = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(first), len(second))
    return (
        tuple(first + [()] * (count - len(first))),
        tuple(second + [{} for _ in range(count - len(second))]),
    )


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The parts' tensors, joined along `dim` on the target; numbers become a vector, with a warning, as in torch."""
    target = check_device("cpu" if target_device in (-1, "cpu") else Device(target_device))

    def join(parts: Sequence[Any]) -> Any:
        first = parts[0]
        if isinstance(first, Tensor):
            if all(part.dim() == 0 for part in parts) and dim == 0:
                warnings.warn("Was asked to gather along dimension 0, but all input tensors were scalars; "
                              "will instead unsqueeze and return a vector.", stacklevel=3)  # fmt: skip
                parts = [part.reshape(1) for part in parts]
            return F.cat([part.to(target) for part in parts], dim)
        if first is None:
            return None
        if isinstance(first, dict):
            if any(len(part) != len(first) for part in parts):
                raise ArgumentError("All dicts must have the same number of keys")
            return type(first)((key, join([part[key] for part in parts])) for key in first)
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*map(join, zip(*parts)))
        return type(first)(map(join, zip(*parts)))

    return join(list(outputs))


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """A copy of the module for each device, with its parameters and buffers moved there; detach: without gradients."""
    made = []
    for place in places(devices):
        memo: dict[int, Any] = {}
        for parameter in network.parameters():
            moved = parameter.to(place)
            memo[id(parameter)] = moved.detach() if detach else moved
        for buffer in network.buffers():
            memo[id(buffer)] = buffer.to(place)
        made.append(copy.deepcopy(network, memo))
    return made


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """modules[i](*inputs[i], **kwargs_tup[i]), each with devices[i] as the current device."""
    if len(modules) != len(inputs):
        raise ArgumentError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    from distcompile import cuda

    options = kwargs_tup or [{}] * len(modules)
    homes: list[Any] = list(devices) if devices is not None else [_home(one) for one in inputs]
    results = []
    for module, given, named, home in zip(modules, inputs, options, homes):
        place = None if home is None or not Device(home).is_gpu else home
        with cuda.device(place):
            results.append(module(*(given if isinstance(given, (tuple, list)) else (given,)), **named))
    return results


def _home(thing: Any) -> Device | None:
    """The device of the first tensor in there."""
    if isinstance(thing, Tensor):
        return thing.device
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (tuple, list)) else ()
    return next((found for part in parts if (found := _home(part)) is not None), None)
