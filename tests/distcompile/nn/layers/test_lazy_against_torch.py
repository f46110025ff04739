"""Lazy modules, and modules called with other parameters, held to torch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import ShapeError
from distcompile.errors import ArgumentError, StateDictError
from distcompile.func import functional_call
from distcompile.nn.lazy import is_lazy

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]


def network(nn: Any, rank: int) -> Any:
    layers = [
        getattr(nn, f"LazyConv{rank}d")(4, 2),
        getattr(nn, f"LazyBatchNorm{rank}d")(),
        getattr(nn, f"LazyConvTranspose{rank}d")(3, 2, bias=False),
        getattr(nn, f"LazyInstanceNorm{rank}d")(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(5))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lazy_modules_become_what_torchs_become(rank: int) -> None:
    mine, theirs = network(dc.nn, rank), network(torch.nn, rank)
    assert repr(mine) == repr(theirs)
    x = np.random.default_rng(0).standard_normal((2, 3, *(4,) * rank)).astype("f4")
    theirs(torch.tensor(x))
    mine(dc.tensor(x))
    assert repr(mine) == repr(theirs)
    assert [type(m).__name__ for m in mine] == [type(m).__name__ for m in theirs]
    mine.load_state_dict(theirs.state_dict())
    for _ in range(2):
        got, want = mine(dc.tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_state_dict_tells_the_sizes_too() -> None:
    lazy, made = dc.nn.LazyLinear(2), dc.nn.Linear(3, 2)
    lazy.load_state_dict(made.state_dict())
    assert lazy.weight.shape == (2, 3)
    assert type(lazy(dc.ones(1, 3))) is dc.Tensor
    assert type(lazy) is dc.nn.Linear


def test_a_lazy_module_is_copied_pickled_and_saved_as_it_is() -> None:
    lazy = dc.nn.LazyBatchNorm2d()
    for again in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        assert is_lazy(again.weight)
        assert is_lazy(again.state_dict(keep_vars=True)["running_mean"])
        again(dc.ones(2, 3, 2, 2))
        assert again.weight.shape == (3,)
    lazy.load_state_dict(copy.deepcopy(lazy).state_dict(keep_vars=True))
    assert is_lazy(lazy.weight)


def test_a_lazy_module_compiles() -> None:
    module = dc.nn.Sequential(dc.nn.LazyLinear(3))
    compiled = dc.compile(module)
    for _ in range(2):
        assert compiled(dc.ones(2, 2)).shape == (2, 3)


def test_what_has_no_sizes_cannot_be_used() -> None:
    weight = dc.nn.UninitializedParameter()
    with pytest.raises(StateDictError, match="shape of an uninitialized"):
        weight.shape  # noqa: B018
    for use in (
        lambda w: w + 1,
        lambda w: w + w,
        lambda w: w.sum(),
        lambda w: w.view(0),
        lambda w: w.t(),
        lambda w: w[0],
    ):
        with pytest.raises(ArgumentError, match="uninitialized parameter"):
            use(weight)
    with pytest.raises(ShapeError, match="LazyConv2d"):
        dc.nn.LazyConv2d(2, 1)(dc.ones(2, 2))


def test_functional_call_is_torchs() -> None:
    x = np.ones((2, 3), "f4")
    results = []
    for lib, call in ((dc, functional_call), (torch, torch.func.functional_call)):
        lib.manual_seed(0)
        module = lib.nn.Sequential(lib.nn.Linear(3, 3), lib.nn.Tanh(), lib.nn.Linear(3, 3))
        module[2].weight, module[2].bias = module[0].weight, module[0].bias  # tied
        weight = lib.full((3, 3), 0.5, requires_grad=True)
        bias = lib.zeros(3)
        call(module, {"0.weight": weight, "0.bias": bias}, lib.tensor(x)).sum().backward()
        assert module[0].weight.grad is None
        call(module, ({"0.weight": weight}, {"0.bias": bias}), (lib.tensor(x),), strict=False).sum().backward()
        results.append(weight.grad.numpy())
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_functional_call_compiles_and_leaves_the_module_alone() -> None:
    module = dc.nn.Linear(2, 2)
    before = module.weight
    compiled = dc.compile(lambda w, x: functional_call(module, {"weight": w}, x), fullgraph=True)
    for value in (1.0, 2.0, 3.0):
        got = compiled(dc.full((2, 2), value), dc.ones(1, 2))
        np.testing.assert_allclose(got.detach().numpy(), 2 * value + module.bias.detach().numpy()[None], rtol=1e-6)
    assert module.weight is before
    assert str(compiled.explain()).count("graph lambda_forward") <= 1


@pytest.mark.parametrize(
    "tensors",
    [{"bias": dc.zeros(2)}, {"weight": dc.ones(2, 2), "bias": dc.zeros(2), "other": dc.zeros(1)}],
)
def test_functional_call_strict_names_what_does_not_fit(tensors: Any) -> None:
    with pytest.raises(StateDictError, match="do not fit"):
        functional_call(dc.nn.Linear(2, 2), tensors, dc.ones(1, 2), strict=True)


def test_functional_call_refuses_two_values_for_one_parameter() -> None:
    shared = dc.nn.Linear(2, 2)
    module = dc.nn.Sequential(shared, shared)
    with pytest.raises(StateDictError, match="tied"):
        functional_call(module, {"0.bias": dc.zeros(2), "1.bias": dc.ones(2)}, dc.ones(1, 2))
    with pytest.raises(StateDictError, match="multiple dictionaries"):
        functional_call(module, [{"0.bias": dc.zeros(2)}, {"0.bias": dc.ones(2)}], dc.ones(1, 2))
