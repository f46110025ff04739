"""What a function that is a backend is given: a GraphModule that runs, prints and can be changed."""

from __future__ import annotations

import operator
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import BackendError, ShapeError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.minify import example_inputs
from compiler_core.log import DistCompileWarning
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


def test_shapes_are_propagated_through_a_module() -> None:
    from distcompile.fx.passes.shape_prop import ShapeProp

    def backend(module: Any, example_inputs: Any) -> Any:
        ShapeProp(module).propagate(*example_inputs)
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        assert all(node.meta["tensor_meta"].dtype is dc.float32 for node in calls)
        return module.forward

    assert dc.compile(lambda x: x * 2 + dc.tensor([1.0, 2.0]), backend=backend)(dc.ones(2)).tolist() == [3.0, 4.0]


def test_mode_and_options_go_to_a_function() -> None:
    given: list[Any] = []

    def backend(module: Any, example_inputs: Any, **words: Any) -> Any:
        given.append(words)
        return module.forward

    for words in ({}, {"mode": "default"}, {"mode": "fast"}, {"options": {"level": 3, "skip_hook_guards": True}}):
        assert dc.compile(lambda x: x + 1, backend=backend, **words)(dc.ones(1)).tolist() == [2.0]
    assert given == [{}, {}, {"mode": "fast"}, {"options": {"level": 3}}]


@pytest.mark.parametrize("name", ["inductor", "eager", "aot_eager"])
def test_a_backend_may_end_with_one_of_ours(name: str) -> None:
    def instead(module: Any, example_inputs: Any) -> Any:
        for node in module.graph.nodes:
            if node.target is dc.sin:
                node.target = dc.cos
        module.recompile()
        return dc._dynamo.lookup_backend(name)(module, example_inputs)

    x = dc.randn(5)
    np.testing.assert_allclose(dc.compile(lambda x: x.sin() * 2, backend=instead)(x).numpy(), 2 * np.cos(x.numpy()),
                               rtol=1e-6)  # fmt: skip


def test_counters_count() -> None:
    from distcompile._dynamo.testing import CompileCounter, CompileCounterWithBackend, EagerAndRecordGraphs
    from distcompile._inductor.compile_fx import compile_fx

    counts, both, keeps = CompileCounter(), CompileCounterWithBackend("inductor"), EagerAndRecordGraphs()
    for backend in (counts, both, keeps, compile_fx):
        f = dc.compile(lambda x: x.sin().cos(), backend=backend)
        for n in (3, 3, 4):
            np.testing.assert_allclose(f(dc.ones(n)).numpy(), np.cos(np.sin(np.ones(n))), rtol=1e-6)
    assert (counts.frame_count, counts.op_count, both.frame_count) == (2, 4, 2)
    assert len(both.graphs) == len(keeps.graphs) == 2
    both.clear()
    assert (both.frame_count, both.graphs) == (0, [])


def test_errors_of_a_backend_are_suppressed_where_that_is_asked_for() -> None:
    def broken(module: Any, example_inputs: Any) -> Any:
        raise ValueError("not today")

    w = dc.ones(2, requires_grad=True)
    f = dc.compile(lambda x: (x * w).sum(), backend=broken)
    with pytest.raises(BackendError, match="not today"):
        f(dc.ones(2))
    dc._dynamo.config.suppress_errors = True
    try:
        with pytest.warns(DistCompileWarning, match="runs op by op, for its backend failed"):
            f(dc.full((2,), 3.0)).backward()
    finally:
        dc._dynamo.config.suppress_errors = False
    assert w.grad.tolist() == [3.0, 3.0]


def test_errors_of_a_backward_that_is_compiled_later_are_suppressed_too() -> None:
    """Of two results only one comes: what is left of the backward is compiled when it runs."""
    fails = False

    def late(module: Any, example_inputs: Any) -> Any:
        if fails:
            raise ValueError("not today")
        return module

    w = dc.ones(3, requires_grad=True)
    f = dc.compile(lambda x: ((x * w).exp().sum(), (x * w.sin()).sum()), backend=late)
    first, _ = f(dc.ones(3))
    fails = True
    with pytest.raises(BackendError, match="not today"):
        first.backward(retain_graph=True)
    dc._dynamo.config.suppress_errors = True
    try:
        with pytest.warns(DistCompileWarning, match="runs op by op, for its backend failed"):
            first.backward()
    finally:
        dc._dynamo.config.suppress_errors = False
    assert dc.allclose(w.grad, dc.ones(3).exp())


def test_dynamo_exports_a_graph_of_any_sizes() -> None:
    net = dc.nn.Linear(3, 2)
    made = dc._dynamo.export(lambda x, *, scale: {"y": net(x) * scale})(dc.ones(4, 3), scale=2.0)
    x = dc.randn(5, 3)
    assert dc.allclose(made.graph_module(x, scale=2.0)["y"], net(x) * 2)
    assert "matmul" in made.graph_module.code
    assert any(node.op == "placeholder" for node in made.graph_module.graph.nodes)
    assert any("s0" in guard for guard in made.guards)
    fixed = dc._dynamo.export(net, dc.ones(4, 3), dynamic_shapes={}, aten_graph=True)
    with pytest.raises(ShapeError):
        fixed.graph_module(x)


def test_a_backend_of_ones_own_needs_no_engines_package() -> None:
    program = """
import sys
for name in ("onnx", "onnxruntime", "jax", "openvino", "tvm", "tensorrt", "torch"):
    sys.modules[name] = None
import distcompile as dc
run = dc.compile(lambda x: x.sin() + 1, backend=lambda module, examples: module)
print(run(dc.zeros(2)).tolist(), dc.onnx.is_in_onnx_export())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[1.0, 1.0] False\n", 0), done.stderr


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
