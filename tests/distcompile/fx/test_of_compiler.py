"""What a function that is a backend is given: a GraphModule that runs, prints and can be changed."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import BackendError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.minify import example_inputs
from distcompile import fx
from distcompile.fx.of_compiler import module_of
from distcompile.nn import functional as F
from tests.compiler_core.graph.random_small_graphs import random_graph


class Keeps:
    """A backend that keeps what it was given, and gives the module back."""

    __name__ = "keeps"

    def __init__(self) -> None:
        self.modules: list[Any] = []

    def __call__(self, module: Any, example_inputs: Any) -> Any:
        assert isinstance(module, fx.GraphModule)
        assert all(isinstance(x, dc.Tensor) for x in example_inputs)
        self.modules.append(module)
        return module


def step(x: Any, w: Any) -> Any:
    return F.cross_entropy(F.layer_norm(x @ w, (6,)) / 3, dc.arange(4))


def test_the_module_given_back_computes_forward_and_backward() -> None:
    x, w = dc.randn(4, 5), dc.randn(5, 6, requires_grad=True)
    keeps = Keeps()
    loss = dc.compile(step, backend=keeps, fullgraph=True)(x, w)
    loss.backward()
    got = w.grad
    w.grad = None
    expected = step(x, w)
    expected.backward()
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-6)
    np.testing.assert_allclose(got.numpy(), w.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert [module.ir.name for module in keeps.modules] == ["step_forward", "step_backward"]


def test_nodes_say_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    keeps = Keeps()
    dc.compile(lambda a, b: a / (dc.abs(a) + 1) * b.sum(), backend=keeps)(dc.ones(3), dc.ones(3))
    (module,) = keeps.modules
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert {dc.abs, dc.add, dc.div, dc.mul} <= set(targets)
    module.graph.print_tabular()
    assert "torch.abs" in capsys.readouterr().out
    assert "torch.abs(arg0)" in module.code
    assert "prims_sum(arg1, dims = (0,))" in module.print_readable(print_output=False)
    (sum_,) = [node for node in module.graph.nodes if node.name == "sum_1"]
    assert (tuple(sum_.meta["val"].shape), sum_.meta["val"].dtype) == ((), dc.float32)
    assert __file__ in sum_.stack_trace


def test_a_backend_may_change_what_is_computed() -> None:
    def instead(module: Any, example_inputs: Any) -> Any:
        for node in module.graph.nodes:
            if node.target is dc.add:
                node.target = dc.mul
        module.graph.lint()
        module.recompile()
        return module.forward

    f = dc.compile(lambda x, y: dc.add(x, y), backend=instead)
    assert f(dc.full((2,), 3.0), dc.full((2,), 5.0)).tolist() == [15.0, 15.0]


def test_a_backend_may_walk_over_the_nodes() -> None:
    seen: list[str] = []

    class Walks(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            seen.append(target.__name__)
            return super().call_function(target, args, kwargs)

    f = dc.compile(lambda x: x.sin() + x.cos(), backend=lambda module, examples: Walks(module).run)
    x = dc.randn(3)
    assert dc.equal(f(x), x.sin() + x.cos())
    assert sorted(seen) == ["add", "cos", "sin"]


def test_sizes_that_the_call_decides_are_nodes() -> None:
    keeps = Keeps()

    def f(x: Any, pairs: Any) -> Any:
        joined = dc.cat([x, x * 2])
        return joined.softmax(0).reshape(-1, 2)[: x.shape[0] // 3], pairs.reshape(2, -1)

    g = dc.compile(f, backend=keeps, dynamic=True)
    for n in (4, 6, 9):
        x, pairs = dc.randn(n, 4), dc.randn(2 * n)
        for got, expected in zip(g(x, pairs), f(x, pairs), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)
    (module,) = keeps.modules
    nodes = list(module.graph.nodes)
    assert any(node.op == "call_method" and node.target == "size" for node in nodes)
    assert any(node.target is operator.floordiv for node in nodes)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(BackendError, match="returned a int"):
        dc.compile(lambda x: x + 1, backend=lambda module, examples: 5)(dc.ones(2))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("seed", range(10))
def test_modules_of_random_graphs_compute_what_the_interpreter_does(seed: int) -> None:
    graph = random_graph(seed)
    inputs = example_inputs(graph, seed)
    found = module_of(graph)(*map(dc.from_numpy, inputs))
    for got, expected in zip(found, interpret(graph, inputs), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)
