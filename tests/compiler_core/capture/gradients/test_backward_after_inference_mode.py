"""backward() stays in the graph in a process that has used inference_mode, whose check of saved values stays on."""

from __future__ import annotations

from typing import Any

import distcompile as dc


def test_backward_is_in_the_graph_after_inference_mode() -> None:
    with dc.inference_mode():
        dc.ones(2)
    w = dc.ones(3, requires_grad=True)

    def step(x: Any) -> Any:
        loss = (x * w).sum()
        loss.backward()
        return loss

    dc.compile(step, fullgraph=True)(dc.arange(3.0))
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 1.0, 2.0]
