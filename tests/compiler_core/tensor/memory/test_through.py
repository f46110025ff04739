"""Writes through views that stay in place: only where nobody could tell, held to what each looker has seen before."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.tensor.memory import cell as cells
from tests.fake_cupy import on_fake_device


@pytest.fixture
def scatters(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The views through which a storage was made anew."""
    made: list[str] = []
    scatter = cells.views.scatter

    def noted(op: Any, *given: Any) -> Any:
        made.append(op.name)
        return scatter(op, *given)

    monkeypatch.setattr(cells.views, "scatter", noted)
    return made


def base() -> Any:
    return dc.arange(2048.0).reshape(32, 64) * 1


WRITES: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.__setitem__(3, 7.0),
    "part": lambda x: x[2:20:3, 5:].fill_(7.0),
    "view of a view": lambda x: x[4:][1].copy_(dc.ones(64)),
    "transposed": lambda x: x.t()[5].mul_(2),
    "flat": lambda x: x.view(-1)[17:900].add_(1),
    "out": lambda x: dc.mul(x[1].clone(), 3, out=x[1]),
    "onto itself": lambda x: x.__setitem__(3, x[3]),
    "added": lambda x: x.__setitem__(3, x[3].add_(5)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_nobody_can_tell_stays_in_place(name: str, scatters: list[str]) -> None:
    x, same = base(), base().numpy().copy()
    expected = dc.from_numpy(same)  # lent memory, which is always written in place
    before = x._cell.raw.ctypes.data
    version = x._version
    WRITES[name](x)
    WRITES[name](expected)
    assert scatters == []
    assert x._cell.raw.ctypes.data == before
    assert x._version > version
    assert x.tolist() == same.tolist()


LOOKERS: dict[str, Callable[[Any], Any]] = {
    "an array of its own": lambda x: x._cell.raw,
    "a part of it": lambda x: x._cell.raw[1:],
    "a memory view": lambda x: memoryview(x._cell.raw),
}


@pytest.mark.parametrize("name", LOOKERS)
def test_who_holds_the_value_keeps_it(name: str) -> None:
    x = base()
    kept = LOOKERS[name](x)
    before = np.array(kept)
    x[3] = -1.0
    x[5:9].mul_(0)
    assert np.array_equal(np.asarray(kept), before)
    assert x[3].tolist() == [-1.0] * 64


def test_views_see_what_others_write() -> None:
    x = base()
    row, column, part = x[3], x[:, 2], x[2:5]
    x[3] = 1.0
    part[1, 2] = 5.0
    row.add_(1)
    assert row.tolist() == x[3].tolist() == part[1].tolist()
    assert row[2].item() == column[3].item() == 6.0


def test_what_a_backward_saved_is_not_written_over() -> None:
    x = base()
    w = dc.ones(32, 64, requires_grad=True)
    loss = (x * w).sum()
    with dc.no_grad():
        x[3] = 0.0
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()
    y = base()
    made = (y.exp() * w).sum()
    with dc.no_grad():
        y[3] = 0.0
    made.backward()
    assert w.grad is not None
    dc.testing.assert_close(w.grad, base().exp())


def test_writes_with_a_gradient_are_recorded() -> None:
    x, v = dc.zeros(32, 64), dc.ones(64, requires_grad=True)
    for k in range(4):
        x[k] = v * k
    (x * x).sum().backward()
    assert v.grad is not None
    assert v.grad.tolist() == [28.0] * 64


@pytest.mark.parametrize("part", [lambda x, k: x[k], lambda x, k: x.view(-1)[2000 * k : 2000 * (k + 1)][3:]])
def test_threads_write_to_parts_of_one_storage(part: Callable[[Any, int], Any]) -> None:
    x = dc.zeros(8, 2000)
    times = 100

    def fill(k: int) -> bool:
        own = part(x, k)
        for j in range(times):
            part(x, k).fill_(float(j))
            own.add_(1)
            if not bool((part(x, k) == j + 1).all()):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fill, range(8)))
    assert x[:, 3:].unique().tolist() == [times]


WHOLES: dict[str, Callable[[Any], Any]] = {
    "indices": lambda x: x.__setitem__([0, 1], 1.0),
    "mask": lambda x: x.__setitem__(dc.arange(8) < 2, dc.tensor(1)),
    "index_fill_": lambda x: x.index_fill_(0, dc.tensor([0, 1]), 1.0),
    "masked_fill_": lambda x: x.masked_fill_((dc.arange(8) < 2)[:, None], 1.0),
    "scatter_": lambda x: x.scatter_(0, dc.tensor([0, 1])[:, None].expand(2, 2000), 1.0),
}


@pytest.mark.parametrize("name", WHOLES)
def test_what_another_thread_writes_meanwhile_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = dc.zeros(8, 2000)
    other = Thread(target=lambda: x[7].fill_(2.0))
    snapshot = dc.Tensor._snapshot

    def taken(self: Any) -> Any:
        made = snapshot(self)
        if self is x:
            other.start()
            other.join(0.2)
        return made

    monkeypatch.setattr(dc.Tensor, "_snapshot", taken)
    WHOLES[name](x)
    other.join()
    assert x.sum(1).tolist() == [2000, 2000, 0, 0, 0, 0, 0, 4000]


def test_one_part_of_a_storage_is_written_to_another() -> None:
    x = base()
    expected = x.numpy().copy()
    x[1:] = x[:-1].clone()
    expected[1:] = expected[:-1].copy()
    x[0, :32] = x[0, 32:]
    expected[0, :32] = expected[0, 32:].copy()
    assert x.tolist() == expected.tolist()


# ---- on a device, where memory is looked at by pointers, too


@pytest.fixture
def device() -> Any:
    with on_fake_device(devices=1) as module:
        yield module


@pytest.mark.parametrize("name", WRITES)
def test_on_a_device_such_a_write_stays_in_place(name: str, device: Any, scatters: list[str]) -> None:
    x, same = base().cuda(), base()
    before = x._cell.raw.data.ptr
    WRITES[name](same)
    scatters.clear()
    WRITES[name](x)
    assert scatters == []
    assert x._cell.raw.data.ptr == before
    assert x.tolist() == same.tolist()


def test_on_a_device_results_are_written_into_parts(device: Any, scatters: list[str]) -> None:
    rows, weight = base().cuda(), dc.ones(64, 100, device="cuda")
    out = dc.zeros(64, 100, device="cuda")
    before = out._cell.raw.data.ptr
    for k in range(2):
        dc.mm(rows, weight, out=out[32 * k : 32 * k + 32])
    assert scatters == []
    assert out._cell.raw.data.ptr == before
    assert out.tolist() == [*dc.mm(base(), dc.ones(64, 100)).tolist()] * 2


HOLDERS: dict[str, Callable[[Any, Any], Any]] = {
    "an array of its own": lambda x, module: x,
    "a part of it": lambda x, module: x[1:],
    "an array at its pointer": lambda x, module: module.ndarray(x.shape, x.dtype, x.data),
    "an array at a place behind": lambda x, module: module.ndarray((4, 64), x.dtype, x.data + 2 * 256),
    "its pointer": lambda x, module: x.data,
    "its memory": lambda x, module: x.data.mem,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_on_a_device_who_holds_the_memory_keeps_what_is_there(name: str, device: Any) -> None:
    x = base().cuda()
    before, host = x._cell.raw.data.ptr, x._cell.raw.get()
    held = HOLDERS[name](x._cell.raw, device)
    seen = held.get().copy() if hasattr(held, "get") else None
    x[3] = -1.0
    assert x._cell.raw.data.ptr != before
    assert seen is None or np.array_equal(held.get(), seen)
    assert x[3].tolist() == [-1.0] * 64
    assert x[2].tolist() == host[2].tolist()


def test_on_a_device_what_a_backward_saved_is_not_written_over(device: Any) -> None:
    y, w = base().cuda() / 2048, dc.ones(32, 64, device="cuda", requires_grad=True)
    made = (y.exp() * w).sum()
    with dc.no_grad():
        y[3] = 0.0
    made.backward()
    assert w.grad is not None
    dc.testing.assert_close(w.grad.cpu(), (base() / 2048).exp())


def test_what_is_made_on_a_device_has_memory_of_its_own(device: Any) -> None:
    for made in (
        dc.zeros(3, 4, device="cuda"),
        dc.full((5,), 2.5, device="cuda"),
        dc.ones(2, 2, device="cuda", dtype=dc.bfloat16),
    ):
        assert made._cell.raw.base is None
        assert made._cell.raw.flags.c_contiguous
