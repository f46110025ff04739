"""Device meta and default devices: shapes without data, torch's answers, and no data where there is none."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import DeviceError, NoDataError

torch = pytest.importorskip("torch")

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "add a number": lambda t, m: m + 1,
    "add a 0-d tensor of the CPU": lambda t, m: m + t.ones(()),
    "integers": lambda t, m: m.to(t.int64) // 2,
    "compare": lambda t, m: m > 0,
    "matmul": lambda t, m: m @ m.T,
    "max": lambda t, m: m.max(0).indices,
    "sort": lambda t, m: m.sort(1).values,
    "where": lambda t, m: t.where(m > 0, m, m * 2),
    "like": lambda t, m: t.ones_like(m, dtype=t.int32),
    "new": lambda t, m: m.new_zeros(4),
    "randn": lambda t, m: t.randn(3, 4, device="meta", dtype=t.float64),
    "randperm": lambda t, m: t.randperm(4, device="meta"),
    "arange": lambda t, m: t.arange(0, 10, 3, device="meta"),
    "from data": lambda t, m: t.tensor([[1, 2]], device="meta"),
    "as_tensor": lambda t, m: t.as_tensor(np.ones(3), device="meta"),
    "moved": lambda t, m: t.ones(2, 5).to("meta"),
    "index": lambda t, m: m[t.tensor([0, 1, 0])],
    "softmax": lambda t, m: m.softmax(-1),
    "cat": lambda t, m: t.cat([m, m]),
    "in place": lambda t, m: m.add_(1).uniform_().fill_(2).copy_(t.ones(3)),
    "view": lambda t, m: m.view(3, 2).transpose(0, 1).contiguous(),
    "deepcopy": lambda t, m: copy.deepcopy(m),
    "pickled": lambda t, m: pickle.loads(pickle.dumps(m)),
    "window": lambda t, m: t.hann_window(5, device="meta"),
    "layer": lambda t, m: t.nn.TransformerEncoderLayer(4, 2, 8, device="meta")(t.ones(2, 3, 4, device="meta")),
    "convolution": lambda t, m: t.nn.Conv2d(3, 4, 3, device="meta")(t.ones(1, 3, 8, 8, device="meta")),
    "lstm": lambda t, m: t.nn.LSTM(3, 4, device="meta")(m[None])[0],
    "dropout": lambda t, m: t.nn.Dropout()(m),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes_dtypes_and_devices_are_torchs(name: str) -> None:
    ours, theirs = (CASES[name](t, t.ones(2, 3, device="meta")) for t in (dc, torch))
    assert ours.is_meta
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert str(ours.device) == str(theirs.device) == "meta"
    assert ours.stride() == theirs.stride()
    assert repr(ours).startswith(f"tensor(..., device='meta', size={tuple(ours.shape)}")


def test_a_backward_pass_gives_gradients_of_device_meta() -> None:
    model = dc.nn.Sequential(dc.nn.Linear(3, 4, device="meta"), dc.nn.GELU(), dc.nn.LayerNorm(4, device="meta"))
    dc.nn.functional.mse_loss(model(dc.ones(2, 3, device="meta")), dc.zeros(2, 4, device="meta")).backward()
    assert all(p.grad is not None and p.grad.is_meta and p.grad.shape == p.shape for p in model.parameters())


NEEDS_DATA: dict[str, Callable[[Any], Any]] = {
    "item": lambda m: m.sum().item(),
    "bool": lambda m: bool(m.sum()),
    "tolist": lambda m: m.tolist(),
    "numpy": lambda m: m.numpy(),
    "asarray": lambda m: np.asarray(m),
    "cpu": lambda m: m.cpu(),
    "to": lambda m: m.to("cpu"),
    "nonzero": lambda m: m.nonzero(),
    "mask": lambda m: m[m > 0],
    "equal": lambda m: dc.equal(m, m),
    "copied to the CPU": lambda m: dc.ones(2, 3).copy_(m),
    "unique": lambda m: dc.unique(m),
}


@pytest.mark.parametrize("name", NEEDS_DATA)
def test_reading_data_is_a_named_error(name: str) -> None:
    with pytest.raises(NoDataError, match="no data"):
        NEEDS_DATA[name](dc.ones(2, 3, device="meta"))


def test_beside_a_tensor_of_the_cpu() -> None:
    meta, here = dc.ones(2, 3, device="meta"), dc.ones(2, 3)
    for mixed in (lambda: meta + here, lambda: here + meta, lambda: dc.cat([meta, here]), lambda: here.add_(meta)):
        with pytest.raises(DeviceError, match="same device"):
            mixed()
    assert here.tolist() == [[1.0] * 3] * 2


def test_a_large_model_costs_nothing_and_can_be_given_data() -> None:
    begin = time.process_time()
    large = dc.nn.Linear(1_000_000, 1_000_000, device="meta")
    assert time.process_time() - begin < 10
    assert large.weight.numel() == 10**12
    with dc.device("meta"):
        model = dc.nn.Sequential(dc.nn.Linear(3, 4), dc.nn.BatchNorm1d(4))
    assert {str(t.device) for t in model.state_dict().values()} == {"meta"}
    source = dc.nn.Sequential(dc.nn.Linear(3, 4), dc.nn.BatchNorm1d(4))
    with pytest.warns(UserWarning, match="no-op"):
        model.load_state_dict(source.state_dict())
    assert model[0].weight.is_meta
    with pytest.raises(NotImplementedError, match="to_empty"):
        model.to("cpu")
    model.load_state_dict(source.state_dict(), assign=True)
    x = dc.randn(5, 3)
    assert dc.equal(model(x), source(x))
    with dc.device("meta"):
        model = dc.nn.Sequential(dc.nn.Linear(3, 4), dc.nn.BatchNorm1d(4))
    empty = model.to_empty(device="cpu")
    empty.load_state_dict(source.state_dict())
    assert dc.equal(empty.eval()(x), source.eval()(x))
    assert isinstance(empty[0].weight, dc.nn.Parameter)


def test_default_device_as_in_torch() -> None:
    for t in (dc, torch):
        with t.device("meta"):
            assert str(t.get_default_device()) == "meta"
            made = [t.zeros(2), t.tensor(1.0), t.arange(3), t.as_tensor(np.ones(2)), t.rand(2), t.eye(2)]
            assert {str(x.device) for x in made} == {"meta"}
            here = [t.zeros(2, device="cpu"), t.from_numpy(np.ones(2)), t.Tensor(2, 3), t.LongTensor([1])]
            assert {str(x.device) for x in (*here, t.zeros_like(here[0]), here[0].new_ones(2))} == {"cpu"}
            with t.device("cpu"):
                assert str(t.ones(1).device) == "cpu"
        assert str(t.ones(1).device) == "cpu"
        t.set_default_device("meta")
        assert t.ones(1).is_meta
        t.set_default_device(None)
        assert not t.ones(1).is_meta


def test_draws_for_meta_tensors_take_nothing_from_the_generator() -> None:
    dc.manual_seed(3)
    first = dc.randn(4)
    dc.manual_seed(3)
    dc.randn(4, device="meta")
    dc.nn.Linear(2, 2, device="meta")
    assert dc.equal(first, dc.randn(4))


def test_a_device_that_is_not_here() -> None:
    with dc.device("cuda"), pytest.raises(DeviceError, match="no device"):
        dc.ones(2)
    with pytest.raises(DeviceError, match="no device"):
        dc.set_default_device("foo")


def test_compiled_functions_break_at_meta_tensors() -> None:
    compiled = dc.compile(lambda x: x * 2 + 1, backend="aot_eager")
    assert compiled(dc.ones(3, device="meta")).is_meta
    assert compiled(dc.ones(3)).tolist() == [3.0] * 3
