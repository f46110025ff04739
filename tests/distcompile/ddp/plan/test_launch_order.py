"""The order in which buckets leave when the next forward waits for them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from compiler_core import dtype as dtypes
from compiler_core.graph.ir import GraphBuilder
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from distcompile.ddp.plan.bucket_plan import Caps, ReadyParameter, make_plan
from distcompile.ddp.plan.order import by_due_date, first_use, launch_order, ready_shares


def test_first_use_is_where_a_parameter_is_read() -> None:
    builder = GraphBuilder("forward")
    x, a, b, _ = (builder.placeholder(n, TensorMeta((2, 2), dtypes.float32)) for n in ("x", "a", "b", "unused"))
    with use_trace(builder):
        h = prims.matmul(x, b)
        y = prims.matmul(prims.tanh(h), a)
    graph = builder.build([y])
    use = first_use(graph, {"a": "layer.a", "b": "layer.b", "unused": "spare"})
    assert use["layer.b"] < use["layer.a"] < use["spare"]
    places = {"h": graph.nodes.index(h), "y": graph.nodes.index(y)}
    in_turn = [ReadyParameter(name, (2, 2), dtypes.float32, place, place) for name, place in places.items()]
    shares = ready_shares(graph, in_turn)
    assert 0 < shares["h"] < shares["y"] == 1.0
    assert ready_shares(graph, in_turn[::-1]) == {"y": 1.0, "h": 1.0}, "one needs the other"


def test_a_convolution_weighs_what_it_computes() -> None:
    """2 x 4 x 8 x 8 results of 3 x 3 x 4 products each, beside as many elements that are added."""
    builder = GraphBuilder("backward")
    x = builder.placeholder("x", TensorMeta((2, 4, 8, 8), dtypes.float32))
    w = builder.placeholder("w", TensorMeta((4, 4, 3, 3), dtypes.float32))
    with use_trace(builder):
        h = prims.convolution(x, w, (1, 1), (1, 1), (1, 1), (1, 1))
        y = prims.add(h, h)
    graph = builder.build([y])
    (share,) = ready_shares(graph, [ReadyParameter("h", h.shape, h.dtype, 0, graph.nodes.index(h))]).values()
    assert share == pytest.approx((36 / 16) / (36 / 16 + 1))


def test_what_is_needed_first_overtakes_what_is_not_sent_yet() -> None:
    ready = [ReadyParameter(f"p{k}", (1000,), dtypes.float32, k) for k in range(6)]
    plan = make_plan(ready, Caps(1, 1), order="")
    share = {f"p{k}": (k + 1) / 6 for k in range(6)}
    order = launch_order(plan, share, {f"p{k}": 6 - k for k in range(6)})
    assert sorted(order) == list(range(6))
    assert order[0] == 0  # nothing else is ready
    assert order.index(5) < 5  # the first layer's bucket, ready last, is not sent last


def test_equal_needs_leave_as_they_become_ready() -> None:
    assert by_due_date([0.3, 0.1, 0.2], [1, 1, 1], [5, 5, 5]) == (1, 0, 2)
    assert by_due_date([], [], []) == ()


@pytest.mark.parametrize("seed", range(30))
def test_no_order_is_less_late_where_all_are_ready(seed: int) -> None:
    """Jackson's rule: with equal release times, by due date minimises the greatest lateness."""
    rng = np.random.default_rng(seed)
    cost, due = rng.uniform(0.1, 1, 6), rng.uniform(0, 3, 6)

    def lateness(order: tuple[int, ...]) -> float:
        return float(max(np.cumsum(cost[list(order)]) - due[list(order)]))

    best = min(lateness(order) for order in permutations(range(6)))
    assert lateness(by_due_date([0.0] * 6, list(cost), list(due))) == pytest.approx(best)
