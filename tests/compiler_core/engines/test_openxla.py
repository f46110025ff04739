"""XLA through JAX: whole models and their gradients, the same draws, errors of values, the text of a program."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import distcompile as dc
from compiler_core.engines.openxla.engine import stablehlo
from compiler_core.errors import BackendError, IndexError_
from distcompile import nn
from distcompile.nn import functional as F


class Convolutional(nn.Module):
    """Convolution, batch norm, pooling, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(32, 5)),
        )

    def forward(self, x: Any) -> Any:
        return self.body(x)


class Attending(nn.Module):
    """An embedding and a layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(self.tokens(x)).mean(1))


MODELS: dict[str, tuple[type[nn.Module], Any]] = {
    "convolutional": (Convolutional, lambda: dc.randn(4, 3, 16, 16)),
    "attending": (Attending, lambda: dc.randint(0, 11, (4, 6))),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_ours(name: str) -> None:
    dc.manual_seed(0)
    make, batch = MODELS[name]
    model, x, y = make(), batch(), dc.arange(4)
    found = {}
    for backend in ("inductor", "openxla"):
        other = copy.deepcopy(model)
        optimizer = dc.optim.SGD(other.parameters(), lr=0.1)
        compiled = dc.compile(other, backend=backend, fullgraph=True)
        dc.manual_seed(1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(compiled(x), y)
            loss.backward()
            optimizer.step()
        state = {key: value.numpy() for key, value in other.state_dict().items()}
        found[backend] = {"loss": np.asarray(loss.item()), **state}
    for key, expected in found["inductor"].items():
        np.testing.assert_allclose(found["openxla"][key], expected, rtol=2e-4, atol=2e-6, err_msg=key)


def test_an_index_out_of_range_is_an_error_and_not_clamped() -> None:
    take = dc.compile(lambda x, i: x[i] * 2, backend="openxla")
    assert take(dc.arange(3.0), dc.tensor([2, 0])).tolist() == [4.0, 0.0]
    with pytest.raises(IndexError_, match="index 3 is out of range"):
        take(dc.arange(3.0), dc.tensor([2, 3]))


def test_64_bits_stay_so_and_jax_is_left_as_it_was() -> None:
    import jax

    f = dc.compile(lambda x: x.sin() + 1, backend="openxla")
    x = dc.randn(3, dtype=dc.float64)
    np.testing.assert_allclose(f(x).numpy(), np.sin(x.numpy()) + 1, rtol=1e-15)
    assert jax.numpy.ones(1, "float32").dtype == np.float32
    assert jax.numpy.asarray(1.0).dtype == np.float32


def test_results_may_be_written_to() -> None:
    y = dc.compile(lambda x: x * 2, backend="openxla")(dc.ones(4))
    y.add_(1)
    y.numpy()[0] = 7
    assert y.tolist() == [7.0, 3.0, 3.0, 3.0]


def test_the_program_as_stablehlo() -> None:
    graphs: list[Any] = []

    def keeps(module: Any, examples: Any) -> Any:
        graphs.append(module.ir)
        return module

    dc.compile(lambda x: x.sin(), backend=keeps)(dc.ones(3))
    assert "stablehlo.sine" in stablehlo(graphs[0])
    dc.compile(lambda x: dc.linalg.inv(x), backend=keeps)(dc.eye(3))
    with pytest.raises(BackendError, match="has no StableHLO"):
        stablehlo(graphs[1])


def test_numbers_are_computed_in_the_order_of_the_program() -> None:
    a, b = dc.tensor([1e30, 7.0, 1e10]), dc.tensor([1e30, 3.0, 1e-30])

    def f(a: dc.Tensor, b: dc.Tensor) -> tuple[dc.Tensor, ...]:
        return (a / b) / b, a / (b / b), (a + 1e20) - 1e20, a * 1e30 * 1e-30

    for ours, theirs in zip(dc.compile(f, backend="openxla")(a, b), f(a, b), strict=True):
        assert dc.allclose(ours, theirs)


def test_a_nan_stays_where_it_is_multiplied_by_a_truth_value() -> None:
    x = dc.tensor([[float("nan"), 1.0, 1.0]], requires_grad=True)
    dc.compile(lambda x: x.amax(1).sum(), backend="openxla")(x).backward()
    assert x.grad.isnan().all()


def test_what_a_backward_read_is_as_it_was_for_the_next() -> None:
    x = dc.linspace(0.1, 1, 64).reshape(8, 8).requires_grad_()
    out = dc.compile(lambda x: (x.sin() @ x.exp()).tanh().sum(), backend="openxla")(x)
    out.backward(retain_graph=True)
    first, x.grad = x.grad, None
    out.backward()
    assert dc.equal(x.grad, first)
