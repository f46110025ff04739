"""No graph holds sparse tensors: what touches one breaks the graph, and the compiled function gives what eager gives.

What a tensor is (its shape, its layout) is asked without a break, under guards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile
from compiler_core.errors import GraphBreak

t = distcompile


def operand() -> Any:
    """COO f32[2, 2], not symmetric."""
    return t.sparse_coo_tensor(t.tensor([[0, 1, 1], [1, 0, 1]]), t.tensor([2.0, 3.0, -1.0]), (2, 2))


OUTSIDE = operand()

BREAKING: dict[str, Callable[[Any, Any], Any]] = {
    "sparse.mm": lambda s, x: t.sparse.mm(s, x * 2) + 1,
    "matmul": lambda s, x: (s @ (x * 2)).sin(),
    "from outside": lambda s, x: (OUTSIDE @ (x * 2)).sin(),
    "made": lambda s, x: t.sparse_coo_tensor(t.tensor([[0, 1], [1, 0]]), x[0] * 2, (2, 2)).to_dense() * x,
    "made CSR": lambda s, x: t.sparse_csr_tensor([0, 1, 2], [1, 0], x[0] * 2, (2, 2)).to_dense() * x,
    "to_sparse": lambda s, x: (x * 2).to_sparse().to_dense() + 1,
    "returned": lambda s, x: (x * 2).to_sparse().coalesce().values() + 1,
    "values": lambda s, x: x[:, :1] * s._values(),
    "multiplied": lambda s, x: (s * 2).to_dense() + x,
    "coalesced": lambda s, x: s.coalesce().to_dense() * x,
    "in place": lambda s, x: s.clone().mul_(3).to_dense() * x,
    "into a dense one": lambda s, x: (x * 2).add_(s) * 2,
    "summed": lambda s, x: t.sparse.sum(s, 0).to_dense() * x,
    "indexed": lambda s, x: s[1].to_dense() * x,
}
ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "is_sparse": lambda s, x: x * 2 if s.is_sparse else x * 3,
    "layout": lambda s, x: x * 2 if s.layout is t.sparse_coo else x * 3,
    "shape": lambda s, x: x * s.shape[0],
    "dtype": lambda s, x: x.to(s.dtype) * 2,
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_break_stands_where_a_sparse_tensor_is_used(name: str) -> None:
    function, x = BREAKING[name], t.tensor([[0.5, -1.0], [2.0, 3.0]])
    expected = function(operand(), x)
    compiled = t.compile(function)
    for _ in range(2):
        assert t.allclose(compiled(operand(), x), expected)
    with pytest.raises(GraphBreak):
        t.compile(function, fullgraph=True)(operand(), x)


@pytest.mark.parametrize("name", ASKED)
def test_what_it_is_can_be_asked_in_a_graph(name: str) -> None:
    function, x = ASKED[name], t.ones(2, 2)
    compiled = t.compile(function, fullgraph=True)
    for s in (operand(), operand().to_dense(), operand().to_sparse_csr(), operand().double()):
        assert t.equal(compiled(s, x), function(s, x))


def test_gradients_pass_a_break() -> None:
    weights, x, s = t.tensor([[1.0, 2.0], [3.0, 4.0]]), t.ones(2, 2), operand()

    def loss(w: Any, values: Any) -> Any:
        made = t.sparse_coo_tensor(s._indices(), values, (2, 2))
        return (t.sparse.mm(made, (x @ w).sin()) * 3).cos().sum()

    found = []
    for function in (loss, t.compile(loss)):
        leaves = [weights.clone().requires_grad_(), s._values().clone().requires_grad_()]
        function(*leaves).backward()
        found.append([leaf.grad for leaf in leaves])
    for eager, compiled in zip(*found, strict=True):
        t.testing.assert_close(compiled, eager)


def test_a_sparse_gradient_of_a_graphs_output_is_given_to_it_dense() -> None:
    table = t.arange(10.0).reshape(5, 2).requires_grad_()
    scaled = t.compile(lambda w: w * 2)(table)
    t.nn.functional.embedding(t.tensor([1, 1, 3]), scaled, sparse=True).sum().backward()
    assert table.grad.tolist() == [[0, 0], [4, 4], [0, 0], [2, 2], [0, 0]]


def test_an_embedding_with_sparse_gradients_breaks_the_graph_only_where_it_is_recorded() -> None:
    layer = t.nn.Embedding(5, 3, sparse=True)
    compiled = t.compile(lambda i: layer(i).sin().sum())
    compiled(t.tensor([1, 1, 3])).backward()
    got, layer.weight.grad = layer.weight.grad, None
    layer(t.tensor([1, 1, 3])).sin().sum().backward()
    t.testing.assert_close(got.coalesce(), layer.weight.grad.coalesce())
    whole = t.compile(lambda i: layer(i).sin().sum(), fullgraph=True)
    with pytest.raises(GraphBreak, match="sparse=True"):
        whole(t.tensor([1]))
    with t.no_grad():
        assert t.allclose(whole(t.tensor([1])), layer(t.tensor([1])).sin().sum())


def test_a_module_with_a_sparse_buffer() -> None:
    class Graph(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = t.nn.Linear(2, 2)
            self.register_buffer("adjacency", operand())

        def forward(self, x: Any) -> Any:
            return t.sparse.mm(self.adjacency, self.linear(x)).relu()

    model, x = Graph(), t.tensor([[0.5, -1.0], [2.0, 3.0]])
    compiled = t.compile(model)
    for _ in range(2):
        t.testing.assert_close(compiled(x), model(x))
    other = Graph()
    other.load_state_dict(model.state_dict())
    t.testing.assert_close(other(x), model(x))
    assert other.double().adjacency.dtype is t.float64
    model.adjacency.mul_(2)
    t.testing.assert_close(compiled(x), model(x))
