"""Devices: one object each, named as in torch; what is not there is refused by name."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from compiler_core.device import Device, check_device, cpu
from compiler_core.errors import DeviceError


def test_there_is_one_cpu() -> None:
    assert Device("cpu") is cpu
    assert check_device("cpu:0") is cpu
    assert Device(cpu) is cpu
    assert check_device(None) is cpu
    assert pickle.loads(pickle.dumps(cpu)) is cpu
    assert cpu == "cpu"
    assert hash(cpu) == hash(Device())
    assert (cpu.type, cpu.index, str(cpu), repr(cpu)) == ("cpu", None, "cpu", "device(type='cpu')")
    assert cpu.xp is np


@pytest.mark.parametrize("name", ["cuda:99", "cpu:1", "mps"])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=r"no device|invalid device ordinal"):
        check_device(name)


def test_other_devices_can_be_named() -> None:
    for one, text in ((Device("cuda"), "cuda"), (Device("cuda", 1), "cuda:1"), (Device("meta"), "meta")):
        assert str(one) == text
        assert one == text
        assert one == Device(text) != cpu
        assert pickle.loads(pickle.dumps(one)) == one
        assert hash(one) == hash(Device(text))
    assert repr(Device("cuda:1")) == "device(type='cuda', index=1)"
    for wrong in (lambda: Device("gpu"), lambda: Device("cuda:0", 1), lambda: Device("cuda:x")):
        with pytest.raises(DeviceError, match=r"device type|must not include an index|Invalid device string"):
            wrong()


def test_cpu_work_is_done_when_the_call_returns() -> None:
    first, second = cpu.record_event(), cpu.record_event()
    assert first.query()
    second.synchronize()
    assert first.time_s <= second.time_s
