"""Tensors and NumPy, Tensors and Python numbers: read-only views, priorities, refusals."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest

import distcompile as dc
from compiler_core import dtype as dt
from compiler_core.errors import AutogradError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.tensor import Tensor
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making import creation


def test_numpy_shares_the_memory() -> None:
    x = creation.tensor([1.0, 2.0])
    copy = x.clone()
    array = x.numpy()
    array[0] = 5.0
    x.add_(1.0)
    assert x.tolist() == array.tolist() == [6.0, 3.0]
    assert copy.tolist() == [1.0, 2.0]
    assert x.numpy() is not array
    kept = x._read()  # a value: it does not change
    x.add_(1.0)
    assert kept.tolist() == [6.0, 3.0]


def test_a_tensor_with_a_history_is_detached_first() -> None:
    x = creation.ones(2, requires_grad=True)
    with pytest.raises(AutogradError, match=r"detach\(\)\.numpy\(\)|numpy\(\) on a tensor"):
        x.numpy()
    with pytest.raises(AutogradError):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [1.0, 1.0]
    assert x.tolist() == [1.0, 1.0]
    with no_grad():  # as in torch: nothing is recorded that could miss it
        x.numpy()[0] = 5.0
        assert np.asarray(x).tolist() == [5.0, 1.0]


def test_the_array_protocol() -> None:
    x = creation.tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.array(x, copy=True).flags.writeable
    assert np.sum(np.asarray(x)) == 3.0
    assert isinstance(np.exp(x), Tensor)
    assert np.exp(x).numpy().tolist() == np.exp(x.numpy()).tolist()
    assert np.add(x, x).tolist() == [2.0, 4.0]
    assert np.stack([np.asarray(x), np.asarray(x)]).shape == (2, 2)


@pytest.mark.parametrize("left", [np.array([1.0, 2.0], np.float32), np.float32(2.0), np.array(3.0, np.float32)])
def test_a_numpy_operand_on_the_left_gives_a_tensor(left: object) -> None:
    x = creation.tensor([1.0, 2.0])
    for result in (left + x, left * x, left - x, left / x, left < x):  # type: ignore[operator]
        assert isinstance(result, Tensor)
        assert result.shape == (2,)
    expected = np.asarray(left) - x.numpy()
    assert np.array_equal((left - x).numpy(), expected)  # type: ignore[operator]


def test_numbers() -> None:
    assert creation.tensor([[2.5]]).item() == 2.5
    assert isinstance(creation.tensor(3).item(), int)
    assert creation.tensor(True).item() is True
    assert float(creation.tensor(2.5)) == 2.5
    assert int(creation.tensor(2.5)) == 2
    assert bool(creation.tensor([0.0])) is False
    assert [10, 20, 30][creation.tensor(1)] == 20
    assert creation.tensor([1.5, 2.5], dtype=dt.bfloat16).tolist() == [1.5, 2.5]
    assert creation.tensor(1.5, dtype=dt.bfloat16).item() == 1.5
    assert 2.0 in creation.tensor([1.0, 2.0])
    assert creation.tensor(5.0) not in [1.0, 2.0]
    assert range(creation.tensor(3))[-1] == 2


def test_refusals() -> None:
    with pytest.raises(ShapeError, match="one element"):
        bool(creation.ones(2))
    with pytest.raises(ShapeError, match="item"):
        creation.ones(0).item()
    with pytest.raises(TypeError, match="integer tensors"):
        [1, 2][creation.tensor(1.0)]
    with pytest.raises(TypeError, match="0-d"):
        len(creation.tensor(1.0))


def test_numpy_s_argument_names() -> None:
    x = creation.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.sum(axis=0).tolist() == [4.0, 7.0]
    assert x.mean(axis=1, keepdims=True).shape == (2, 1)
    assert x.max(axis=0).values.tolist() == [3.0, 5.0]
    assert x.argmax(axis=1).tolist() == [1, 1]
    assert F.cat([x, x], axis=1).shape == (2, 4)
    assert x.unsqueeze(axis=0).squeeze(axis=0).shape == (2, 2)
    assert np.mean(x).item() == 2.75  # type: ignore[call-overload]
    assert np.sum(x, axis=0).tolist() == [4.0, 7.0]  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="out"):
        np.sum(x, out=np.zeros(()))  # type: ignore[call-overload]


def test_an_array_that_nobody_keeps_is_the_tensors_own(tmp_path: Path) -> None:
    held = np.arange(6.0)
    file = np.memmap(tmp_path / "numbers", np.int16, "w+", shape=(6,))
    file[:] = np.arange(6)
    own = [
        dc.from_numpy(held + 0),
        dc.from_numpy(file[1:4].astype(np.int64)),
        dc.from_numpy(np.arange(6).reshape(2, 3) * 1),
    ]
    assert not any(tensor._cell.is_lent for tensor in own)
    assert [type(tensor._cell.raw) for tensor in own] == [np.ndarray] * 3
    assert [tensor.tolist() for tensor in own] == [[0, 1, 2, 3, 4, 5], [1, 2, 3], [[0, 1, 2], [3, 4, 5]]]
    own[1][0] = 9
    assert own[1].tolist() == [9, 2, 3]
    assert file[1] == 1


def test_an_array_that_somebody_keeps_is_shared() -> None:
    held = np.arange(6.0)
    kept = [held]
    views = [held[2:], held.reshape(2, 3)]
    for array in (held, kept[0], *views):
        before = held.copy()
        dc.from_numpy(array).add_(1)
        assert not np.array_equal(held, before)
    given = [np.arange(3.0)]
    watched = weakref.ref(given[0])
    tensor = dc.from_numpy(given.pop())
    tensor += 1
    array = watched()
    assert array is not None
    assert array.tolist() == [1.0, 2.0, 3.0]


def test_of_a_part_of_memory_the_whole_is_shared() -> None:
    tensor = dc.from_numpy(np.arange(10.0)[2:5])
    other = dc.from_numpy(tensor.numpy())
    other[0] = 7
    assert tensor.tolist() == [7.0, 3.0, 4.0]
