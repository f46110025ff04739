"""Forms of calls in which users write what torch takes, and arguments that torch refuses.

In: small calls. Out: torch's values, dtypes and errors, as PyTorch 2.13 gives them.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch
from distcompile import nn
from distcompile.nn import functional as F

MAKERS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda d: torch.zeros(2, dtype=d),
    "full": lambda d: torch.full((2,), 1, dtype=d),
    "tensor": lambda d: torch.tensor([1], dtype=d),
    "as_tensor": lambda d: torch.as_tensor([1], dtype=d),
    "eye": lambda d: torch.eye(2, dtype=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2), dtype=d),
    "new_zeros": lambda d: torch.ones(2).new_zeros(2, dtype=d),
    "sum": lambda d: torch.ones(2).sum(dtype=d),
    "to": lambda d: torch.ones(2).to(d),
    "to device": lambda d: torch.ones(2).to("cpu", d),
    "to dtype": lambda d: torch.ones(2).to(dtype=d),
    "compiled": lambda d: torch.compile(lambda x: x.to(d) + torch.ones(2, dtype=d), fullgraph=True)(torch.ones(2)),
}
X = torch.arange(-3.0, 3.0)


@pytest.mark.parametrize("name", MAKERS)
def test_a_python_type_is_a_dtype(name: str) -> None:
    kinds = {float: torch.float64, int: torch.int64, complex: torch.complex128, bool: torch.bool}
    for kind, dtype in kinds.items():
        assert MAKERS[name](kind).dtype is dtype


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_dtype_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=r"must be torch\.dtype"):
        MAKERS[name](list)


def test_a_module_goes_to_python_s_float_and_to_no_integers() -> None:
    assert nn.Linear(2, 2).to(float).weight.dtype is torch.float64
    with pytest.raises(TypeError):
        nn.Linear(2, 2).to(int)
    with pytest.raises(RuntimeError, match="floating point or complex"):
        nn.Linear(2, 2).type(torch.int32)


def test_names_of_arguments_are_torch_s() -> None:
    assert torch.max(X, other=-X).tolist() == [3, 2, 1, 0, 1, 2]
    assert X.min(other=-X).tolist() == [-3, -2, -1, 0, -1, -2]
    assert [len(piece) for piece in torch.split(tensor=X, split_size_or_sections=4)] == [4, 2]
    assert torch.arange(end=3).tolist() == [0, 1, 2]
    assert torch.arange(end=3, start=1).tolist() == [1, 2]
    with pytest.raises(TypeError):
        torch.arange()


@pytest.mark.parametrize("call", [lambda o: torch.add(X, 1, out=o), lambda o: torch.zeros(2, out=o)])
def test_out_is_a_tensor(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not int"):
        call(3)


def test_an_index_is_a_vector() -> None:
    with pytest.raises(IndexError, match="supposed to be a vector"):
        torch.ones(2, 3).index_select(0, torch.tensor([[0]]))


def test_the_base_of_a_view_is_no_view() -> None:
    base = torch.arange(4.0)
    view = base.view(2, 2)
    assert all(of._base is base for of in (view, view.t()))
    assert base._base is None


def test_copies_of_what_was_computed_require_a_gradient() -> None:
    computed = torch.ones(2, requires_grad=True) * 2
    for copied in (copy.copy(computed), pickle.loads(pickle.dumps(computed))):
        assert (copied.requires_grad, copied.is_leaf) == (True, True)


def test_pooling_by_the_largest() -> None:
    assert F.lp_pool1d(X[None], float("inf"), 2).tolist() == [[3, 1, 2]]
    assert F.lp_pool1d(X[None], -float("inf"), 2).tolist() == [[2, 0, 1]]


def test_pooling_to_nothing_and_by_numbers_that_are_no_places() -> None:
    assert F.adaptive_avg_pool1d(X[None, None], 0).shape == (1, 1, 0)
    assert F.adaptive_max_pool2d(torch.ones(1, 2, 4, 4), (0, 3)).shape == (1, 2, 0, 3)
    values, places = F.max_pool1d(X[None], 2, return_indices=True)
    with pytest.raises(RuntimeError, match="should be type int64"):
        F.max_unpool1d(values, places.float(), 2)


def test_layers_and_optimizers_refuse() -> None:
    with pytest.raises(TypeError):
        nn.ConvTranspose2d(1, 1, 3, padding="same")
    with pytest.raises(AssertionError):
        nn.Hardtanh(1, -1)
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1, foreach=True, fused=True)


def test_a_lazy_layer_s_state_has_no_shape_and_takes_one() -> None:
    layer = nn.LazyLinear(2)
    with pytest.raises(RuntimeError, match="shape of an uninitialized parameter"):
        _ = layer.state_dict()["weight"].shape
    layer.load_state_dict(nn.Linear(3, 2).state_dict())
    layer(torch.ones(1, 3))
    assert repr(layer) == "Linear(in_features=3, out_features=2, bias=True)"
