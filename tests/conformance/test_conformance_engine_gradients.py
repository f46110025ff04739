"""The gradient of each op through each engine that trains: what the op's vjp gives, NaN and infinity included.

In: the cases of the registry, each as a graph of its operands and a cotangent, whose outputs are what the vjp makes of
them; that is decomposed for the engine, and cut, as a backward is. What the engine refuses runs beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import Case, check_each, draw
from test_conformance_engines import CASES, assert_equal, engine

from compiler_core import dtype as dt
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.registry import NotDifferentiable, bind, meta_of, use_trace
from tests.sharing import every

ENGINES = ("onnxrt", "openxla", pytest.param("openvino", marks=pytest.mark.long))
DTYPES = (dt.float32, dt.float64)
LEFT_OUT = {("openxla", "div-0-f32-special")}  # of numbers below 1.2e-38, which XLA takes for 0 on the CPU


def of_op(case: Case) -> bool:
    return case.dtype in DTYPES and case.has_cotangents() and case.variant in ("plain", "special", "single", "empty")


TAKEN = [case for case in CASES if of_op(case)]
BY_OP = [tuple(c for c in TAKEN if c.op.name == name) for name in dict.fromkeys(c.op.name for c in TAKEN)]


def gradients_of(case: Case) -> tuple[Graph | None, list[int]]:
    """The graph of the operands' cotangents, and of which operands they are; None: there are none."""
    builder = GraphBuilder(case.name.replace("-", "_"))
    args = [builder.placeholder(f"x{k}", meta_of(array), role="input") for k, array in enumerate(case.arrays)]
    g = builder.placeholder("g", case.meta(), role="tangent")
    with use_trace(builder):
        found = vjp_of(lambda *given: bind(case.op, *given, **case.sample.attrs), g, *args)
        kept = [(k, value) for k, value in enumerate(found) if isinstance(value, Node)]
    if not kept:
        return None, []
    return builder.build([value for _, value in kept]), [k for k, _ in kept]


def check(name: str, case: Case) -> None:
    rng, meta = np.random.default_rng(1), case.meta()
    g = draw(rng, meta.shape, meta.dtype, -1.0, 1.0)
    graph, places = gradients_of(case)
    if graph is None:
        return
    assert not isinstance(case.op.vjp, NotDifferentiable)
    with np.errstate(all="ignore"):
        expected: Any = case.op.vjp(g, case.eager(), *case.arrays, **case.sample.attrs)
        (executable,) = engine(name).compile([graph], case.name)
        found = executable([*case.arrays, g])
    for place, result in zip(places, found, strict=True):
        assert_equal(result, np.asarray(expected[place]))


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("cases", every(BY_OP, 4), ids=lambda cases: cases[0].op.name)
@pytest.mark.parametrize("name", ENGINES)
def test_a_gradient_is_the_vjps(name: str, cases: tuple[Case, ...]) -> None:
    engine(name)
    check_each(lambda case: check(name, case), [case for case in cases if (name, case.name) not in LEFT_OUT])
