"""Blocks that set modes of the thread, around a graph break: modes in the block, and after it, are those of this call.

A block remembers what it found; the segment after the break must not bring back what another call's block found.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture import compile
from compiler_core.ops.casting import casting
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.making.random_state import current_shard, set_shard
from compiler_core.tensor.tensor import Tensor
from distcompile import nn

pytestmark = pytest.mark.usefixtures("counter_draws")

Block = Callable[[], AbstractContextManager[Any]]
OUTER: dict[str, list[Block]] = {
    "no_grad": [nullcontext, dc.no_grad, dc.enable_grad],
    "enable_grad": [nullcontext, dc.no_grad],
    "autocast": [nullcontext, lambda: dc.autocast("cpu"), lambda: dc.autocast("cpu", enabled=False)],
    "set_shard": [nullcontext, lambda: set_shard(3), lambda: set_shard(1)],
}
INNER: dict[str, Block] = {
    "no_grad": dc.no_grad,
    "enable_grad": dc.enable_grad,
    "autocast": lambda: dc.autocast("cpu", dtype=dc.bfloat16),
    "set_shard": lambda: set_shard(3),
}


def modes() -> tuple[object, ...]:
    cast = dc.is_autocast_enabled("cpu"), dc.get_autocast_dtype("cpu"), casting.depth
    return dc.is_grad_enabled(), *cast, current_shard()


@pytest.mark.parametrize("backend", ["eager", "codegen"])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", sorted(INNER))
def test_what_a_block_brings_back_after_a_break(name: str, order: int, backend: str) -> None:
    weight, block = dc.ones(4, 4).requires_grad_(), INNER[name]

    def function(x: Tensor) -> Tensor:
        with block():
            y = x @ weight
            print(end="")
            y = nn.functional.dropout(y @ weight, 0.5, training=True)
        return y.float() @ weight

    run = compile(function, backend=backend)
    for _ in range(2):
        for outer in OUTER[name][::order]:
            results = []
            for called in (function, run):
                manual_seed(5)
                with outer():
                    before = modes()
                    results.append(called(dc.ones(2, 4)))
                    assert modes() == before
            expected, found = results
            assert (found.dtype, found.requires_grad) == (expected.dtype, expected.requires_grad)
            np.testing.assert_allclose(found.detach().float().numpy(), expected.detach().float().numpy(), rtol=1e-2)
    assert run.explain().breaks
