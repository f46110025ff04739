"""torch.distributed.algorithms._checkpoint: modules around modules, with their gradients and the names inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.distributed.algorithms._checkpoint import checkpoint_wrapper as ours

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def blocks(lib: Any) -> Any:
    net = lib.nn.Sequential(
        lib.nn.Linear(3, 4), lib.nn.Sequential(lib.nn.Linear(4, 4), lib.nn.Tanh()), lib.nn.Linear(4, 1)
    )
    with lib.no_grad():
        for i, parameter in enumerate(net.parameters()):
            parameter.copy_(lib.tensor(np.random.default_rng(i).standard_normal(tuple(parameter.shape)).tolist()))
    return net


@pytest.mark.parametrize("impl", ["REENTRANT", "NO_REENTRANT"])
def test_wrapped_modules_compute_torchs_gradients_under_torchs_names(impl: str) -> None:
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as theirs

    found = []
    for lib, made in ((dc, ours), (torch, theirs)):
        net = blocks(lib)
        made.apply_activation_checkpointing(
            net, lambda m: made.checkpoint_wrapper(m, made.CheckpointImpl[impl]),  # noqa: B023
            lambda m: isinstance(m, lib.nn.Sequential),  # noqa: B023
        )  # fmt: skip
        x = lib.tensor(np.random.default_rng(9).standard_normal((5, 3)).tolist(), requires_grad=True)
        net(x).sum().backward()
        assert type(net[1]).__name__ == "CheckpointWrapper"
        assert net[1][1].__class__.__name__ == "Tanh"
        found.append({name: p.grad.numpy() for name, p in net.named_parameters()} | {"x": x.grad.numpy()})
        state = net.state_dict()
        assert list(state) == ["0.weight", "0.bias", "1.0.weight", "1.0.bias", "2.weight", "2.bias"]
        net.load_state_dict(state)
        net[1].load_state_dict(net[1].state_dict())
    mine, its = found
    assert list(mine) == list(its)
    for ours_, theirs_ in zip(mine.values(), its.values()):
        np.testing.assert_allclose(ours_, theirs_, rtol=1e-5, atol=1e-6)
