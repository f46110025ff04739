"""DLPack: with NumPy, with torch where it is installed, and with a borrower and a lender on a stand-in device."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import dlpack
from compiler_core.errors import ShapeError
from distcompile.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack
from tests.fake_cupy import on_fake_device


def test_to_numpy() -> None:
    x = dc.arange(6.0).reshape(2, 3)
    for tensor in (x, x.t(), x[:, 1:], x.bool(), x.to(dc.complex64), dc.ones(()), dc.ones(0, 3)):
        found = np.from_dlpack(tensor)
        np.testing.assert_array_equal(found, tensor.numpy())
        assert found.flags.writeable
    assert np.from_dlpack(x).ctypes.data == x.numpy().ctypes.data
    assert x.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


def test_what_is_lent_is_kept_and_given_back() -> None:
    before = len(dlpack.lent)
    x = dc.arange(1000.0)
    array = np.from_dlpack(x)
    del x
    gc.collect()
    assert array[999] == 999
    assert len(dlpack.lent) == before + 1
    del array
    gc.collect()
    assert len(dlpack.lent) == before
    capsule = to_dlpack(dc.ones(3))
    assert len(dlpack.lent) == before + 1
    del capsule  # not taken
    assert len(dlpack.lent) == before


def test_from_numpy() -> None:
    a = np.arange(6.0)[::2]
    x = dc.from_dlpack(a)
    x += 1
    a[1] = 7
    assert x.tolist() == a.tolist() == [1, 7, 5]
    with pytest.raises(ShapeError, match="negative"):  # torch ends the process
        dc.from_dlpack(a[::-1])
    assert dc.from_dlpack(np.zeros((0, 2))).shape == (0, 2)
    assert dc.from_dlpack(np.ones(3), copy=True).sum().item() == 3


def test_tensors_share_memory_as_in_torch() -> None:
    for make in (lambda t: from_dlpack(to_dlpack(t)), dc.from_dlpack):
        x = dc.arange(4.0, dtype=dc.bfloat16)
        y = make(x)
        y[0] = 9
        assert x.tolist() == y.tolist() == [9, 1, 2, 3]
        assert y.dtype is dc.bfloat16


def test_refusals() -> None:
    with pytest.raises(BufferError, match="require gradient"):
        dc.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="move it"):
        dc.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="only be read"):
        dc.frombuffer(b"abcd", dtype=dc.uint8).__dlpack__(copy=False)
    capsule = to_dlpack(dc.ones(2))
    from_dlpack(capsule)
    with pytest.raises(BufferError, match="once"):
        from_dlpack(capsule)
    with pytest.raises(BufferError):
        from_dlpack(object())


def test_an_older_borrower_shares_too_unless_the_memory_may_only_be_read() -> None:
    x = dc.arange(3.0)
    array = dlpack.borrow(x.__dlpack__())
    array[0] = 7
    x[1] = 8
    assert array.tolist() == x.tolist() == [7, 8, 2]
    fixed = dc.frombuffer(b"abcd", dtype=dc.uint8)
    array = dlpack.borrow(fixed.__dlpack__())
    array[0] = 0
    assert fixed[0] == ord("a")
    assert not np.from_dlpack(fixed).flags.writeable


def test_with_torch() -> None:
    torch = pytest.importorskip("torch")
    there = torch.arange(6).reshape(2, 3).t().to(torch.bfloat16)
    here = dc.from_dlpack(there)
    assert (here.dtype, here.tolist()) == (dc.bfloat16, there.tolist())
    assert dc.from_dlpack(torch.utils.dlpack.to_dlpack(there)).tolist() == there.tolist()
    back = torch.utils.dlpack.from_dlpack(to_dlpack(here))
    assert back.dtype is torch.bfloat16
    assert back.tolist() == there.tolist()
    assert torch.from_dlpack(dc.arange(3)).tolist() == [0, 1, 2]


def test_on_a_device() -> None:
    with on_fake_device():
        x = dc.arange(6.0, device="cuda:1").reshape(2, 3)
        assert x.__dlpack_device__() == (2, 1)
        side = dc.cuda.Stream("cuda:1")
        with dc.cuda.device(1):
            made = dlpack.borrow(x.__dlpack__(stream=1, max_version=(1, 0)))
            assert made.data.ptr == x._cell.raw.data.ptr
            np.testing.assert_array_equal(made.get(), x.cpu().numpy())
        with dc.cuda.stream(side):
            x.__dlpack__(stream=1)  # the default stream waits for what is in side
        assert [told for told, _ in side._stream.log] == ["record"]
        with pytest.raises(BufferError, match="ambiguous"):
            x.__dlpack__(stream=0)

        class Lender:
            asked: Any = None

            def __dlpack__(self, **options: Any) -> Any:
                Lender.asked = options
                return x.t().__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return 2, 1

        y = dc.from_dlpack(Lender())
        assert (y.device, y.tolist()) == (dc.device("cuda:1"), x.t().tolist())
        assert Lender.asked == {"max_version": (1, 0), "stream": 1}
        assert dc.from_dlpack(x, device="cpu").tolist() == x.tolist()
