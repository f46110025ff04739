"""Steps of training with collectives compile under fullgraph as one graph, and leave what eager code leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from parallel_training import TRAININGS, Made

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import distributed as dist


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("make", TRAININGS, ids=lambda make: make.__name__)
def test_a_step_is_one_graph_and_leaves_what_eager_code_leaves(
    make: Callable[[], Made], ranks: int, backend: str
) -> None:
    def body(world: Communicator) -> None:
        with dist.use_communicator(world):
            plain, eager = make()
            net, step = make()
            compiled = dc.compile(step, fullgraph=True, backend=backend)
            for number in range(3):
                batch = np.random.default_rng(10 * number + world.rank).standard_normal((8, 6)).astype(np.float32)
                expected, got = eager(dc.from_numpy(batch.copy())), compiled(dc.from_numpy(batch.copy()))
                np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
            for wanted, found in zip(plain.parameters(), net.parameters(), strict=True):
                np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-3, atol=1e-4)
            for name, wanted in plain.named_buffers():
                np.testing.assert_allclose(dict(net.named_buffers())[name].numpy(), wanted.numpy(), rtol=1e-4)
            assert len(compiled.explain().entries) == 1

    run_ranks(ranks, body, timeout_s=90)
