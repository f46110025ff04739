"""The stand-in refuses what CuPy refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fake_cupy.array import WrongDeviceError, ndarray
from tests.fake_cupy.module import OutOfMemoryError, install

cp = install()


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda x: x + np.ones(3), TypeError),
        (lambda x: np.ones(3) * x, TypeError),
        (lambda x: cp.add(x, np.ones(3)), TypeError),
        (lambda x: cp.where(np.ones(3, bool), x, x), TypeError),
        (np.asarray, TypeError),
        (lambda x: x.__setitem__(slice(1), np.ones(1)), TypeError),
        (lambda x: cp.max(x, initial=3), TypeError),
        (lambda x: cp.exp(x, where=x > 0), TypeError),
        (lambda x: cp.maximum.accumulate(x), NotImplementedError),
        (lambda x: cp.add.at(x.astype(np.int8), cp.asarray([0]), 1), TypeError),
        (lambda x: cp.argsort(x, kind="mergesort"), ValueError),
        (lambda x: x.flags.writeable, AttributeError),
        (lambda x: cp.frompyfunc, AttributeError),
        (lambda x: cp.cuda.Device(2), cp.cuda.runtime.CUDARuntimeError),
    ],
)
def test_what_cupy_refuses(use: Callable[[Any], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        use(cp.asarray(np.ones(3)))


def test_results_stay_in_their_boxes() -> None:
    x = cp.asarray(np.arange(6.0).reshape(2, 3))
    for result in (x[0, 0], x.sum(), x + 1, 1 + x, np.exp(x), np.transpose(x), cp.sum(x, axis=0), *cp.linalg.qr(x)):
        assert type(result) is ndarray
    assert x.T.base is x
    x[0] = 7
    assert x.T.get()[:, 0].tolist() == [7, 7, 7]


def test_memory_is_counted_for_each_device() -> None:
    module = install()
    pool = module.get_default_memory_pool()
    with module.cuda.Device(1):
        x = module.zeros(1024)
        assert (x.device.id, pool.used_bytes()) == (1, 8192)
        view = x[1:]
        del x
        assert pool.used_bytes() == 8192
        del view
        assert pool.used_bytes() == 0
        pool.set_limit(4096)
        with pytest.raises(OutOfMemoryError):
            module.zeros(1024)
    assert module.cuda.Device().id == 0


def test_nothing_runs_on_memory_of_another_device() -> None:
    x = cp.ones(3)
    with cp.cuda.Device(1):
        y = cp.ones(3)
        z = y + y
    assert z.device == y[1:].reshape(1, 2).device == cp.cuda.Device(1)
    for compute in (lambda: x + y, lambda: y + y, lambda: cp.exp(y), lambda: y.sum(), lambda: y.fill(0)):
        with pytest.raises(WrongDeviceError, match="computed on cuda:0, an array of cuda:1"):
            compute()
