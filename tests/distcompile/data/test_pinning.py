"""Page-locked memory: which tensors lie there, what a copy from it waits for, and a loader's pinned batches."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.errors import DeviceError
from distcompile.data.pinning import pinned
from distcompile.utils.data import DataLoader, TensorDataset
from tests.fake_cupy import on_fake_device

Pair = namedtuple("Pair", "x y")


def test_without_a_device_there_is_none() -> None:
    x = dc.ones(3)
    assert not x.is_pinned()
    if cuda.why_not():
        for make in (x.pin_memory, lambda: dc.empty(2, pin_memory=True), lambda: dc.tensor([1.0], pin_memory=True)):
            with pytest.raises(DeviceError, match="no device 'cuda'"):
                make()


def test_what_lies_in_pinned_memory() -> None:
    with on_fake_device():
        x = dc.arange(6.0, requires_grad=True)
        y = x.pin_memory()
        assert (x.is_pinned(), y.is_pinned(), y[1:3].is_pinned(), y.view(2, 3).T.is_pinned()) == (
            False, True, True, True,
        )  # fmt: skip
        assert y.pin_memory() is y
        (y * 2).sum().backward()
        dc.testing.assert_close(x.grad, dc.full((6,), 2.0))
        assert not (y + 1).is_pinned()
        assert not y.cuda().is_pinned()
        for made in (
            dc.empty(2, 3, pin_memory=True),
            dc.zeros(2, pin_memory=True),
            dc.randn(4, pin_memory=True),
            dc.tensor([1, 2], pin_memory=True),
            dc.full((2,), 7.0, pin_memory=True),
            dc.arange(3, pin_memory=True),
            dc.ones_like(y, pin_memory=True),
            dc.empty(0, pin_memory=True),
            dc.tensor(1.5, pin_memory=True, requires_grad=True),
        ):
            assert made.is_pinned()
            dc.testing.assert_close(made.cuda(non_blocking=True).cpu(), made.detach())
        with pytest.raises(DeviceError, match="only dense CPU tensors can be pinned"):
            dc.ones(2, device="cuda").pin_memory()


def test_the_host_waits_for_a_copy_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_fake_device():
        waits: list[bool] = []
        module = cuda.module()
        before = module.asarray

        def asarray(a: object, **options: object) -> object:
            waits.append(bool(options.get("blocking")))
            return before(a, **options)

        monkeypatch.setattr(module, "asarray", asarray)
        plain = dc.ones(3)
        held = plain.pin_memory()
        held.to("cuda")
        held.cuda()
        held.to("cuda", non_blocking=True)
        held.cuda(non_blocking=True)
        held.to("cuda", dc.float32, True)
        plain.to("cuda")  # staged: nobody can write there
        assert waits == [True, True, False, False, False, False]


def test_a_loader_pins_its_batches() -> None:
    data = TensorDataset(dc.arange(6.0), dc.arange(6))
    with on_fake_device():
        for workers in (0, 1):
            batches = list(DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers))
            assert [[part.is_pinned() for part in batch] for batch in batches] == [[True, True]] * 2
            np.testing.assert_array_equal(batches[1][0].numpy(), [4, 5])
        assert not any(part.is_pinned() for part in next(iter(DataLoader(data, batch_size=4))))


def test_every_structure_of_a_batch() -> None:
    class Own:
        def pin_memory(self) -> str:
            return "own"

    with on_fake_device():
        made = pinned({"a": [dc.ones(1), "text"], "b": Pair(dc.ones(2), 3), "c": (dc.ones(1), Own()), "d": b"x"})
        assert made["a"][0].is_pinned()
        assert made["a"][1] == "text"
        assert isinstance(made["b"], Pair)
        assert made["b"].x.is_pinned()
        assert made["b"].y == 3
        assert isinstance(made["c"], list)
        assert made["c"][1] == "own"
        assert made["d"] == b"x"
        ordered = pinned(OrderedDict(x=dc.ones(1)))
        assert type(ordered) is OrderedDict
        assert ordered["x"].is_pinned()
