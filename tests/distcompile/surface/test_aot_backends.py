"""aot_autograd, boxed functions and tables of decompositions: who compiles which graph, and what is left in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import distcompile as dc
from compiler_core.backend import find_backend
from compiler_core.ops.registry import OPS
from compiler_core.ops.rules import Decomposed
from distcompile import nn
from distcompile._dynamo.aot import (
    aot_autograd,
    aot_module_simplified,
    core_aten_decompositions,
    default_partition,
    get_decompositions,
    make_boxed_compiler,
    make_boxed_func,
    min_cut_rematerialization_partition,
    nop,
)
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.fx.graph_module import GraphModule

Seen = list[tuple[str, set[str]]]


def noting(seen: Seen, kind: str, back: Callable[[GraphModule], Any] = lambda gm: gm) -> Any:
    def compiler(gm: GraphModule, examples: Sequence[dc.Tensor]) -> Any:
        assert all(isinstance(x, dc.Tensor) for x in examples)
        seen.append((kind, {node.target.__name__ for node in gm.graph.nodes if node.op == "call_function"}))
        return back(gm)

    return compiler


@pytest.fixture
def net() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))


X = dc.linspace(-1, 1, 12).reshape(3, 4)


def check(net: nn.Module, backend: Any) -> None:
    """Values and gradients of a call are those of eager code."""
    eager, compiled = net(X), dc.compile(net, backend=backend)(X)
    assert dc.allclose(compiled, eager, atol=1e-6)
    parameters = list(net.parameters())
    for ours, theirs in zip(dc.autograd.grad(compiled.sum(), parameters), dc.autograd.grad(eager.sum(), parameters)):
        assert dc.allclose(ours, theirs, atol=1e-6)


def test_forward_backward_and_inference_go_to_their_compilers(net: nn.Module) -> None:
    seen: Seen = []
    backend = aot_autograd(
        fw_compiler=noting(seen, "forward", lambda gm: make_boxed_func(gm.forward)),
        bw_compiler=noting(seen, "backward"),
        inference_compiler=noting(seen, "inference"),
        partition_fn=min_cut_rematerialization_partition,
    )
    check(net, backend)
    assert [kind for kind, _ in seen] == ["forward", "backward"]
    with dc.no_grad():
        assert dc.allclose(dc.compile(net, backend=backend)(X), net(X), atol=1e-6)
    assert [kind for kind, _ in seen] == ["forward", "backward", "inference"]


@pytest.mark.parametrize("table", [core_aten_decompositions(), get_decompositions([dc.ops.aten.sigmoid.default])])
def test_a_table_writes_primitives_with_others(net: nn.Module, table: Any) -> None:
    seen: Seen = []
    check(net, aot_autograd(fw_compiler=noting(seen, "forward"), decompositions=table))
    names = set().union(*(names for _, names in seen))
    assert "exp" in names
    assert "sigmoid" not in names


def test_a_table_of_ones_own(net: nn.Module) -> None:
    seen: Seen = []

    def sigmoid(x: Any) -> Any:
        from compiler_core.ops import prims

        half = prims.full_like(x, 0.5)
        return prims.add(prims.mul(prims.tanh(prims.mul(x, half)), half), half)

    check(net, aot_autograd(fw_compiler=noting(seen, "forward"), decompositions={"sigmoid": sigmoid}))
    assert "tanh" in seen[0][1]


def test_a_backend_may_hand_its_graph_on(net: nn.Module) -> None:
    seen: Seen = []

    def backend(gm: GraphModule, examples: Sequence[dc.Tensor]) -> Any:
        how = {"bw_compiler": noting(seen, "backward"), "decompositions": core_aten_decompositions()}
        return aot_module_simplified(gm, examples, make_boxed_compiler(noting(seen, "forward")), **how)

    check(net, backend)
    assert [kind for kind, _ in seen] == ["forward", "backward"]
    check(net, aot_autograd(fw_compiler=nop))


def test_tables_are_those_of_the_blocks() -> None:
    assert set(core_aten_decompositions()) == {op for op in OPS.values() if isinstance(op.engines, Decomposed)}
    assert set(get_decompositions(["log1p", "addmm", OPS["expm1"], "add"])) == {
        OPS["log1p"], OPS["expm1"],
    }  # fmt: skip
    assert find_backend(aot_autograd(fw_compiler=nop)).name == "nop"


def test_what_is_not_taken_is_an_error() -> None:
    with pytest.raises(NotSupportedError, match="no partition of one's own"):
        aot_autograd(fw_compiler=nop, partition_fn=lambda *args: None)
    with pytest.raises(NotSupportedError, match="does not take colour"):
        aot_autograd(fw_compiler=nop, colour=1)
    with pytest.raises(NotSupportedError, match="is no primitive"):
        aot_autograd(fw_compiler=nop, decompositions={dc.ops.aten.addmm: lambda *args: None})
    with pytest.raises(ArgumentError, match="no compilation made"):
        aot_autograd(fw_compiler=nop)(dc.fx.symbolic_trace(nn.Linear(2, 2)), [])
    for partition in (default_partition, min_cut_rematerialization_partition):
        with pytest.raises(NotSupportedError, match="are not handed out"):
            partition()


def test_an_exported_program_is_written_with_what_a_table_says() -> None:
    program = dc.export.export(nn.Sigmoid(), (X,))
    table = get_decompositions([dc.ops.aten.sigmoid])
    for decomposed in (program.run_decompositions(table), program.run_decompositions()):
        names = {call.op.name for call in decomposed.dc_graph.calls}
        assert "exp" in names
        assert "sigmoid" not in names
        assert dc.allclose(decomposed.module()(X), X.sigmoid())
    assert {call.op.name for call in program.run_decompositions({}).dc_graph.calls} == {"sigmoid"}
    with pytest.raises(NotSupportedError, match="is no primitive"):
        program.run_decompositions({dc.ops.aten.addmm: None})
