"""`device=` of every layer: a device that is not here is refused, not passed over."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import distcompile.nn as nn
from compiler_core.errors import DeviceError

ARGUMENTS: tuple[tuple[Any, ...], ...] = ((), (2,), (2, 2), (4, 2, 2), (2, 2, 1), (4, 4, [2]))
ABSTRACT = {"RNNBase", "RNNCellBase"}
WITHOUT_TENSORS = {"InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"}  # unless affine


def takes_device(layer: Any) -> bool:
    if not (isinstance(layer, type) and issubclass(layer, nn.Module)) or layer.__name__ in ABSTRACT | WITHOUT_TENSORS:
        return False
    return "device" in inspect.signature(layer).parameters or issubclass(layer, nn.RNNBase)


LAYERS = sorted(name for name in dir(nn) if takes_device(getattr(nn, name)))


def test_there_are_layers() -> None:
    assert {"Linear", "Conv2d", "LSTM", "Transformer", "LazyLinear", "Embedding"} <= set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_a_device_that_is_not_here_is_refused(name: str) -> None:
    layer = getattr(nn, name)
    fitting = [arguments for arguments in ARGUMENTS if made(layer, arguments, "cpu")]
    assert fitting, "none of ARGUMENTS fits this layer"
    with pytest.raises(DeviceError):
        layer(*fitting[0], device="cuda")


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_meta_holds_nothing_else(name: str) -> None:
    layer = getattr(nn, name)
    arguments = next(arguments for arguments in ARGUMENTS if made(layer, arguments, "cpu"))
    on_meta = layer(*arguments, device="meta")
    here = {key: not t.is_meta for key, t in (*on_meta.named_parameters(), *on_meta.named_buffers())}
    assert not any(here.values()), here


def made(layer: Any, arguments: tuple[Any, ...], device: str) -> bool:
    try:
        layer(*arguments, device=device)
    except (TypeError, ValueError):
        return False
    return True
