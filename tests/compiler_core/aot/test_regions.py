"""What the partition saves of checkpointed functions: their inputs, and what is read elsewhere; dropout draws again."""

import contextlib

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn as nn
from compiler_core.aot.joint import make_joint
from compiler_core.aot.partition import Partition, partition
from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.graph.interpret import interpret
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.log import DistCompileWarning
from distcompile.utils.checkpoint import checkpoint


def captured(function, *args):
    """The graph that a call is captured as."""
    graphs = []
    backend = lambda module, inputs: graphs.append(module.ir) or module.forward  # noqa: E731
    with dc.no_grad():
        compile(function, backend=backend, fullgraph=True)(*args)
    (graph,) = graphs
    return graph


def parts(function, *args) -> Partition:
    graph = run_passes(captured(function, *args), SIMPLIFY)
    joint = make_joint(graph, [node.dtype.is_inexact for node in graph.inputs])
    return partition(type(joint)(run_passes(joint.graph, SIMPLIFY_JOINT), *[getattr(joint, n) for n in
                     ("outputs", "tangents", "gradients", "reaches")]))  # fmt: skip


def saved(made: Partition) -> list[str]:
    """Role of an input, or op of a value, that the backward is given beside its tangents."""
    outputs = {node.name: node for node in made.forward.outputs}
    return [
        outputs[n.name].op.name if n.role in ("saved", "spent") else n.role
        for n in made.backward.inputs
        if n.role != "tangent"
    ]


def block(x, w):
    return dc.nn.functional.gelu(x @ w).exp() @ w


X, W = dc.randn(8, 4), dc.randn(4, 4)


def test_nothing_of_a_region_is_kept_but_its_inputs():
    plain = parts(block, X, W)
    kept = parts(lambda x, w: checkpoint(block, x, w, use_reentrant=False), X, W)
    assert "matmul" in saved(plain)
    assert saved(kept) == ["input", "input"]
    products = [call for call in kept.backward.calls if call.op.name == "matmul"]
    assert len(products) == 5  # four of gradients, one again: the result's own is not needed


def test_between_regions_what_the_second_reads_is_kept():
    def two(x, w):
        for _ in range(2):
            x = checkpoint(block, x, w, use_reentrant=True)
        return x

    made = parts(two, X, W)
    assert saved(made) == ["matmul", "input", "input"]
    assert len([c for c in made.backward.calls if c.op.name == "matmul"]) == 10


def test_nested_regions_are_the_outermost():
    def outer(x, w):
        return checkpoint(block, checkpoint(block, x, w, use_reentrant=False), w, use_reentrant=False)

    made = parts(lambda x, w: checkpoint(outer, x, w, use_reentrant=False), X, W)
    assert saved(made) == ["input", "input"]


def test_what_the_rest_of_the_function_reads_is_kept():
    made = parts(lambda x, w: (checkpoint(block, x, w, use_reentrant=False)).exp() @ w, X, W)
    assert "exp" in saved(made)
    assert "matmul" not in saved(made)


def test_random_bits_are_drawn_again_from_the_same_key():
    made = parts(lambda x, w: checkpoint(lambda: dc.nn.functional.dropout(x @ w, 0.5) @ w, use_reentrant=False), X, W)
    assert sorted(saved(made)) == ["input", "input", "rng"]
    assert "philox" in {call.op.name for call in made.backward.calls}


def test_the_halves_compute_what_the_whole_does():
    def deep(x, w, run):
        for _ in range(3):
            x = run(lambda v: dc.nn.functional.dropout(dc.tanh(v @ w), 0.3) + v, x)
        return x

    def gradients(run):
        made = parts(lambda x, w: deep(x, w, run), X, W)
        key, arrays = np.array([5, 0, 0], np.uint64), {"input": [X.numpy(), W.numpy()]}
        given = [key if n.role == "rng" else arrays["input"][i] for i, n in enumerate(made.forward.inputs)]
        results = interpret(made.forward, given)
        named = dict(zip([n.name for n in made.forward.inputs], given))
        named |= dict(zip([n.name for n in made.forward.outputs], results))
        return interpret(made.backward, [named.get(n.name, np.ones((8, 4), np.float32)) for n in made.backward.inputs])

    plain = gradients(lambda f, x: f(x))
    for ours, theirs in zip(gradients(lambda f, x: checkpoint(f, x, use_reentrant=False)), plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_dump_says_which_checkpoint_a_call_belongs_to():
    graph = captured(lambda x, w: checkpoint(block, x, w, use_reentrant=False), X, W)
    from compiler_core.graph.print import print_graph

    assert "checkpoint 1" in print_graph(graph, locations=True)
    assert "checkpoint" not in print_graph(graph)


@pytest.mark.parametrize("reentrant", [False, True])
def test_compiled_gradients_and_bits_are_those_without(reentrant):
    net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 8), nn.LayerNorm(8))
    x = dc.randn(4, 8)

    def gradients(function):
        dc.manual_seed(3)
        net.zero_grad()
        dc.compile(function, fullgraph=True)(x).square().sum().backward()
        return [p.grad.numpy().copy() for p in net.parameters()]

    plain = gradients(lambda v: net(v))
    for a, b in zip(gradients(lambda v: checkpoint(net, v, use_reentrant=reentrant)), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)  # other bits dropped would be seen; kernels round apart


def test_a_context_function_breaks_the_graph():
    def contexts():
        return contextlib.nullcontext(), contextlib.nullcontext()

    with pytest.raises(GraphBreak, match="context_fn"):
        parts(lambda x, w: checkpoint(block, x, w, use_reentrant=False, context_fn=contexts), X, W)


def test_a_whole_step_computes_what_is_checkpointed_again():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def step(x, times=1):
        for _ in range(times):
            hidden = checkpoint(net[:4], x, use_reentrant=False)
            net[4](hidden).sum().backward()

    whole = compile(step, fullgraph=True)
    whole(dc.ones(3, 4))
    (entry,) = whole.explain().entries
    graphs = dict(entry.graphs)
    counts = [sum(call.op.name == "tanh" for call in graphs[name].calls) for name in ("first", "backward")]
    assert counts == [2, 1]  # the result of the second is what the layer behind it reads
    with pytest.warns(DistCompileWarning, match="only the last one computes checkpointed functions again"):
        compile(lambda x: step(x, 2), fullgraph=True)(dc.ones(3, 4))
