"""torch.fx: the code, the graph's text and the results of programs that are traced, and of graphs that are changed."""

from __future__ import annotations

import contextlib
import copy
import math
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
LIBS = (dc, torch)
X = np.random.default_rng(0).standard_normal((2, 4))


def network(lib: Any, forward: Any) -> Any:
    class Net(lib.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.lin = lib.nn.Linear(4, 4)
            self.seq = lib.nn.Sequential(lib.nn.Linear(4, 4), lib.nn.Tanh())
            self.w = lib.nn.Parameter(lib.full((4,), 0.5))
            self.register_buffer("b", lib.ones(4) * 2)

    forward.__annotations__.clear()
    Net.forward = forward  # type: ignore[attr-defined]
    net = Net()
    with lib.no_grad():
        for i, parameter in enumerate(net.parameters()):
            parameter.copy_(lib.tensor(np.random.default_rng(i).standard_normal(tuple(parameter.shape)).tolist()))
    return net


def operators(self: Any, x: Any) -> Any:
    h = (self.lin(x) + self.w) * self.b - 1 / (self.seq(x) ** 2 + 3)
    return -h @ h.T % 2 // 1, (x > 0) & (x <= 1), ~(x == x), h[0, 1:], h[..., None], x << 1 if False else h


def methods(self: Any, x: Any, y: Any = None, *, scale: float = 2.0) -> Any:
    a, b = self.seq(x).chunk(2, -1)
    return {"a": a.sum(0, keepdim=True), "n": math.sqrt(x.size(0)), "s": x.shape, "scale": scale, "b": [b, (a,)]}


def several(self: Any, x: Any, *others: Any, **more: Any) -> Any:
    return x + others[0] * more["k"]


def nothing(self: Any, x: Any) -> Any:
    unused = x + 1  # noqa: F841
    return self.lin(x)


PROGRAMS = (operators, methods, several, nothing)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_code_and_graph_are_torchs(program: Any) -> None:
    told = []
    for lib in LIBS:
        traced = lib.fx.symbolic_trace(network(lib, program))
        told.append((traced.code, str(traced.graph), traced._get_name(), sorted(traced.state_dict())))
    assert told[0] == told[1]


def numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: numbers(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [numbers(entry) for entry in value]
    return np.asarray(value.detach()).astype(float).tolist() if hasattr(value, "detach") else value


@pytest.mark.parametrize("program", [operators, methods, nothing], ids=lambda p: p.__name__)
def test_results_are_those_of_the_program(program: Any) -> None:
    net = network(dc, program)
    x = dc.tensor(X.tolist())
    want = numbers(net(x))
    traced = dc.fx.symbolic_trace(net)
    assert numbers(traced(x)) == want
    assert numbers(dc.fx.Interpreter(traced).run(x)) == want
    assert numbers(dc.fx.Transformer(traced).transform()(x)) == want
    assert numbers(copy.deepcopy(traced)(x)) == want
    assert next(copy.deepcopy(traced).parameters()) is not next(traced.parameters())
    assert numbers(dc.fx.symbolic_trace(traced)(x)) == want
    again = pickle.loads(pickle.dumps(traced))
    assert numbers(again(x)) == want


def test_gradients_reach_the_modules_that_were_traced() -> None:
    net = network(dc, nothing)
    traced = dc.fx.symbolic_trace(net)
    dc.compile(traced)(dc.tensor(X.tolist())).sum().backward()
    assert traced.lin.weight is net.lin.weight
    np.testing.assert_allclose(net.lin.weight.grad.numpy(), np.tile(X.sum(0), (4, 1)), rtol=1e-5)


def changed(lib: Any) -> Any:
    """A graph made by hand, changed in every way."""
    graph = lib.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", default_value=3)
    total = graph.call_function(operator.add, (x, y))
    graph.call_method("neg", (total,))
    out = graph.output({"r": [total, (total,)], "s": slice(None, 2)})
    with graph.inserting_before(out):
        twice = graph.call_function(operator.mul, (total, 2))
    total.replace_all_uses_with(twice, lambda user: user is out)
    with graph.inserting_after(x):
        third = graph.call_function(operator.truediv, (x, 3))
    total.replace_input_with(x, third)
    total.update_arg(1, 5)
    assert graph.eliminate_dead_code()
    assert not graph.eliminate_dead_code()
    third.append(y)
    graph.lint()
    return graph


def test_changed_graphs_are_torchs() -> None:
    told = []
    for lib in LIBS:
        graph = changed(lib)
        users = [(n.name, [u.name for u in n.users], [i.name for i in n.all_input_nodes]) for n in graph.nodes]
        names = [[node.name for node in each] for each in (graph.nodes, reversed(graph.nodes))]
        kinds = [node.name for node in graph.find_nodes(op="call_function", target=operator.mul)]
        made = lib.fx.GraphModule({}, graph, "Made")
        told.append(
            (made.code, str(graph), users, names, kinds, len(graph.nodes), type(made).__name__, made(6)["r"][0])
        )
    assert told[0] == told[1]


def test_misuse_raises_torchs_errors() -> None:
    uses: dict[str, Any] = {
        "a node with users": (RuntimeError, lambda lib, g, x, y: g.erase_node(x)),
        "used too early": (RuntimeError, lambda lib, g, x, y: (y.append(x), g.lint())),
        "an unknown target": (RuntimeError, lambda lib, g, x, y: lib.fx.GraphModule(
            {}, (g.call_module("no"), g)[1])),
        "arguments changed": (TypeError, lambda lib, g, x, y: g.call_function(len, ([x],)).args[0].append(x)),
        "control flow": (ValueError, lambda lib, g, x, y: lib.fx.symbolic_trace(lambda a: 1 if a else 2)),
        "iteration": (ValueError, lambda lib, g, x, y: lib.fx.symbolic_trace(lambda a: [b + 1 for b in a])),
        "a length": (RuntimeError, lambda lib, g, x, y: lib.fx.symbolic_trace(lambda a: len(a))),
        "wrap in a function": (NotImplementedError, lambda lib, g, x, y: lib.fx.wrap("len")),
        "an argument is missing": (RuntimeError, lambda lib, g, x, y: (
            g.output(y), lib.fx.Interpreter(lib.fx.GraphModule({}, g)).run())),
    }  # fmt: skip
    for what, (error, use) in uses.items():
        for lib in LIBS:
            graph = lib.fx.Graph()
            x = graph.placeholder("x")
            y = graph.call_function(operator.neg, (x,))
            with contextlib.suppress(error):
                use(lib, graph, x, y)
                pytest.fail(f"{what} is not refused by {lib.__name__}")


def test_known_arguments_are_values() -> None:
    told = []
    for lib in LIBS:

        def program(x, flag, factor=2, nothing=None):  # type: ignore[no-untyped-def]
            return x * factor if flag and nothing is None else x

        traced = lib.fx.symbolic_trace(program, concrete_args={"flag": True, "nothing": None})
        with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
            traced(3, False)
        with pytest.raises(AssertionError, match="nothing has been specialized to have value None"):
            traced(3, True, 2, 5)
        told.append((str(traced.graph), traced(3, True)))
    assert told[0][1] == told[1][1] == 6
    assert told[0][0].replace("distcompile", "torch") == told[1][0]


def test_shapes_are_noted() -> None:
    traced = dc.fx.symbolic_trace(network(dc, nothing))
    from distcompile.fx.passes.shape_prop import ShapeProp

    ShapeProp(traced).propagate(dc.tensor(X.tolist()))
    (lin,) = traced.graph.find_nodes(op="call_module")
    assert tuple(lin.meta["tensor_meta"].shape) == (2, 4)
    assert lin.meta["tensor_meta"].dtype is dc.float32
    assert lin.meta["type"] is dc.Tensor


def test_submodules_come_and_go() -> None:
    for lib in LIBS:
        traced = lib.fx.symbolic_trace(network(lib, nothing))
        assert traced.add_submodule("a.b", lib.nn.Linear(1, 1))
        assert traced.delete_submodule("a.b")
        assert not traced.delete_submodule("a.c")
        traced.add_submodule("extra", lib.nn.Linear(1, 1))
        traced.delete_all_unused_submodules()
        assert [name for name, _ in traced.named_modules()] == ["", "lin"]


def test_an_error_inside_shows_the_line_of_the_code() -> None:
    graph = dc.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.truediv, (x, 0)))
    with pytest.raises(ZeroDivisionError) as caught:
        dc.fx.GraphModule({}, graph)(1)
    assert "truediv = x / 0" in str(caught.getrepr())


def test_modules_that_are_called_are_nodes_or_traced_through() -> None:
    for lib in LIBS:

        class Deep(lib.fx.Tracer):  # type: ignore[name-defined, misc]
            def is_leaf_module(self, m: Any, qualified_name: str) -> bool:
                return qualified_name == "seq"

        net = network(lib, operators)
        tracer = Deep()
        graph = tracer.trace(net)
        assert [n.target for n in graph.nodes if n.op == "call_module"] == ["seq"]
        assert [n.target for n in graph.nodes if n.op == "get_attr"][:2] == ["lin.weight", "lin.bias"]
        assert tracer.root is net


def functions(self, x):  # type: ignore[no-untyped-def]
    lib = PLAIN[0]
    h = lib.relu(self.lin(x)) + lib.sum(x, dim=1, keepdim=True)
    h = lib.cat([h, h], 1).flatten(1)
    y = lib.softmax(lib.matmul(h, h.t()), -1).to(lib.float64)
    lib._assert(y.shape[0] == 2, "two rows")
    return lib.nn.functional.dropout(y, 0.1, self.training), lib.arange(2) + y, lib.zeros(2, 2).add_(y.mean())


PLAIN: list[Any] = []


def test_functions_of_torchs_are_nodes() -> None:
    told = []
    for lib in LIBS:
        PLAIN[:] = [lib]
        traced = lib.fx.symbolic_trace(network(lib, functions).eval())
        told.append((traced.code, str(traced.graph).replace("distcompile.", "torch.")))
        assert [tuple(y.shape) for y in traced(lib.tensor(X.tolist()))] == [(2, 2)] * 3
    assert told[0] == told[1]


def test_operands_in_a_list_are_einsums_operands() -> None:
    for lib in LIBS:
        traced = lib.fx.symbolic_trace(lambda x: lib.einsum("ij,jk->ik", [x, x]))  # noqa: B023
        (node,) = (node for node in traced.graph.nodes if node.op == "call_function")
        assert [str(arg) for arg in node.args] == ["ij,jk->ik", "x", "x"]
        assert node.target is lib.einsum


# -- parts


def branching(self: Any, x: Any, y: Any) -> Any:
    h = self.lin(x).relu()
    z = h + self.w
    return self.seq(z) + h + y, z


def of_three(node: Any) -> int:
    return {"lin": 0, "relu": 0, "add": 1, "seq": 1}.get(node.name, 2)


@pytest.mark.parametrize("tuple_return", [False, True])
def test_a_graph_is_split_into_modules_as_torchs(tuple_return: bool) -> None:
    from torch.fx.passes.split_module import split_module as theirs

    from distcompile.fx.passes.split_module import split_module as ours

    codes, results, names = [], [], []
    for lib, split in zip(LIBS, (ours, theirs)):
        traced, told = lib.fx.symbolic_trace(network(lib, branching)), {}
        made = split(traced, traced, of_three, qualname_map=told, partition_affix="a", tuple_return=tuple_return)
        codes.append([made.code, *(child.code for child in made.children())])
        x, y = lib.tensor(X.tolist()), lib.ones(4)
        expected = traced(x, y)
        assert all(lib.equal(a, b) for a, b in zip(made(x, y), expected))
        results.append([r.tolist() for r in expected])
        names.append(told)
    assert codes[0] == codes[1]
    assert names[0] == names[1]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)


def test_parts_that_need_each_other_are_an_error() -> None:
    traced = dc.fx.symbolic_trace(lambda x: (x + 1).relu() * 2)
    with pytest.raises(RuntimeError, match="cycle exists between partitions"):
        dc.fx.passes.split_module.split_module(traced, traced, lambda node: node.op == "call_method")
