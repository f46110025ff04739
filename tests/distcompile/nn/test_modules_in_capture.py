"""What a captured forward may do to modules: make small ones, change buffers in place; what breaks the graph."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak
from distcompile import nn


def test_modules_made_in_a_forward_are_captured() -> None:
    x = dc.tensor(np.random.default_rng(0).standard_normal((4, 3)).astype("f4"))

    def f(x: dc.Tensor) -> dc.Tensor:
        probabilities = nn.Sequential(nn.Softmax(dim=1), nn.Dropout(0.5).eval())(x)
        return nn.CrossEntropyLoss(label_smoothing=0.1)(probabilities, dc.tensor([0, 2, 1, 1]))

    np.testing.assert_allclose(dc.compile(f, fullgraph=True)(x).numpy(), f(x).numpy(), rtol=1e-6)


def test_parameters_made_in_a_forward_break_the_graph() -> None:
    with pytest.raises(GraphBreak, match="is made while a forward is captured"):
        dc.compile(lambda x: nn.LayerNorm(3)(x), fullgraph=True)(dc.ones(4, 3))


def test_buffers_made_in_a_forward_are_in_the_graph() -> None:
    f = dc.compile(lambda x: nn.BatchNorm1d(3, affine=False)(x), fullgraph=True)
    x = dc.tensor(np.random.default_rng(0).standard_normal((4, 3)).astype("f4"))
    for _ in range(2):
        np.testing.assert_allclose(f(x).numpy(), nn.BatchNorm1d(3, affine=False)(x).numpy(), rtol=1e-5, atol=1e-6)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count: dc.Tensor
        self.register_buffer("count", dc.zeros((), dtype=dc.int64))

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        self.count += 1
        return x * self.count


def test_a_buffer_is_changed_in_place_by_an_operator() -> None:
    module = Counts()
    compiled = dc.compile(module, fullgraph=True)
    assert [compiled(dc.ones(2)).tolist() for _ in range(3)] == [[1.0] * 2, [2.0] * 2, [3.0] * 2]
    assert module.count.item() == 3
    before = module.__tree_version__()
    module(dc.ones(2))
    assert module.__tree_version__() == before  # nothing to compile again


def test_a_buffer_registered_in_a_forward_is_there_afterwards() -> None:
    class Late(nn.Module):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            if not hasattr(self, "places"):
                self.register_buffer("places", dc.arange(3.0))
            return x + self.places

    module = Late()
    compiled = dc.compile(module, fullgraph=True)
    first = compiled(dc.zeros(3))
    assert compiled(dc.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert first.tolist() == module.state_dict()["places"].tolist() == [0.0, 1.0, 2.0]
