"""A stand-in CuPy over NumPy's memory, so that code for CUDA devices runs in CI, where there is none.

Out: `install()`, a module that answers as `cupy` does; `on_fake_device()`, a block in which compiler_core/device.py
finds it in place of CuPy.
It has only what CuPy 14.2 has: functions, and their parameters, are those of signatures.txt, which was read from
CuPy's sources; all else is an AttributeError or TypeError here too. Arrays are a class of their own (array.py) that
refuses NumPy's as CuPy does. Two devices by default; work is done when a call returns, so events are complete at once.
What it cannot show: numbers that a GPU's libraries round otherwise, dtypes that a kernel does not compile for, and
time. Those are seen on a device (tests marked `gpu`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn

import pytest

from compiler_core.errors import DeviceError
from tests.fake_cupy import raw
from tests.fake_cupy.module import install

__all__ = ["install", "on_fake_device"]


@contextmanager
def on_fake_device(devices: int = 2) -> Iterator[ModuleType]:
    """In this block `device="cuda"` is a stand-in with that many devices; nothing of it is left behind.

    CUDA's libraries are not there, even where they are (PyTorch's wheels bring them): NumPy's memory would crash them.
    """
    from compiler_core import device
    from compiler_core.runtime.cuda import driver, replay

    with pytest.MonkeyPatch.context() as patch, device.use_array_module(install(devices)) as module:
        for name in ("driver", "cublas", "cublaslt", "cudnn"):
            patch.setattr(driver, f"load_{name}", _no_library)
        patch.setattr(replay, "launcher", lambda: raw.launch)
        patch.setattr(replay.Noting, "settings", next(_settings))
        yield module


_settings = itertools.count(1000)  # what one stand-in launched another must not


def _no_library() -> NoReturn:
    raise DeviceError("a stand-in has no libraries of CUDA's")
