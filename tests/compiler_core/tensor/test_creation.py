"""Creation functions: torch's dtypes and values, no copies where none are promised, named errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.dtype import set_default_dtype
from compiler_core.errors import AutogradError, DeviceError, DomainError, DTypeError, ShapeError
from compiler_core.tensor import Size, Tensor
from compiler_core.tensor.making import creation
from compiler_core.tensor.making import random_creation as rc
from compiler_core.tensor.making.random import Generator, default_generator, manual_seed
from compiler_core.tensor.memory import borrowing
from distcompile.nn.init import normal_

LIKE_TORCH = {
    "int": lambda t: t.tensor(3),
    "float": lambda t: t.tensor(2.5),
    "bool": lambda t: t.tensor([True, False]),
    "ints": lambda t: t.tensor([[1, 2], [3, 4]]),
    "mixed": lambda t: t.tensor([1, 2.5]),
    "empty": lambda t: t.tensor([]),
    "nested empty": lambda t: t.tensor([[], []]),
    "array": lambda t: t.tensor(np.arange(3, dtype=np.int16)),
    "float array": lambda t: t.tensor(np.ones((2, 1))),
    "numpy scalar": lambda t: t.tensor(np.float64(1.5)),
    "tensors": lambda t: t.tensor([t.tensor(1.0), t.tensor(2.0)]),
    "given dtype": lambda t: t.tensor([1, 2], dtype=t.float64),
    "floats, given float64": lambda t: t.tensor([0.1, 1 / 3], dtype=t.float64),
    "a float, given float64": lambda t: t.as_tensor(0.1, dtype=t.float64),
    "floats, given int64": lambda t: t.tensor([16777217.0, 0.99999999999], dtype=t.int64),
    "floats, given float16": lambda t: t.tensor([1.00048828125 + 1e-9], dtype=t.float16),
    "zeros": lambda t: t.zeros(2, 3),
    "zeros of a tuple": lambda t: t.zeros((2, 3), dtype=t.int32),
    "scalar zeros": lambda t: t.zeros(()),
    "ones": lambda t: t.ones([2]),
    "full": lambda t: t.full((2, 2), 7),
    "full float": lambda t: t.full((2,), 0.5),
    "full bool": lambda t: t.full((2,), True),
    "arange": lambda t: t.arange(5),
    "arange float": lambda t: t.arange(0, 1, 0.25),
    "arange down": lambda t: t.arange(5, 0, -2),
    "arange ends short": lambda t: t.arange(1, 6, 2),
    "arange dtype": lambda t: t.arange(3, dtype=t.float32),
    "linspace": lambda t: t.linspace(0, 1, 5),
    "linspace one": lambda t: t.linspace(3, 10, 1),
    "eye": lambda t: t.eye(3),
    "eye wide": lambda t: t.eye(2, 3, dtype=t.int64),
    "zeros_like": lambda t: t.zeros_like(t.tensor([1, 2])),
    "ones_like": lambda t: t.ones_like(t.tensor([1.0]), dtype=t.float64),
    "full_like": lambda t: t.full_like(t.tensor([1.0, 2.0]), 3),
    "new_zeros": lambda t: t.tensor([1]).new_zeros(2, 2),
    "new_ones": lambda t: t.tensor([1.0]).new_ones((2,), dtype=t.int64),
    "new_full": lambda t: t.tensor([1]).new_full((2,), 5),
    "new_tensor": lambda t: t.tensor([1.0]).new_tensor([1, 2]),
    "as_tensor": lambda t: t.as_tensor([1.0, 2.0]),
    "legacy sizes": lambda t: t.Tensor(2, 3) * 0,
    "legacy data": lambda t: t.Tensor([1, 2]),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", LIKE_TORCH)
def test_values_and_dtypes_are_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    import distcompile

    theirs, ours = LIKE_TORCH[name](torch), LIKE_TORCH[name](distcompile)
    assert str(theirs.dtype) == f"torch.{ours.dtype.name}"
    assert tuple(theirs.shape) == tuple(ours.shape)
    np.testing.assert_allclose(ours.numpy(), np.nan_to_num(theirs.numpy()), rtol=1e-6)
    assert ours.is_leaf
    assert not ours.requires_grad


def test_the_default_dtype_is_asked() -> None:
    try:
        set_default_dtype(dt.float64)
        assert creation.tensor(1.5).dtype is creation.zeros(2).dtype is rc.rand(2).dtype is dt.float64
    finally:
        set_default_dtype(dt.float32)


def test_what_copies_and_what_does_not() -> None:
    array = np.ones(3)
    assert borrowing.from_numpy(array)._cell.raw is creation.as_tensor(array)._cell.raw is array
    assert borrowing.from_numpy(array)._read() is not array  # a value to keep
    assert not np.shares_memory(creation.tensor(array).numpy(), array)
    x = creation.tensor([1.0, 2.0])
    assert creation.as_tensor(x) is x
    copy = creation.tensor(x)
    copy.add_(1.0)
    assert x.tolist() == [1.0, 2.0]
    assert creation.as_tensor(x, dtype=dt.float64).dtype is dt.float64


def test_a_leaf_may_ask_for_a_gradient_at_once() -> None:
    assert creation.ones(2, requires_grad=True).requires_grad
    with pytest.raises(AutogradError, match="floating"):
        creation.tensor([1, 2], requires_grad=True)


@pytest.mark.parametrize("data", ["text", [object()], ["a"], np.array(["x"])])
def test_what_is_no_number(data: Any) -> None:
    with pytest.raises(DTypeError, match="cannot make a tensor"):
        creation.tensor(data)


def test_errors() -> None:
    with pytest.raises(DTypeError, match=r"expected np\.ndarray"):
        borrowing.from_numpy([1.0])  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"longdouble|float128"):
        creation.tensor(np.ones(2, np.longdouble))
    with pytest.raises(DTypeError, match="complex number"):
        creation.tensor([1j], dtype=dt.float32)
    with pytest.raises(ShapeError, match="negative"):
        creation.zeros(2, -1)
    with pytest.raises(DeviceError, match="no device 'cuda:0'"):
        creation.zeros(2, device="cuda:0")
    with pytest.raises(DeviceError):
        creation.zeros(2).cuda()
    with pytest.raises(DeviceError):
        creation.zeros(2).to("cuda")


def test_shapes_are_sizes() -> None:
    x = creation.zeros(2, 3)
    assert isinstance(x.shape, Size)
    assert x.shape == (2, 3)
    assert x.shape.numel() == 6
    assert x.size(-1) == 3
    assert x.size() == x.shape


# ---- random


@pytest.mark.parametrize("dtype", dt.FLOATING)
def test_uniform_stays_below_one_and_looks_uniform(dtype: dt.DType) -> None:
    manual_seed(1)
    x = rc.rand(20000, dtype=dtype).numpy().astype(np.float64)
    assert x.min() >= 0.0
    assert x.max() < 1.0 or dtype.itemsize == 2  # a 16-bit float may round up to 1
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(x.var() - 1 / 12) < 0.005


def test_normal_looks_normal() -> None:
    manual_seed(2)
    x = rc.randn(50000).numpy().astype(np.float64)
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1.0) < 0.02
    assert abs((x**4).mean() - 3.0) < 0.15
    y = rc.normal(5.0, creation.full((20000,), 2.0)).numpy()
    assert abs(y.mean() - 5.0) < 0.1
    assert abs(y.std() - 2.0) < 0.1
    z = creation.empty(20000).normal_(1.0, 0.5)
    assert abs(z.mean().item() - 1.0) < 0.02


def test_normal_takes_a_device_and_a_deviation_of_0_or_more() -> None:
    x = rc.normal(1.0, 2.0, (3,), device="cpu", requires_grad=True)
    assert (x.is_leaf, x.requires_grad) == (True, True)
    assert rc.normal(0.0, 1.0, (10**12,), device="meta").is_meta
    before = default_generator.get_state()
    makers = (
        lambda std: rc.normal(0.0, std, (3,)),
        lambda std: creation.empty(3).normal_(0.0, std),
        lambda std: normal_(creation.empty(3), 0.0, std),
    )
    for make in makers:
        for std in (-1, float("nan")):
            with pytest.raises(DomainError, match="std >= 0"):
                make(std)
    assert default_generator.get_state().equal(before)


def test_integers_and_permutations() -> None:
    manual_seed(3)
    x = rc.randint(-2, 3, (5000,))
    assert x.dtype is dt.int64
    assert sorted(set(x.tolist())) == [-2, -1, 0, 1, 2]
    assert rc.randint(4, (2, 3)).shape == (2, 3)
    assert rc.randint_like(creation.zeros(3), 2).dtype is dt.float32
    p = rc.randperm(1000)
    assert sorted(p.tolist()) == list(range(1000))
    assert p.tolist() != list(range(1000))
    with pytest.raises(DomainError, match="'from' to be less than 'to'"):
        rc.randint(3, 3, (2,))
    with pytest.raises(ShapeError, match="size"):
        rc.randint(3)
    assert set(creation.empty(100, dtype=dt.int64).random_(3).tolist()) == {0, 1, 2}


def test_bernoulli() -> None:
    manual_seed(4)
    p = creation.tensor([0.0, 1.0, 0.5]).expand(4000, 3)
    mean = rc.bernoulli(p).mean(0).tolist()
    assert mean[:2] == [0.0, 1.0]
    assert abs(mean[2] - 0.5) < 0.05
    assert abs(creation.empty(4000).bernoulli_(0.25).mean().item() - 0.25) < 0.05


DRAWS = {
    "rand": lambda g: rc.rand(7, generator=g), "randn": lambda g: rc.randn(2, 3, generator=g),
    "randint": lambda g: rc.randint(100, (5,), generator=g), "randperm": lambda g: rc.randperm(9, generator=g),
    "uniform_": lambda g: creation.empty(4).uniform_(-1.0, 1.0, generator=g),
    "normal": lambda g: rc.normal(0.0, 1.0, (3,), generator=g),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_every_counter_based_draw_takes_one_key(name: str, counter_draws: None) -> None:
    g = Generator().manual_seed(5)
    before = default_generator.offset
    DRAWS[name](g), DRAWS[name](g)
    assert (g.offset, default_generator.offset) == (2, before)


@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_moves_its_generator_alone(name: str) -> None:
    g = Generator().manual_seed(5)
    before = default_generator.get_state()
    first, second = DRAWS[name](g), DRAWS[name](g)
    assert not g.get_state().equal(Generator().manual_seed(5).get_state())
    assert default_generator.get_state().equal(before)
    assert first.tolist() != second.tolist()
    g.manual_seed(5)
    assert DRAWS[name](g).tolist() == first.tolist()


def test_like_forms_take_shape_and_dtype() -> None:
    x = creation.zeros(2, 3, dtype=dt.float64)
    for y in (rc.rand_like(x), rc.randn_like(x)):
        assert isinstance(y, Tensor)
        assert y.shape == (2, 3)
        assert y.dtype is dt.float64
