"""Passes: one golden text a rule, and on random graphs: valid before and after, and equal on random arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pass_cases import CASES
from random_small_graphs import random_graph, random_inputs

from compiler_core.config import config
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Node
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, Canonicalise, Dce, Pass, run_passes
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify

NEGATION = "graph g(%x: f32[2, 3] input 'x') {\n  %a: f32[2, 3] = neg(%x)\n  return %a\n}\n"


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, golden: Callable[[str, str], None]) -> None:
    passes, text = CASES[name]
    before = verify(parse_graph(text))
    with config.patch(verify=True):
        after = run_passes(before, passes)
    golden(f"passes/{name}.txt", f"{print_graph(before)}\n// becomes\n\n{print_graph(after)}")
    inputs = random_inputs(before, seed=1)
    for got, want in zip(interpret(after, inputs), interpret(before, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("passes", [SIMPLIFY, SIMPLIFY_JOINT], ids=["simplify", "simplify_joint"])
@pytest.mark.parametrize("seed", range(150))
def test_random_graphs_mean_the_same(seed: int, passes: tuple[Pass, ...]) -> None:
    graph = verify(random_graph(seed))
    with config.patch(verify=True):
        after = run_passes(graph, passes)
    inputs = random_inputs(graph, seed)
    with np.errstate(all="ignore"):
        wanted, gotten = interpret(graph, inputs), interpret(after, inputs)
    for got, want in zip(gotten, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}\n{graph}\n{after}")


@pytest.mark.parametrize("seed", range(40))
def test_simplifying_twice_changes_nothing(seed: int) -> None:
    once = run_passes(random_graph(seed), SIMPLIFY_JOINT)
    assert print_graph(run_passes(once, SIMPLIFY_JOINT)) == print_graph(once)


def test_nothing_to_do_is_the_same_graph() -> None:
    graph = parse_graph(NEGATION)
    assert Dce().apply(graph) is graph
    assert Canonicalise().apply(graph).calls == graph.calls


def test_rules_that_chase_each_other_are_an_error() -> None:
    def again(rewriter: Rewriter, call: Call) -> Node | None:
        return rewriter.call("neg", call.args[0])

    with pytest.raises(GraphError, match="does not end"):
        Rewriter(parse_graph(NEGATION), again).run()


def test_verify_knob_finds_the_guilty_pass() -> None:
    class Breaks:
        def apply(self, graph: object) -> object:
            return parse_graph(NEGATION.replace("%a: f32[2, 3]", "%a: f32[3, 2]"))

    with config.patch(verify=True), pytest.raises(GraphError, match="not valid"):
        run_passes(parse_graph(NEGATION), (Breaks(),))
